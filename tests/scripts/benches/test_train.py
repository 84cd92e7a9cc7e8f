"""The training benchmark measures what it names; how fast things are is not tested."""

import inspect
import json
import math
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import refused
from stable_baselines3.common.monitor import Monitor
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

from geonpg.agents import ACKTR
from geonpg.configs import METHODS
from geonpg.scripts import bench
from geonpg.scripts.benches import rltools_ppo
from geonpg.scripts.benches import train as bench_train
from geonpg.scripts.benches.breakdown import PHASES, Segment, Watch
from geonpg.scripts.benches.contest import Contestant, Speeds
from geonpg.scripts.benches.findings import flat
from geonpg.scripts.benches.train import TrainFindings, TrainingSpeeds
from geonpg.scripts.runs.building import make_agent, make_env

ID = "HalfCheetah-v4"
ALGORITHMS = bench_train.algorithms  # as it is outside of tests
SHARES = (*PHASES, "other", "physics")
SEGMENT = Segment(1000, 10, 2.0, dict.fromkeys(PHASES, 0.5), Watch(10, 0.4, 0.4))


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_train, "ENV_IDS", (ID,))
    monkeypatch.setattr(bench_train, "ROUNDS", 2)
    monkeypatch.setattr(bench_train, "UPDATES", 1)
    monkeypatch.setattr(bench_train, "LARGE_UPDATES", 1)
    monkeypatch.setattr(bench_train, "BREAKDOWN_UPDATES", 1)
    monkeypatch.setattr(bench_train, "SB3_STEPS", 20)
    monkeypatch.setattr(bench_train, "LIMIT_STEPS", 5)

    def small() -> dict[str, bench_train.Algorithm]:
        """PPO and TRPO would collect 2048 steps whatever they are asked for."""
        return {
            name: make if name == "sb3_a2c" else partial(make, n_steps=20, batch_size=20)
            for name, make in ALGORITHMS().items()
        }

    monkeypatch.setattr(bench_train, "algorithms", small)
    monkeypatch.setattr(rltools_ppo, "start_all", lambda env_ids, stack: {})


@pytest.fixture
def agent() -> Iterator[ACKTR]:
    with ExitStack() as stack:
        yield bench_train.our_agent(ID, bench_train.settings_of(ID), stack)


def names(*rivals: str) -> set[str]:
    found = {f"{method}_over_{rival}" for method in METHODS for rival in ("limit", *rivals)} | {"geo_over_ng"}
    found |= {"large_geo_over_limit", "large_geo_over_geo"}
    found |= {f"{name}_steps_per_second" for name in ("limit", *METHODS, "large_geo", *rivals)}
    found |= {f"{name}_steps_per_cpu_second" for name in ("limit", *METHODS, "large_geo", *rivals)}
    found |= {f"geo_over_{rival}_per_cpu_second" for rival in rivals}
    found |= {f"share_{name}" for name in SHARES} | {"update_ms", "serial_us"}
    threads = {f"train/{name}_threads" for name in rivals if name != "rltools"}
    return {f"train/{ID}/{name}" for name in found} | threads


def test_names(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sb3_contrib")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    threads = torch.get_num_threads()
    assert bench.main(["train", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert set(results) == names("sb3_ppo", "sb3_a2c", "sb3_trpo")
    assert all(math.isfinite(value) for value in results.values())
    assert all(value > 0 for name, value in results.items() if not name.endswith("share_other"))
    assert torch.get_num_threads() == threads
    assert list(tmp_path.glob("SB3*")) == [], "loggers of SB3 leave folders"


def test_environments_of_others_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    said = f"geonpg bench: 'CartPole-v1' is not an environment that we step ourselves, such as {ID}\n"
    assert refused(capsys, bench.main, "train", "--envs", "CartPole-v1") == said


def test_without_sb3_contrib(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    results = flat(bench_train.measure().numbers())
    said = capsys.readouterr().err.splitlines()
    assert [bench_train.INSTALL in line for line in said] == [True]
    assert set(results) == names("sb3_ppo", "sb3_a2c")


def test_rltools_takes_part_where_it_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    idle = Contestant(lambda: None, lambda: 4096)
    monkeypatch.setattr(rltools_ppo, "start_all", lambda env_ids, stack: dict.fromkeys(env_ids, idle))
    monkeypatch.setattr(bench_train, "algorithms", dict)
    results = flat(bench_train.measure().numbers())
    assert set(results) == names("rltools")
    assert {f"train/{ID}/geo_over_rltools", f"train/{ID}/geo_over_rltools_per_cpu_second"} < set(results)


def test_ratios_are_medians_of_ratios_within_a_round() -> None:
    """The second round is slow for everyone; ratios of medians would be others."""
    speeds = {"ng": [10.0, 1.0, 8.0], "mid": [1.0, 1.0, 1.0], "geo": [5.0, 3.0, 8.0], "geof": [2.0, 2.0, 2.0]}
    speeds |= {"limit": [20.0, 4.0, 10.0], "sb3_ppo": [1.0, 0.5, 4.0], "large_geo": [10.0, 3.0, 2.0]}
    by_cpu = {**speeds, "geo": [3.0, 0.5, 4.0]}
    found = TrainingSpeeds(Speeds(speeds, by_cpu), SEGMENT)
    assert found.ratio("geo", "ng") == 1.0  # of 0.5, 3, 1
    assert found.ratio("geo", "limit") == 0.75  # of 0.25, 0.75, 0.8
    assert found.ratio("ng", "sb3_ppo") == 2.0  # of 10, 2, 2
    assert found.cpu_ratios() == {"sb3_ppo": 1.0}  # of 3, 1, 1
    assert found.numbers()["large_geo_over_limit"] == 0.5  # of 0.5, 0.75, 0.2
    assert len([name for name in found.numbers() if "_over_" in name]) == 4 * 2 + 1 + 1 + 2


def test_the_table_has_the_fastest_first_and_shows_where_the_time_goes() -> None:
    rounds = {
        "limit": [9.0],
        "sb3_ppo": [1.0],
        "ng": [8.0],
        "mid": [4.0],
        "geo": [5.0],
        "geof": [6.0],
        "large_geo": [7],
    }
    by_cpu = {name: [values[0] / 2] for name, values in rounds.items()}
    speeds = TrainingSpeeds(Speeds(rounds, by_cpu), SEGMENT)
    lines = TrainFindings({"sb3_ppo": 2}, {ID: speeds}).table().splitlines()
    assert lines[2].endswith("sb3_ppo 2")
    assert lines[4] == "large_geo: preset large, 1 updates at a time"
    assert lines[6].split() == [ID, "steps/s", "/CPU-s", "x", "limit", "x", "sb3_ppo"]
    assert [line.split()[0] for line in lines[7:14]] == ["limit", "ng", "large_geo", "geof", "geo", "mid", "sb3_ppo"]
    assert lines[8].split() == ["ng", "8", "4", "0.889", "8.000"]
    assert lines[9].split() == ["large_geo", "7", "4", "0.778", "7.000"]
    assert lines[-4:-2] == ["geo over ng 0.625", "geo by CPU-second over sb3_ppo 5.000"]
    assert lines[-2].startswith("geo's time: rollout 0.250 (with physics 0.200), values 0.250")
    assert lines[-1] == "geo's iteration: update 150.0 ms, serial 1600.0 us per step"


def test_segments_are_one_training(agent: ACKTR) -> None:
    """In pieces it is bit for bit what `learn` does at once, and whole rollouts are counted."""
    settings = bench_train.settings_of(ID)
    rollout = settings.n_envs * settings.n_steps
    assert [bench_train.train_more(agent, steps) for steps in (rollout, rollout + 1)] == [rollout, 2 * rollout]
    env = make_env(settings, ID, settings.n_envs, bench_train.SEED)
    whole = make_agent(settings, env, bench_train.SEED).learn(3 * rollout)
    env.close()
    for ours, theirs in zip(agent.policy.parameters(), whole.policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_the_others_are_as_their_libraries_make_them() -> None:
    """One environment with a Monitor, and everything but the seed by default."""
    with ExitStack() as stack:
        for make in ALGORITHMS().values():
            other = bench_train.their_agent(make, ID, stack)
            defaults = {name: p.default for name, p in inspect.signature(type(other)).parameters.items()}
            assert isinstance(other, OnPolicyAlgorithm)
            assert (other.n_steps, other.gamma) == (defaults["n_steps"], defaults["gamma"])
            env = other.get_env()
            assert env is not None
            assert env.env_is_wrapped(Monitor) == [True]


def test_the_faster_number_of_threads_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def learn(_: Any, steps: int) -> int:
        seen.append(torch.get_num_threads())
        time.sleep(0.02 if seen[-1] == 2 else 0.2)
        return steps

    monkeypatch.setattr(bench_train, "train_more", learn)
    make = bench_train.algorithms()["sb3_a2c"]
    with bench_train.keeping_threads():
        assert bench_train.best_threads(make, {1, 2}, "test") == 2
    assert sorted(set(seen)) == [1, 2]
    assert bench_train.best_threads(make, {1}, "test") == 1

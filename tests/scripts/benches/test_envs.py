"""The environment benchmark measures what it names; how fast things are is not tested."""

import json
import sys
from collections.abc import Iterator

import numpy as np
import pytest
from commands import refused

from geonpg.envs import MujocoVecEnv
from geonpg.scripts import bench
from geonpg.scripts.benches import envs as bench_envs
from geonpg.scripts.benches import rollouts as bench_rollouts
from geonpg.scripts.benches.envs import EnvsFindings
from geonpg.scripts.benches.findings import flat
from geonpg.scripts.benches.limit import draw_actions, native

PYTHON = ("gymnasium_sync", "sb3_dummy")  # those with processes take seconds to start


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_envs, "ENV_IDS", ("HalfCheetah-v4",))
    monkeypatch.setattr(bench_envs, "N_ENVS", 3)
    monkeypatch.setattr(bench_envs, "STEPS", 5)
    monkeypatch.setattr(bench_envs, "ROUNDS", 1)
    monkeypatch.setattr(bench_envs, "ROLLOUTS", 2)
    monkeypatch.setattr(bench_rollouts, "UPDATES", 1)
    monkeypatch.setattr(bench_envs, "PYTHON", {name: bench_envs.PYTHON[name] for name in PYTHON})


@pytest.fixture
def walker() -> Iterator[MujocoVecEnv]:
    env = native("Walker2d-v4", bench_envs.N_ENVS)
    yield env
    env.close()


def names(speeds: tuple[str, ...], ratios: tuple[str, ...]) -> set[str]:
    everyone = ("ours", "limit", "rollout", "rollout_limit", *speeds)
    found = [f"{name}_steps_per_second" for name in everyone] + [f"ours_over_{name}" for name in ratios]
    return {f"envs/HalfCheetah-v4/{name}" for name in (*found, "rollout_over_limit")}


def test_other_environments_may_be_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert bench.main(["envs", "--envs", "Hopper-v5,Swimmer-v4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert {name.split("/")[1] for name in found} == {"Hopper-v5", "Swimmer-v4"}
    for name in ("CartPole-v1", "Rocket-v4", ""):
        said = f"geonpg bench: '{name}' is not an environment that we step ourselves, such as HalfCheetah-v4\n"
        assert refused(capsys, bench.main, "envs", "--envs", f"Hopper-v5,{name}") == said


def test_names_without_envpool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert bench.main(["envs", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert set(results) == names(PYTHON, ("limit", "best_python"))
    assert all(value > 0 for value in results.values())


def test_the_table_has_the_fastest_first() -> None:
    speeds = {"ours": 800.0, "limit": 1000.0, "rollout": 540.0, "rollout_limit": 600.0, **dict.fromkeys(PYTHON, 100.0)}
    printed = EnvsFindings({"HalfCheetah-v4": speeds}).table()
    rows = [line.split() for line in printed.splitlines()[5:11]]
    assert [row[0] for row in rows] == ["limit", "ours", "rollout_limit", "rollout", *PYTHON]
    assert rows[3] == ["rollout", "540", "0.900"], "over the limit of the same states"
    assert bench_envs.INSTALL in printed
    assert printed.endswith("ours over limit 0.800, best_python 8.000\nrollout over limit 0.900")
    assert bench_envs.INSTALL not in EnvsFindings({"HalfCheetah-v4": {**speeds, "envpool": 500.0}}).table()


def test_envpool_takes_part_where_installed() -> None:
    pytest.importorskip("envpool")
    results = flat(bench_envs.measure().numbers())
    assert set(results) == names(("envpool", *PYTHON), ("limit", "best_python", "envpool"))
    assert all(value > 0 for value in results.values())


def test_gymnasium_runs_the_same_episodes(walker: MujocoVecEnv) -> None:
    """So speeds are of the same physics, across ends of episodes too."""
    actions = draw_actions(walker, 60)
    ours = [walker.step(action)[0] for action in actions]
    for make in bench_envs.PYTHON.values():
        env = make("Walker2d-v4")
        bench_envs.reset_seeded(env)
        np.testing.assert_array_equal([env.step(action)[0] for action in actions], ours)
        env.close()

"""The environment benchmark measures what it names; how fast things are is not tested."""

import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import mujoco
import numpy as np
import pytest

from geonpg.envs import MujocoVecEnv
from geonpg.scripts import bench
from geonpg.scripts.benches import envs as bench_envs

PYTHON = ("gymnasium_sync", "sb3_dummy")  # those with processes take seconds to start


@pytest.fixture(autouse=True)
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_envs, "ENVS", ("HalfCheetah-v4",))
    monkeypatch.setattr(bench_envs, "N_ENVS", 3)
    monkeypatch.setattr(bench_envs, "STEPS", 5)
    monkeypatch.setattr(bench_envs, "ROUNDS", 1)
    monkeypatch.setattr(bench_envs, "PYTHON", {name: bench_envs.PYTHON[name] for name in PYTHON})


@pytest.fixture
def walker() -> Iterator[MujocoVecEnv]:
    env = bench_envs.native("Walker2d-v4")
    yield env
    env.close()


def names(speeds: tuple[str, ...], ratios: tuple[str, ...]) -> set[str]:
    found = [f"{name}_steps_per_second" for name in speeds] + [f"ours_over_{name}" for name in ratios]
    return {f"envs/HalfCheetah-v4/{name}" for name in found}


def test_names_and_table_without_envpool(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    assert bench.main(["envs", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert set(results) == names(("ours", "limit", *PYTHON), ("limit", "best_python"))
    assert all(value > 0 for value in results.values())
    printed = bench_envs.table(results)
    assert bench_envs.INSTALL in printed
    assert all(name in printed for name in ("HalfCheetah-v4", "ours over limit", *PYTHON))


def test_envpool_takes_part_where_installed() -> None:
    pytest.importorskip("envpool")
    results = bench_envs.measure()
    assert set(results) == names(("ours", "limit", "envpool", *PYTHON), ("limit", "best_python", "envpool"))
    assert all(value > 0 for value in results.values())
    assert bench_envs.INSTALL not in bench_envs.table(results)


def replayed(env: MujocoVecEnv, recording: bench_envs.Recording) -> bench_envs.Array:
    simulations = [mujoco.MjData(env.reference.model) for _ in range(2)]
    with ThreadPoolExecutor(2) as threads:
        return bench_envs.replay(env, recording, simulations, threads)


@pytest.mark.parametrize("steps", range(20, 50))
def test_a_replay_ends_where_the_run_did(monkeypatch: pytest.MonkeyPatch, walker: MujocoVecEnv, steps: int) -> None:
    """Whether episodes end on the way, at the last step or not at all."""
    monkeypatch.setattr(bench_envs, "STEPS", steps)
    actions = bench_envs.draw_actions(walker)
    recording = bench_envs.record(walker, actions)
    assert [sum(len(a) for _, a in mine) for mine in recording.episodes] == [steps] * bench_envs.N_ENVS
    bench_envs.check(replayed(walker, recording), recording)


def test_an_altered_replay_is_noticed(walker: MujocoVecEnv) -> None:
    recording = bench_envs.record(walker, bench_envs.draw_actions(walker))
    state, actions = recording.episodes[1][0]
    altered = state.copy()
    altered[1] += 1e-9  # the torso's position; the first entry is the time, on which no qpos depends
    episodes = [recording.episodes[0], [(altered, actions)], recording.episodes[2]]
    changed = replace(recording, episodes=episodes)
    with pytest.raises(RuntimeError, match=r"environments \[1\]"):
        bench_envs.check(replayed(walker, changed), recording)


def test_gymnasium_runs_the_same_episodes(monkeypatch: pytest.MonkeyPatch, walker: MujocoVecEnv) -> None:
    """So speeds are of the same physics, across ends of episodes too."""
    monkeypatch.setattr(bench_envs, "STEPS", 60)
    actions = bench_envs.draw_actions(walker)
    ours = [walker.step(action)[0] for action in actions]
    for make in bench_envs.PYTHON.values():
        env = make("Walker2d-v4")
        bench_envs.reset_seeded(env)
        np.testing.assert_array_equal([env.step(action)[0] for action in actions], ours)
        env.close()

"""Where the time goes: phases, the kernel, and what is left."""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from geonpg.agents import ACKTR
from geonpg.envs.physics import Simulations
from geonpg.scripts.benches.breakdown import PHASES, Segment, Watch, breakdown, watching_physics
from geonpg.scripts.benches.ours import native_env, our_agent, settings_of, train_more

SETTINGS = settings_of("HalfCheetah-v4", n_envs=2, n_steps=8)
KERNEL = Watch(calls=10, seconds=4.0, cpu_seconds=3.0)


@pytest.fixture
def agent() -> Iterator[ACKTR]:
    with ExitStack() as stack:
        yield our_agent("HalfCheetah-v4", SETTINGS, stack)


def test_shares_add_up() -> None:
    phases = {"rollout": 5.0, "values": 0.5, "policy": 2.0, "critic": 1.5}
    segment = Segment(1000, 10, 10.0, phases, KERNEL)
    assert tuple(segment.shares) == (*PHASES, "other", "physics")
    assert segment.shares["physics"] == 0.4
    assert segment.shares["other"] == pytest.approx(0.1)
    assert sum(segment.shares.values()) - segment.shares["physics"] == pytest.approx(1)
    assert not segment.is_overlapping


def test_a_critic_beside_the_rollout_counts_twice_and_leaves_no_negative_rest() -> None:
    segment = Segment(1000, 10, 8.0, {"rollout": 5.0, "values": 0.5, "policy": 2.0, "critic": 1.5}, KERNEL)
    assert segment.is_overlapping
    assert segment.shares["other"] == 0


def test_parts_of_an_iteration() -> None:
    segment = Segment(1000, 10, 10.0, {"rollout": 5.0, "values": 0.5, "policy": 2.0, "critic": 1.5}, KERNEL)
    assert segment.update_ms == pytest.approx(500)  # 5 seconds in 10 updates
    assert segment.serial_us == pytest.approx(6000)  # 6 seconds in 1000 steps


def test_physics_is_what_the_kernel_takes(agent: ACKTR, monkeypatch: pytest.MonkeyPatch) -> None:
    run, pause = Simulations._run, 0.05

    def slow(simulations: Simulations, *arguments: Any) -> None:
        time.sleep(pause)
        run(simulations, *arguments)

    monkeypatch.setattr(Simulations, "_run", slow)
    with watching_physics(native_env(agent)) as watch:
        train_more(agent, 1)
    calls = watch.calls
    assert calls > 0
    assert watch.seconds >= pause * calls
    assert 0 < watch.cpu_seconds < watch.seconds, "to sleep takes no CPU time"
    train_more(agent, 1)
    assert watch.calls == calls, "nobody watches any more"


def test_a_segment_is_measured(agent: ACKTR) -> None:
    train_more(agent, 1)
    segment = breakdown(agent, SETTINGS, 2)
    assert (segment.steps, segment.updates) == (32, 2)
    assert set(segment.phases) == set(PHASES)
    assert 0 < segment.kernel.seconds < segment.phases["rollout"] < segment.seconds

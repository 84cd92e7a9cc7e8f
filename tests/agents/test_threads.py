"""Small networks learn with one thread of torch's, and leave torch as it was."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.envs import FakeImageEnv

from geonpg.agents import ACKTR
from geonpg.configs import Settings
from geonpg.envs import make_vec
from geonpg.scripts.runs.building import make_agent

MANY = 2


@pytest.fixture(autouse=True)
def torch_of_a_user() -> Iterator[None]:
    """A process that has not set torch's threads, on a machine with several cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(MANY)
    yield
    torch.set_num_threads(before)


class Look(BaseCallback):
    """Sees torch's threads inside `learn`, and may end it, by an error or before an update."""

    def __init__(self, error: type[Exception] | None = None, once: bool = False) -> None:
        super().__init__()
        self.error, self.once, self.seen = error, once, set[int]()

    def _on_step(self) -> bool:
        self.seen.add(torch.get_num_threads())
        if self.error is not None:
            raise self.error
        return not self.once


def threads_seen(**keywords: Any) -> set[int]:
    """By an agent that learns with these arguments."""
    look = Look()
    ACKTR("MlpPolicy", make_vec("InvertedPendulum-v4", 2), device="cpu", n_steps=4, **keywords).learn(8, look)
    assert torch.get_num_threads() == MANY
    return look.seen


def test_C17_small_updates_take_one_thread() -> None:
    assert threads_seen() == {1}


def test_C17_large_updates_keep_the_threads_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geonpg.agents.threads.SMALL", 8)
    assert threads_seen() == {MANY}


@pytest.mark.parametrize("number", [1, 2])
def test_C17_who_names_a_number_gets_it(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("geonpg.agents.threads.SMALL", 8)
    assert threads_seen(torch_threads=number) == {number}
    with pytest.raises(ValueError, match=r"^torch_threads must be at least 1, or None$"):
        threads_seen(torch_threads=0)


def test_C17_an_error_leaves_torch_as_it_was() -> None:
    with pytest.raises(KeyError):
        ACKTR("MlpPolicy", make_vec("InvertedPendulum-v4", 2), n_steps=4).learn(8, Look(KeyError))
    assert torch.get_num_threads() == MANY


def test_C17_images_keep_the_threads_of_torch() -> None:
    """A convolution's work is many times its weights."""
    look = Look(once=True)
    env = FakeImageEnv(screen_height=40, screen_width=40, n_channels=1, discrete=True)
    ACKTR(
        "CnnPolicy", env, n_steps=2, device="cpu", policy_kwargs={"features_extractor_kwargs": {"features_dim": 8}}
    ).learn(2, look)
    assert look.seen == {MANY}


@pytest.mark.parametrize("number", [1, 2])
def test_C17_the_commands_own_setting_holds(number: int) -> None:
    settings, look = Settings(n_envs=2, n_steps=4, torch_threads=number), Look()
    make_agent(settings, make_vec("InvertedPendulum-v4", 2), seed=0).learn(8, look)
    assert look.seen == {number}


def test_C17_one_thread_gives_the_bits_of_one_thread() -> None:
    """Chosen by the class or set before, as the commands do."""
    weights = []
    for number in (1, MANY):
        torch.set_num_threads(1)  # decides the last bits of the first weights
        agent = ACKTR("MlpPolicy", make_vec("InvertedPendulum-v4", 8, seed=0), n_steps=64, device="cpu", seed=0)
        torch.set_num_threads(number)
        agent.learn(1024)
        weights.append(np.concatenate([p.detach().numpy().ravel() for p in agent.policy.parameters()]))
    assert np.array_equal(*weights)

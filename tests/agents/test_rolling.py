"""Whole rollouts in one call against the loop over single steps, to the last bit; and who takes which path."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch
from rollout_paths import assert_same
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.callbacks import (
    BaseCallback,
    CallbackList,
    CheckpointCallback,
    ConvertCallback,
    EveryNTimesteps,
    ProgressBarCallback,
)
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv, VecMonitor, VecNormalize
from torch import nn

from geonpg.agents import ACKTR
from geonpg.agents.rolling import normalizing, sees_steps, shown_now, standing_still
from geonpg.agents.state import get_state
from geonpg.envs import Frames, MujocoVecEnv, Normalize, ScaleActions
from geonpg.errors import Refused
from geonpg.finite import BrokenEnvironment

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")

STEPS, ENVS = 24, 4


def hoppers(**kwargs: Any) -> MujocoVecEnv:
    """Most episodes end by themselves, some by their time limit."""
    return MujocoVecEnv("Hopper-v4", ENVS, threads=2, max_episode_steps=22, **kwargs)


def reachers(**kwargs: Any) -> MujocoVecEnv:
    return MujocoVecEnv("Reacher-v4", ENVS, threads=2, max_episode_steps=10, **kwargs)


def make(env: VecEnv, policy: str = "MlpPolicy", **kwargs: Any) -> ACKTR:
    own = {"net_arch": [8], **kwargs.pop("policy_kwargs", {})}
    return ACKTR(policy, env, n_steps=STEPS, seed=0, device="cpu", policy_kwargs=own, **kwargs)


class Calls:
    """Counts calls of `roll` and of single steps."""

    def __init__(self, env: Any, patch: pytest.MonkeyPatch) -> None:
        self.rolls = self.steps = 0
        if hasattr(type(env), "roll"):
            self._count(env, "roll", patch)
        self._count(env, "step", patch)

    def _count(self, env: Any, name: str, patch: pytest.MonkeyPatch) -> None:
        honest = getattr(env, name)

        def counted(*args: Any) -> Any:
            setattr(self, f"{name}s", getattr(self, f"{name}s") + 1)
            return honest(*args)

        patch.setattr(env, name, counted)


def look(names: dict[str, Any], _: dict[str, Any]) -> bool:
    """A callback that sees single steps."""
    assert {"new_obs", "rewards", "dones", "infos"} <= names.keys()
    return True


def whole_state(agent: ACKTR) -> dict[str, Any]:
    """All that training has made: parameters, optimisers, statistics, environments, episodes, curve, random numbers."""
    update = agent.last_update
    assert update is not None
    curve = [update.policy_loss, update.value_loss, update.entropy, update.report.actual_kl]
    return {**get_state(agent), "curve": curve}


BUFFER = ("observations", "actions", "rewards", "episode_starts", "values", "log_probs", "returns", "advantages")


class Counting(BaseCallback):
    """Counts what it is told, keeps every rollout, and ends training at some step."""

    def __init__(self, last: int = 2**62) -> None:
        super().__init__()
        self.last, self.seen, self.told, self.rollouts = last, list[int](), list[str](), list[Any]()

    def _on_rollout_start(self) -> None:
        self.told.append("start")

    def _on_step(self) -> bool:
        self.seen.append(self.num_timesteps)
        return self.n_calls < self.last

    def _on_rollout_end(self) -> None:
        self.told.append("end")
        buffer = cast(ACKTR, self.model).rollout_buffer
        self.rollouts.append({name: getattr(buffer, name).copy() for name in BUFFER})


class Blind(Counting):
    """Says that it does not look at single steps."""

    sees_steps = False


POLICIES: dict[str, dict[str, Any]] = {
    "tanh": {},
    "relu": {"policy_kwargs": {"net_arch": [9, 7], "activation_fn": nn.ReLU}},
    "linear": {"policy_kwargs": {"net_arch": []}, "critic_lambda": 0.9},
}


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("env", [hoppers, reachers])
def test_one_call_and_single_steps_train_alike(
    env: Callable[[], MujocoVecEnv], normalized: bool, policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the last bit, over three rollouts and updates."""
    states = []
    for callback in (None, Blind(), Counting()):
        venv: VecEnv = Normalize(env()) if normalized else env()
        agent, calls = make(venv, **POLICIES[policy]), Calls(venv, monkeypatch)
        agent.learn(3 * STEPS * ENVS, callback=callback)
        assert (calls.rolls, calls.steps) == ((0, 3 * STEPS) if type(callback) is Counting else (3, 0))
        states.append(whole_state(agent))
        if callback is not None:
            assert len(callback.rollouts) == 3
            states[-1] |= {"rollouts": callback.rollouts}
        assert len(states[-1]["episodes"]) > 4
        venv.close()
    assert_same(states[1], states[2])
    assert_same(states[0], {key: value for key, value in states[1].items() if key != "rollouts"})


@pytest.mark.parametrize("kind", [Counting, Blind])
def test_callbacks_are_told_of_every_step(kind: type[Counting], monkeypatch: pytest.MonkeyPatch) -> None:
    """Once for each, whether they look or not, with the right number of steps."""
    env, callback = Normalize(hoppers()), kind()
    agent, calls = make(env), Calls(env, monkeypatch)
    agent.learn(2 * STEPS * ENVS, callback=callback)
    assert calls.rolls == (2 if kind is Blind else 0)
    assert callback.seen == [ENVS * step for step in range(1, 2 * STEPS + 1)]
    assert callback.n_calls == 2 * STEPS
    assert callback.told == ["start", "end"] * 2
    assert agent.num_timesteps == 2 * STEPS * ENVS
    env.close()


@pytest.mark.parametrize("kind", [Counting, Blind])
@pytest.mark.parametrize("last", [1, STEPS, STEPS + 5])
def test_callbacks_end_training_on_both_paths(kind: type[Counting], last: int) -> None:
    """At the step that they choose, and before an update is made of half a rollout."""
    env, callback = Normalize(hoppers()), kind(last)
    agent = make(env)
    agent.learn(1000 * ENVS, callback=callback)
    assert callback.n_calls == last
    assert agent.num_timesteps == last * ENVS
    assert agent.n_updates == agent.optimizer.steps == (last - 1) // STEPS
    agent.learn(STEPS * ENVS, reset_num_timesteps=False)  # and it goes on from there
    assert agent.n_updates == (last - 1) // STEPS + 1
    env.close()


def test_the_progress_bar_does_not_look(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    env = Normalize(hoppers())
    agent, calls, advanced = make(env), Calls(env, monkeypatch), list[int]()

    class Bar(ProgressBarCallback):
        def _on_step(self) -> bool:
            advanced.append(self.num_timesteps)
            return super()._on_step()

    agent.learn(2 * STEPS * ENVS, callback=Bar())
    assert (calls.rolls, calls.steps) == (2, 0)
    assert advanced == [ENVS * step for step in range(1, 2 * STEPS + 1)]
    env.close()


LOOKING: dict[str, tuple[Callable[[], BaseCallback], bool]] = {
    "none": (lambda: ConvertCallback(None), False),
    "a function": (lambda: ConvertCallback(look), True),
    "an empty list": (lambda: CallbackList([]), False),
    "a callback": (Counting, True),
    "one that says so": (Blind, False),
    "a list with one that looks": (lambda: CallbackList([Blind(), Counting()]), True),
    "a list with none that looks": (lambda: CallbackList([Blind(), ConvertCallback(None)]), False),
    "a list in a list": (lambda: CallbackList([Blind(), CallbackList([Counting()])]), True),
    "SB3's checkpoints": (lambda: CheckpointCallback(10, "nowhere"), True),
    "SB3's events": (lambda: EveryNTimesteps(10, Blind()), True),
}


@pytest.mark.parametrize("name", LOOKING)
def test_who_looks_at_single_steps(name: str) -> None:
    callback, looks = LOOKING[name]
    assert sees_steps(callback()) == looks


class OwnBuffer(RolloutBuffer):
    """A user's."""


SINGLE_STEPS: dict[str, Callable[[], ACKTR]] = {
    "CartPole": lambda: make(make_vec_env("CartPole-v1", ENVS)),
    "Pendulum": lambda: make(make_vec_env("Pendulum-v1", ENVS)),
    "Pendulum, normalised": lambda: make(Normalize(make_vec_env("Pendulum-v1", ENVS))),
    "gymnasium's infos": lambda: make(Normalize(hoppers(infos=True))),
    "frames": lambda: make(Normalize(Frames(hoppers()))),
    "frames over it": lambda: make(Frames(Normalize(hoppers()))),
    "scaled actions": lambda: make(Normalize(ScaleActions(hoppers()))),
    "SB3's normalisation": lambda: make(VecNormalize(hoppers())),
    "SB3's monitor": lambda: make(VecMonitor(Normalize(hoppers()))),
    "gSDE": lambda: make(Normalize(hoppers()), use_sde=True),
    "squashed": lambda: make(Normalize(hoppers()), use_sde=True, policy_kwargs={"squash_output": True}),
    "ELU": lambda: make(Normalize(hoppers()), policy_kwargs={"activation_fn": nn.ELU}),
    "a user's buffer": lambda: make(Normalize(hoppers()), rollout_buffer_class=OwnBuffer),
}


@pytest.mark.parametrize("name", SINGLE_STEPS)
def test_everything_else_takes_single_steps(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    agent = SINGLE_STEPS[name]()
    assert agent.env is not None
    calls = Calls(agent.env, monkeypatch)
    agent.learn(2 * STEPS * ENVS)
    assert (calls.rolls, calls.steps) == (0, 2 * STEPS)
    assert (agent.num_timesteps, agent.n_updates) == (2 * STEPS * ENVS, 2)
    agent.env.close()


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("what", ["reward", "observation"])
def test_a_broken_environment_ends_training_on_both_paths(what: str, normalized: bool) -> None:
    """By the same sentence; what the statistics knew, they know."""
    sentences = []
    for callback in (None, look):
        venv = hoppers()
        env: Any = Normalize(venv) if normalized else venv
        agent = make(env)
        agent.learn(STEPS * ENVS)
        before = str([env.get_state()[name] for name in ("observations", "returns")]) if normalized else ""
        env.set_attr("_ctrl_cost_weight" if what == "reward" else "_reset_noise_scale", np.nan)
        with pytest.raises(BrokenEnvironment, match=rf"^environment \d returned an? {what} of nan") as error:
            agent.learn(STEPS * ENVS, callback=callback, reset_num_timesteps=False)
        sentences.append(str(error.value))
        if normalized:
            assert str([env.get_state()[name] for name in ("observations", "returns")]) == before
        env.close()
    assert sentences[0] == sentences[1]


def test_a_first_observation_that_is_not_finite_is_named_on_both_paths() -> None:
    for callback in (None, look):
        env = hoppers()
        env.set_attr("_reset_noise_scale", np.nan)
        agent = make(env)
        with pytest.raises(BrokenEnvironment, match=r"^environment 0 returned an observation of nan"):
            agent.learn(STEPS * ENVS, callback=callback)
        env.close()


@pytest.mark.parametrize("env", [hoppers, lambda: MujocoVecEnv("InvertedPendulum-v4", ENVS, threads=2)])
def test_a_policy_of_nan_is_refused_on_both_paths(env: Callable[[], MujocoVecEnv]) -> None:
    """And no environment is blamed for it."""
    for callback in (None, look):
        venv = Normalize(env())
        agent = make(venv)
        with torch.no_grad():
            agent.policy.action_net.bias[0] = np.nan
        with pytest.raises(Refused, match=r"^the action of environment 0 is not finite: \[nan"):
            agent.learn(STEPS * ENVS, callback=callback)
        venv.close()


def test_statistics_below_other_wrappers_stand_still_too() -> None:
    """Only what nothing lies over can be shown again as the statistics are now."""
    normalized = Normalize(hoppers())
    frames = Frames(normalized)
    plain = make_vec_env("CartPole-v1", 2)
    assert normalizing(normalized) is normalizing(frames) is normalized
    assert normalizing(plain) is normalizing(VecNormalize(make_vec_env("Pendulum-v1", 2))) is None
    seen = frames.reset()
    for _ in range(30):
        seen, *_ = frames.step(np.zeros((ENVS, 3), np.float32))
    with standing_still(frames):
        before = normalized.observation_moments.get_state()
        for _ in range(10):
            seen, *_ = frames.step(np.zeros((ENVS, 3), np.float32))
        assert str(normalized.observation_moments.get_state()) == str(before)
    assert normalized.observation_moments.count == before["count"] + 10 * ENVS
    assert shown_now(frames, seen) is seen
    assert np.array_equal(np.asarray(shown_now(normalized, seen)), normalized.now())
    with standing_still(plain):
        assert shown_now(plain, seen) is seen
    normalized.close()


def test_the_next_rollout_begins_with_the_last_observations_as_they_are_shown_now() -> None:
    env = Normalize(hoppers())
    agent = make(env)
    agent.learn(STEPS * ENVS)
    expected = env.normalize_observations(env.venv.simulations.observations)
    assert np.array_equal(np.asarray(agent._last_obs), expected)
    callback = Blind()
    agent.learn(STEPS * ENVS, callback=callback, reset_num_timesteps=False)
    assert np.array_equal(callback.rollouts[0]["observations"][0], expected)
    env.close()


class HalfPay(MujocoVecEnv):
    """A subclass that does something else in a step."""

    def advance(self, actions: np.ndarray) -> Any:
        step = super().advance(actions)
        return step._replace(rewards=step.rewards / 2)


class OwnScale(Normalize):
    """A subclass of the wrapper."""


def test_subclasses_of_environments_take_single_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may do anything in a step, which one call would pass over."""
    for env in (Normalize(HalfPay("Reacher-v4", ENVS)), OwnScale(reachers())):
        calls = Calls(env, monkeypatch)
        make(env).learn(STEPS * ENVS)
        assert (calls.rolls, calls.steps) == (0, STEPS)


class Looking(BaseCallback):
    """Looks at the critic when a rollout begins and when training ends."""

    sees_steps = False

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[torch.Tensor] = []

    def _look(self) -> None:
        self.seen.append(torch.cat([p.detach().ravel().clone() for p in self.model.policy.parameters()]))

    def _on_rollout_start(self) -> None:
        self._look()

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self._look()


class LookingAtSteps(Looking):
    """The same, on the path of single steps, whose updates are complete at once."""

    sees_steps = True


def test_callbacks_see_whole_updates() -> None:
    seen = []
    for callback in (Looking(), LookingAtSteps()):
        make(Normalize(hoppers())).learn(4 * STEPS * ENVS, callback=callback)
        seen.append(callback.seen)
    assert len(seen[0]) == 5
    assert all(torch.equal(one, other) for one, other in zip(*seen, strict=True))

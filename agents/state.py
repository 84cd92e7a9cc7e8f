"""The whole state of an agent between two updates: what `checkpoint.py` stores and an exact resume needs."""

import random
from collections import deque
from typing import Protocol, cast

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr
from stable_baselines3.common.vec_env import VecEnv
from torch import nn

from geonpg.kfac import FasterGeodesic, NaturalGradient

from .acktr import ACKTR
from .forms import AnyLength, Anything, Later, Many, Maybe, OneOf
from .observations import Observations
from .packing import State

COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_last_obs", "_last_episode_starts")
OWN = ("env", "counters", "random")  # what each of several processes that train one agent has for itself


class Learner(Protocol):
    """What a policy and an optimiser have in common: a state to save and restore."""

    def state_dict(self) -> State:
        """What it has learnt, and what it needs to go on."""

    def load_state_dict(self, state_dict: State) -> object:
        """Go on from what `state_dict` returned."""


class Restorable(Protocol):
    """Environments that can tell their state."""

    def get_state(self) -> State:
        """Everything that the next step depends on."""

    def set_state(self, state: State) -> None:
        """Go on from what `get_state` returned."""


def learners(agent: OnPolicyAlgorithm) -> dict[str, Learner]:
    """The policy and its optimisers, as many as the algorithm says that it has."""
    names, _ = agent._get_torch_save_params()
    return {name.removeprefix("policy."): recursive_getattr(agent, name) for name in names}


def environments(agent: OnPolicyAlgorithm) -> VecEnv:
    """The agent's environments, without which it has no state."""
    assert agent.env is not None
    return agent.env


def restorable(env: VecEnv) -> Restorable | None:
    """The environments, if they can tell their state.

    The class is asked: SB3's wrappers pass an unknown name on to what they wrap, and would lose their own state.
    """
    return cast(Restorable, env) if hasattr(type(env), "get_state") else None


def get_state(agent: OnPolicyAlgorithm) -> State:
    """Return the state of networks, optimisers, environments, random generators and counters.

    Of environments in a wrapper that cannot tell its state nothing is kept; with SB3's VecNormalize its statistics are
    lost too, so save them beside this or use `envs.Normalize`.
    """
    if isinstance(agent, ACKTR):
        agent.finish_update()
    env = restorable(environments(agent))
    own = {"episode_steps": agent.episode_steps} if isinstance(agent, ACKTR) else {}
    assert agent.ep_info_buffer is not None
    assert agent.ep_success_buffer is not None
    return {
        **{name: learner.state_dict() for name, learner in learners(agent).items()},
        "counters": {name: getattr(agent, name) for name in COUNTERS} | own,
        "episodes": [{"r": float(episode["r"]), "l": int(episode["l"])} for episode in agent.ep_info_buffer],
        "successes": [float(success) for success in agent.ep_success_buffer],
        "env": None if env is None else env.get_state(),
        "random": get_random_state(),
    }


def set_state(agent: OnPolicyAlgorithm, state: State) -> bool:
    """Go on from `get_state()`, bit for bit; return False if the environments could not be restored and begin anew."""
    env = environments(agent)
    if isinstance(agent, ACKTR):
        agent.forget_rollouts()
    for name, learner in learners(agent).items():
        learner.load_state_dict(state[name])
    for name in COUNTERS:
        setattr(agent, name, state["counters"][name])
    if isinstance(agent, ACKTR):
        agent.episode_steps = state["counters"].get("episode_steps")
    agent.ep_info_buffer = deque(state["episodes"], maxlen=agent._stats_window_size)
    agent.ep_success_buffer = deque(state.get("successes", []), maxlen=agent._stats_window_size)
    if state["env"] is not None:
        cast(Restorable, env).set_state(state["env"])
    exact = is_complete(state["env"])
    if not exact:
        agent._last_obs = cast(Observations, env.reset())
        agent._last_episode_starts = np.ones(env.num_envs, dtype=np.bool_)
    set_random_state(state["random"])
    return exact


def is_complete(env: State | None) -> bool:
    """Whether the state of a chain of wrappers reaches down to the environments themselves."""
    return env is not None and (is_complete(env["venv"]) if "venv" in env else True)


def get_random_state() -> State:
    """Return the state of the generators that SB3, torch and we draw from."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, numbers, next_gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": [str(name), np.asarray(keys), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(numbers), next_gauss],
    }


def set_random_state(state: State) -> None:
    """Restore the generators to `get_random_state()`."""
    torch.set_rng_state(state["torch"])
    for card, own in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(own, card)
    np.random.set_state(tuple(state["numpy"]))
    version, numbers, next_gauss = state["python"]
    random.setstate((version, tuple(numbers), next_gauss))


def form_of(agent: OnPolicyAlgorithm, state: State) -> dict[str, object]:
    """The form that `state` must have to be one of this agent's: see forms.py."""
    env = environments(agent)
    own = restorable(env)
    generators = get_random_state() | {"cuda": Later(Many(AnyLength(torch.uint8)))}
    generators["python"] = [*generators["python"][:-1], Maybe(0.0)]
    forms: dict[str, object] = {
        name: learner.state_dict() if isinstance(learner, nn.Module) else optimizer_form(learner, state.get(name, {}))
        for name, learner in learners(agent).items()
    }
    return forms | {
        "counters": dict.fromkeys(COUNTERS, 0)
        | {
            "_last_obs": observations_form(env.observation_space, env.num_envs),
            "_last_episode_starts": np.zeros(env.num_envs, np.bool_),
            "episode_steps": Later(Maybe(np.zeros(env.num_envs, np.int64))),
        },
        "episodes": Many({"r": 0.0, "l": 0}),
        "successes": Later(Many(0.0)),
        "env": None if own is None else own.get_state(),
        "random": generators,
    }


def observations_form(space: spaces.Space[object], n_envs: int) -> object:
    """The form of what `n_envs` environments show; scaled observations may be of float64 whatever the space says."""
    if isinstance(space, spaces.Dict):
        return {key: observations_form(part, n_envs) for key, part in space.spaces.items()}
    assert space.shape is not None
    return OneOf(tuple(np.zeros((n_envs, *space.shape), dtype) for dtype in (np.float64, space.dtype)))


def optimizer_form(optimizer: Learner, kept: State) -> dict[str, object]:
    """The form of our optimiser's state after as many updates as `kept` says.

    Of torch's own it is only that of the groups: the rest it checks itself.
    """
    own = optimizer.state_dict()
    if not isinstance(optimizer, NaturalGradient):
        return {**own, "state": Anything()}
    seen, factors_seen = (kept["state"][name] for name in ("seen", "factors_seen"))
    blocks, like = optimizer.geometry.fisher.blocks, optimizer.geometry.network.layout.read().cpu()
    state = {name: Anything() if form is None or form == [] else form for name, form in own["state"].items()}
    state |= {
        "gradient": like if seen else None,
        "last": like if seen and isinstance(optimizer.rule, FasterGeodesic) else None,
        "statistics": [tuple(torch.zeros(shape, dtype=torch.float64) for shape in b.shapes) for b in blocks],
        "inverses": [tuple(torch.zeros(shape, dtype=like.dtype) for shape in b.inverse_shapes) for b in blocks],
        "direction": Maybe(like),
        "generator": AnyLength(torch.uint8),  # its length depends on the device
    }
    state |= {} if factors_seen else {"statistics": [], "inverses": []}
    groups = [{**group, "unit": Later(1.0)} for group in own["param_groups"]]  # see units.py
    return {**own, "param_groups": groups, "state": {name: Later(form) for name, form in state.items()}}

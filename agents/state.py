"""The whole state of an agent between two updates: what `checkpoint.py` stores and an exact resume needs."""

import random
from collections import deque
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from stable_baselines3.common.save_util import recursive_getattr
from torch import nn

from geonpg.kfac import FasterGeodesic, NaturalGradient

from .acktr import ACKTR
from .forms import AnyLength, Anything, Later, Many, Maybe, OneOf

COUNTERS = ("num_timesteps", "_n_updates", "_episode_num", "_last_obs", "_last_episode_starts")
OWN = ("env", "counters", "random")  # what each of several processes that train one agent has for itself


def learners(agent: OnPolicyAlgorithm) -> dict[str, Any]:
    """The policy and its optimisers, as many as the algorithm says that it has."""
    names, _ = agent._get_torch_save_params()
    return {name.removeprefix("policy."): recursive_getattr(agent, name) for name in names}


def get_state(agent: OnPolicyAlgorithm) -> dict[str, Any]:
    """Networks, optimisers, environments, random generators, counters.

    Of environments in a wrapper that cannot tell its state nothing is kept; with SB3's VecNormalize its statistics are
    lost too, so save them beside this or use `envs.Normalize`.
    """
    env: Any = agent.env
    assert agent.ep_info_buffer is not None
    assert agent.ep_success_buffer is not None
    return {
        **{name: learner.state_dict() for name, learner in learners(agent).items()},
        "counters": {name: getattr(agent, name) for name in COUNTERS},
        "episodes": [{"r": float(episode["r"]), "l": int(episode["l"])} for episode in agent.ep_info_buffer],
        "successes": [float(success) for success in agent.ep_success_buffer],
        # of the class: SB3's wrappers pass an unknown name on to what they wrap, and would lose their own state
        "env": env.get_state() if hasattr(type(env), "get_state") else None,
        "random": get_random_state(),
    }


def set_state(agent: OnPolicyAlgorithm, state: dict[str, Any]) -> bool:
    """Go on from `get_state()`, bit for bit. False if the environments could not be restored and begin anew."""
    env: Any = agent.env
    for name, learner in learners(agent).items():
        learner.load_state_dict(state[name])
    for name in COUNTERS:
        setattr(agent, name, state["counters"][name])
    agent.ep_info_buffer = deque(state["episodes"], maxlen=agent._stats_window_size)
    agent.ep_success_buffer = deque(state.get("successes", []), maxlen=agent._stats_window_size)
    if state["env"] is not None:
        env.set_state(state["env"])
    if isinstance(agent, ACKTR):
        agent.forget_rollouts()
    exact = is_complete(state["env"])
    if not exact:
        agent._last_obs = env.reset()
        agent._last_episode_starts = np.ones(env.num_envs, dtype=np.bool_)
    set_random_state(state["random"])
    return exact


def is_complete(env: dict[str, Any] | None) -> bool:
    """Does the state of a chain of wrappers reach down to the environments themselves?"""
    return env is not None and (is_complete(env["venv"]) if "venv" in env else True)


def get_random_state() -> dict[str, Any]:
    """The generators that SB3, torch and we draw from."""
    name, keys, position, has_gauss, gauss = np.random.get_state(legacy=True)
    version, numbers, next_gauss = random.getstate()
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
        "numpy": [str(name), np.asarray(keys), int(position), int(has_gauss), float(gauss)],
        "python": [version, list(numbers), next_gauss],
    }


def set_random_state(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    for card, own in enumerate(state.get("cuda", [])[: torch.cuda.device_count()]):
        torch.cuda.set_rng_state(own, card)
    np.random.set_state(tuple(state["numpy"]))
    version, numbers, next_gauss = state["python"]
    random.setstate((version, tuple(numbers), next_gauss))


def form_of(agent: OnPolicyAlgorithm, state: dict[str, Any]) -> dict[str, Any]:
    """The form that `state` must have to be one of this agent's: see forms.py."""
    env: Any = agent.env
    generators = get_random_state() | {"cuda": Later(Many(AnyLength(torch.uint8)))}
    generators["python"] = [*generators["python"][:-1], Maybe(0.0)]
    forms = {
        name: learner.state_dict() if isinstance(learner, nn.Module) else optimizer_form(learner, state.get(name))
        for name, learner in learners(agent).items()
    }
    return forms | {
        "counters": dict.fromkeys(COUNTERS, 0)
        | {
            "_last_obs": observations_form(env.observation_space, env.num_envs),
            "_last_episode_starts": np.zeros(env.num_envs, np.bool_),
        },
        "episodes": Many({"r": 0.0, "l": 0}),
        "successes": Later(Many(0.0)),
        "env": env.get_state() if hasattr(type(env), "get_state") else None,
        "random": generators,
    }


def observations_form(space: spaces.Space[Any], n_envs: int) -> Any:
    """Of what `n_envs` environments show; scaled observations may be of float64 whatever the space says."""
    if isinstance(space, spaces.Dict):
        return {key: observations_form(part, n_envs) for key, part in space.spaces.items()}
    assert space.shape is not None
    return OneOf(tuple(np.zeros((n_envs, *space.shape), dtype) for dtype in (np.float64, space.dtype)))


def optimizer_form(optimizer: Any, kept: Any) -> dict[str, Any]:
    """Of ours after as many updates as `kept` says; of torch's own only the groups: the rest it checks itself."""
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

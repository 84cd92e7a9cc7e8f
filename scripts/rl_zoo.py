"""rl_zoo3 with ACKTR in it: `python -m geonpg.scripts.rl_zoo train --algo acktr --env Hopper-v4`, and then `enjoy`.

Everything else in the zoo works as before. ACKTR's hyper-parameters come from our default preset unless `-conf` names
another file of the zoo's format; this module is one, `-conf geonpg.scripts.rl_zoo`.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from itertools import pairwise
from typing import Any

from geonpg.agents import ACKTR
from geonpg.configs import Settings, load
from geonpg.scripts.common.parser import Parser
from geonpg.scripts.common.published import PAPER_TASKS
from geonpg.scripts.common.stopping import as_process
from geonpg.scripts.runs.building import ARGUMENTS, policy_kwargs

NAME = "acktr"
SCRIPTS = {"train": "rl_zoo3.train", "enjoy": "rl_zoo3.enjoy"}
INSTALL = 'pip install "geonpg[zoo]"'


def zoo_hyperparameters(settings: Settings) -> dict[str, Any]:
    """Translate a preset to the zoo's format, which holds Python as text; its VecNormalize replaces our Normalize."""
    values, network = asdict(settings), policy_kwargs(settings)
    text = {key: f"nn.{value.__name__}" if isinstance(value, type) else value for key, value in network.items()}
    scaled = {"norm_obs": settings.normalize_observations, "norm_reward": settings.normalize_rewards}
    return {
        "policy": "MlpPolicy",
        "n_timesteps": settings.steps,
        "n_envs": settings.n_envs,
        "normalize": str(scaled),
        "policy_kwargs": f"dict({', '.join(f'{key}={value}' for key, value in text.items())})",
        **{name: values[name] for name in ARGUMENTS},
    }


# The name that the zoo looks for in a module of hyper-parameters.
hyperparams = {
    f"{task}-{version}": zoo_hyperparameters(load("default", f"{task}-{version}"))
    for task in PAPER_TASKS
    for version in ("v4", "v5")
} | {"default": zoo_hyperparameters(load("default"))}


def register() -> None:
    """Add ACKTR to the zoo's algorithms."""
    import_module("rl_zoo3.utils").ALGOS[NAME] = ACKTR


def with_our_settings(arguments: Sequence[str]) -> list[str]:
    """Name our hyper-parameters for ACKTR before the given arguments, so that a file named there takes precedence."""
    ours = f"--algo={NAME}" in arguments or ("--algo", NAME) in pairwise(arguments)
    return [*(("-conf", "geonpg.scripts.rl_zoo") if ours else ()), *arguments]


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the zoo's scripts; return the exit code."""
    given = list(sys.argv[1:] if argv is None else argv)
    parser = Parser("rl_zoo", description=__doc__)
    parser.add_argument("script", choices=SCRIPTS, help="which of the zoo's scripts")
    script = parser.parse_args(given[:1]).script
    try:
        module = import_module(SCRIPTS[script])
        register()
    except ImportError as error:
        parser.error(f"it needs rl_zoo3 ({error}): {INSTALL}")
    arguments = with_our_settings(given[1:]) if script == "train" else given[1:]
    before, sys.argv = sys.argv, [f"rl_zoo {script}", *arguments]
    try:
        getattr(module, script)()
    finally:
        sys.argv = before
    return 0


if __name__ == "__main__":
    sys.exit(as_process(main))

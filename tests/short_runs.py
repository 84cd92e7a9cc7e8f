"""Short runs and small tasks, for tests of what comes after training."""

import json
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from geonpg.scripts import cli
from geonpg.scripts.runs import bar, evaluation, keeper
from geonpg.scripts.runs.folder import BEST, COMPACT, CURVE, EVALUATIONS, FINAL, Evaluation
from geonpg.scripts.runs.run import Run


class Toy(gymnasium.Env[Any, Any]):
    """Three random observations; its kinds differ in what they show and take."""

    kinds: ClassVar[dict[str, tuple[spaces.Space[Any], spaces.Space[Any]]]] = {
        "Choices": (spaces.Box(-1, 1, (5,)), spaces.MultiDiscrete([3, 2, 4])),
        "Switches": (spaces.Box(-1, 1, (5,)), spaces.MultiBinary(4)),
        "Matrix": (spaces.Box(-1, 1, (2, 3)), spaces.Box(-0.125, np.float32([[0.125, 0.5], [0.25, 0.75]]), (2, 2))),
        "Image": (spaces.Box(0, 255, (36, 36, 3), np.uint8), spaces.Discrete(2)),
    }

    def __init__(self, kind: str) -> None:
        self.observation_space, self.action_space = self.kinds[kind]

    def observe(self) -> Any:
        space: Any = self.observation_space
        return self.np_random.uniform(space.low, space.high).astype(space.dtype)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left = 3
        return self.observe(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action)
        self.left -= 1
        return self.observe(), float(np.sum(action)), self.left == 0, False, {}


for name in Toy.kinds:
    gymnasium.register(f"Toy{name}-v0", entry_point=Toy, kwargs={"kind": name})

TASKS = {
    "pendulum": ("InvertedPendulum-v4",),
    "frames": ("InvertedPendulum-v4", "frames=3", "scale_actions=true", "activation=relu"),
    "raw": ("Reacher-v4", "normalize_observations=false", "normalize_rewards=false", "activation=elu", "hidden="),
    "cartpole": ("CartPole-v1",),
}
Runs = Callable[[str], Path]


def write_module(folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module with an environment Walk-v0, by its name, which nothing has imported."""
    name = f"walks_of_{folder.name}"
    (folder / f"{name}.py").write_text(
        "import gymnasium\n"
        "gymnasium.register('Walk-v0', 'gymnasium.envs.classic_control:CartPoleEnv', max_episode_steps=20)\n"
    )
    monkeypatch.syspath_prepend(folder)
    return name


def forget(module: str) -> None:
    """As if the module of `write_module` had never been imported."""
    del sys.modules[module], gymnasium.registry["Walk-v0"]


def results(folder: Path) -> dict[str, bytes]:
    """The files of a run that are the same, byte for byte, however often it was interrupted."""
    return {name: (folder / name).read_bytes() for name in (FINAL, BEST, CURVE.file, EVALUATIONS.file)}


def after_updates(count: int, act: Callable[[Run[Any]], object], patch: pytest.MonkeyPatch) -> None:
    """From now on this is done after so many updates of `geonpg train`, which saves a checkpoint after each."""
    seen: list[int] = []

    def watch(self: bar.Bar, run: Run[Any]) -> None:
        seen.append(run.steps)
        if len(seen) == count:
            act(run)

    patch.setattr(bar.Bar, "__call__", watch)
    patch.setattr(keeper, "CHECKPOINT_SECONDS", 0.0)


def ended_run(folder: Path) -> Path:
    """A folder as a run leaves it, with nothing in most of its files."""
    (folder / "checkpoints").mkdir(parents=True)
    for name in (*COMPACT[:-1], "final.ckpt", "events.out.1", "checkpoints/step_000000000001.ckpt"):
        (folder / name).write_text(name)
    EVALUATIONS.write(folder, [Evaluation(100, 1.0, 0.0, [1.0]), Evaluation(512, 7.5, 0.5, [7.0, 8.0])])
    return folder


def evaluated(capsys: pytest.CaptureFixture[str], *arguments: object) -> dict[str, Any]:
    capsys.readouterr()
    assert cli.main(["evaluate", *map(str, arguments), "--json"]) == 0
    result: dict[str, Any] = json.loads(capsys.readouterr().out)
    return result


def refusal(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """The one sentence that a wrong command gets."""
    capsys.readouterr()
    try:
        code = cli.main(["evaluate", *map(str, arguments)])
    except SystemExit as stopped:
        code = int(stopped.code or 0)
    lines = capsys.readouterr().err.strip().splitlines()
    assert code == 2
    assert len(lines) == 1
    return lines[0].removeprefix("geonpg evaluate: ")


def interrupting(number: int, patch: pytest.MonkeyPatch) -> list[int]:
    """From now on a signal comes in the middle of the evaluation of this number; the steps that were made of it."""
    honest, seen, steps = evaluation.play, [], []

    def play(model: Any, env: Any, deterministic: bool = True, watch: Callable[[], None] | None = None) -> Any:
        seen.append(env)

        def both() -> None:
            if len(seen) == number:
                steps.append(len(steps))
                if len(steps) == 3:
                    signal.raise_signal(signal.SIGINT)
            if watch is not None:
                watch()

        return honest(model, env, deterministic, both)

    patch.setattr(evaluation, "play", play)
    return steps

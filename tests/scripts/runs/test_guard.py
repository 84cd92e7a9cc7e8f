"""Environments that raise errors: one form for all of them."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from short_runs import refusal

from geonpg.agents.checkpoint import Checkpoints
from geonpg.errors import Refused
from geonpg.finite import BrokenEnvironment
from geonpg.scripts import train
from geonpg.scripts.runs import keeper
from geonpg.scripts.runs.building import RAW, make_env

KEYS = ("n_steps=16", "hidden=8", "critic_hidden=8", "eval_every=10000", "eval_episodes=2")
SMALL = ["--n-envs", "3", "--steps", "480", *(f"--set={key}" for key in KEYS)]


class Failing(gymnasium.Env[Any, Any]):
    """The environment with an odd seed fails in a joint of its own, `where`, after 40 steps."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))

    def __init__(self, where: str, error: Exception) -> None:
        self.where, self.error, self.steps, self.odd = where, error, 0, False
        if where == "init":
            self.move_joint()

    def move_joint(self) -> None:
        raise self.error

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.odd |= seed is not None and seed % 2 == 1
        if self.where == "reset" and self.odd and self.steps >= 40:
            self.move_joint()
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        if self.where == "step" and self.odd and self.steps > 40:
            self.move_joint()
        large = self.where == "reward" and self.odd and self.steps > 40
        return np.zeros(2, np.float32), 1e300 if large else 1.0, False, self.steps % 10 == 0, {}


def failing(patch: pytest.MonkeyPatch, where: str, error: Exception) -> str:
    spec = EnvSpec("Failing-v0", entry_point=Failing, kwargs={"where": where, "error": error}, max_episode_steps=10)
    patch.setitem(gymnasium.registry, spec.id, spec)
    return spec.id


ERRORS = [
    (RuntimeError("bad joint"), "RuntimeError: bad joint"),
    (KeyError("joint"), "KeyError: 'joint'"),
    (ValueError("bad\n  joint"), "ValueError: bad joint"),
    (OSError(5, "no port"), "OSError: [Errno 5] no port"),
    (AssertionError(), "AssertionError"),
    (ZeroDivisionError("by a joint"), "ZeroDivisionError: by a joint"),
]


@pytest.mark.parametrize("where", ["step", "reset"])
@pytest.mark.parametrize(("error", "told"), ERRORS, ids=[told for _, told in ERRORS])
def test_B5_every_exception_takes_the_same_form(
    where: str,
    error: Exception,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Its own frames, then one sentence: which environment, when, what, and how to go on."""
    monkeypatch.setattr(keeper, "CHECKPOINT_SECONDS", 0.0)
    folder = tmp_path / "run"
    assert train.main(["--env", failing(monkeypatch, where, error), *SMALL, "--folder", str(folder)]) == 2
    *lines, sentence = capsys.readouterr().err.splitlines()
    saved = Checkpoints(folder / "checkpoints").paths()[-1].stem
    assert sentence.startswith(f"geonpg train: {folder} ended at 1")
    assert f" steps: environment 1 of Failing-v0 raised {told}; go on from step 96 with: " in sentence
    assert sentence.endswith(f"geonpg train --resume {folder}")
    assert saved == "step_000000000096"
    frames = [line for line in lines if line.startswith("  File ")]
    assert [line.split(", in ")[1] for line in frames] == [where, "move_joint"]
    assert all(str(Path(__file__)) in line for line in frames)
    assert not any("Traceback" in line for line in lines)


@pytest.mark.parametrize(("error", "told"), ERRORS, ids=[told for _, told in ERRORS])
def test_B5_an_environment_that_cannot_be_made_says_where(
    error: Exception, told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env_id = failing(monkeypatch, "init", error)
    assert train.main(["--env", env_id, *SMALL, "--folder", str(tmp_path / "run")]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"geonpg train: environment 'Failing-v0' cannot be made: {told} ({__file__}, line ")
    assert err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_B5_evaluate_tells_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env_id = failing(monkeypatch, "nowhere", ValueError())
    assert train.main(["--env", env_id, *SMALL, "--steps", "48", "--folder", str(tmp_path / "run")]) == 0
    failing(monkeypatch, "init", KeyError("joint"))
    assert refusal(capsys, tmp_path / "run").startswith("environment 'Failing-v0' cannot be made: KeyError: 'joint' (")


def test_our_own_refusals_stay_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """What our code says of an environment is not reported as an error of the environment's own."""
    with pytest.raises(Refused, match=r"^unknown environment 'Rocket-v3': choose one of "):
        make_env(RAW, "Rocket-v3", 1, 0)
    env_id = failing(monkeypatch, "nowhere", ValueError())
    monkeypatch.setattr(Failing, "observation_space", spaces.Text(5))
    with pytest.raises(Refused, match=r"^observations of Failing-v0 must be a Box"):
        make_env(RAW, env_id, 1, 0)


def test_C9_a_reward_that_float32_does_not_hold_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    env_id = failing(monkeypatch, "reward", ValueError())
    assert train.main(["--env", env_id, *SMALL, "--folder", str(tmp_path / "run")]) == 2
    sentence = capsys.readouterr().err.splitlines()[-1]
    cure = "which is too large for float32: scale it below 3.4e+38"
    assert f"environment 1 of Failing-v0 returned a reward of 1e+300, {cure}; go on from step" in sentence


def test_C9_the_last_reward_of_an_episode_too(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(RAW, failing(monkeypatch, "reward", ValueError()), 2, 0)
    monkeypatch.setattr(Failing, "step", lambda self, action: (np.zeros(2, np.float32), -1e300, True, False, {}))
    env.reset()
    with pytest.raises(
        BrokenEnvironment, match=r"^environment 0 of Failing-v0 returned a reward of -1e\+300, which is "
    ):
        env.step(np.zeros((2, 1)))


def test_the_last_observation_of_an_episode_is_named_too(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_env(RAW, failing(monkeypatch, "nowhere", ValueError()), 2, 0)
    last = np.array([0, np.inf], np.float32)
    monkeypatch.setattr(Failing, "step", lambda self, action: (last, 1.0, True, False, {}))
    env.reset()
    with pytest.raises(BrokenEnvironment, match=r"^environment 0 of Failing-v0 returned an observation of inf, which "):
        env.step(np.zeros((2, 1)))

"""Policies for all that an environment may show; evaluations that would not end by themselves, and signals in them."""

import json
import logging
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from short_runs import interrupting
from toy_envs import World

from geonpg.agents.policy import ACKTRCnnPolicy, ACKTRMultiInputPolicy, ACKTRPolicy
from geonpg.scripts.runs import building
from geonpg.scripts.models import loading as models
from geonpg.scripts.runs import run
from geonpg.scripts import cli, train
from geonpg.scripts.runs.building import has_time_limit, make_env
from geonpg.scripts.runs.building import RAW

KEYS = ("n_steps=8", "hidden=8", "critic_hidden=8", "eval_every=640", "eval_episodes=2", "env_threads=1")
SMALL = ["--n-envs", "8", *(f"--set={key}" for key in KEYS)]
TINY = ["--env", "InvertedPendulum-v4", "--steps", "1024", *SMALL]
RESULTS = ("final.ckpt", "best.ckpt", "curve.csv", "evaluations.csv")


class Endless(gymnasium.Env[Any, Any]):
    """Pays 0.5 for every step, and never ends."""

    observation_space, action_space = spaces.Box(-1, 1, (2,)), spaces.Box(-1, 1, (1,))

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return self.np_random.uniform(-1, 1, 2).astype(np.float32), 0.5, False, False, {}


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> str:
    spec = EnvSpec("Endless-v0", entry_point=Endless)
    monkeypatch.setitem(gymnasium.registry, spec.id, spec)
    monkeypatch.setattr(building, "LONGEST_EPISODE", 40)
    monkeypatch.setattr(building, "_told", set())
    return spec.id


def test_B1_without_a_time_limit_evaluations_end_episodes_and_say_so(
    endless: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with caplog.at_level(logging.WARNING):
        assert train.main(["--env", endless, "--steps", "768", *SMALL, "--folder", str(folder)]) == 0
    told = [message for message in caplog.messages if "time limit" in message]
    limit = "evaluations end its episodes after 40 steps; register it with max_episode_steps for another one"
    assert told == [f"{endless} has no time limit: {limit}"]
    assert (folder / "evaluations.csv").read_text().splitlines()[1] == "640,20.0,0.0,20.0 20.0"
    assert cli.main(["evaluate", str(folder), "--episodes", "3", "--export", str(tmp_path / "policy.onnx")]) == 0
    assert "min 20.0, max 20.0, length 40.0" in capsys.readouterr().out


def test_B1_a_limit_of_their_own_is_theirs(endless: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gymnasium.registry, endless, EnvSpec(endless, entry_point=Endless, max_episode_steps=90))
    for env_id, longest in ((endless, 90), ("InvertedPendulum-v4", 1000)):
        env = building.evaluation_env(RAW, env_id, 1, None, 0)
        assert has_time_limit(env)
        assert env.get_attr("spec")[0].max_episode_steps == longest


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert train.main([*TINY, "--folder", str(folder)]) == 0
    return folder


@pytest.mark.parametrize(("number", "steps"), [(1, 640), (2, 1024)], ids=["in between", "the last"])
def test_B1_a_signal_ends_an_evaluation_which_is_then_made_again(
    number: int, steps: int, whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        made = interrupting(number, patch)
        assert train.main([*TINY, "--folder", str(folder)]) == 130
    assert len(made) == 3
    assert capsys.readouterr().out == f"stopped at {steps} steps; go on with: geonpg train --resume {folder}\n"
    assert not (folder / "final.ckpt").exists()
    assert train.main(["--resume", str(folder)]) == 0
    assert {name: (folder / name).read_bytes() for name in RESULTS} == {
        name: (whole / name).read_bytes() for name in RESULTS
    }


def test_B1_an_interrupted_evaluation_may_be_interrupted_again(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    for arguments in ([*TINY, "--folder", str(folder)], ["--resume", str(folder)]):
        with pytest.MonkeyPatch.context() as patch:
            interrupting(1, patch)
            assert train.main(arguments) == 130
    assert train.main(["--resume", str(folder)]) == 0
    assert (folder / "evaluations.csv").read_bytes() == (whole / "evaluations.csv").read_bytes()


def test_environments_without_a_limit_are_known(endless: str) -> None:
    assert not has_time_limit(make_env(RAW, endless, 1, 0))


LOOKS = {
    "dictionary": spaces.Dict({"place": spaces.Box(-3, 3, (4,), np.float32), "room": spaces.Discrete(3)}),
    "image": spaces.Box(0, 255, (36, 40, 3), np.uint8),
    "both": spaces.Dict({"eye": spaces.Box(0, 255, (36, 36, 1), np.uint8), "place": spaces.Box(-3, 3, (4,))}),
    "small image": spaces.Box(0, 255, (6, 6, 3), np.uint8),
    "choice": spaces.Discrete(5),
}
POLICIES = {"dictionary": ACKTRMultiInputPolicy, "image": ACKTRCnnPolicy, "both": ACKTRMultiInputPolicy}


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    for look, space in LOOKS.items():
        name = f"{look.title().replace(' ', '')}-v0"
        spaces_of = {"observation_space": space, "action_space": spaces.Discrete(3)}
        spec = EnvSpec(name, entry_point=World, kwargs=spaces_of, max_episode_steps=9)
        monkeypatch.setitem(gymnasium.registry, name, spec)


@pytest.mark.usefixtures("worlds")
@pytest.mark.parametrize("look", LOOKS)
def test_C8_any_observations_can_be_trained_on_and_evaluated(
    look: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the policy that SB3 has for them, and nothing said; `evaluate` finds what the run itself found."""
    name, folder = f"{look.title().replace(' ', '')}-v0", tmp_path / "run"
    small = ["--n-envs", "2", "--steps", "32", "--set=n_steps=8", "--set=hidden=4", "--set=critic_hidden=4"]
    assert train.main(["--env", name, *small, "--folder", str(folder)]) == 0
    assert type(models.load(folder).network) is POLICIES.get(look, ACKTRPolicy)
    capsys.readouterr()
    assert cli.main(["evaluate", str(folder), "--json"]) == 0
    returns = " ".join(map(repr, json.loads(capsys.readouterr().out)["returns"]))
    assert (folder / "evaluations.csv").read_text().splitlines()[-1].endswith(f",{returns}")


@pytest.mark.usefixtures("worlds")
def test_C8_statistics_beside_an_image_are_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = ["--n-envs", "2", "--set=n_steps=8", "--set=hidden=4", "--set=critic_hidden=4"]
    assert train.main(["--env", "Both-v0", *small, "--steps", "32", "--folder", str(tmp_path / "run")]) == 0
    resumed = run.resume(tmp_path / "run", 64)
    normalization = building.normalization_of(resumed.env)
    assert normalization is not None
    assert normalization.observation_moments.count == 2 + 32 + 2  # the last two of the new episodes that they begin
    assert normalization.observation_moments.mean.shape == (4,)


@pytest.mark.usefixtures("worlds")
def test_C8_models_of_before_are_still_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They looked at images without convolutions."""
    small = ["--n-envs", "2", "--steps", "16", "--set=n_steps=8", "--set=hidden=4", "--set=critic_hidden=4"]
    with monkeypatch.context() as patch:
        patch.setattr(building, "policy_for", lambda space, weights: "MlpPolicy")
        assert train.main(["--env", "Image-v0", *small, "--folder", str(tmp_path / "run")]) == 0
    assert type(models.load(tmp_path / "run").network) is ACKTRPolicy
    assert cli.main(["evaluate", str(tmp_path / "run")]) == 0

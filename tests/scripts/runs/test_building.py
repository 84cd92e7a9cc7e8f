"""Policies for all that an environment may show."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from toy_envs import World

from geonpg.agents.policy import ACKTRCnnPolicy, ACKTRMultiInputPolicy, ACKTRPolicy
from geonpg.scripts import cli, train
from geonpg.scripts.models import loading as models
from geonpg.scripts.runs import building
from geonpg.scripts.runs.run import Run

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
    resumed = Run.resume(tmp_path / "run", 64)
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

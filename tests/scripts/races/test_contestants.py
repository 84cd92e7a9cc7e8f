"""Who may race, where, and with what settings."""

import json
from contextlib import closing
from importlib.metadata import PackageNotFoundError, version

import gymnasium
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from toy_envs import OBSERVATIONS, World

from geonpg.configs import load
from geonpg.errors import Refused
from geonpg.scripts.races import contestants
from geonpg.scripts.races.contestants import CONTESTANTS, OURS, RLTOOLS, config_of, missing, unfit
from geonpg.scripts.runs.building import RAW, make_env

OFF_POLICY = ["sac", "tqc", "sbx-sac"]


def test_ours_has_the_preset_and_the_others_what_the_zoo_changes() -> None:
    settings = load("default", "Hopper-v4")
    ours = config_of(OURS, "Hopper-v4")
    assert settings.method == ours["method"] == "geo"
    assert all(getattr(settings, key) == value for key, value in ours.items())
    assert config_of("tqc", "Hopper-v4") == {
        "settings": "zoo",
        "learning_starts": 10_000,
        "top_quantiles_to_drop_per_net": 5,
    }
    assert config_of("ppo", "Hopper-v4")["n_steps"] == 512
    assert config_of("ppo", "CartPole-v1") == config_of(RLTOOLS, "Hopper-v4") == {"settings": "default"}
    for contestant in CONTESTANTS:
        assert json.dumps(config_of(contestant, "Ant-v4"))


def test_what_is_missing_is_named_with_the_cure(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_sbx(project: str) -> str:
        if project == "sbx-rl":
            raise PackageNotFoundError(project)
        return version("geonpg")

    monkeypatch.setattr(contestants, "version", without_sbx)
    assert missing("sbx-sac") == 'it needs sbx-rl (pip install "geonpg[race]")'
    assert missing("sac") == missing(OURS) == ""
    with pytest.raises(Refused, match=r"unknown contestant 'sax' \(did you mean sac\?\)"):
        missing("sax")


def test_who_cannot_act_in_a_task_says_why() -> None:
    with closing(make_env(RAW, "CartPole-v1", 1, 0)) as discrete, closing(make_env(RAW, "Hopper-v4", 1, 0)) as hopper:
        for name in CONTESTANTS:
            assert unfit(name, hopper) == ""
            assert ("continuous" in unfit(name, discrete)) == (name in [*OFF_POLICY, RLTOOLS])


def test_rltools_wants_vectors_and_a_time_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    actions = spaces.Box(-1, 1, (2,))
    worlds = {"Matrix-v0": ("matrix", 5), "Endless-v0": ("vector", None), "Fit-v0": ("vector", 5)}
    for name, (observations, limit) in worlds.items():
        kwargs = {"observation_space": OBSERVATIONS[observations], "action_space": actions}
        spec = EnvSpec(name, World, max_episode_steps=limit, kwargs=kwargs)
        monkeypatch.setitem(gymnasium.registry, name, spec)
    said = {}
    for name in worlds:
        with closing(make_env(RAW, name, 1, 0)) as env:
            said[name] = unfit(RLTOOLS, env)
            assert all(unfit(other, env) == "" for other in CONTESTANTS if other != RLTOOLS)
    assert "must be vectors" in said["Matrix-v0"]
    assert "time limit" in said["Endless-v0"]
    assert said["Fit-v0"] == ""

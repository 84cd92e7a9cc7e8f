"""rl_zoo3's own train and enjoy, with ACKTR among its algorithms."""

from pathlib import Path

import pytest
from stable_baselines3.common.vec_env import VecNormalize

from geonpg.agents import ACKTR
from geonpg.configs import load
from geonpg.scripts import rl_zoo

pytest.importorskip("rl_zoo3")

PENDULUM = ["--algo", "acktr", "--env", "InvertedPendulum-v4", "--seed", "1", "-f"]


def test_train_and_enjoy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    logs = [str(tmp_path), "--num-threads", "1"]
    assert rl_zoo.main(["train", *PENDULUM, *logs, "-n", "2000", "--eval-freq", "-1"]) == 0
    folder = tmp_path / "acktr" / "InvertedPendulum-v4_1"
    agent = ACKTR.load(folder / "InvertedPendulum-v4.zip")
    assert (agent.method, agent.n_steps, agent.n_envs, agent.target_kl) == ("geo", 64, 16, 0.003)
    assert agent.num_timesteps >= 2000
    assert (folder / "InvertedPendulum-v4" / "vecnormalize.pkl").exists()
    capsys.readouterr()
    assert rl_zoo.main(["enjoy", *PENDULUM, *logs, "--no-render", "-n", "300"]) == 0
    assert "Mean reward" in capsys.readouterr().out


def test_the_presets_are_the_zoos() -> None:
    hopper, settings = rl_zoo.hyperparams["Hopper-v4"], load("default", "Hopper-v4")
    assert (hopper["gamma"], hopper["n_envs"], hopper["n_timesteps"]) == (0.995, settings.n_envs, settings.steps)
    from torch import nn

    kwargs = eval(hopper["policy_kwargs"], {"nn": nn})
    assert kwargs["net_arch"] == {"pi": [64, 64], "vf": [64, 64]}
    assert kwargs["activation_fn"] is nn.Tanh
    assert set(eval(hopper["normalize"])) <= set(VecNormalize.__init__.__annotations__)


@pytest.mark.parametrize(
    ("given", "added"),
    [
        (["--algo", "acktr"], True),
        (["--algo=acktr"], True),
        (["--algo", "acktr", "--conf-file=mine.yml"], True),
        (["--algo", "ppo"], False),
    ],
)
def test_our_settings_come_first_so_that_named_ones_win(given: list[str], added: bool) -> None:
    ours = ["-conf", "geonpg.scripts.rl_zoo"] if added else []
    assert rl_zoo.with_our_settings(given) == [*ours, *given]

"""A run that the machine cannot hold is refused before its folder is made."""

from pathlib import Path

import pytest

from geonpg.configs import Settings
from geonpg.envs import make_vec
from geonpg.scripts import train
from geonpg.scripts.runs import memory
from geonpg.scripts.runs.memory import check_memory, machine_bytes

PENDULUM = ["--env", "InvertedPendulum-v4", "--set", "hidden=8", "--set", "critic_hidden=8", "--set", "eval_episodes=1"]
ABSURD = {
    "hidden=1000000": "hidden must be integers from 1 to 16,384",
    "hidden=16384,16384,16384,16384,16384": "of memory, and this machine has ",
    "n_steps=1000000000": "n_steps must be an integer from 1 to 1,000,000, not 1000000000",
    "n_steps=1e6,n_envs=16384": "of memory, and this machine has ",
    "n_envs=100000000000000000000": "n_envs must be an integer from 1 to 16,384, not 100000000000000000000",
    "env_threads=100000000000000": "env_threads must be an integer from 0 to 1,024, not 100000000000000",
    "eval_episodes=1e9": "eval_episodes must be an integer from 1 to 1,000, not 1000000000",
    "steps=1e20": "steps must be an integer from 1 to 999,999,999,999, not 100000000000000000000",
}


@pytest.mark.parametrize("settings", ABSURD)
def test_B6_absurd_numbers_are_one_sentence_and_leave_nothing_behind(
    settings: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chosen = [f"--set={part}" for part in settings.replace(",n_envs", " n_envs").split()]
    assert train.main([*PENDULUM, *chosen, "--folder", str(tmp_path / "run")]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert ABSURD[settings] in err
    assert list(tmp_path.iterdir()) == []


def test_B6_the_corrected_command_works(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [*PENDULUM, "--steps", "32", "--n-envs", "2", "--set=n_steps=16", "--folder", str(tmp_path / "run")]
    assert train.main([*command, "--set=env_threads=1e14"]) == 2
    assert train.main(command) == 0


def test_B6_the_sentence_names_what_to_lower(monkeypatch: pytest.MonkeyPatch) -> None:
    env = make_vec("InvertedPendulum-v4", n_envs=4)
    monkeypatch.setattr(memory, "machine_bytes", lambda: 10**8)
    check_memory(Settings(n_envs=4), env)
    needs = r"^this run needs at least \d+\.\d GB of memory, and this machine has 0\.1 GB: lower "
    with pytest.raises(ValueError, match=needs + "n_steps or n_envs$"):
        check_memory(Settings(n_envs=4, n_steps=100_000), env)
    with pytest.raises(ValueError, match=needs + "hidden or critic_hidden$"):
        check_memory(Settings(n_envs=4, hidden=(4096,)), env)


def test_a_container_has_less_than_its_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "CGROUP", tmp_path / "memory.max")
    whole = machine_bytes()
    (tmp_path / "memory.max").write_text("max\n")
    assert machine_bytes() == whole > 10**8
    (tmp_path / "memory.max").write_text("1000000\n")
    assert machine_bytes() == 1_000_000

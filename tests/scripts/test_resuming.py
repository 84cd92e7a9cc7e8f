"""What `train --resume` does with folders that are not as a run left them."""

import json
import logging
import shutil
import signal
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from commands import exit_code, refused
from short_runs import after_updates, results

from geonpg.agents.checkpoint import Checkpoints, archived, read, write
from geonpg.configs import load
from geonpg.scripts import train
from geonpg.scripts.common.locks import locked
from geonpg.scripts.runs import keeper, our_plan
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.run import Run

KEYS = ("n_steps=32", "hidden=8", "critic_hidden=8", "eval_every=300", "eval_episodes=2", "env_threads=1")
TINY = ("--env", "InvertedPendulum-v4", "--n-envs", "4", "--steps", "1024", *(f"--set={key}" for key in KEYS))


main = partial(exit_code, train.main)


def everything(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run from its beginning to its end."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main(*TINY, "--folder", folder) == 0
    return folder


@pytest.fixture(scope="module")
def half(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run, stopped in the middle, with two checkpoints."""
    folder = tmp_path_factory.mktemp("runs") / "half"
    with pytest.MonkeyPatch.context() as patch:
        after_updates(3, lambda run: signal.raise_signal(signal.SIGTERM), patch)
        assert main(*TINY, "--folder", folder) == 143
    return folder


@pytest.fixture
def stopped(half: Path, tmp_path: Path) -> Path:
    return shutil.copytree(half, tmp_path / "run")


@pytest.fixture
def ended(whole: Path, tmp_path: Path) -> Path:
    return shutil.copytree(whole, tmp_path / "run")


@pytest.mark.parametrize("gone", [(), ("final.ckpt",), ("final.ckpt", "evaluations.csv")])
def test_A2_a_run_with_results_and_no_checkpoint_is_not_begun_anew(
    gone: tuple[str, ...], ended: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(ended / "checkpoints")
    for name in gone:
        (ended / name).unlink()
    before = everything(ended)
    for steps in ([], ["--steps", "2048"]):
        assert f"{ended} h" in refused(capsys, train.main, "--resume", ended, *steps)
    assert everything(ended) == before


def test_A2_a_checkpoint_comes_before_the_first_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a run that was killed early can be told from one whose checkpoints were removed."""

    def kill(run: Run) -> None:
        raise KeyboardInterrupt

    after_updates(1, kill, monkeypatch)
    monkeypatch.setattr(keeper, "CHECKPOINT_SECONDS", 1e9)
    monkeypatch.setattr(our_plan, "CURVE_EVERY", 1)
    with pytest.raises(KeyboardInterrupt):
        main(*TINY, "--folder", tmp_path / "run")
    assert len(Checkpoints(tmp_path / "run" / "checkpoints").paths()) == 1


@pytest.mark.parametrize("name", ["final.ckpt", "curve.csv", "evaluations.csv", "times.csv"])
@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:-9])])
def test_A2_results_that_are_lost_are_made_again(
    name: str, damage: Callable[[Path], object], whole: Path, ended: Path
) -> None:
    damage(ended / name)
    assert main("--resume", ended) == 0
    assert (ended / name).read_bytes() == (whole / name).read_bytes()
    assert results(ended) == results(whole)


def test_A3_a_second_process_is_told(half: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(half)
    told = f"another process is at work in {half}: wait until it has ended, or choose another folder\n"
    with locked(half):
        assert refused(capsys, train.main, "--resume", half) == f"geonpg train: {told}"
        assert refused(capsys, train.main, *TINY, "--folder", half) == f"geonpg train: {told}"
    assert everything(half) == before


@pytest.mark.parametrize("comes_another", [False, True])
def test_A6_a_run_whose_folder_is_removed_stops_and_says_so(
    comes_another: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def remove(run: Run) -> None:
        run.folder.rename(tmp_path / "moved")
        if comes_another:
            run.folder.mkdir()

    after_updates(2, remove, monkeypatch)
    folder = tmp_path / "run"
    assert main(*TINY, "--folder", folder) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == (
        f"geonpg train: {folder} ended at 384 steps: "
        "its folder was removed or replaced while it trained, so it cannot be saved"
    )
    assert folder.exists() == comes_another
    assert not comes_another or not list(folder.iterdir())


@pytest.mark.parametrize("name", ['a "b" c', "back\\slash", "new\nline", "ümläut 😀", "tab\there", "\udcff"])
def test_A7_a_presets_file_name_may_be_anything(name: str, tmp_path: Path) -> None:
    preset = tmp_path / f"{name}.toml"
    preset.write_text("n_envs = 4\nn_steps = 32\nhidden = [8]\ncritic_hidden = [8]\n")
    plan = OurPlan("InvertedPendulum-v4", 0, load(str(preset)), str(preset))
    Run.begin(plan, tmp_path / "run").env.close()
    resumed = Run.resume(tmp_path / "run")
    assert resumed.plan == plan


def test_A8_other_versions_are_said_once_and_the_run_goes_on(
    stopped: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    facts = json.loads((stopped / "run.json").read_text())
    facts["versions"]["numpy"], facts["device"] = "1.0", "cuda"
    (stopped / "run.json").write_text(json.dumps(facts))
    with caplog.at_level(logging.WARNING):
        assert main("--resume", stopped) == 0
    assert len([line for line in caplog.messages if line.startswith("this run was begun with numpy 1.0, now ")]) == 1
    assert len([line for line in caplog.messages if line.startswith("this run was begun on cuda, which is not")]) == 1
    assert results(stopped) == results(whole)


@pytest.mark.parametrize("content", ['"seed": "0"', '"env": 5', '"device": null'])
def test_B4_a_run_json_with_wrong_types_is_refused(
    content: str, stopped: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = json.loads((stopped / "run.json").read_text()) | json.loads(f"{{{content}}}")
    (stopped / "run.json").write_text(json.dumps(facts))
    assert f"{stopped / 'run.json'} is damaged: " in refused(capsys, train.main, "--resume", stopped)


def test_C4_a_run_of_another_version_is_called_so(stopped: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = stopped / "config.toml"
    config.write_text(config.read_text() + "momentum = 0.5\n")
    said = refused(capsys, train.main, "--resume", stopped)
    assert f"{stopped} was begun by another version of geonpg (" in said
    assert "knows no setting momentum" in said


@pytest.fixture
def newest(stopped: Path) -> Path:
    """Of two checkpoints."""
    return Checkpoints(stopped / "checkpoints").paths()[-1]


def test_C4_a_checkpoint_of_another_version_is_called_so(newest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    state = read(newest)
    state["identity"]["momentum"] = 0.5
    write(newest, state)
    said = refused(capsys, train.main, "--resume", newest.parents[1])
    assert f"{newest} is not of this version, which knows no setting momentum" in said


def test_C4_a_checkpoint_from_before_a_setting_was_added_is_taken(newest: Path, whole: Path) -> None:
    for path in newest.parent.iterdir():
        state = read(path)
        del state["identity"]["advantage_floor"]
        write(path, state)
    assert main("--resume", newest.parents[1]) == 0
    assert results(newest.parents[1]) == results(whole)


EDITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "no agent": lambda s: s.pop("agent"),
    "agent a list": lambda s: s.update(agent=[]),
    "no policy": lambda s: s["agent"].pop("policy"),
    "no weight": lambda s: s["agent"]["policy"].pop("action_net.bias"),
    "a weight of another shape": lambda s: s["agent"]["policy"].update({"action_net.bias": torch.zeros(7)}),
    "a weight as text": lambda s: s["agent"]["policy"].update({"action_net.bias": "0"}),
    "an unknown learner": lambda s: s["agent"].update(target={}),
    "no rate": lambda s: s["agent"]["optimizer"]["param_groups"][0].pop("lr"),
    "a gradient as a list": lambda s: s["agent"]["optimizer"]["state"].update(gradient=[0.0]),
    "a longer step before": lambda s: s["agent"]["optimizer"]["state"].update(last=torch.zeros(3)),
    "inverses of another shape": lambda s: s["agent"]["optimizer"]["state"].update(inverses=[()]),
    "statistics in single precision": lambda s: s["agent"]["optimizer"]["state"].update(
        statistics=[tuple(x.float() for x in each) for each in s["agent"]["optimizer"]["state"]["statistics"]]
    ),
    "steps as text": lambda s: s["ranks"][0]["counters"].update(num_timesteps="512"),
    "no last observation": lambda s: s["ranks"][0]["counters"].update(_last_obs=None),
    "another last observation": lambda s: s["ranks"][0]["counters"].update(_last_obs=np.zeros((3, 4))),
    "no environments": lambda s: s["ranks"][0].update(env=None),
    "fewer generators": lambda s: s["ranks"][0]["env"]["venv"]["generators"].pop(),
    "a generator of another kind": lambda s: s["ranks"][0]["env"]["venv"]["generators"][0].update(bit_generator="X"),
    "a short torch generator": lambda s: s["ranks"][0]["random"].update(torch=torch.zeros(9, dtype=torch.uint8)),
    "a generator of python's": lambda s: s["ranks"][0]["random"].update(python=[3, [], None]),
    "no ranks": lambda s: s.pop("ranks"),
    "ranks a number": lambda s: s.update(ranks=1),
    "no curve": lambda s: s.pop("curve"),
    "a short row": lambda s: s["evaluations"][0].pop(),
    "an evaluation as text": lambda s: s["evaluations"][0].__setitem__(1, "18.5"),
    "a lost evaluation": lambda s: s["evaluations"].pop(),
    "an evaluation twice": lambda s: s["evaluations"].append(s["evaluations"][0]),
    "a return less": lambda s: s["evaluations"][0][3].pop(),
    "times without a curve": lambda s: s["times"].append([128, *[0.0] * 6]),
    "seconds": lambda s: s.update(seconds=None),
    "episodes": lambda s: s["agent"].update(episodes=[1.0]),
}


@pytest.mark.parametrize("name", EDITS)
def test_B3_unexpected_content_behind_a_right_checksum_is_passed_over(
    name: str, newest: Path, half: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state = read(newest)
    EDITS[name](state)
    write(newest, state)
    with caplog.at_level(logging.WARNING):
        resumed = Run.resume(newest.parents[1])
    (said,) = caplog.messages
    assert said.startswith(f"{newest} is not of this version: ")
    assert said.endswith("; trying the checkpoint before it")
    older = Checkpoints(half / "checkpoints").paths()[0]
    assert resumed.steps == read(older)["ranks"][0]["counters"]["num_timesteps"] < Run.resume(half).steps


@pytest.mark.parametrize("manifest", ["[" * 100_000 + "]" * 100_000, "3", '{"$array": ["O", [2], [0], 0]}', "{"])
def test_B3_content_that_cannot_be_unpacked_is_passed_over(
    manifest: str, newest: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest.write_bytes(archived(manifest, []))
    with caplog.at_level(logging.WARNING):
        Run.resume(newest.parents[1])
    (said,) = caplog.messages
    assert said.startswith(f"{newest} is not of this version: ")


def test_B3_from_the_older_checkpoint_the_run_ends_as_ever(newest: Path, whole: Path) -> None:
    state = read(newest)
    EDITS["no last observation"](state)
    write(newest, state)
    assert main("--resume", newest.parents[1]) == 0
    assert results(newest.parents[1]) == results(whole)


def test_B3_a_changed_number_of_steps_is_not_taken_for_the_runs_own(
    stopped: Path, whole: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A damaged config.toml, or a kill while a run was extended: the user says which number is meant."""
    config = stopped / "config.toml"
    config.write_text(config.read_text().replace("steps = 1024", "steps = 1824"))
    said = refused(capsys, train.main, "--resume", stopped)
    assert "it was to make 1024 steps, not 1824; name one of them by --steps" in said
    assert main("--resume", stopped, "--steps", "1024") == 0
    assert results(stopped) == results(whole)
    assert "steps = 1024" in config.read_text()


def test_B3_without_another_checkpoint_all_are_named(newest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = sorted(newest.parent.iterdir())
    for path in paths:
        write(path, {**read(path), "seconds": 1.0})
    said = refused(capsys, train.main, "--resume", newest.parents[1])
    for path in paths:
        assert f"{path} is not of this version: history.seconds is float, not a mapping" in said

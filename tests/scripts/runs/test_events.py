"""What a run leaves for TensorBoard, read as TensorBoard reads it."""

import csv
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from geonpg.scripts import train
from geonpg.scripts.runs import bar, keeper
from geonpg.scripts.runs.run import Run

SMALL = ("n_steps=16", "hidden=8", "critic_hidden=8", "eval_every=100", "eval_episodes=2", "env_threads=1")
RUN = ["--env", "InvertedPendulum-v4", "--n-envs", "4", "--steps", "1280", *(f"--set={key}" for key in SMALL)]
LAST = 1280  # after 20 updates, so that the last one is also one of those that are logged anyway

Points = dict[str, dict[int, float]]


def points(folder: Path) -> Points:
    """Every curve of a run; no two points at one step, nor a step back."""
    board = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    found = {}
    for tag in board.Tags()["scalars"]:
        steps = [event.step for event in board.Scalars(tag)]
        assert steps == sorted(set(steps)), tag
        found[tag] = {event.step: event.value for event in board.Scalars(tag)}
    return found


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert train.main([*RUN, "--folder", str(folder)]) == 0
    return folder


def test_curves_end_with_the_run(whole: Path) -> None:
    found = points(whole)
    assert {tag.split("/")[0] for tag in found} == {"rollout", "train", "geometry", "time", "eval"}
    for tag in ("rollout/ep_rew_mean", "rollout/ep_len_mean", "train/approx_kl", "geometry/actual_kl", "time/fps"):
        assert max(found[tag]) == LAST, tag
    assert not [tag for tag in found if tag.startswith("geometry/") and "seconds" in tag]
    assert {f"time/seconds_{phase}" for phase in ("rollout", "values", "policy", "critic")} <= set(found)


def test_evaluations_are_logged_where_they_are_made(whole: Path) -> None:
    found = points(whole)
    with (whole / "evaluations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 3
    assert found["eval/mean_reward"] == pytest.approx({int(row["steps"]): float(row["mean"]) for row in rows})
    # a pendulum earns 1 for every step but the last at the most
    assert set(found["eval/mean_ep_length"]) == set(found["eval/mean_reward"])
    for step, length in found["eval/mean_ep_length"].items():
        assert 0 <= length - found["eval/mean_reward"][step] <= 1


def test_a_point_of_train_is_of_the_update_at_its_step(whole: Path) -> None:
    found = points(whole)
    with (whole / "curve.csv").open() as file:
        curve = {int(row["steps"]): row for row in csv.DictReader(file)}
    assert len(curve) == 2
    for step, row in curve.items():
        assert found["train/approx_kl"][step] == pytest.approx(float(row["kl"]))
        assert found["rollout/ep_rew_mean"][step] == pytest.approx(float(row["return"]))


def test_a_run_has_one_events_file_and_it_is_not_empty(whole: Path) -> None:
    files = list(whole.glob("events.out.*"))
    assert len(files) == 1
    assert files[0].stat().st_size > 88


def test_a_resumed_run_has_the_curves_of_a_whole_one(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was killed after the update at 512 steps; what it had logged since its checkpoint is taken back."""

    class Killed(Exception):
        pass

    def watch(self: bar.Bar, run: Run) -> None:
        keeper.CHECKPOINT_SECONDS = 0.0 if run.steps < 320 else 1e9
        if run.steps == 768:
            raise Killed

    monkeypatch.setattr(keeper, "CHECKPOINT_SECONDS", 0.0)
    with monkeypatch.context() as patch:
        patch.setattr(bar.Bar, "__call__", watch)
        with pytest.raises(Killed):
            train.main([*RUN, "--folder", str(tmp_path / "run")])
    assert max(points(tmp_path / "run")["eval/mean_reward"]) > 320
    assert train.main(["--resume", str(tmp_path / "run")]) == 0
    truth, found = points(whole), points(tmp_path / "run")
    assert set(found) == set(truth)
    for tag in truth:
        assert list(found[tag]) == list(truth[tag]), tag
        assert tag.startswith("time/") or found[tag] == truth[tag], tag

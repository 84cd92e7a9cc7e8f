"""The command `geonpg deepnets`: what it leaves behind, stopping and continuing, and what it says about its data."""

import csv
import gzip
import signal
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from scipy.io import savemat

from geonpg.scripts import deepnets
from geonpg.scripts.deep import runs as deepnets_runs
from geonpg.scripts.deep import study as deepnets_study
from geonpg.scripts.deep.data import FACES_FILE, MNIST_FILES, DataError, centred_mnist, faces, mnist, read_idx
from geonpg.scripts.deep.drawn import SIDE, curves, digits
from geonpg.scripts.deep.figures import figures_of, levels_table, paper_table, run_figure, summary_table
from geonpg.scripts.deep.methods import METHODS
from geonpg.scripts.deep.runs import Run, first_at_or_below, resume, train
from geonpg.scripts.deep.tasks import TASKS, autoencoder, classifier, prepare

TINY = ["--cases", "40", "--test-cases", "10"]


def run(out: Path, *arguments: str, task: str = "curves") -> int:
    return deepnets.main(["--task", task, "--out", str(out), *TINY, *arguments])


def rows(path: Path) -> list[dict[str, str]]:
    """Everything but how long it took."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {name: cell for name, cell in row.items() if not name.endswith("seconds")} for row in csv.DictReader(file)
        ]


def refusal(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one sentence that a wrong call is answered with."""
    with pytest.raises(SystemExit) as stopped:
        deepnets.main(list(arguments))
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_help_names_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        deepnets.main(["--help"])
    words = capsys.readouterr().out.replace(",", " ").split()
    assert {*TASKS, *METHODS} <= set(words)


def test_a_wrong_name_is_answered_with_the_right_ones(capsys: pytest.CaptureFixture[str]) -> None:
    said = refusal(capsys, "--task", "curve")
    assert said == f"geonpg deepnets: unknown task 'curve': choose one of {', '.join(TASKS)}"
    said = refusal(capsys, "--task", "curves", "--method", "geo", "newton")
    assert said == f"geonpg deepnets: unknown method 'newton': choose one of {', '.join(METHODS)}"


@pytest.mark.parametrize("task", TASKS)
def test_leaves_tables_and_a_figure(task: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--method", "ng", "geo", "--updates", "2", task=task) == 0
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"tables.md", "figure.png", "settings.json", "ng.csv", "geo.csv", "ng.state", "geo.state"}
    assert imread(tmp_path / "figure.png")[..., :3].std() > 0.02
    assert [row["update"] for row in rows(tmp_path / "ng.csv")] == ["1", "2"]
    assert all(float(row["train_error"]) >= 0 for row in rows(tmp_path / "geo.csv"))
    assert "CPU s/update" in capsys.readouterr().out


def test_C16_without_a_folder_nothing_goes_into_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert deepnets.main(["--task", "curves", *TINY, "--method", "adam-full", "--updates", "1"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert (tmp_path / "runs/deepnets/curves-small/tables.md").exists()


def test_the_small_size_uses_one_thread_unless_told_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(torch, "set_num_threads", asked.append)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 7)
    run(tmp_path, "--method", "adam-full", "--updates", "1")
    run(tmp_path, "--method", "adam-full", "--updates", "1", "--threads", "2")
    run(tmp_path / "full", "--method", "adam-full", "--updates", "1", "--size", "full")
    assert asked == [1, 2, 7]


def test_the_small_curvature_study_has_a_figure_of_its_own(tmp_path: Path) -> None:
    assert run(tmp_path, "--method", "geodesic", "--updates", "1") == 0
    assert {path.name for path in tmp_path.glob("*.png")} == {"figure.png"}
    assert run(tmp_path, "--method", "ng", "perturb", "--updates", "1") == 0
    assert imread(tmp_path / "small-curvature.png")[..., :3].std() > 0.02
    known = deepnets_study.known_runs(tmp_path)
    lines = {name: len(figure.axes[0].lines) for name, figure in figures_of(known, "", "", False).items()}
    assert lines == {"figure.png": 2, "small-curvature.png": 6}  # training and test of ng; of all three


@pytest.mark.parametrize("name", METHODS)
def test_continuing_is_bit_exact(name: str, tmp_path: Path) -> None:
    size = replace(TASKS["curves"].sizes["small"], train=40, test=10)

    def continued(folder: Path, *stops: int) -> Run:
        """Trained to each stop in turn, from the file that the last one left."""
        folder.mkdir()
        for stop in stops:
            experiment = prepare(TASKS["curves"], size, None, 0)
            run = Run(name, METHODS[name](experiment, 0))
            resume(run, folder, stop)
            assert train(run, experiment, stop, folder, lambda run: None)
        return run

    straight, resumed = continued(tmp_path / "straight", 4), continued(tmp_path / "resumed", 2, 3, 4)
    assert rows(tmp_path / "resumed" / f"{name}.csv") == rows(tmp_path / "straight" / f"{name}.csv")
    assert torch.equal(resumed.method.y, straight.method.y)


def test_an_interrupt_saves_and_the_same_command_continues(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    advance, arguments = Run.advance, ("--method", "geof", "ng", "--updates", "3")
    run(tmp_path / "straight", *arguments)

    def interrupted(self: Run, experiment: object) -> None:
        advance(self, experiment)
        if len(self.rows) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(deepnets_runs.Run, "advance", interrupted)
    assert run(tmp_path / "stopped", *arguments) == 130
    assert "the same command continues" in capsys.readouterr().err
    assert len(rows(tmp_path / "stopped" / "geof.csv")) == 2
    assert not (tmp_path / "stopped" / "ng.csv").exists()
    monkeypatch.setattr(deepnets_runs.Run, "advance", advance)
    assert run(tmp_path / "stopped", *arguments) == 0
    for name in ("geof.csv", "ng.csv"):
        assert rows(tmp_path / "stopped" / name) == rows(tmp_path / "straight" / name)


def test_a_state_of_another_run_or_a_damaged_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "--method", "ng", "--updates", "1")
    capsys.readouterr()
    command = ["--task", "curves", "--out", str(tmp_path), *TINY, "--method", "ng", "--updates", "1"]
    assert "was made with other settings, title (" in refusal(capsys, *command, "--method", "adam", "--seed", "1")
    (tmp_path / "ng.state").write_bytes(b"no state")
    assert "is not a geonpg checkpoint; remove it" in refusal(capsys, *command)


def test_a_table_without_its_state_is_never_begun_anew(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tables are committed, states are not: one that is long enough stands, a shorter one is not overwritten."""
    run(tmp_path, "--method", "adam-full", "--updates", "2")
    (tmp_path / "adam-full.state").unlink()
    before = (tmp_path / "adam-full.csv").read_bytes()
    assert run(tmp_path, "--method", "adam-full", "--updates", "1") == 0
    command = ["--task", "curves", "--out", str(tmp_path), *TINY, "--method", "adam-full", "--updates", "3"]
    capsys.readouterr()
    assert "has 2 updates, and adam-full.state, from which to go on, is missing" in refusal(capsys, *command)
    assert (tmp_path / "adam-full.csv").read_bytes() == before


def test_true_architectures() -> None:
    widths = {
        "curves": (784, 400, 200, 100, 50, 25, 6),
        "mnist": (784, 1000, 500, 250, 30),
        "faces": (625, 2000, 1000, 500, 30),
        "mnist-classifier": (784, 1000, 500, 250, 30, 10),
    }
    assert {name: task.sizes["full"].widths for name, task in TASKS.items()} == widths
    layers = [type(layer).__name__ for layer in autoencoder((9, 5, 3))]
    assert layers == ["Linear", "Sigmoid", "Linear", "Linear", "Sigmoid", "Linear"]
    assert autoencoder((9, 5, 3))(torch.zeros(2, 9)).shape == (2, 9)
    assert classifier((9, 5, 3))(torch.zeros(2, 9)).shape == (2, 3)


def test_curves_are_seeded_ink_inside_the_image() -> None:
    images = curves(300, 0)
    assert images.shape == (300, SIDE * SIDE)
    assert images.dtype == np.float32
    assert (images >= 0).all()
    assert (images <= 1).all()
    assert np.array_equal(images, curves(300, 0))
    assert not np.array_equal(images, curves(300, 1))
    drawn = (images.reshape(-1, SIDE, SIDE) > 0.5).any(1)  # columns with ink
    assert (drawn.sum(1) >= 4).all(), "three points at least 2 apart are at least 4 wide"
    holes = [np.ptp(np.flatnonzero(columns)) + 1 - columns.sum() for columns in drawn]
    assert max(holes) == 0, "a curve has no gaps"


def test_the_stand_in_digits_can_be_told_apart() -> None:
    images, labels = digits(400, 0)
    guesses = labels[:300][((images[300:, None] - images[:300]) ** 2).sum(-1).argmin(1)]
    assert (guesses == labels[300:]).mean() > 0.7


def write_idx(folder: Path, name: str, array: np.ndarray, zipped: bool) -> None:
    raw = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()
    path = folder / (f"{name}.gz" if zipped else name)
    path.write_bytes(gzip.compress(raw) if zipped else raw)


def fake_mnist(folder: Path, zipped: bool = False) -> np.ndarray:
    images = np.random.default_rng(0).integers(0, 256, (30, SIDE, SIDE), dtype=np.uint8)
    for pixels, labels in MNIST_FILES.values():
        write_idx(folder, pixels, images, zipped)
        write_idx(folder, labels, np.arange(30) % 10, zipped)
    return images


@pytest.mark.parametrize("zipped", [False, True])
def test_mnist_is_read_plain_and_gzipped(tmp_path: Path, zipped: bool) -> None:
    images = fake_mnist(tmp_path, zipped)
    split = mnist(tmp_path, 20, 10, 0)
    assert split.train.shape == (20, 784)
    known = {row.tobytes(): k % 10 for k, row in enumerate(images.reshape(30, -1) / np.float32(255))}
    assert split.train_labels is not None
    assert [known[row.tobytes()] for row in split.train] == split.train_labels.tolist()
    centred = centred_mnist(tmp_path, 20, 10, 0).train
    assert np.abs(centred.mean(0)).max() < 1e-5
    assert centred.std() == pytest.approx(1, abs=1e-3)


def test_faces_keep_people_apart(tmp_path: Path) -> None:
    """Every photograph is filled with the number of its person, and so is every patch."""
    people = np.repeat(np.arange(40), 10)
    savemat(tmp_path / FACES_FILE, {"faces": np.broadcast_to(people, (4096, 400)).astype(np.uint8)})
    split = faces(tmp_path, 60, 30, 0)
    scale = (np.ptp(split.train[:, 0])) / (np.ptp(np.unique(split.train[:, 0])))
    assert scale == pytest.approx(1)
    assert split.train.shape == (60, 625)
    assert len(np.unique(split.test[:, 0].round(4))) <= 10
    assert split.test.min() > split.train.max(), "the last ten people come after the first twenty-five"


def test_missing_and_damaged_data_are_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = ("--task", "mnist", "--size", "full", "--out", str(tmp_path / "out"))
    assert "needs --data DIR, a folder that holds MNIST's four IDX files" in refusal(capsys, *full)
    assert "is not a folder" in refusal(capsys, *full, "--data", str(tmp_path / "nowhere"))
    assert "no train-images-idx3-ubyte" in refusal(capsys, *full, "--data", str(tmp_path))
    fake_mnist(tmp_path)
    assert "fewer than the 60000" in refusal(capsys, *full, "--data", str(tmp_path))
    path = tmp_path / MNIST_FILES["train"][0]
    path.write_bytes(path.read_bytes()[:-5])
    assert "damaged" in refusal(capsys, *full, "--data", str(tmp_path))
    path.unlink()
    path.with_name(f"{path.name}.gz").write_bytes(b"\x1f\x8b cut off")
    assert "damaged" in refusal(capsys, *full, "--data", str(tmp_path))
    people = ("--task", "faces", "--size", "full", "--out", str(tmp_path / "out"), "--data", str(tmp_path))
    assert FACES_FILE in refusal(capsys, *people)
    (tmp_path / FACES_FILE).write_bytes(b"MATLAB 5.0, not really")
    assert "damaged" in refusal(capsys, *people)
    assert "--cases must be at least 4, not 2" in refusal(capsys, "--task", "curves", "--cases", "2")
    assert "--threads: must be from 1 to 1,024, not 0" in refusal(capsys, "--task", "curves", "--threads", "0")
    (tmp_path / "short").write_bytes(b"\0")
    with pytest.raises(DataError, match="damaged"):
        read_idx(tmp_path, "short")


def test_every_method_lowers_the_error(tmp_path: Path) -> None:
    task = TASKS["curves"]
    size = task.sizes["small"]
    experiment = prepare(task, replace(size, train=100, test=20), None, 0)
    for name, make in METHODS.items():
        method = make(experiment, 0)
        start = experiment.problem.evaluate(method.y).error
        for _ in range(3):
            progress = method.update()
        assert progress.train_error < start, name


def course(*errors: float) -> list[dict[str, float]]:
    """A run with these training errors."""
    return [
        {"update": float(k), "cpu_seconds": 2.0 * k, "train_error": e, "test_error": e + 1, "damping": 1.0}
        for k, e in enumerate(errors, 1)
    ]


def test_the_papers_points_stand_beside_ours_as_far_as_we_went() -> None:
    runs = {"ng": course(*range(45, 0, -1)), "mid": course(3, 2), "kfac": course(4, 3)}
    circles = [line for line in run_figure(runs, "t", "error", paper=True).axes[0].lines if line.get_marker() == "o"]
    points = {tuple(zip(*line.get_data(), strict=True)) for line in circles}
    assert points == {((20, 38.8), (40, 20.0)), ()}


def test_tables_count_updates() -> None:
    runs = {"ng": course(9, 7, 6), "geo": course(9, 5.5, 4), "geof": course(9, 8, 7)}
    assert [row[-1] for row in summary_table(runs, "t", "error").rows] == [3, 2, "-"]
    levels = levels_table(runs)
    assert levels.columns == ("method", "7", "5")
    assert levels.rows == [["ng", 2, "-"], ["geo", 2, 3], ["geof", 3, "-"]]
    assert paper_table({"ng": course(*range(40, 0, -1))}).rows == [["ng", "21 / 38.8", "1 / 20.0", "- / 4.67"]]
    assert first_at_or_below(runs["geo"], 9) == 1

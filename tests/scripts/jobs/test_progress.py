"""How far a study is, and what is shown of it."""

from io import StringIO
from pathlib import Path

import pytest

from geonpg.scripts.jobs import progress
from geonpg.scripts.jobs.job import Job
from geonpg.scripts.jobs.progress import Board, Display, Progress, duration, progress_of, speed_of, time_left
from geonpg.scripts.runs.folder import CURVE, TIMES, CurveRow, Times


def job(env_id: str, family: str = "default", seed: int = 0, steps: int = 1000) -> Job:
    return Job(env_id, family, "geo", seed, {"steps": steps}, "train", ())


def fill(folder: Path, steps: int, seconds: float) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    CURVE.write(folder, [CurveRow(at, 12.34, 0.0, 0.0, 0.0, 0.0, 0.0, 0) for at in (1, steps)])
    TIMES.write(folder, [Times(steps, seconds, 0.0, 0.0, 0.0, 0.0, 0.0)])


def test_the_speed_is_that_of_the_runs_most_alike() -> None:
    measured = [
        (job("Hopper-v4"), Progress(100, 1.0)),
        (job("Hopper-v4", seed=1), Progress(500, 2.0)),
        (job("Reacher-v4"), Progress(4000, 1.0)),
        (job("Reacher-v4", seed=1), Progress()),
        (job("Hopper-v4", "ppo"), Progress(30, 1.0)),
    ]
    assert speed_of(job("Hopper-v4", seed=7), [], measured) == 200
    assert speed_of(job("Walker2d-v4"), [], measured) == 4600 / 4
    assert speed_of(job("Walker2d-v4", "ppo"), [], measured) == 30
    assert speed_of(job("Walker2d-v4", "trpo"), [], measured) == 4630 / 5
    assert speed_of(job("Walker2d-v4"), [], [(job("Walker2d-v4"), Progress())]) is None


def test_what_was_measured_lately_is_believed_first() -> None:
    ever = [(job("Hopper-v4"), Progress(100, 1.0)), (job("Reacher-v4"), Progress(300, 1.0))]
    lately = [(job("Hopper-v4"), Progress(50, 0.1)), (job("Reacher-v4"), Progress())]
    assert speed_of(job("Hopper-v4", seed=1), lately, ever) == 500
    assert speed_of(job("Walker2d-v4"), lately, ever) == 500
    assert speed_of(job("Reacher-v4", seed=1), lately, ever) == 300  # of an equal run, though earlier


def test_a_busy_past_does_not_lengthen_the_time_left() -> None:
    jobs = [job("Hopper-v4", seed=seed) for seed in range(3)]
    past = {j.name: Progress() for j in jobs} | {jobs[0].name: Progress(1000, 100.0), jobs[1].name: Progress(200, 20.0)}
    now = past | {jobs[1].name: Progress(600, 24.0)}  # 400 steps in 4 seconds
    assert time_left(jobs, past, past, [jobs[0].name], 1) == pytest.approx(180)
    assert time_left(jobs, now, past, [jobs[0].name], 1) == pytest.approx(14)


def test_the_time_left() -> None:
    jobs = [job("Hopper-v4", seed=seed) for seed in range(5)]
    nothing = {j.name: Progress() for j in jobs}
    now = dict(nothing)
    assert time_left(jobs, now, nothing, [], 2) is None
    now |= {jobs[0].name: Progress(1024, 10.24), jobs[1].name: Progress(600, 6.0)}  # 100 steps per second
    assert time_left(jobs, now, nothing, [jobs[0].name], 2) == pytest.approx((4 + 10 + 10 + 10) / 2)
    assert time_left(jobs, now, nothing, [jobs[0].name], 40) == pytest.approx(10)  # the longest run
    assert time_left(jobs, now, nothing, [j.name for j in jobs], 2) == 0


def test_a_board_reads_the_runs(tmp_path: Path) -> None:
    jobs = [job("Hopper-v4", seed=seed) for seed in range(4)]
    first, second, third, _ = (tmp_path / j.name for j in jobs)
    fill(first, 1024, 10.24)
    (first / "done.json").write_text("{}")
    (first / "evaluations.csv").write_text("steps,mean\n1000,1.0\n")
    board = Board(jobs, tmp_path)
    fill(second, 500, 5.0)
    assert board.steps == 1000  # of a run's own budget
    board.look([jobs[1].name])
    top, *rest = board.lines([jobs[1].name, jobs[2].name], [jobs[3].name], 2)
    assert top.startswith("1 of 4 runs done, 1 failed, 1,500 of 4,000 steps, ")
    assert top.endswith(", 10 s left")
    assert rest == [f"  {jobs[1].name}: 500 steps, return 12.3", f"  {jobs[2].name}: starting"]
    assert progress_of(third).steps == 0


def test_a_run_that_lost_its_last_rows_to_a_kill_does_not_go_backwards(tmp_path: Path) -> None:
    """Rows may be ten seconds ahead of the checkpoint from which it goes on, more slowly here."""
    (run,) = jobs = [job("Hopper-v4", seed=0)]
    fill(tmp_path / run.name, 600, 6.0)
    board = Board(jobs, tmp_path)
    for steps, seconds, left in ((500, 5.0, "5 s"), (510, 6.0, "49 s"), (550, 10.0, "45 s")):
        fill(tmp_path / run.name, steps, seconds)
        board.look([run.name])
        assert board.lines([], [], 1)[0].endswith(f", {left} left"), steps


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (59, "59 s"), (61, "2 min"), (3599, "1 h 00 min"), (7500, "2 h 05 min")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_is_refreshed_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "11")
    terminal = Terminal()
    display = Display(terminal)
    display.show(["a long first line", "second"])
    display.show(["another"])
    assert terminal.getvalue() == "a long fir\x1b[K\nsecond\x1b[K\n\x1b[J" + "\x1b[2Fanother\x1b[K\n\x1b[J"


def test_elsewhere_one_line_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    file = StringIO()
    display = Display(file)
    assert display.is_due
    display.show(["first", "second"])
    assert file.getvalue() == "first\n"
    assert not display.is_due
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    assert display.is_due

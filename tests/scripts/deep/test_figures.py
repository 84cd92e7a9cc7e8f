"""Tables and figures of made-up runs."""

from geonpg.scripts.deep.figures import levels_table, paper_table, run_figure, summary_table


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

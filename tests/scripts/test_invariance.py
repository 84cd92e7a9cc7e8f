"""The command `geonpg invariance`, run once in its small form, and the model behind it."""

import csv
import math
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from itertools import combinations
from pathlib import Path

import pytest
import torch
from matplotlib.image import imread
from torch import Tensor
from torch.distributions import Gamma, kl_divergence
from torch.func import hessian, jacfwd

from geonpg.scripts import cli, invariance
from geonpg.scripts.geometry import study as invariance_study
from geonpg.scripts.geometry.gamma import CHARTS, STEP_COST, Chart, Sample, Task, fisher, follow, gamma_flow, spread
from geonpg.scripts.geometry.orders import fitted_slope
from geonpg.scripts.geometry.study import Results, Scale

CSV_FILES = {
    "gamma_invariance.csv", "gamma_speed.csv", "gamma_trajectories.csv", "orders.csv", "order_errors.csv",
    "policy_slopes.csv", "policy_linear.csv", "policy_kl.csv",
}  # fmt: skip
PNG_FILES = {"gamma.png", "orders.png", "policy.png"}


@dataclass(frozen=True)
class Outcome:
    code: int
    out: Path
    printed: str
    results: Results

    def rows(self, name: str) -> list[dict[str, str]]:
        with (self.out / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    out, kept, run = tmp_path_factory.mktemp("results") / "new" / "folder", list[Results](), invariance_study.run

    def remember(scale: Scale) -> Results:
        kept.append(run(scale))
        return kept[0]

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.setattr(invariance_study, "run", remember)
        code = invariance.main(["--quick", "--out", str(out)])
    return Outcome(code, out, printed.getvalue(), kept[0])


def test_leaves_every_file_and_no_other(quick: Outcome) -> None:
    assert quick.code == 0
    assert {path.name for path in quick.out.iterdir()} == CSV_FILES | PNG_FILES | {"tables.md"}
    assert all(str(path) in quick.printed for path in quick.out.iterdir())


@pytest.mark.parametrize("name", sorted(CSV_FILES))
def test_csv_is_complete(quick: Outcome, name: str) -> None:
    rows = quick.rows(name)
    assert rows
    assert all(None not in row and all(cell != "" for cell in row.values()) for row in rows)


@pytest.mark.parametrize("name", sorted(PNG_FILES))
def test_figure_is_not_blank(quick: Outcome, name: str) -> None:
    pixels = imread(quick.out / name)
    assert pixels.shape[0] > 400
    assert pixels[..., :3].std() > 0.05


def test_tables_are_printed_and_kept(quick: Outcome) -> None:
    text = (quick.out / "tables.md").read_text(encoding="utf-8")
    for table in quick.results.tables():
        assert table.markdown() in text
        assert table.markdown() in quick.printed


def trajectories(quick: Outcome, method: str) -> list[list[tuple[float, float]]]:
    """The method's (alpha, beta) per parameterisation, as the file has them."""
    found: dict[str, list[tuple[float, float]]] = {}
    for row in quick.rows("gamma_trajectories.csv"):
        if row["method"] == method:
            found.setdefault(row["parameterisation"], []).append((float(row["alpha"]), float(row["beta"])))
    assert len(found) == len(CHARTS)
    return list(found.values())


def largest_distance(paths: list[list[tuple[float, float]]]) -> float:
    return max(math.dist(p, q) for a, b in combinations(paths, 2) for p, q in zip(a, b, strict=True))


@pytest.mark.parametrize("method", ["ng_exact", "geo_exact"])
def test_exact_methods_coincide(quick: Outcome, method: str) -> None:
    assert largest_distance(trajectories(quick, method)) < 1e-6


def test_plain_natural_gradient_depends_on_the_parameterisation(quick: Outcome) -> None:
    ng, geo = (largest_distance(trajectories(quick, method)) for method in ("ng", "geo"))
    assert ng > 0.1
    assert geo < ng / 2


def test_orders_are_the_theorem_s(quick: Outcome) -> None:
    for row in quick.rows("orders.csv"):
        assert float(row["slope"]) == pytest.approx(float(row["expected"]), abs=0.25), row


def test_policy_slopes(quick: Outcome) -> None:
    for row in quick.rows("policy_slopes.csv"):
        assert float(row["slope"]) == pytest.approx(float(row["expected"]), abs=0.25), row


def test_linear_change_of_parameters_is_rounding(quick: Outcome) -> None:
    assert all(float(row["KL as a part of the predicted KL"]) < 1e-15 for row in quick.rows("policy_linear.csv"))


def test_threads_are_given_back(quick: Outcome) -> None:
    before = torch.get_num_threads()
    with invariance_study.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


def test_C16_without_a_folder_nothing_goes_into_results(
    quick: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(invariance_study, "run", lambda scale: quick.results)  # once is enough
    assert invariance.main(["--quick"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert (tmp_path / "runs/invariance/tables.md").exists()


def test_exact_methods_that_differ_are_exit_code_1(
    quick: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gamma = quick.results.gamma
    wrong = replace(gamma, trajectories={**gamma.trajectories, "ng_exact": gamma.trajectories["ng"]})
    monkeypatch.setattr(invariance_study, "run", lambda scale: replace(quick.results, gamma=wrong))
    monkeypatch.setattr(invariance_study, "write", lambda results, out: [])
    assert invariance.main(["--quick", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["--nonsense"], ["extra"], ["--out"]])
def test_wrong_argument_is_one_sentence_and_exit_code_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        cli.main(["invariance", *arguments])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_folder_that_cannot_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as exit_:
        invariance.main(["--out", str(tmp_path / "file" / "folder")])
    assert exit_.value.code == 2
    assert "cannot make the folder" in capsys.readouterr().err


POINT = torch.tensor([3.0, 2.0], dtype=torch.float64)


def test_fisher_is_the_curvature_of_kl() -> None:
    def kl(point: Tensor) -> Tensor:
        return kl_divergence(Gamma(*POINT, validate_args=False), Gamma(*point, validate_args=False))

    assert torch.allclose(fisher(*POINT), hessian(kl)(POINT), rtol=1e-8)


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_chart_pulls_the_metric_back(chart: Chart) -> None:
    y, v = chart.from_model(POINT), torch.tensor([0.3, -0.7], dtype=torch.float64)
    assert torch.allclose(chart.to_model(y), POINT)
    moved = jacfwd(chart.to_model)(y) @ v
    assert gamma_flow(chart, Sample.draw()).speed_squared(y, v) == pytest.approx(float(moved @ fisher(*POINT) @ moved))


def test_best_fit_has_no_gradient() -> None:
    sample = Sample.draw()
    assert gamma_flow(CHARTS[0], sample).velocity(sample.best()).norm() < 1e-8


@pytest.mark.parametrize("method", ["ng", "mid", "geo"])
def test_trajectory_that_leaves_the_domain_is_kept_up_to_there(method: str) -> None:
    task = Task(Sample.draw(), torch.ones(2, dtype=torch.float64), h=8.0, steps=5)
    ticks: list[float] = []
    found = [follow(method, chart, task, ticks.append) for chart in CHARTS]
    left = [t for t in found if t.left_domain]
    assert left
    assert all(len(t.points) <= 5 and bool((t.points > 0).all()) for t in left)
    assert all(bool(t.points.isfinite().all()) for t in found)
    assert math.isfinite(spread(found).largest)
    assert sum(ticks) == pytest.approx(5 * len(CHARTS) * STEP_COST[method])  # the progress bar misses nothing


def test_fitted_slope_passes_over_what_has_no_logarithm() -> None:
    assert fitted_slope([1, 2, 4, 8], [3, 12, math.nan, 192]) == pytest.approx(2)
    assert math.isnan(fitted_slope([1, 2], [1, 0]))

"""The command `geonpg invariance`, run once in its small form: what it writes, and what that shows."""

import csv
import math
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from io import StringIO
from itertools import combinations
from pathlib import Path

import pytest
from matplotlib.image import imread

from geonpg.scripts import cli, invariance
from geonpg.scripts.geometry import study as invariance_study
from geonpg.scripts.geometry.gamma import CHARTS
from geonpg.scripts.geometry.study import InvarianceResults, Workload

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
    results: InvarianceResults

    def rows(self, name: str) -> list[dict[str, str]]:
        with (self.out / name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    out, kept = tmp_path_factory.mktemp("results") / "new" / "folder", list[InvarianceResults]()
    run = invariance_study.run_experiments

    def remember(workload: Workload) -> InvarianceResults:
        kept.append(run(workload))
        return kept[0]

    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as printed:
        patch.setattr(invariance_study, "run_experiments", remember)
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


def test_C16_without_a_folder_nothing_goes_into_results(
    quick: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(invariance_study, "run_experiments", lambda workload: quick.results)  # once is enough
    monkeypatch.setattr(InvarianceResults, "figures", lambda results: {})
    assert invariance.main(["--quick"]) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]
    assert (tmp_path / "runs/invariance/tables.md").exists()


def test_exact_methods_that_differ_are_exit_code_1(
    quick: Outcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    gamma = quick.results.gamma
    wrong = replace(gamma, trajectories={**gamma.trajectories, "ng_exact": gamma.trajectories["ng"]})
    monkeypatch.setattr(invariance_study, "run_experiments", lambda workload: replace(quick.results, gamma=wrong))
    monkeypatch.setattr(invariance_study, "write_results", lambda results, out: [])
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

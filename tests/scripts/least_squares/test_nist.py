"""NIST's regressions: what NIST certifies follows from the data and models as they are stored."""

import re

import pytest
import torch

from geonpg.scripts.least_squares.nist import FOLDER, MODELS, STARTS, make_regression, read_dataset
from geonpg.scripts.least_squares.problem import Residuals

every_problem = pytest.mark.parametrize("name", MODELS)
# Its certified sum, 1.4e-25, is less than rounding its parameters to eleven digits makes of it.
ROUNDED = {"Lanczos1": 1e-20}


def test_all_problems_are_there() -> None:
    stored = {path.name.removesuffix(".toml") for path in FOLDER.iterdir()}
    assert stored == set(MODELS)
    assert len(MODELS) == 27


@every_problem
def test_certified_parameters_give_the_certified_sum_of_squares(name: str) -> None:
    data = read_dataset(name)
    left = torch.stack([data.predict(data.certified, x) for x in data.x]) - data.y
    rss = float(left.square().sum())
    assert rss < ROUNDED[name] if name in ROUNDED else rss == pytest.approx(data.rss, rel=1e-9)


@every_problem
def test_nothing_lowers_the_sum_at_the_certified_parameters(name: str) -> None:
    """What a Gauss-Newton step from there changes is in digits that are not certified."""
    data, residuals = read_dataset(name), Residuals(make_regression(name, 0))
    named = residuals.named(data.certified)
    scale = data.certified.abs()
    step = torch.linalg.lstsq(residuals.jacobian(named) * scale, residuals.vector(named), driver="gelsd").solution
    assert float(step.abs().max()) < 1e-8


@every_problem
def test_starts_are_two_and_not_the_solution(name: str) -> None:
    problems = [make_regression(name, start) for start in range(STARTS)]
    first, second = (Residuals(problem).start() for problem in problems)
    assert len(first) == len(second) == len(read_dataset(name).certified)
    assert not torch.equal(first, second)
    for problem in problems:
        residuals = Residuals(problem)
        assert problem.error() > 1e-3
        residuals.write(read_dataset(name).certified)
        assert problem.error() == 0.0


@every_problem
def test_the_models_are_those_that_the_files_name(name: str) -> None:
    """NIST's own formula, as Python, gives what our model gives."""
    data, text = read_dataset(name), (FOLDER / f"{name}.toml").read_text(encoding="utf-8")
    (formula,) = re.findall(r'^model = "(?:log\[y\]|y) = +(.*)"$', text, re.M)
    formula = formula.replace("[", "(").replace("]", ")").replace("arctan", "atan")
    names = {f"b{k + 1}": value for k, value in enumerate(data.certified)}
    functions = {each: getattr(torch, each) for each in ("exp", "cos", "sin", "atan", "pi")}
    x = data.x[len(data.x) // 2]
    inputs = {"x": x[0]} if len(x) == 1 else {"x1": x[0], "x2": x[1]}
    expected = eval(formula, {**names, **functions, **inputs})
    torch.testing.assert_close(data.predict(data.certified, x)[0], expected, rtol=1e-12, atol=0)

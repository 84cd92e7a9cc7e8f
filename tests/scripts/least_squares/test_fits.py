"""Fits of a few parameters: their solutions, and their starts."""

import pytest
import torch

from geonpg.scripts.least_squares.fits import FITS, make_fit
from geonpg.scripts.least_squares.nist import read_dataset
from geonpg.scripts.least_squares.problem import Residuals

every_fit = pytest.mark.parametrize("name", FITS)


@every_fit
def test_the_solution_has_no_residuals_and_is_one_point(name: str) -> None:
    residuals = Residuals(make_fit(name, 0))
    named = residuals.named(FITS[name].solution)
    assert float(residuals.vector(named).abs().max()) < 1e-15
    assert int(torch.linalg.matrix_rank(residuals.jacobian(named))) == len(FITS[name].solution)


@every_fit
def test_starts_are_drawn_by_seeds_as_it_is_said(name: str) -> None:
    starts = torch.stack([Residuals(make_fit(name, seed)).start() for seed in range(2000)])
    assert torch.equal(starts[7], Residuals(make_fit(name, 7)).start())
    fit = FITS[name]
    assert float(((starts.mean(0) - fit.centre) / fit.spread).abs().max()) < 0.1
    assert float((starts.std(0) / fit.spread - 1).abs().max()) < 0.1


def test_exponentials_and_bumps_are_what_they_are_called() -> None:
    t = torch.tensor([0.7], dtype=torch.float64)
    fit = FITS["exponentials-apart"]
    expected = sum(torch.exp(-rate * t) for rate in (0.3, 1.0, 4.0))
    torch.testing.assert_close(fit.model(fit.solution, t), expected)
    fit = FITS["gaussian-bumps"]
    bumps = ((1.0, -1.0, 0.5), (0.7, 0.0, 0.4), (0.9, 1.2, 0.6))
    expected = sum(height * torch.exp(-((t - centre) ** 2) / (2 * width**2)) for height, centre, width in bumps)
    torch.testing.assert_close(fit.model(fit.solution, t), expected)


def test_rosenbrock_is_the_function_of_that_name() -> None:
    residuals = Residuals(make_fit("rosenbrock", 0))
    residuals.write(torch.tensor([-1.2, 1.0]).double())
    assert float(residuals.loss().detach()) == pytest.approx(24.2 / 2)  # its value at the classical start


def test_three_exponentials_are_those_of_lanczos() -> None:
    """NIST's first problem of that name has the same data."""
    (term,), data = FITS["three-exponentials"].terms, read_dataset("Lanczos1")
    t, y = term.rows
    torch.testing.assert_close(t, data.x)
    torch.testing.assert_close(y, data.y, atol=1e-12, rtol=0)

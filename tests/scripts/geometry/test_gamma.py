"""The Gamma model in its four parameterisations."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import Gamma, kl_divergence
from torch.func import hessian, jacfwd

from geonpg.scripts.geometry.gamma import CHARTS, STEP_COST, Chart, Fit, Sample, fisher, gamma_flow, spread_of, trace

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
    fit = Fit(Sample.draw(), torch.ones(2, dtype=torch.float64), h=8.0, steps=5)
    ticks: list[float] = []
    found = [trace(method, chart, fit, ticks.append) for chart in CHARTS]
    left = [t for t in found if t.left_domain]
    assert left
    assert all(len(t.points) <= 5 and bool((t.points > 0).all()) for t in left)
    assert all(bool(t.points.isfinite().all()) for t in found)
    assert math.isfinite(spread_of(found).largest)
    assert sum(ticks) == pytest.approx(5 * len(CHARTS) * STEP_COST[method])  # the progress bar misses nothing


class Overflowing(Chart):
    """A chart all of whose points, but for the start, are infinite models."""

    def to_model(self, y: Tensor) -> Tensor:
        return super().to_model(y) if bool((y == 1).all()) else y * math.inf


def test_a_step_that_overflows_leaves_the_domain() -> None:
    fit = Fit(Sample.draw(), torch.ones(2, dtype=torch.float64), h=0.1, steps=3)
    found = trace("ng", Overflowing("overflowing", (1.0, 1.0)), fit, lambda cost: None)
    assert found.left_domain
    assert found.points.tolist() == [[1.0, 1.0]]

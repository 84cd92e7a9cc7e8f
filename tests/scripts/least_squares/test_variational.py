"""Variational inference: integrals against sampling, geometry against brute force, and the cone."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from geonpg.kfac import RULES, Constant, DenseFlow
from geonpg.scripts.least_squares.variational import LIKELIHOODS, PRIOR, STARTS, Inference, infer, make_inference

every_problem = pytest.mark.parametrize("name", LIKELIHOODS)


def normal(problem: Inference, y: Tensor) -> MultivariateNormal:
    mean, precision = problem.split(y)
    return MultivariateNormal(mean, precision_matrix=precision)


def some_point(problem: Inference) -> Tensor:
    torch.manual_seed(0)
    root = torch.randn(3, 3).double()
    return problem.point(torch.randn(3).double(), 5 * torch.eye(3).double() + root @ root.T)


@every_problem
def test_the_loss_is_the_negative_evidence_bound(name: str) -> None:
    problem = make_inference(name, 1000)
    y = some_point(problem)
    q = normal(problem, y)
    w = q.sample((400_000,))
    prior = MultivariateNormal(torch.zeros(3).double(), PRIOR**2 * torch.eye(3).double())
    likelihood = problem.likelihood(w @ problem.a.T, problem.t).sum(1)
    drawn = q.log_prob(w) - prior.log_prob(w) - likelihood
    error = float(drawn.std()) / len(drawn) ** 0.5
    assert float(problem.loss(y)) == pytest.approx(float(drawn.mean()), abs=4 * error)


@every_problem
def test_more_nodes_change_nothing(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = make_inference(name, 1000)
    y = some_point(problem)
    before = float(problem.loss(y))
    monkeypatch.setattr("geonpg.scripts.least_squares.variational.NODES", 160)
    assert float(problem.loss(y)) == pytest.approx(before, rel=1e-5)


def test_the_metric_is_the_hessian_of_the_divergence() -> None:
    problem = make_inference("logistic", 1000)
    y = some_point(problem)

    def divergence(new: Tensor) -> Tensor:
        (m, p), (n, q) = problem.split(y), problem.split(new)
        trace = torch.trace(q @ torch.linalg.inv(p))
        return 0.5 * (trace + (n - m) @ q @ (n - m) - torch.logdet(q) + torch.logdet(p))

    torch.testing.assert_close(problem.metric(y), torch.func.hessian(divergence)(y))


@every_problem
@pytest.mark.parametrize("rate", [0.3, 2.0])
def test_the_geodesic_step_is_the_one_that_stays_in_the_cone(name: str, rate: float) -> None:
    problem = make_inference(name, 1000)
    y, flow = some_point(problem), DenseFlow(problem.loss, problem.metric)
    moved = RULES["geo"].step(flow, y, Constant(rate), None)[0]
    v, d = problem.split(moved.v)
    _, precision = problem.split(y)
    bend = d @ torch.linalg.inv(precision) @ d + precision @ torch.outer(v, v) @ precision
    expected = precision + rate * d + 0.5 * rate**2 * bend
    torch.testing.assert_close(problem.split(moved.y)[1], expected)
    assert problem.is_inside(moved.y)


def test_points_are_put_together_and_taken_apart() -> None:
    problem = make_inference("robust", 1000)
    y = some_point(problem)
    assert torch.equal(problem.point(*problem.split(y)), y)
    mean, precision = problem.split(problem.start(0.5))
    assert torch.equal(mean, torch.zeros(3).double())
    assert torch.equal(precision, 4 * torch.eye(3).double())
    assert not problem.is_inside(problem.point(mean, -precision))
    assert not problem.is_inside(torch.full_like(y, torch.nan))


@pytest.mark.parametrize("start", STARTS)
def test_long_straight_steps_leave_the_cone_and_geodesic_ones_do_not(start: str) -> None:
    seeds = range(1000, 1004)
    straight = [infer("robust", start, "ng", 1.0, seed) for seed in seeds]
    bent = [infer("robust", start, "geo", 1.0, seed) for seed in seeds]
    assert all(trial.left for trial in straight)
    assert not any(trial.left for trial in bent)


@every_problem
def test_short_steps_of_all_rules_find_the_same_optimum(name: str) -> None:
    ends = [infer(name, "wide", rule, 0.3, 1002).loss for rule in ("ng", "geo")]
    assert ends[0] == pytest.approx(ends[1], rel=1e-3)

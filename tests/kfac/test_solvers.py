"""Solvers against dense algebra, and against a TRPO direction computed without this library."""

import pytest
import torch
from small_flows import Surrogate, flow_of, gaussian_flow, policy
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

from geonpg.kfac import CgSolver, FixedGaussian, Gaussian, NaturalGradient


def test_pcg_equals_a_dense_solve() -> None:
    flow, y = gaussian_flow(CgSolver(iterations=200), damping=1e-3)
    point, b = flow.at(y), torch.randn(len(y), dtype=torch.float64)
    expected = torch.linalg.solve(point.dense(), b)
    assert float((flow.geometry.solver.solve(point, b) - expected).norm()) < 1e-8 * float(expected.norm())


def test_the_preconditioner_saves_iterations() -> None:
    x = torch.randn(400, 8, dtype=torch.float64) @ torch.diag(torch.logspace(-1, 1, 8, dtype=torch.float64))

    def error(preconditioned: bool) -> float:
        module = policy((8, 20, 20), 3)
        problem = Surrogate(module, Gaussian(), x)
        flow, y = flow_of(module, problem, CgSolver(preconditioned=preconditioned, iterations=10), damping=1e-3)
        point = flow.at(y)
        exact = torch.linalg.solve(point.dense(), point.covector)
        wrong = flow.geometry.solver.solve(point, point.covector) - exact
        return float(wrong @ point.product(wrong)) ** 0.5

    assert error(preconditioned=True) < 0.5 * error(preconditioned=False)


def test_both_right_hand_sides() -> None:
    flow, y = gaussian_flow("dense", damping=1e-2)
    point, b, c = flow.at(y), torch.randn(len(y)).double(), torch.randn(len(y)).double()
    exact = torch.linalg.solve(point.dense(), torch.stack([b, c], 1))
    many = CgSolver(iterations=200, correction_iterations=200)
    for solver in (flow.geometry.solver, many):
        factors, _ = gaussian_flow(many, damping=1e-2)
        x, z = solver.solve_both(factors.at(y), b, c)
        assert torch.allclose(torch.stack([x, z], 1), exact, atol=1e-7)
    few = CgSolver().solve_both(factors.at(y), b, c)
    assert torch.allclose(few[0], CgSolver().solve(factors.at(y), b))


def trpo_direction(module: nn.Sequential, problem: Surrogate, damping: float, iterations: int) -> Tensor:
    """The textbook recipe: Hessian-vector products of the mean KL by double backward, and plain CG."""
    parameters = list(module.parameters())

    def distribution() -> Normal:
        mean, log_std = module(problem.x).chunk(2, -1)
        return Normal(mean, log_std.exp())

    fixed = distribution()
    fixed = Normal(fixed.loc.detach(), fixed.scale.detach())
    kl = kl_divergence(fixed, distribution()).sum(-1).mean()
    slope = torch.cat([g.reshape(-1) for g in torch.autograd.grad(kl, parameters, create_graph=True)])

    def product(v: Tensor) -> Tensor:
        grads = torch.autograd.grad(slope @ v, parameters, retain_graph=True)
        return torch.cat([g.reshape(-1) for g in grads]) + damping * v

    loss_gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(problem.loss(), parameters)])
    x, r = torch.zeros_like(loss_gradient), -loss_gradient
    p, rr = r.clone(), r @ r
    for _ in range(iterations):
        hp = product(p)
        step = rr / (p @ hp)
        x, r = x + step * p, r - step * hp
        p, rr = r + (r @ r) / rr * p, r @ r
    return x


def test_cg_is_the_trpo_direction() -> None:
    module = policy(seed=5)
    x = torch.randn(80, 4, dtype=torch.float64)
    problem = Surrogate(module, Gaussian(), x)
    flow, y = flow_of(module, problem, CgSolver(preconditioned=False, iterations=10), damping=0.1)
    expected = trpo_direction(module, problem, 0.1, 10)
    assert float((flow.velocity(y) - expected).norm()) < 1e-9 * float(expected.norm())


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="iterations must be at least 1, not 0"):
        CgSolver(iterations=0)


@pytest.mark.parametrize("solver", ["kfac", "pcg", "cg", "dense"])
def test_E7_every_solver_rejects_a_loss_that_overflows_and_recovers(
    solver: str, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    module, x, scale = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 1)), torch.randn(30, 2), 1e20
    optimizer = NaturalGradient(module, FixedGaussian(), solver=solver)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = scale * 0.5 * (module(x) - x[:, :1]).square().mean()
        loss.backward()
        return loss

    before = optimizer.geometry.network.layout.read()
    for _ in range(3):
        optimizer.step(closure)
    assert optimizer.rejected == 3
    assert "step 3 rejected" in caplog.text
    assert torch.equal(optimizer.geometry.network.layout.read(), before)
    scale = 1.0
    losses = [float(optimizer.step(closure)) for _ in range(10)]
    assert optimizer.rejected == 3
    assert losses[-1] < losses[0]

"""Solves by the Jacobian: normal equations, kernel form and QR, each against dense algebra."""

import pytest
import torch
from small_flows import Surrogate, flow_of, policy
from torch import Tensor, nn

from geonpg.errors import Refused
from geonpg.kfac import Bernoulli, Categorical, CgSolver, FixedGaussian, Gaussian, JacobianSolver
from geonpg.kfac.flow import StepFailure
from geonpg.kfac.jacobian import DampedRows, Rows


def matrix(rows: int, size: int, condition: float = 10.0) -> Tensor:
    """A matrix whose singular values fall from one to 1 / condition."""
    draw = torch.Generator().manual_seed(rows + size)
    few = min(rows, size)
    left, right = (torch.linalg.qr(torch.randn(n, few, dtype=torch.float64, generator=draw)).Q for n in (rows, size))
    return left * torch.logspace(0, -float(torch.tensor(condition).log10()), few, dtype=torch.float64) @ right.mT


def dense_solution(j: Tensor, damping: float, b: Tensor) -> Tensor:
    """The damped least-squares solution by a singular value decomposition, which squares nothing."""
    _, s, vh = torch.linalg.svd(j, full_matrices=True)
    squares = torch.zeros(j.shape[1], dtype=torch.float64)
    squares[: len(s)] = s**2
    columns = b.reshape(len(b), -1)
    return (vh.mT @ ((vh @ columns) / (squares + damping)[:, None])).reshape(b.shape)


@pytest.mark.parametrize("shape", [(30, 7), (7, 30), (12, 12)])
def test_both_forms_equal_the_dense_solution(shape: tuple[int, int]) -> None:
    j, damping = matrix(*shape), 1e-2
    b = torch.randn(shape[1], 3, dtype=torch.float64)
    found = DampedRows(Rows(j), damping).solve(b)
    assert Rows(j).wide == (shape[0] < shape[1])
    assert torch.allclose(found, dense_solution(j, damping, b), rtol=1e-10, atol=1e-12)
    assert torch.allclose(found[:, 0], DampedRows(Rows(j), damping).solve(b[:, 0]), rtol=1e-12, atol=1e-14)


def test_the_kernel_form_equals_the_normal_equations() -> None:
    """Rows of zeros turn a wide matrix into a tall one of the same metric."""
    j = matrix(9, 20)
    tall = torch.cat([j, torch.zeros(15, 20, dtype=torch.float64)])
    b = torch.randn(20, dtype=torch.float64)
    assert Rows(j).wide
    assert not Rows(tall).wide
    kernel, normal = (DampedRows(Rows(each), 1e-3).solve(b) for each in (j, tall))
    assert torch.allclose(kernel, normal, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("shape", [(40, 8), (8, 40)])
def test_an_ill_conditioned_system_is_solved_by_qr(shape: tuple[int, int]) -> None:
    """The product of the matrix with itself has lost the small directions; its triangle by QR has not."""
    j, damping = matrix(*shape, condition=1e10), 1e-22
    truth = (torch.linalg.svdvals(j) ** 2 + damping).sqrt()
    assert torch.allclose(torch.linalg.svdvals(Rows(j).factor(damping)), truth, rtol=1e-4, atol=0)
    squared = torch.linalg.eigvalsh(Rows(j).gram).abs().sqrt().flip(0)
    assert not torch.allclose(squared, truth, rtol=0.1, atol=0)


@pytest.mark.parametrize("condition", [1e2, 1e4, 1e6, 3e7])
def test_solutions_are_as_good_as_their_right_hand_side_allows(condition: float) -> None:
    """That is known to about 1e-16 of its length, of which the damped metric makes an error by its condition."""
    j = matrix(40, 8, condition)
    damping = 0.1 / condition**2
    b = j.mT @ torch.randn(40, dtype=torch.float64)
    truth = dense_solution(j, damping, b)
    found = DampedRows(Rows(j), damping).solve(b)
    assert float((found - truth).norm()) < 1e-15 * condition**2 * float(truth.norm())


def test_no_damping_needs_as_many_rows_as_parameters() -> None:
    with pytest.raises(StepFailure, match="singular"):
        DampedRows(Rows(matrix(5, 9)), 0.0)
    with pytest.raises(StepFailure, match="singular"):
        DampedRows(Rows(torch.zeros(9, 5)), 0.0)
    with pytest.raises(StepFailure, match="not finite"):
        DampedRows(Rows(torch.full((9, 5), torch.nan)), 0.1)


FAMILIES = [(FixedGaussian(0.5), 2), (Gaussian(), 4), (Categorical(), 3), (Bernoulli(), 2)]


class Skip(nn.Module):
    """No chain, so that its rows take the general path."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(3, 3), nn.Linear(3, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(x + torch.tanh(self.inner(x)))


def chain(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, outputs))


def normed(outputs: int) -> nn.Module:
    """Cases that depend on each other: their rows are computed one after the other."""
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, outputs))


@pytest.mark.parametrize(("family", "outputs"), FAMILIES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("make", [chain, Skip, normed])
@pytest.mark.parametrize("cases", [4, 40])
def test_the_solver_equals_dense_and_pcg(make: type, family: object, outputs: int, cases: int) -> None:
    torch.manual_seed(1)
    module = make(outputs).double()
    problem = Surrogate(module, family, torch.randn(cases, 3, dtype=torch.float64))
    found = {}
    for name in ("dense", "jacobian", CgSolver(iterations=400, tolerance=1e-14)):
        flow, y = flow_of(module, problem, name, damping=1e-2)
        v = flow.velocity(y)
        found[str(name)] = torch.stack([v, flow.acceleration(y, v), *flow.velocity_and_acceleration(y, 0.5 * v)])
    truth, ours, pcg = found.values()
    assert float((ours - truth).norm()) < 1e-9 * float(truth.norm())
    assert float((pcg[:2] - ours[:2]).norm()) < 1e-9 * float(truth[:2].norm())


def test_a_policy_with_a_free_deviation() -> None:
    module = policy((3, 5), 2)
    problem = Surrogate(module, Gaussian(), torch.randn(20, 3, dtype=torch.float64))
    dense, ours = (flow_of(module, problem, solver, damping=1e-2) for solver in ("dense", "jacobian"))
    assert torch.allclose(dense[0].velocity(dense[1]), ours[0].velocity(ours[1]), rtol=1e-9, atol=1e-12)


def test_marquardts_scaling_does_not_depend_on_units() -> None:
    """Parameters in other units take the same step in the old ones, and their length is the same."""
    torch.manual_seed(0)
    units = torch.tensor([1.0, 1e3, 1e-4], dtype=torch.float64)
    x = torch.randn(20, 3, dtype=torch.float64)
    steps, lengths = [], []
    for scale in (torch.ones(3, dtype=torch.float64), units):
        module = nn.Linear(3, 1, bias=False).double()
        with torch.no_grad():
            module.weight.copy_(0.3 / scale)
        problem = Surrogate(module, FixedGaussian(), x * scale)
        flow, y = flow_of(module, problem, JacobianSolver(scaling="diagonal"), damping=0.5)
        steps.append(flow.velocity(y) * scale)
        lengths.append(flow.norm(y, flow.velocity(y)))
    assert torch.allclose(*steps, rtol=1e-9)
    assert lengths[0] == pytest.approx(lengths[1])
    with pytest.raises(Refused, match="identity, diagonal"):
        JacobianSolver(scaling="cube")

"""Blocks against dense Kronecker products, in float64."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from geonpg.kfac.blocks import DiagonalBlock, EigenBlock, KroneckerBlock, LogStdBlock
from geonpg.kfac.factors import append_ones, factored_damping

LAYERS = {
    "linear": (nn.Linear(4, 3), (10, 4), (10, 3)),
    "linear, no bias": (nn.Linear(4, 3, bias=False), (10, 4), (10, 3)),
    "conv": (nn.Conv2d(2, 3, 3, stride=2, padding=1), (6, 2, 5, 5), (6, 3, 3, 3)),
    "conv, no bias, dilated": (nn.Conv2d(2, 3, 2, dilation=2, bias=False), (6, 2, 5, 5), (6, 3, 3, 3)),
}


def block_of(layer: nn.Module, max_factor: int = 4096, kind: type[KroneckerBlock] = KroneckerBlock) -> KroneckerBlock:
    size = sum(p.numel() for p in layer.parameters())
    return kind([n for n, _ in layer.named_parameters()], slice(0, size), layer, max_factor)


def permutation(block: KroneckerBlock) -> Tensor:
    """Where each entry of the column-stacked matrix [weight, bias] lies in [weight..., bias...]."""
    columns = block.inputs + block.has_bias
    matrix = torch.empty(block.outputs, columns, dtype=torch.long)
    flat = torch.arange(block.outputs * columns)
    matrix[:, : block.inputs] = flat[: block.outputs * block.inputs].view(block.outputs, block.inputs)
    matrix[:, block.inputs :] = flat[block.outputs * block.inputs :].view(block.outputs, -1)
    return matrix.mT.reshape(-1)


def dense(block: KroneckerBlock, a: Tensor, d: Tensor) -> Tensor:
    """A (x) D on column-stacked matrices, in the flat vector's order."""
    order = permutation(block)
    inverse = torch.argsort(order)
    return torch.kron(a, d)[inverse][:, inverse]


@pytest.mark.parametrize("name", LAYERS)
def test_kronecker_block(name: str) -> None:
    layer, inputs, outputs = LAYERS[name]
    block = block_of(layer.double())
    a, d = torch.randn(inputs, dtype=torch.float64), torch.randn(outputs, dtype=torch.float64)
    statistics = (block.observe_inputs(a, len(a)), block.observe_gradients(d))
    b, damping = torch.randn(block.span.stop, dtype=torch.float64), 0.03
    assert torch.allclose(block.solve(statistics, b), dense(block, *statistics) @ b, atol=1e-12)
    ridge_a, ridge_d = factored_damping(*statistics, damping)
    eye_a, eye_d = (torch.eye(len(s), dtype=torch.float64) for s in statistics)
    damped = dense(block, statistics[0] + ridge_a * eye_a, statistics[1] + ridge_d * eye_d)
    inverse = block.invert(statistics, damping)
    assert inverse is not None
    assert torch.allclose(block.solve(inverse, b), torch.linalg.solve(damped, b), atol=1e-10)


@pytest.mark.parametrize("max_factor", [4096, 4, 1])
@pytest.mark.parametrize("name", LAYERS)
def test_damping_may_be_added_to_the_product(name: str, max_factor: int) -> None:
    """Against numpy and a dense solve of A (x) D + damping I, whichever factors are diagonals."""
    layer, inputs, outputs = LAYERS[name]
    block = block_of(layer.double(), max_factor, EigenBlock)
    a, d = torch.randn(inputs, dtype=torch.float64), torch.randn(outputs, dtype=torch.float64)
    statistics = (block.observe_inputs(a, len(a)), block.observe_gradients(d))
    whole = [torch.diag(s) if s.ndim == 1 else s for s in statistics]
    b = torch.randn(block.span.stop, dtype=torch.float64)
    for damping in (1e-4, 0.03, 1.0):
        damped = dense(block, *whole) + damping * torch.eye(len(b), dtype=torch.float64)
        inverse = block.invert(statistics, damping)
        assert inverse is not None
        assert [x.shape for x in inverse] == [tuple(shape) for shape in block.inverse_shapes]
        torch.testing.assert_close(block.solve(inverse, b), torch.linalg.solve(damped, b), rtol=1e-8, atol=1e-8)
        assert block.condition(statistics, damping) == pytest.approx(np.linalg.cond(damped.numpy()), rel=1e-8)


def test_a_singular_product_without_damping_has_no_inverse() -> None:
    block = block_of(nn.Linear(2, 2, bias=False), kind=EigenBlock)
    ones, eye = torch.ones(2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    singular = ones - 1e-12 * eye  # as rounding leaves it
    assert block.invert((singular, eye), 0.0) is None
    assert block.condition((singular, eye), 0.0) == math.inf
    assert block.invert((eye, math.nan * eye), 0.1) is None
    assert block.condition((singular, eye), 0.01) == pytest.approx(2.01 / 0.01)


@pytest.mark.parametrize("name", LAYERS)
def test_one_position_of_one_case_is_exact(name: str) -> None:
    """For a single case and output position, A (x) D is the outer product of the gradient itself."""
    layer = LAYERS[name][0].double()
    one_position = {"conv": (1, 2, 2, 2), "conv, no bias, dilated": (1, 2, 3, 3)}
    x = torch.randn(one_position.get(name, (1, 4)), dtype=torch.float64)
    s = layer(x)
    d = torch.randn_like(s)
    gradient = torch.cat([g.reshape(-1) for g in torch.autograd.grad(s, list(layer.parameters()), d)])
    block = block_of(layer)
    statistics = (block.observe_inputs(x, 1), block.observe_gradients(d))
    assert s[0].numel() == block.outputs
    assert torch.allclose(dense(block, *statistics), torch.outer(gradient, gradient), atol=1e-12)


def test_conv_statistics_count_positions() -> None:
    """A sums over positions and averages over cases; D averages over both."""
    layer = nn.Conv2d(1, 2, 1).double()
    x, d = torch.randn(3, 1, 2, 2, dtype=torch.float64), torch.randn(3, 2, 2, 2, dtype=torch.float64)
    block = block_of(layer)
    rows = append_ones(x.reshape(-1, 1))
    assert torch.allclose(block.observe_inputs(x, 3), rows.mT @ rows / 3)
    gradients = d.permute(0, 2, 3, 1).reshape(-1, 2)
    assert torch.allclose(block.observe_gradients(d), gradients.mT @ gradients / 12)


def test_large_layers_fall_back_to_a_diagonal_factor() -> None:
    layer = nn.Linear(50, 3).double()
    block = block_of(layer, max_factor=20)
    a, d = torch.randn(8, 50, dtype=torch.float64), torch.randn(8, 3, dtype=torch.float64)
    statistics = (block.observe_inputs(a, 8), block.observe_gradients(d))
    assert statistics[0].shape == (51,)
    b = torch.randn(block.span.stop, dtype=torch.float64)
    expected = dense(block, torch.diag(statistics[0]), statistics[1]) @ b
    assert torch.allclose(block.solve(statistics, b), expected, atol=1e-12)
    assert "diagonal factor" in block.kind


def test_diagonal_and_log_std_blocks() -> None:
    b = torch.randn(3, dtype=torch.float64)
    diagonal, values = DiagonalBlock(["w"], slice(0, 3)), torch.tensor([0.0, 1.0, 4.0], dtype=torch.float64)
    inverse = diagonal.invert((values,), 0.5)
    assert inverse is not None
    assert torch.allclose(diagonal.solve(inverse, b), b / (values + 0.5))
    log_std = LogStdBlock(["log_std"], slice(0, 3))
    inverse = log_std.invert((), 0.5)
    assert inverse is not None
    assert torch.allclose(log_std.solve(inverse, b), b / 2.5)


def test_factored_damping_balances_the_factors() -> None:
    a, d = 100 * torch.eye(3), torch.eye(2)
    ridge_a, ridge_d = factored_damping(a, d, 0.04)
    assert ridge_a * ridge_d == pytest.approx(0.04)
    assert ridge_a / ridge_d == pytest.approx(100)
    assert factored_damping(torch.zeros(3, 3), d, 0.04) == (pytest.approx(0.2), pytest.approx(0.2))
    assert math.isfinite(factored_damping(1e300 * a, 1e-300 * d, 0.04)[0])


@pytest.mark.parametrize("max_factor", [4096, 4, 1])
@pytest.mark.parametrize("name", LAYERS)
def test_condition_number_of_the_damped_block(name: str, max_factor: int) -> None:
    """Against numpy on the dense matrix, whichever factors are diagonals."""
    layer, inputs, outputs = LAYERS[name]
    block = block_of(layer.double(), max_factor)
    a, d = torch.randn(inputs, dtype=torch.float64), torch.randn(outputs, dtype=torch.float64)
    statistics = (block.observe_inputs(a, len(a)), block.observe_gradients(d))
    whole = [torch.diag(s) if s.ndim == 1 else s for s in statistics]
    for damping in (1e-4, 0.03, 1.0):
        ridges = factored_damping(*statistics, damping)
        damped = [s + ridge * torch.eye(len(s), dtype=torch.float64) for s, ridge in zip(whole, ridges, strict=True)]
        expected = np.linalg.cond(dense(block, damped[0], damped[1]).numpy())
        assert block.condition(statistics, damping) == pytest.approx(expected, rel=1e-8)


def test_condition_number_of_a_singular_block() -> None:
    block = block_of(nn.Linear(2, 2, bias=False))
    ones, eye = torch.ones(2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    below = ones - 1e-12 * eye  # as rounding leaves it
    assert block.condition((below, eye), 0.0) == math.inf
    # the mean eigenvalues are 1 and 1, so both factors get a ridge of 0.1
    assert block.condition((below, eye), 0.01) == pytest.approx(2.1 / 0.1)
    assert block.condition((below, eye), 1e-26) == pytest.approx(2 / 1e-13), "a ridge smaller than the rounding"

"""The pure algebra of Kronecker factors."""

import math

import pytest
import torch

from geonpg.kfac.factors import append_ones, damped_inverse, is_finite, kron_apply, running_average, second_moment


def test_second_moment() -> None:
    x = torch.randn(7, 3)
    expected = sum(torch.outer(row, row) for row in x.double()) / 5
    assert torch.allclose(second_moment(x, 5), expected, atol=1e-6)
    assert torch.allclose(second_moment(x, 5, diagonal=True), expected.diagonal(), atol=1e-6)
    assert append_ones(x).shape == (7, 4)


def test_running_average_starts_as_a_mean_and_ends_exponential() -> None:
    values = [torch.tensor(float(v)) for v in (4, 8, 3)]
    average = None
    for seen, value in enumerate(values):
        average = running_average(average, value, seen, decay=0.9)
    assert average is not None
    assert float(average) == pytest.approx(5.0)
    late = running_average(torch.tensor(1.0), torch.tensor(2.0), seen=1000, decay=0.9)
    assert float(late) == pytest.approx(1.1)


@pytest.mark.parametrize("scale", [1e-200, 1e-12, 1.0, 1e12, 1e200])
def test_inverse_at_any_scale(scale: float) -> None:
    x = torch.randn(20, 5, dtype=torch.float64)
    factor = scale * x.mT @ x
    inverse = damped_inverse(factor, 0.1 * scale)
    assert inverse is not None
    product = (factor + 0.1 * scale * torch.eye(5, dtype=torch.float64)) @ inverse
    assert torch.allclose(product, torch.eye(5, dtype=torch.float64), atol=1e-8)
    assert torch.equal(inverse, inverse.mT)


def test_singular_and_slightly_indefinite_factors_climb_the_ladder() -> None:
    ones = torch.ones(6, 6, dtype=torch.float64)
    assert damped_inverse(ones, 0.0) is not None
    rounded = ones - 1e-12 * torch.eye(6, dtype=torch.float64)
    inverse = damped_inverse(rounded, 0.0)
    assert inverse is not None
    assert is_finite(inverse)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_hopeless_factors_have_no_inverse(value: float) -> None:
    factor = torch.eye(3, dtype=torch.float64)
    factor[1, 0] = value
    assert damped_inverse(factor, 0.1) is None
    assert damped_inverse(factor[1], 0.1) is None
    assert damped_inverse(-torch.eye(3, dtype=torch.float64), 0.1) is None


def test_is_finite() -> None:
    assert is_finite(torch.tensor([1e30, -1e30]))
    assert not is_finite(torch.tensor([float("inf"), float("-inf")]))
    assert not is_finite(torch.tensor([1.0, float("nan")]))


def test_kron_apply_with_diagonals() -> None:
    d, v, a = torch.rand(3), torch.randn(3, 4), torch.rand(4)
    expected = torch.diag(d) @ v @ torch.diag(a)
    assert torch.allclose(kron_apply(d, v, a), expected)
    assert torch.allclose(kron_apply(torch.diag(d), v, torch.diag(a)), expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
def test_E17_numbers_whose_sum_overflows_are_finite(dtype: torch.dtype) -> None:
    largest = torch.full((4,), torch.finfo(dtype).max, dtype=dtype)
    assert is_finite(largest)
    largest[2] = -math.inf
    assert not is_finite(largest)

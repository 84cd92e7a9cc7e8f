"""Truncated conjugate gradients against dense algebra, and its stopping and back-tracking rules."""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from geonpg.kfac.hessian_free.truncated import Truncation, back_track, slow, truncated_cg

EXACT = Truncation(iterations=60, progress=0.0)


def system(size: int = 12) -> tuple[Tensor, Tensor, Tensor]:
    """A positive matrix, a right-hand side and the diagonal that preconditions it."""
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(size, size, generator=generator, dtype=torch.float64)
    matrix = root @ root.T + torch.eye(size, dtype=torch.float64)
    return matrix, torch.randn(size, generator=generator, dtype=torch.float64), matrix.diagonal()


def solve(settings: Truncation, start: Tensor | None = None) -> tuple[list[Tensor], int]:
    matrix, b, diagonal = system()
    found = truncated_cg(lambda v: matrix @ v, b, lambda r: r / diagonal, start, settings)
    return found.kept, found.iterations


@pytest.mark.parametrize("warm", [False, True])
def test_solves_a_dense_system(warm: bool) -> None:
    matrix, b, _ = system()
    kept, _ = solve(EXACT, torch.ones_like(b) if warm else None)
    torch.testing.assert_close(kept[-1], torch.linalg.solve(matrix, b), rtol=1e-8, atol=1e-8)


def test_every_iterate_lowers_the_quadratic_model() -> None:
    matrix, b, _ = system()
    kept, iterations = solve(Truncation(iterations=8, progress=0.0, spacing=1.0001), torch.ones_like(b))
    models = [float(0.5 * x @ matrix @ x - b @ x) for x in kept]
    assert iterations == 8
    assert models == sorted(models, reverse=True)


def test_a_start_at_the_solution_stays_there() -> None:
    matrix, b, _ = system()
    solution = torch.linalg.solve(matrix, b)
    torch.testing.assert_close(solve(EXACT, solution)[0][-1], solution)


def test_the_last_iterate_is_always_kept_and_the_start_is_left_alone() -> None:
    start = torch.ones_like(system()[1])
    for iterations in range(1, 8):
        dense, _ = solve(Truncation(iterations, progress=0.0, spacing=1.0001), start)
        sparse, _ = solve(Truncation(iterations, progress=0.0, spacing=math.inf), start)
        assert len(sparse) == 1
        assert torch.equal(sparse[0], dense[-1])
    assert torch.equal(start, torch.ones_like(start))


def test_stops_where_progress_over_the_window_is_too_slow() -> None:
    settings = Truncation(window=10, progress=5e-4)
    falling = [-1.0 - 0.1 * i for i in range(30)]
    standing = falling + [falling[-1] * (1 + 4.9e-4 * k / (1 - 4.9e-4 * k)) for k in range(1, 11)]
    assert not slow(falling, settings)
    assert slow(standing, settings)
    assert not slow([-1.0] * 11, settings)  # exactly the window: not yet
    assert slow([-1.0] * 12, settings)
    assert not slow([1.0] * 12, settings)  # the model has not fallen below zero
    many = [-1.0 - i for i in range(201)] + [-202.0] * 15
    assert not slow(many, replace(settings, window=1))  # the window is a tenth of the iterations: 21


def test_back_tracking_goes_back_while_the_loss_falls() -> None:
    kept = [torch.tensor(float(i)) for i in range(6)]
    losses = {0: 0.0, 1: 9.0, 2: 3.0, 3: 2.0, 4: 4.0, 5: 5.0}
    assert int(back_track(reversed(kept), lambda x: losses[int(x)])) == 3
    worst = {**losses, 5: math.nan, 4: math.inf}
    assert int(back_track(reversed(kept), lambda x: worst[int(x)])) == 3


@pytest.mark.parametrize("wrong", [{"iterations": 0}, {"window": 0}, {"progress": -1.0}, {"spacing": 1.0}])
def test_wrong_settings_are_named(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Truncation(**wrong)

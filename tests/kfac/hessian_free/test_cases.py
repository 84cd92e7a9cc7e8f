"""Loss, gradient and squared gradients of a problem against autograd, in float64."""

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from geonpg.kfac import Bernoulli, Cases, HessianFree, Problem, sparse_initialisation

DECAY = 0.1


def problem(chunks: int, decay: float = DECAY) -> Problem:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 3)).double()
    x, t = torch.rand(11, 4, dtype=torch.float64), torch.rand(11, 3, dtype=torch.float64)
    return Problem(module, Bernoulli(), Cases(x, t, lambda z, t: (z.sigmoid() - t).square().sum(-1), chunks), decay)


def loss_of(p: Problem, y: Tensor, x: Tensor, t: Tensor) -> Tensor:
    z = functional_call(p.network.module, p.layout.named(y), (x,))
    return nn.functional.binary_cross_entropy_with_logits(z, t, reduction="none").sum(-1).mean()


def regularised(p: Problem, y: Tensor) -> Tensor:
    weights = [w for name, w in p.layout.named(y).items() if name.endswith("weight")]
    return loss_of(p, y, p.cases.x, p.cases.t) + 0.5 * DECAY * sum(w.square().sum() for w in weights)


@pytest.mark.parametrize("chunks", [1, 3, 11])
def test_loss_error_and_gradient(chunks: int) -> None:
    p = problem(chunks)
    y = p.layout.read()
    evaluation = p.evaluate(y)
    outputs = p.network.module(p.cases.x).sigmoid().detach()
    assert evaluation.loss == pytest.approx(float(regularised(p, y)), rel=1e-12)
    assert evaluation.error == pytest.approx(float((outputs - p.cases.t).square().sum(-1).mean()), rel=1e-12)
    torch.testing.assert_close(p.gradient(y), grad(lambda y: regularised(p, y))(y))


def test_squared_gradients_are_the_mean_over_cases() -> None:
    p = problem(1)
    y, at = p.layout.read(), p.linearise(p.layout.read(), 0)
    one = vmap(grad(lambda y, x, t: loss_of(p, y, x[None], t[None])), (None, 0, 0))
    expected = one(y, p.cases.x, p.cases.t).square().mean(0)
    torch.testing.assert_close(p.squared_gradients(at, p.family.score(at.z, p.cases.t)), expected)


def test_sparse_initialisation() -> None:
    module = nn.Sequential(nn.Linear(40, 30), nn.Sigmoid(), nn.Linear(30, 4))
    sparse_initialisation(module, torch.Generator().manual_seed(0))
    for layer in (module[0], module[2]):
        assert ((layer.weight != 0).sum(1) == 15).all()
        assert not layer.bias.any()
    assert 0.8 < float(module[0].weight.detach()[module[0].weight != 0].std()) < 1.2
    narrow = nn.Linear(3, 5)
    sparse_initialisation(narrow, torch.Generator().manual_seed(0))
    assert (narrow.weight != 0).all()


def test_wrong_values_are_named() -> None:
    x, error = torch.zeros(4, 2), lambda z, t: z.sum(-1)
    with pytest.raises(ValueError, match="equally many"):
        Cases(x, torch.zeros(3, 2), error, 1)
    with pytest.raises(ValueError, match="chunks must lie between 1 and the number of cases 4"):
        Cases(x, x, error, 5)
    with pytest.raises(ValueError, match=r"nn\.Linear"):
        Problem(nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2)), Bernoulli(), Cases(x, x, error, 1))
    with pytest.raises(ValueError, match="decay"):
        Problem(nn.Linear(2, 2), Bernoulli(), Cases(x, x, error, 1), -1.0)


@pytest.mark.parametrize("frozen", ["0.weight", "0.bias", "2.weight", "0", "2"])
def test_E17_hessian_free_leaves_frozen_layers_out(frozen: str) -> None:
    """Its gradient is autograd's by what is trained, and an update lowers the loss."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 5), nn.Sigmoid(), nn.Linear(5, 3)).double()
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(not name.startswith(frozen))
    x, t = torch.rand(11, 4, dtype=torch.float64), torch.rand(11, 3, dtype=torch.float64)
    p = Problem(module, Bernoulli(), Cases(x, t, lambda z, t: (z.sigmoid() - t).square().sum(-1), 1), DECAY)
    y = p.layout.read()
    assert not any(name.startswith(frozen) for name in p.layout.names)
    torch.testing.assert_close(p.gradient(y), grad(lambda y: regularised(p, y))(y))
    one = vmap(grad(lambda y, x, t: loss_of(p, y, x[None], t[None])), (None, 0, 0))
    at = p.linearise(y, 0)
    squares = p.squared_gradients(at, p.family.score(at.z, p.cases.t))
    torch.testing.assert_close(squares, one(y, x, t).square().mean(0))
    assert HessianFree(p, y, "geo").step().loss < p.evaluate(y).loss

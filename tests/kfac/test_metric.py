"""Metric and connection against brute-force Christoffel symbols of the dense Fisher, in float64."""

import pytest
import torch
import truth
from torch import Tensor, nn

from geonpg.kfac import (
    Bernoulli,
    BernoulliMean,
    Categorical,
    CategoricalMean,
    Family,
    FixedGaussian,
    FreeLogStd,
    Gaussian,
    Generic,
    Metric,
    NaturalGradient,
    Product,
)
from geonpg.kfac.network import Call, Network

TOLERANCE = 1e-10


def network(outputs: int, *last: nn.Module) -> nn.Sequential:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, outputs), *last).double()


def generic_categorical(z: Tensor, t: Tensor) -> Tensor:
    return z.log_softmax(-1).gather(-1, t.unsqueeze(-1)).squeeze(-1)


# name: (family, its network, the brute-force model, the network whose output the model reads)
CASES = {
    "fixed std": (FixedGaussian(0.7), network(2), truth.fixed_gaussian(0.7), None),
    "free log std": (Gaussian(), network(2, FreeLogStd(2, -0.4).double()), truth.gaussian(), None),
    "network log std": (Gaussian(), network(4), truth.gaussian(), None),
    "categorical": (Categorical(), network(3), truth.categorical(), None),
    "bernoulli": (Bernoulli(), network(2), truth.bernoulli(), None),
    "product": (Product([(Categorical(), 2), (Bernoulli(), 1), (Gaussian(), 2)]), network(5), truth.mixed(), None),
    "proposition 1": (
        Generic.enumerated(generic_categorical, torch.arange(3)),
        network(3),
        truth.categorical(),
        None,
    ),
    "proposition 2, squared": (FixedGaussian(0.7), network(2, nn.Identity()), truth.fixed_gaussian(0.7), None),
    "proposition 2, binary": (BernoulliMean(), network(2, nn.Sigmoid()), truth.bernoulli(), network(2)),
    "proposition 2, multi-class": (CategoricalMean(), network(3, nn.Softmax(-1)), truth.categorical(), network(3)),
}


@pytest.fixture(params=CASES, scope="module")
def case(request: pytest.FixtureRequest) -> tuple[Family, nn.Module, truth.Truth]:
    family, module, model, before_activation = CASES[request.param]
    x = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    return family, module, truth.Truth(before_activation or module, model, x)


def metric_of(family: Family, module: nn.Module, dense: truth.Truth, alpha: float = 0.0) -> Metric:
    return Metric(Network(module).linearise(dense.y, Call((dense.x,))), family, alpha)


def direction(dense: truth.Truth) -> Tensor:
    return torch.randn(len(dense.y), dtype=torch.float64, generator=torch.Generator().manual_seed(2))


def test_product_and_quadratic_form(case: tuple[Family, nn.Module, truth.Truth]) -> None:
    family, module, dense = case
    metric, v, g = metric_of(family, module, dense), direction(dense), dense.metric(dense.y)
    assert (metric.product(v) - g @ v).abs().max() < TOLERANCE
    assert abs(metric.quadratic(v) - float(v @ g @ v)) < TOLERANCE
    assert (metric.dense() - g).abs().max() < TOLERANCE


def test_connection_for_every_alpha(case: tuple[Family, nn.Module, truth.Truth]) -> None:
    family, module, dense = case
    v = direction(dense)
    levi_civita, cumulant = dense.christoffel(), dense.cumulant(dense.y)
    for alpha in (-1.0, 0.0, 1.0, 0.3):
        expected = torch.einsum("nij,i,j->n", levi_civita - 0.5 * alpha * cumulant, v, v)
        connection = metric_of(family, module, dense, alpha).connection(v)
        assert expected.abs().max() > 1e-3
        assert (connection - expected).abs().max() < TOLERANCE


def test_residual_is_what_a_correction_has_to_match(case: tuple[Family, nn.Module, truth.Truth]) -> None:
    """E[J^T G (S + G^-1 C)] = c, so the covector is the pull-back of the residual."""
    family, module, dense = case
    metric = metric_of(family, module, dense, 0.5)
    bending = metric.bending(direction(dense))
    pulled = metric.pull(family.fisher(metric.linearisation.z, bending.residual))
    assert (pulled - bending.covector).abs().max() < TOLERANCE


class Recurrent(nn.Module):
    """Two words into an LSTM, whose last state is the output."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTM(1, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.cell(x.unsqueeze(-1))[0][:, -1]


UNBATCHED = {
    "batch norm": lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)),
    "lstm": Recurrent,
    "weight norm": lambda: nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 3)), nn.Linear(3, 2)),
    "spectral norm": lambda: nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(2, 3)), nn.Linear(3, 2)),
    "rrelu": lambda: nn.Sequential(nn.Linear(2, 3), nn.RReLU(), nn.Linear(3, 2)),
}


@pytest.mark.parametrize("kind", UNBATCHED)
def test_E12_the_dense_metric_of_modules_that_cannot_be_vectorised(kind: str) -> None:
    """Against the metric's products, and a step is taken; J itself, by autograd, is the truth."""
    torch.manual_seed(0)
    module, x = UNBATCHED[kind](), torch.randn(12, 2)
    network = Network(module)
    at = network.linearise(network.layout.read(), Call((x,)))
    rows = [at.pullback(e.view_as(at.z)) for e in torch.eye(at.z.numel())]
    jacobian = torch.stack(rows)
    torch.testing.assert_close(
        Metric(at, FixedGaussian()).dense(), jacobian.mT @ jacobian / len(x), rtol=1e-4, atol=1e-5
    )

    def closure() -> Tensor:
        module.zero_grad()
        loss = 0.5 * (module(x) - 1).square().sum(-1).mean()
        loss.backward()
        return loss

    optimizer = NaturalGradient(module, FixedGaussian(), solver="dense")
    losses = [float(optimizer.step(closure)) for _ in range(3)]
    assert losses[-1] < losses[0]
    assert optimizer.rejected == 0

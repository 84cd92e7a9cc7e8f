"""Every family against torch.distributions, autograd and its own definition."""

import math

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp
from torch import Tensor
from torch.distributions import Bernoulli as TorchBernoulli
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence
from torch.func import hessian

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
    Product,
)


def normal(z: Tensor) -> Independent:
    mean, log_std = z.chunk(2, -1)
    return Independent(Normal(mean, log_std.exp()), 1)


# Each family with the torch distribution that it describes and the number of components of z.
REFERENCES = {
    "fixed": (FixedGaussian(0.7), lambda z: Independent(Normal(z, 0.7), 1), 3),
    "gaussian": (Gaussian(), normal, 4),
    "gaussian by blocks": (Gaussian(blocks=True), normal, 4),
    "categorical": (Categorical(), lambda z: TorchCategorical(logits=z), 4),
    "bernoulli": (Bernoulli(), lambda z: Independent(TorchBernoulli(logits=z), 1), 3),
    "categorical mean": (CategoricalMean(), lambda z: TorchCategorical(probs=z, validate_args=False), 4),
    "bernoulli mean": (BernoulliMean(), lambda z: Independent(TorchBernoulli(probs=z, validate_args=False), 1), 3),
}
MIXED = Product([(Categorical(), 3), (Gaussian(), 2), (Bernoulli(), 1)])
ENUMERATED = Generic.enumerated(lambda z, t: Categorical().log_prob(z, t), torch.arange(3))
FAMILIES = {name: (family, size) for name, (family, _, size) in REFERENCES.items()} | {
    "product": (MIXED, 6),
    "generic": (ENUMERATED, 3),
}


def point(family: Family, size: int, seed: int = 0, cases: int = 5) -> Tensor:
    z = torch.randn(cases, size, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    if isinstance(family, CategoricalMean):
        return z.softmax(-1)
    return z.sigmoid() if isinstance(family, BernoulliMean) else z


@pytest.mark.parametrize("name", REFERENCES)
def test_log_prob_entropy_and_kl(name: str) -> None:
    family, reference, size = REFERENCES[name]
    z, other = point(family, size), point(family, size, seed=1)
    t = family.sample(z, torch.Generator().manual_seed(2))
    assert torch.allclose(family.log_prob(z, t), reference(z).log_prob(t), atol=1e-12)
    assert torch.allclose(family.entropy(z), reference(z).entropy(), atol=1e-12)
    assert torch.allclose(family.kl(z, other), kl_divergence(reference(z), reference(other)), atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_score_is_the_gradient_of_log_prob(name: str) -> None:
    family, size = FAMILIES[name]
    z = point(family, size).requires_grad_()
    t = family.sample(z.detach(), torch.Generator().manual_seed(2))
    expected = torch.autograd.grad(family.log_prob(z, t).sum(), z)[0]
    assert torch.allclose(family.score(z.detach(), t), expected, atol=1e-12)


@pytest.mark.parametrize("name", FAMILIES)
def test_root_squares_to_the_fisher(name: str) -> None:
    family, size = FAMILIES[name]
    z = point(family, size)
    dense = sum(torch.einsum("ni,nj->nij", u, u) for u in family.fisher_root(z))
    for i, e in enumerate(torch.eye(size, dtype=torch.float64)):
        assert torch.allclose(dense[..., i], family.fisher(z, e.expand_as(z)), atol=1e-12)


@pytest.mark.parametrize("name", [n for n in FAMILIES if n != "categorical mean"])
def test_fisher_is_the_curvature_of_kl(name: str) -> None:
    family, size = FAMILIES[name]
    z = point(family, size, cases=1)
    curvature = hessian(lambda other: family.kl(z, other.unsqueeze(0)).sum())(z[0])
    for e, column in zip(torch.eye(size, dtype=torch.float64), curvature, strict=True):
        assert torch.allclose(family.fisher(z, e.unsqueeze(0))[0], column, atol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 1.0])
def test_raised_connection(name: str, alpha: float) -> None:
    family, size = FAMILIES[name]
    z, r = point(family, size), torch.randn(5, size, dtype=torch.float64)
    if isinstance(family, CategoricalMean):
        r -= r.mean(-1, keepdim=True)  # probabilities move inside the simplex
    raised = family.raised_connection(z, r, alpha)
    assert torch.allclose(family.fisher(z, raised), family.connection(z, r, alpha), atol=1e-10)


@pytest.mark.parametrize("name", FAMILIES)
def test_samples_follow_the_distribution(name: str) -> None:
    """The scores of model samples have mean zero and the Fisher as their covariance."""
    family, size = FAMILIES[name]
    draws = 40_000
    z = point(family, size, cases=1).expand(draws, size)
    scores = family.score(z, family.sample(z, torch.Generator().manual_seed(0)))
    if isinstance(family, CategoricalMean):
        scores = scores - 1  # in the simplex's own coordinates a constant shift is no score
    covariance = scores.mT @ scores / draws
    expected = torch.stack([family.fisher(z[:1], e.unsqueeze(0))[0] for e in torch.eye(size, dtype=torch.float64)])
    if isinstance(family, CategoricalMean):
        expected = expected - 1
    scale = float(expected.abs().max())
    assert float(scores.mean(0).abs().max()) < 5 * math.sqrt(scale / draws)
    assert float((covariance - expected).abs().max()) < 0.06 * scale


def test_sampled_generic_family_converges_to_the_closed_form() -> None:
    """Sixty thousand draws: as many for each of a hundred cases, which are all the same."""
    z, u = torch.randn(3, dtype=torch.float64).expand(100, 3), torch.tensor([1.0, -0.5, 0.2]).double().expand(100, 3)
    exact = Categorical()
    family = Generic.sampled(exact.log_prob, lambda p: exact.sample(p), 600)
    assert torch.allclose(family.fisher(z, u).mean(0), exact.fisher(z, u)[0], atol=0.01)
    assert torch.allclose(family.levi_civita(z, u).mean(0), exact.levi_civita(z, u)[0], atol=0.01)


def test_a_sampled_family_is_the_same_at_the_same_point() -> None:
    """Conjugate gradients need one operator; the user's random stream goes on as if nothing had been drawn."""
    exact, z = Categorical(), torch.randn(4, 3, dtype=torch.float64)
    family, u = Generic.sampled(exact.log_prob, lambda p: exact.sample(p), 20), torch.randn_like(z)
    stream = torch.get_rng_state()
    first = family.fisher(z, u)
    assert torch.equal(torch.get_rng_state(), stream)
    torch.rand(1)
    assert torch.equal(family.fisher(z, u), first)
    assert torch.allclose(family.fisher(z, 2 * u), 2 * first)


def test_gaussian_entropy_drift_vanishes_for_the_exponential_connection() -> None:
    """A mean that moves costs the log std sigma^-2 R^2 under alpha = 0 and nothing under alpha = 1."""
    z, r = torch.tensor([[0.0, -0.3]]), torch.tensor([[1.0, 0.0]])
    assert Gaussian().connection(z, r, 0.0)[0, 1] == pytest.approx(math.exp(0.6))
    assert Gaussian().connection(z, r, 1.0)[0, 1] == pytest.approx(0.0, abs=1e-6)


@pytest.mark.parametrize("alpha", [-1.0, -0.3, 0.0, 0.5, 1.0])
def test_by_blocks_each_part_is_connected_as_if_the_other_stood_still(alpha: float) -> None:
    z, r = point(Gaussian(), 4), point(Gaussian(), 4, seed=1)
    still_log, still_mean = r.clone(), r.clone()
    still_log[:, 2:], still_mean[:, :2] = 0, 0
    joint, blocks = Gaussian(), Gaussian(blocks=True)
    for name in ("connection", "raised_connection"):
        mean, _ = getattr(joint, name)(z, still_log, alpha).chunk(2, -1)
        _, log_std = getattr(joint, name)(z, still_mean, alpha).chunk(2, -1)
        torch.testing.assert_close(getattr(blocks, name)(z, r, alpha), torch.cat([mean, log_std], -1))
    assert blocks.domain_limit(z, r, alpha) == pytest.approx(joint.domain_limit(z, still_mean, alpha))


@pytest.mark.parametrize(
    ("alpha", "r"), [(1.0, [0.4, 0.8]), (-1.0, [1.5, 0.3]), (-1.0, [0.0, -0.6]), (0.5, [0.0, 0.7])]
)
def test_domain_limit_is_where_the_geodesic_ends(alpha: float, r: list[float]) -> None:
    z = torch.tensor([[0.2, -0.5]], dtype=torch.float64)
    limit = Gaussian().domain_limit(z, torch.tensor([r], dtype=torch.float64), alpha)

    def geodesic(_: float, state: list[float]) -> list[float]:
        position, speed = torch.tensor(np.array(state)).view(2, 1, 2).unbind()
        return [*state[2:], *(-Gaussian().raised_connection(position, speed, alpha)[0]).tolist()]

    start = [*z[0].tolist(), *r]
    almost = solve_ivp(geodesic, (0, 0.999 * limit), start, rtol=1e-9, atol=1e-9)
    assert almost.success
    assert abs(almost.y[1, -1] - start[1]) > 2  # the log std has run far by then
    escaped = (lambda _, y: abs(y[3]) - 1e6,)
    escaped[0].terminal = True
    beyond = solve_ivp(geodesic, (0, 1.01 * limit), start, events=escaped, rtol=1e-9, atol=1e-9)
    assert beyond.t[-1] < 1.001 * limit


def test_levi_civita_geodesics_never_end() -> None:
    assert Gaussian().domain_limit(torch.zeros(1, 2), torch.tensor([[3.0, 9.0]]), 0.0) == math.inf
    assert MIXED.domain_limit(torch.zeros(1, 6), torch.ones(1, 6), 0.0) == math.inf
    assert MIXED.domain_limit(torch.zeros(1, 6), torch.ones(1, 6), 1.0) == pytest.approx(0.5)


def test_product_draws_lie_side_by_side() -> None:
    z = point(MIXED, 6)
    t = MIXED.sample(z, torch.Generator().manual_seed(0))
    assert t.shape == (5, 3)
    assert set(t[:, 0].tolist()) <= {0.0, 1.0, 2.0}
    parts = Categorical().log_prob(z[:, :3], t[:, 0]) + Gaussian().log_prob(z[:, 3:5], t[:, 1:2])
    assert torch.allclose(MIXED.log_prob(z, t), parts + Bernoulli().log_prob(z[:, 5:], t[:, 2:]))


def test_tiny_steps_keep_their_kl() -> None:
    """KL of a 1e-4 step in float32: the naive formula returns rounding noise or a negative number."""
    z = torch.zeros(1, 2)
    kl = Gaussian().kl(z, z + torch.tensor([[0.0, 1e-4]]))
    assert float(kl) == pytest.approx(1e-8, rel=1e-2)


def test_free_log_std_appends_its_parameter() -> None:
    z = FreeLogStd(2, -0.5)(torch.ones(3, 2))
    assert z.tolist() == [[1.0, 1.0, -0.5, -0.5]] * 3


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="std must be positive"):
        FixedGaussian(0.0)
    with pytest.raises(ValueError, match="at least one family"):
        Product([])


MASKED = torch.tensor([[0.3, -math.inf, -1.0, 0.5], [1.0, 2.0, -math.inf, -math.inf], [0.1, 0.2, 0.3, 0.4]]).double()


def test_E10_masked_classes_have_torchs_entropy_and_kl() -> None:
    """A logit of -inf is an action that cannot be taken; a KL to a distribution that forbids it too is finite."""
    other = torch.where(MASKED.isinf(), MASKED, MASKED.flip(0).clamp(min=-2.0))
    ours, theirs = (TorchCategorical(logits=z) for z in (MASKED, other))
    torch.testing.assert_close(Categorical().entropy(MASKED), ours.entropy())
    torch.testing.assert_close(Categorical().kl(MASKED, other), kl_divergence(ours, theirs))
    even = torch.zeros_like(MASKED)
    torch.testing.assert_close(Categorical().kl(MASKED, even), kl_divergence(ours, TorchCategorical(logits=even)))
    assert Categorical().kl(even, MASKED).tolist()[:2] == [math.inf, math.inf]


def test_E10_the_gradient_of_a_masked_entropy_is_finite() -> None:
    logits = torch.zeros_like(MASKED).requires_grad_()
    z = logits.masked_fill(MASKED.isinf(), -math.inf) + 0.1 * logits
    Categorical().entropy(z).sum().backward()
    assert logits.grad is not None
    assert bool(logits.grad.isfinite().all())

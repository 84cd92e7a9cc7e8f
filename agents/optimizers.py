"""The optimisers of an agent's policy and critic, from their settings."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from geonpg.errors import choose
from geonpg.kfac import (
    SOLVERS,
    CgSolver,
    Constant,
    FactorSettings,
    Family,
    FixedGaussian,
    Gaussian,
    NaturalGradient,
    Ranks,
    Solver,
    TrustRegion,
)

from .outputs import Networks
from .settings import TRUST_REGIONS, ActorSettings, CriticSettings

NATURAL_RATE = 1.0  # of a critic trained by its natural gradient, if no rate is given
FIRST_ORDER_RATE = 1e-3  # of a critic trained by an `optimizer_class` of the user's, if no rate is given


def policy_optimizer(networks: Networks, settings: ActorSettings, lr: float, ranks: Ranks) -> NaturalGradient:
    """Make the natural gradient of the policy, whose longest step is `lr`."""
    return NaturalGradient(
        networks.actor,
        family_by(settings.connection, networks.family),
        lr=lr,
        rule=settings.method,
        solver=solver_of(settings.solver, settings.cg_iterations),
        control=TRUST_REGIONS[settings.trust_region](max_kl=settings.target_kl),
        damping=settings.damping,
        alpha=settings.alpha,
        calibrate=settings.calibrate,
        gradient_averaging=settings.gradient_averaging,
        cautious=settings.cautious,
        curvature_every=settings.curvature_every,
        factors=factor_settings(settings, settings.factors_every),
        parameters=networks.actor_parameters,
        seed=int(torch.randint(2**31, ())),
        ranks=ranks,
    )


def factor_settings(settings: ActorSettings | CriticSettings, every: int) -> FactorSettings:
    """Return how Kronecker factors are estimated, which are looked at every so many updates."""
    averaging, factored = settings.factor_averaging, settings.factored_damping
    return FactorSettings(averaging, every, factored_damping=factored)


def family_by(connection: str, family: Family) -> Family:
    """Return the family with its mean and deviation connected as asked for; other families have no such parts."""
    return Gaussian(blocks=True) if connection == "blocks" and isinstance(family, Gaussian) else family


def critic_optimizer(
    networks: Networks, settings: CriticSettings, policy_kwargs: Mapping[str, Any], ranks: Ranks
) -> Optimizer:
    """Make the optimiser of the critic: the natural gradient, unless the user has chosen a class in `policy_kwargs`."""
    chosen, keywords = (policy_kwargs.get(f"optimizer_{name}") for name in ("class", "kwargs"))
    if chosen is None:
        return natural_critic(networks, settings, ranks)
    return first_order_optimizer(chosen, networks.critic_parameters, settings.critic_learning_rate, keywords or {})


def natural_critic(networks: Networks, settings: CriticSettings, ranks: Ranks) -> NaturalGradient:
    """Make the natural gradient of the critic, which is Gauss-Newton's."""
    limit, rate = settings.critic_target_kl, settings.critic_learning_rate
    return NaturalGradient(
        networks.critic,
        FixedGaussian(),
        lr=NATURAL_RATE if rate is None else rate,
        rule="ng",
        solver=solver_of(settings.critic_solver, settings.critic_cg_iterations),
        control=TrustRegion(max_kl=limit) if limit > 0 else Constant(),
        damping=settings.critic_damping,
        gradient_averaging=settings.critic_gradient_averaging,
        curvature_every=settings.critic_curvature_every,
        factors=factor_settings(settings, settings.critic_updates),
        parameters=networks.critic_parameters,
        seed=int(torch.randint(2**31, ())),
        ranks=ranks,
    )


def first_order_optimizer(
    kind: Callable[..., Optimizer], parameters: Iterable[Tensor], rate: float | None, keywords: Mapping[str, object]
) -> Optimizer:
    """Make the critic's optimiser of a class that the user has chosen."""
    return kind(parameters, lr=FIRST_ORDER_RATE if rate is None else rate, **keywords)


def solver_of(name: str, iterations: int) -> Solver:
    """Look a solver up by its name; conjugate gradients get that many iterations, and keep their other settings."""
    solver = choose("solver", name, SOLVERS)
    return replace(solver, iterations=iterations) if isinstance(solver, CgSolver) else solver

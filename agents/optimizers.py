"""The natural gradients of an agent's policy and critic, from its settings."""

from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from geonpg.errors import choose, require
from geonpg.kfac import SOLVERS, CgSolver, Constant, FactorSettings, FixedGaussian, NaturalGradient, Solver, TrustRegion

if TYPE_CHECKING:
    from .acktr import ACKTR

FIRST_ORDER_RATE = 1e-3  # of a critic trained by an `optimizer_class` of the user's, if no rate is given


def check_settings(agent: "ACKTR") -> None:
    """What the optimisers would misread, or refuse under another name, dies under the agent's own."""
    target, rate, limit = agent.target_kl, agent.critic_learning_rate, agent.critic_target_kl
    require(target is not None and target > 0, f"target_kl must be positive, not {target}")
    require(rate is None or rate > 0, f"critic_learning_rate must be positive, not {rate}")
    require(limit is not None and limit >= 0, f"critic_target_kl must be positive, or 0 for no limit, not {limit}")
    require(agent.torch_threads is None or agent.torch_threads >= 1, "torch_threads must be at least 1, or None")
    require(agent.critic_updates >= 1, f"critic_updates must be at least 1, not {agent.critic_updates}")


def policy_optimizer(agent: "ACKTR") -> NaturalGradient:
    return NaturalGradient(
        agent.networks.actor,
        agent.networks.family,
        lr=agent.lr_schedule(1),
        rule=agent.method,
        solver=solver_of(agent.solver, agent.cg_iterations),
        control=TrustRegion(max_kl=agent.target_kl),
        damping=agent.damping,
        alpha=agent.alpha,
        calibrate=agent.calibrate,
        gradient_averaging=agent.gradient_averaging,
        cautious=agent.cautious,
        factors=FactorSettings(averaging=agent.factor_averaging, update_every=agent.factors_every),
        parameters=agent.networks.actor_parameters,
        seed=int(torch.randint(2**31, ())),
        ranks=agent.ranks,
    )


def critic_optimizer(agent: "ACKTR") -> torch.optim.Optimizer:
    own = agent.policy_kwargs.get("optimizer_class")
    if own is not None:
        rate = FIRST_ORDER_RATE if agent.critic_learning_rate is None else agent.critic_learning_rate
        keywords = agent.policy_kwargs.get("optimizer_kwargs") or {}
        return own(agent.networks.critic_parameters, lr=rate, **keywords)
    return NaturalGradient(
        agent.networks.critic,
        FixedGaussian(),
        lr=1.0 if agent.critic_learning_rate is None else agent.critic_learning_rate,
        rule="ng",
        solver=solver_of(agent.critic_solver, agent.critic_cg_iterations),
        control=TrustRegion(max_kl=agent.critic_target_kl) if agent.critic_target_kl > 0 else Constant(),
        damping=agent.critic_damping,
        gradient_averaging=agent.critic_gradient_averaging,
        factors=FactorSettings(averaging=agent.factor_averaging, update_every=agent.critic_updates),
        parameters=agent.networks.critic_parameters,
        seed=int(torch.randint(2**31, ())),
        ranks=agent.ranks,
    )


def solver_of(name: str, iterations: int) -> Solver:
    """The solver of that name; conjugate gradients with that many iterations."""
    solver = choose("solver", name, SOLVERS)
    return replace(solver, iterations=iterations) if isinstance(solver, CgSolver) else solver

"""What `NaturalGradient` checks of its arguments, and of what a closure returns."""

import math
from typing import Any, SupportsFloat

import torch
from torch import Tensor

from geonpg.errors import choose, require

from .ranks import Ranks
from .rules import RULES, Rule
from .solvers import SOLVERS, DenseSolver, Solver


def check_settings(damping: float, alpha: float, gradient_averaging: float) -> None:
    """Raise Refused for a number that is not legal."""
    require(damping >= 0 and math.isfinite(damping), f"damping must be finite and not negative, not {damping}")
    require(-1 <= alpha <= 1, f"alpha must lie in [-1, 1], not {alpha}")
    require(0 <= gradient_averaging < 1, f"gradient_averaging must lie in [0, 1), not {gradient_averaging}")


def rule_and_solver(rule: str, solver: str | Solver) -> tuple[Rule, Solver]:
    """Look up both by their names; raise Refused for names that are not known, or that do not go together."""
    integrator = choose("rule", rule, RULES)
    chosen = choose("solver", solver, SOLVERS) if isinstance(solver, str) else solver
    exact_needs_dense = math.isinf(integrator.order) and not isinstance(chosen, DenseSolver)
    require(not exact_needs_dense, f"rule {rule!r} needs solver 'dense': choose that, or ng, mid, geo or geof")
    return integrator, chosen


def mean_loss(loss: Any, ranks: Ranks) -> Any:
    """Average the ranks' losses: a tensor without a graph if the closure returned a tensor, otherwise a number."""
    single = loss.numel() == 1 if isinstance(loss, Tensor) else isinstance(loss, SupportsFloat)
    got = f"a tensor of shape {tuple(loss.shape)}" if isinstance(loss, Tensor) else repr(loss)
    require(single, f"the closure must return the loss, one number, not {got}")
    if isinstance(loss, Tensor):
        return torch.full_like(loss.detach(), ranks.number(float(loss.detach())))
    return ranks.number(float(loss))

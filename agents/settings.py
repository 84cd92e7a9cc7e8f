"""What an agent's two optimisers are made from: its flat keywords, checked under their own names."""

import math
from dataclasses import dataclass, fields
from typing import TypeVar

from geonpg.errors import known, require
from geonpg.kfac import KlSearch, SolverRegion, TrustRegion

CONNECTIONS = ("joint", "blocks")
# What `target_kl` is the target of: the KL that the metric predicts for a step, the one that it has, or the one that
# the solver's own metric predicts.
TRUST_REGIONS: dict[str, type[TrustRegion | KlSearch]] = {
    "predicted": TrustRegion,
    "actual": KlSearch,
    "solver": SolverRegion,
}


@dataclass(frozen=True)
class ActorSettings:
    """The settings of the policy's natural gradient; `ACKTR` says what each of them means."""

    method: str
    solver: str
    cg_iterations: int
    alpha: float
    connection: str
    calibrate: bool
    target_kl: float
    trust_region: str
    damping: float
    gradient_averaging: float
    cautious: bool
    curvature_every: int
    factor_averaging: float
    factored_damping: bool
    factors_every: int

    def __post_init__(self) -> None:
        target = self.target_kl
        require(target is not None and target > 0, f"target_kl must be positive, not {target}")
        known("trust_region", self.trust_region, TRUST_REGIONS)
        known("connection", self.connection, CONNECTIONS)
        require(-1 <= self.alpha <= 1, f"alpha must lie in [-1, 1], not {self.alpha}")
        require_count("cg_iterations", self.cg_iterations)
        require_count("factors_every", self.factors_every)
        require_count("curvature_every", self.curvature_every)
        require_damping("damping", self.damping)
        require_decay("gradient_averaging", self.gradient_averaging)
        require_decay("factor_averaging", self.factor_averaging)


@dataclass(frozen=True)
class CriticSettings:
    """The settings of the critic's optimiser; `ACKTR` says what each of them means."""

    critic_updates: int
    critic_learning_rate: float | None
    critic_solver: str
    critic_cg_iterations: int
    critic_curvature_every: int
    critic_damping: float
    critic_target_kl: float
    critic_gradient_averaging: float
    factor_averaging: float
    factored_damping: bool

    def __post_init__(self) -> None:
        rate, limit = self.critic_learning_rate, self.critic_target_kl
        require(rate is None or rate > 0, f"critic_learning_rate must be positive, not {rate}")
        require(limit is not None and limit >= 0, f"critic_target_kl must be positive, or 0 for no limit, not {limit}")
        require_count("critic_updates", self.critic_updates)
        require_count("critic_cg_iterations", self.critic_cg_iterations)
        require_count("critic_curvature_every", self.critic_curvature_every)
        require_damping("critic_damping", self.critic_damping)
        require_decay("critic_gradient_averaging", self.critic_gradient_averaging)
        require_decay("factor_averaging", self.factor_averaging)


S = TypeVar("S", ActorSettings, CriticSettings)


def settings_of(agent: object, kind: type[S]) -> S:
    """Read settings of one kind from the attributes of the same names; raise Refused if one cannot be used."""
    return kind(**{field.name: getattr(agent, field.name) for field in fields(kind)})


def require_count(name: str, value: int) -> None:
    """Raise Refused unless the value is at least 1."""
    require(value >= 1, f"{name} must be at least 1, not {value}")


def require_damping(name: str, value: float) -> None:
    """Raise Refused unless the value can stand on the diagonal of a Fisher matrix."""
    require(value >= 0 and math.isfinite(value), f"{name} must be finite and not negative, not {value}")


def require_decay(name: str, value: float) -> None:
    """Raise Refused unless the value can be the decay of an average."""
    require(0 <= value < 1, f"{name} must lie in [0, 1), not {value}")

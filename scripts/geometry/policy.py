"""One update of the same neural policy in several parameterisations, by every rule, over a range of step sizes.

Solves are exact and undamped: a multiple of the identity added to the metric would itself depend on the
parameterisation. KL is quadratic in the distance between two policies, so a rule of invariance order p, whose
single steps differ by h^(p + 1), leaves a KL of h^(2 p + 2).
"""

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor, nn
from torch.nn.functional import softplus
from torch.nn.utils.parametrize import register_parametrization

from geonpg.kfac import (
    RULES,
    SOLVERS,
    Call,
    CallsBatch,
    Constant,
    FactorSettings,
    FlowMemory,
    Gaussian,
    Geometry,
    KroneckerFisher,
    Network,
    NetworkFlow,
    Rule,
    StepFailure,
)
from geonpg.scripts.common.artifacts import Cell, Table
from geonpg.scripts.geometry.batch import PolicyBatch, record_batch
from geonpg.scripts.geometry.gamma import Tick
from geonpg.scripts.geometry.orders import APPROXIMATE, fitted_slope

# Slopes are fitted up to this predicted KL. It was set after looking at three batches: undamped steps are long in the
# directions that the outputs hardly feel, and beyond it some batches have left the range of small steps.
FIT_UP_TO = 1e-6
# A KL below this is rounding.
ROUNDING = 1e-27
# Milliseconds for all rules at one h in one parameterisation, roughly; only the progress bar depends on it.
POINT_COST = 250.0


class Coordinates(nn.Module):
    """A parameter w = outward(y), held as y."""

    def __init__(self, outward: Callable[[Tensor], Tensor], inward: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self._outward, self._inward = outward, inward

    def forward(self, y: Tensor) -> Tensor:
        """Map y to w."""
        return self._outward(y)

    def right_inverse(self, w: Tensor) -> Tensor:
        """Map w to y."""
        return self._inward(w)


def scaled(scale: float) -> Coordinates:
    """Return the coordinates y of w = scale * y."""
    return Coordinates(lambda y: scale * y, lambda w: w / scale)


@dataclass(frozen=True)
class Parameterisation:
    """How the log std and each layer's weights are held; what is not named is held as it is."""

    name: str
    log_std: Coordinates | None = None
    weights: Sequence[Coordinates] = ()

    def apply(self, policy: nn.Sequential) -> nn.Sequential:
        """Return a copy of the policy with other parameters."""
        policy = copy.deepcopy(policy)
        layers = [layer for layer in policy if isinstance(layer, nn.Linear)]
        for layer, coordinates in zip(layers, self.weights, strict=False):
            register_parametrization(layer, "weight", coordinates)
        if self.log_std is not None:
            register_parametrization(policy[-1], "log_std", self.log_std)
        return policy


REFERENCE = Parameterisation("log sigma, W")
LINEAR = Parameterisation("W = s W', s = 1, 3, 0.3", weights=(scaled(1), scaled(3), scaled(0.3)))
OTHERS = (
    Parameterisation("sigma", Coordinates(torch.log, torch.exp)),
    Parameterisation(
        "sigma = softplus(y)",
        Coordinates(lambda y: softplus(y).log(), lambda log_std: log_std.exp().expm1().log()),
    ),
    Parameterisation("W = sinh(W')", weights=(Coordinates(torch.sinh, torch.asinh),) * 3),
    LINEAR,
)


class PolicyFlow:
    """A policy's natural-gradient flow on the recorded batch; the loss is -E[ratio * advantage]."""

    def __init__(self, policy: nn.Sequential, batch: PolicyBatch) -> None:
        # not written out: only then can the metric's columns be made in one pass
        self.family, self.network = Gaussian(), Network(policy, written_out=False)
        self.call = Call((batch.observations,))
        self.start = self.network.layout.read()
        before = self.family.log_prob(self.outputs(self.start), batch.actions)

        def evaluate(y: Tensor) -> tuple[float, Tensor]:
            leaf = y.detach().requires_grad_()
            ratio = (self.family.log_prob(self.network.evaluate(leaf, self.call), batch.actions) - before).exp()
            loss = -(ratio * batch.advantages).mean()
            return float(loss.detach()), torch.autograd.grad(loss, leaf)[0]

        geometry = Geometry(self.network, KroneckerFisher(policy, self.family, FactorSettings()), SOLVERS["dense"])
        data = CallsBatch(self.network, [self.call], evaluate)
        self.flow = NetworkFlow(geometry, data, self.start, FlowMemory(), 0.0, Generator())

    def outputs(self, y: Tensor) -> Tensor:
        """Return the policy's outputs on the batch."""
        return self.network.outputs(y, self.call)

    def step(self, rule: Rule, h: float) -> Tensor | None:
        """Return the policy's outputs after a step; None if the step fails.

        A rule with a memory takes two steps, because its first is that of another rule.
        """
        control = Constant(lr=h)
        try:
            move, last = rule.step(self.flow, self.start, control, None)
            if last is not None and move.accepted:
                move, _ = rule.step(self.flow, move.y, control, last)
        except StepFailure:
            return None
        return self.outputs(move.y) if move.accepted else None

    def kl(self, z: Tensor | None, other: Tensor | None) -> float:
        """Return the mean KL between two outputs; nan if one is missing."""
        return math.nan if z is None or other is None else float(self.family.kl(z, other).mean())


@dataclass(frozen=True)
class PolicyStudy:
    """What one batch showed."""

    batch: int
    predicted_kl: Sequence[float]  # of the plain natural-gradient step, v^T g v h^2 / 2
    h: Sequence[float]
    kl: dict[str, dict[str, list[float]]]  # parameterisation -> method -> one per h

    def fitted(self) -> int:
        """Count the step sizes that are small enough to fit a slope."""
        return sum(kl <= FIT_UP_TO * (1 + 1e-9) for kl in self.predicted_kl)

    def usable(self, parameterisation: str, method: str) -> list[tuple[float, float]]:
        """Return the pairs of h and KL that a slope is fitted to."""
        pairs = zip(self.h, self.kl[parameterisation][method][: self.fitted()], strict=False)
        return [(h, kl) for h, kl in pairs if kl > ROUNDING]

    def slope(self, parameterisation: str, method: str) -> float:
        """Fit the slope of log KL over log h."""
        pairs = self.usable(parameterisation, method)
        return fitted_slope([h for h, _ in pairs], [kl for _, kl in pairs])

    @property
    def linear(self) -> dict[str, list[float]]:
        """KL under the linear change of parameters, by method."""
        return self.kl[LINEAR.name]

    def linear_error(self, method: str) -> float:
        """Return the largest KL under the linear change of parameters, as a part of the predicted KL."""
        pairs = zip(self.linear[method][: self.fitted()], self.predicted_kl, strict=False)
        return max(kl / predicted for kl, predicted in pairs)


def policy_cost(predicted_kl: Sequence[float]) -> float:
    """Return what `run_policy` will tick in all."""
    return (len(OTHERS) + 1) * len(predicted_kl) * POINT_COST


def run_policy(predicted_kl: Sequence[float], steps: int, seed: int, tick: Tick) -> PolicyStudy:
    """Update the policy of one batch; step sizes are those at which `ng` predicts the given KLs, smallest first."""
    batch = record_batch(steps, seed)
    reference = PolicyFlow(REFERENCE.apply(batch.policy), batch)
    speed = reference.flow.speed_squared(reference.start, reference.flow.velocity(reference.start))
    sizes = [math.sqrt(2 * kl / speed) for kl in predicted_kl]

    def outcomes(policy: PolicyFlow) -> dict[str, list[Tensor | None]]:
        found: dict[str, list[Tensor | None]] = {method: [] for method in APPROXIMATE}
        for h in sizes:
            for method, many in found.items():
                many.append(policy.step(RULES[method], h))
            tick(POINT_COST)
        return found

    truth, kl = outcomes(reference), dict[str, dict[str, list[float]]]()
    for other in OTHERS:
        found = outcomes(PolicyFlow(other.apply(batch.policy), batch))
        kl[other.name] = {m: list(map(reference.kl, truth[m], found[m])) for m in APPROXIMATE}
    return PolicyStudy(seed, predicted_kl, sizes, kl)


def policy_table(studies: Sequence[PolicyStudy]) -> Table:
    """Make a table of slopes, by parameterisation, method and batch."""
    predicted = studies[0].predicted_kl
    shown = (studies[0].fitted() - 1, len(predicted) - 1)
    ends = [f"KL at predicted {predicted[i]:g}" for i in shown]

    def row(name: str, method: str, study: PolicyStudy) -> list[Cell]:
        slope, points = study.slope(name, method), len(study.usable(name, method))
        kl = study.kl[name][method]
        return [name, method, study.batch, slope, 2 * RULES[method].order + 2, points, *(kl[i] for i in shown)]

    names = [other.name for other in OTHERS if other is not LINEAR]
    return Table(
        "policy_slopes",
        f"Neural policy: KL between the policies after one update, against {REFERENCE.name}",
        ("parameterisation", "method", "batch", "slope", "expected", "points", *ends),
        [row(name, method, study) for name in names for method in APPROXIMATE for study in studies],
        f"Slope of log KL over log h up to a predicted KL of {FIT_UP_TO:g}, a limit set after looking: beyond it some"
        " batches have left the range of small steps, as the last column shows. No damping. geof is compared after its"
        " second step, because its first is a geo step. points: how many step sizes the slope is fitted to, those whose"
        f" KL is above rounding ({ROUNDING:g}). nan: no finite step.",
    )


def linear_table(studies: Sequence[PolicyStudy]) -> Table:
    """Make a table of what a linear change of parameters leaves, by method and batch."""
    return Table(
        "policy_linear",
        f"Neural policy: rounding under the linear change of parameters {LINEAR.name}",
        ("method", "batch", "KL as a part of the predicted KL"),
        [[method, study.batch, study.linear_error(method)] for method in APPROXIMATE for study in studies],
        "Under a linear change of parameters every rule is invariant, ng too, as long as solves are exact.",
    )


def policy_kl_table(studies: Sequence[PolicyStudy]) -> Table:
    """Make a table of every KL."""
    rows: list[list[Cell]] = [
        [name, method, study.batch, h, predicted, kl]
        for study in studies
        for name, methods in study.kl.items()
        for method, many in methods.items()
        for h, predicted, kl in zip(study.h, study.predicted_kl, many, strict=True)
    ]
    columns = ("parameterisation", "method", "batch", "h", "predicted kl", "kl")
    return Table("policy_kl", "Neural policy: every KL", columns, rows)

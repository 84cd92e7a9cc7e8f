"""Make an update of a policy from a recorded batch, by any variant and to several sizes of steps."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from geonpg.agents.optimizers import family_by, solver_of
from geonpg.agents.outputs import Networks
from geonpg.kfac import Controller, Curve, Flow, KlSearch, Move, NaturalGradient, TrustRegion
from geonpg.scripts.maps.grid import CLIP, Variant
from geonpg.scripts.maps.recorded import Recorded

LONGEST = 1e4  # the KL decides how long a step is
GROWTH = 4.0
EPOCHS, MINIBATCHES, CLIPPING, MOST_NORM = 10, 32, 0.2, 0.5  # PPO's
SUBSTEP_TRIES, SUBSTEP_TOLERANCE = 4, 0.1  # of the KL that all of them reach together


@dataclass(frozen=True)
class Made:
    """An update that the networks have just been set to."""

    kl: float  # that was aimed at
    actual_kl: float
    predicted_kl: float
    promised: float
    tries: int
    milliseconds: float


@dataclass(frozen=True)
class EachKl(Controller):
    """Several controllers along one curve: their moves are noted, with the seconds that each took."""

    controls: tuple[Controller, ...] = ()
    found: list[tuple[Move, float]] = field(default_factory=list)
    began: list[float] = field(default_factory=list)
    slopes: list[float] = field(default_factory=list)

    def move(self, flow: Flow, y: Tensor, v: Tensor, curve: Curve) -> Move:
        """Make the move of every controller; return the last."""
        self.began.append(time.perf_counter())
        self.slopes.append(flow.slope(y, v))
        for control in self.controls:
            start = time.perf_counter()
            self.found.append((control.move(flow, y, v, curve), time.perf_counter() - start))
        return self.found[-1][0]


class Updater:
    """Makes updates of one policy from one batch; the policy is the same again after each.

    networks: the policy's; their parameters are moved, and put back.
    batch: what the updates are made from.
    every: curvature is measured on every such case.
    """

    def __init__(self, networks: Networks, batch: Recorded, every: int) -> None:
        self.networks, self.batch, self.every = networks, batch, every
        self._start, self._seen = self._state(), batch.inputs[::every]
        with torch.no_grad():
            self._before = networks.actor(self._seen)

    def made(self, variant: Variant, dampings: Mapping[float, float]) -> Iterator[Made]:
        """Yield the updates of a variant, one for each KL, while the networks are set to it.

        dampings: by the KL that is aimed at.
        """
        try:
            if variant.rule == CLIP:
                yield from self._clipped(variant, list(dampings))
            elif variant.substeps > 1:
                yield from (self._substeps(variant, damping, kl) for kl, damping in dampings.items())
            else:
                for damping in dict.fromkeys(dampings.values()):
                    yield from self._natural(variant, damping, [kl for kl in dampings if dampings[kl] == damping])
        finally:
            self.restore()

    def _state(self) -> list[Tensor]:
        """A copy of the parameters."""
        return [parameter.detach().clone() for parameter in self.networks.actor_parameters]

    @torch.no_grad()
    def _set(self, state: Sequence[Tensor]) -> None:
        """Set the parameters to a copy of them."""
        for parameter, value in zip(self.networks.actor_parameters, state, strict=True):
            parameter.copy_(value)

    def restore(self) -> None:
        """Set the networks to where every update begins."""
        self._set(self._start)

    def _optimizer(self, variant: Variant, damping: float, control: Controller) -> NaturalGradient:
        self.restore()
        return NaturalGradient(
            self.networks.actor,
            family_by(variant.connection, self.networks.family),
            rule=variant.rule,
            solver=solver_of(variant.solver, variant.iterations),
            control=control,
            damping=damping,
            alpha=variant.alpha,
            calibrate=variant.calibrate,
            curvature_every=self.every,
            parameters=self.networks.actor_parameters,
        )

    def _step(self, optimizer: NaturalGradient) -> None:
        optimizer.step_outputs(self.batch.inputs, lambda z: self.batch.loss(self.networks, z))

    def _natural(self, variant: Variant, damping: float, kls: Sequence[float]) -> Iterator[Made]:
        """One solve, and along its curve a step of every KL; where there is none, the policy as it was."""
        each = EachKl(LONGEST, tuple(control_of(variant, kl) for kl in kls))
        start = time.perf_counter()
        optimizer = self._optimizer(variant, damping, each)
        self._step(optimizer)
        self.restore()
        if not each.found:  # the solve failed
            yield from (Made(kl, 0.0, 0.0, 0.0, 0, spent_since(start)) for kl in kls)
            return
        for kl, (move, seconds) in zip(kls, each.found, strict=True):
            optimizer.geometry.network.layout.write(move.y)
            spent, promised = 1e3 * (each.began[0] - start + seconds), -move.h * each.slopes[0]
            reached = (move.actual_kl, move.predicted_kl) if move.accepted else (0.0, 0.0)
            yield Made(kl, *reached, promised, move.halvings, spent)

    def _substeps(self, variant: Variant, damping: float, kl: float) -> Made:
        """Steps of equal KL that reach this one together, as nearly as a few tries find them."""
        length = kl / variant.substeps**2
        for tries in range(SUBSTEP_TRIES):
            start = time.perf_counter()
            optimizer = self._optimizer(variant, damping, KlSearch(LONGEST, max_kl=length, growth=GROWTH))
            for _ in range(variant.substeps):
                self._step(optimizer)
            made = Made(kl, self._kl(), math.nan, math.nan, tries, spent_since(start))
            if abs(made.actual_kl / kl - 1) < SUBSTEP_TOLERANCE:
                break
            length *= min(max(kl / max(made.actual_kl, 1e-12), 0.25), 4.0)
        return made

    @torch.no_grad()
    def _kl(self) -> float:
        """KL from where updates begin to where the networks are, on the cases that curvature is measured on."""
        return float(self.networks.family.kl(self._before, self.networks.actor(self._seen)).mean())

    def _clipped(self, variant: Variant, kls: Sequence[float]) -> Iterator[Made]:
        """Adam on the clipped surrogate: the last policies before each KL is exceeded, or before the epochs end."""
        start, wanted = time.perf_counter(), sorted(kls)
        last, reached, steps = self._state(), 0.0, 0
        for _ in self._adam(variant.rate):
            now, here = self._kl(), self._state()
            while wanted and now > wanted[0]:
                self._set(last)
                yield Made(wanted.pop(0), reached, math.nan, math.nan, steps, spent_since(start))
                self._set(here)
            if not wanted:
                return
            last, reached, steps = here, now, steps + 1
        for kl in wanted:
            yield Made(kl, reached, math.nan, math.nan, steps, spent_since(start))

    def _adam(self, rate: float) -> Iterator[None]:
        """Make one step of Adam after another, on minibatches of several epochs."""
        self.restore()
        parameters, size = self.networks.actor_parameters, len(self.batch.inputs)
        adam, draw = torch.optim.Adam(parameters, lr=rate, eps=1e-5), torch.Generator().manual_seed(0)
        for _ in range(EPOCHS):
            for rows in torch.randperm(size, generator=draw).chunk(MINIBATCHES):
                adam.zero_grad()
                self._clipped_loss(rows).backward()
                torch.nn.utils.clip_grad_norm_(parameters, MOST_NORM)
                adam.step()
                yield

    def _clipped_loss(self, rows: Tensor) -> Tensor:
        part, family = self.batch.part(rows), self.networks.family
        with torch.enable_grad():
            ratio = torch.exp(family.log_prob(self.networks.actor(part.inputs), part.draws) - part.log_prob)
            clipped = ratio.clamp(1 - CLIPPING, 1 + CLIPPING)
            return -torch.min(ratio * part.advantages, clipped * part.advantages).mean()


def control_of(variant: Variant, kl: float) -> Controller:
    """How far a variant goes along its curve."""
    if variant.search:
        return KlSearch(LONGEST, max_kl=kl, growth=GROWTH)
    return TrustRegion(LONGEST, max_kl=kl)


def spent_since(start: float) -> float:
    """Milliseconds since then."""
    return 1e3 * (time.perf_counter() - start)

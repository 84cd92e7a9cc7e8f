"""The update rules, side by side. A rule is an integrator of a flow on a manifold.

A rule asks the flow for velocities and accelerations, draws a curve h -> parameters, and lets the
controller choose how far along it to go. What a rule must remember is returned, not hidden.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
import torch
from scipy.integrate import solve_ivp
from torch import Tensor

from .control import Controller, Move
from .flow import Flow, StepFailure

# What a rule remembers of its last step: the displacement over the step size that produced it.
Memory = Tensor | None


class Rule(ABC):
    """`order` is the rule's order of invariance under reparameterisation."""

    order: float

    @abstractmethod
    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        """One step from y."""


class ForwardEuler(Rule):
    """The plain natural gradient."""

    order = 1

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        v = flow.velocity(y)
        return control.move(flow, y, v, lambda h: y + h * v), None


class Midpoint(Rule):
    """Midpoint integrator (paper, section 3): gradient and metric anew at half the step chosen at y."""

    order = 2

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        v = flow.velocity(y)
        return control.move(flow, y, v, lambda h: y + h * flow.velocity(y + 0.5 * h * v)), None


class Geodesic(Rule):
    """Second-order step along the geodesic (paper, eq. 7)."""

    order = 2

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        v = flow.velocity(y)
        a = flow.acceleration(y, v)
        return control.move(flow, y, v, lambda h: y + h * v - 0.5 * h**2 * a), None


class FasterGeodesic(Rule):
    """Geodesic step with the connection at the last displacement (paper, eq. 8): one solve.

    The last displacement is divided by the step size that produced it; the first step is `geo`'s.
    """

    order = 2

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        if last is None:
            v = flow.velocity(y)
            a = flow.acceleration(y, v)
        else:
            v, a = flow.velocity_and_acceleration(y, last)
        move = control.move(flow, y, v, lambda h: y + h * v - 0.5 * h**2 * a)
        return move, (move.y - y) / move.h if move.accepted and move.h > 0 else last


# Tolerances of the ODE solver behind the exact rules.
RTOL, ATOL = 1e-11, 1e-12


class ExactFlow(Rule):
    """The natural-gradient flow itself, by an ODE solver. For models with a dense metric."""

    order = math.inf

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        def follow(h: float) -> Tensor:
            return integrate(flow.velocity, y, h)

        return control.move(flow, y, flow.velocity(y), follow), None


class ExactGeodesic(Rule):
    """Riemannian Euler: the exponential map of the velocity, by an ODE solver."""

    order = math.inf

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        v = flow.velocity(y)

        def geodesic(state: Tensor) -> Tensor:
            position, speed = state.chunk(2)
            return torch.cat([speed, -flow.acceleration(position, speed)])

        return control.move(flow, y, v, lambda h: integrate(geodesic, torch.cat([y, v]), h).chunk(2)[0]), None


def integrate(field: Callable[[Tensor], Tensor], start: Tensor, time: float) -> Tensor:
    """Follow dy/dt = field(y) from `start` for `time`; fails where the solution ends before that."""

    def numpy_field(_: float, y: np.ndarray) -> np.ndarray:
        return field(torch.from_numpy(y).to(start)).double().cpu().numpy()

    solution = solve_ivp(numpy_field, (0.0, time), start.double().cpu().numpy(), method="DOP853", rtol=RTOL, atol=ATOL)
    if not solution.success:
        raise StepFailure(f"the ODE solver stopped: {solution.message}")
    return torch.from_numpy(solution.y[:, -1]).to(start)


RULES: dict[str, Rule] = {
    "ng": ForwardEuler(),
    "mid": Midpoint(),
    "geo": Geodesic(),
    "geof": FasterGeodesic(),
    "ng_exact": ExactFlow(),
    "geo_exact": ExactGeodesic(),
}

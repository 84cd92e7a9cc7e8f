"""The update rules, side by side: the paper in one file. Read it first.

A model's parameters y are coordinates of a point on a manifold of distributions, whose metric g is the Fisher
information. Training follows the natural-gradient flow

    dy/dt = v(y) = -g(y)^-1 dL(y),

a path of distributions that is the same in all coordinates. A computer takes steps of finite length h, and those are
not: the same step, taken in two parameterisations of one model, ends at two distributions. A rule is invariant to
order p if these differ by h^(p + 1). A geodesic, the manifold's own straight line, satisfies y'' = -Gamma(y', y'),
where Gamma is the connection; steps that follow it, or the flow, to second order in h are invariant to order two.

    rule       a step from y                                        order   work, beyond that of ng
    ng         y + h v(y)                                             1
    mid        y + h v(y + h v(y) / 2)                                2     a gradient, a metric and a solve
    geo        y + h v - h^2 Gamma(v, v) / 2                          2     a solve
    geof       as geo, with Gamma at the last displacement            2     less: both are solved for together
    ng_exact   along the flow itself                                 inf    an ODE solver, for small models
    geo_exact  along the geodesic that starts with velocity v        inf    an ODE solver, for small models

A rule asks the flow (`flow.py`) for velocities and accelerations and draws a curve h -> y; the controller
(`control.py`) chooses how far along it to go. What a rule must remember is returned, not hidden.

The paper: Song, Song and Ermon, "Accelerating natural gradient with higher-order invariance", ICML 2018.
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
    """An integrator of the flow; `order` is its order of invariance under reparameterisation."""

    order: float

    @abstractmethod
    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        """Take one step from y; return where it ended, and what to pass as `last` to the next one."""


class ForwardEuler(Rule):
    """The plain natural gradient."""

    order = 1

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        """Go straight along the velocity."""
        v = flow.velocity(y)
        return control.move(flow, y, v, lambda h: y + h * v), None


class Midpoint(Rule):
    """The midpoint integrator (paper, section 3)."""

    order = 2

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        """Go straight along the velocity half a step ahead, where gradient and metric are computed anew."""
        v = flow.velocity(y)
        return control.move(flow, y, v, lambda h: y + h * flow.velocity(y + 0.5 * h * v)), None


class Geodesic(Rule):
    """The geodesic correction (paper, eq. 7)."""

    order = 2

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        """Go along the parabola that follows the geodesic to second order."""
        v = flow.velocity(y)
        a = flow.acceleration(y, v)
        return control.move(flow, y, v, lambda h: y + h * v - 0.5 * h**2 * a), None


class FasterGeodesic(Rule):
    """The geodesic correction at the last displacement (paper, eq. 8), which is known before the solve."""

    order = 2

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        """Solve for velocity and acceleration together; without a last displacement, as at first, step as `geo` does.

        The last displacement is divided by the step size that produced it, which makes it a velocity.
        """
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
    """The natural-gradient flow itself, by an ODE solver; for models with a dense metric."""

    order = math.inf

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        """Follow the flow for the time h."""
        return control.move(flow, y, flow.velocity(y), lambda h: integrate(flow.velocity, y, h)), None


class ExactGeodesic(Rule):
    """Riemannian Euler, the exponential map of the velocity, by an ODE solver; for models with a dense metric."""

    order = math.inf

    def step(self, flow: Flow, y: Tensor, control: Controller, last: Memory) -> tuple[Move, Memory]:
        """Follow the geodesic that starts with the velocity for the time h."""
        v = flow.velocity(y)

        def geodesic(state: Tensor) -> Tensor:
            position, speed = state.chunk(2)
            return torch.cat([speed, -flow.acceleration(position, speed)])

        return control.move(flow, y, v, lambda h: integrate(geodesic, torch.cat([y, v]), h).chunk(2)[0]), None


def integrate(field: Callable[[Tensor], Tensor], start: Tensor, time: float) -> Tensor:
    """Follow dy/dt = field(y) from `start` for `time`; raise StepFailure where the solution ends before that."""

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

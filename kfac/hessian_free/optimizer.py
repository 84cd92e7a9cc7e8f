"""Hessian-free optimisation: one update after the other, with Levenberg and Marquardt's damping."""

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Generator, Tensor

from geonpg.errors import choose, require

from ..control import Move
from ..damping import Damping
from ..flow import StepFailure
from ..levenberg_marquardt import gain_ratio
from ..rules import RULES, Memory
from ..saved import require_keys
from .cases import Evaluation, Problem
from .chunk import HessianFreeSettings
from .flow import HessianFreeFlow, Warm

# What states of an earlier version lack.
LATER: dict[str, Any] = {"growth": Damping.growth}


@dataclass(frozen=True)
class HessianFreeReport:
    """One update: where it ended, the damping it used, what the solves cost."""

    loss: float
    error: float
    damping: float
    ratio: float  # actual over predicted reduction of the loss
    h: float
    iterations: int
    corrected: bool  # by a rule that was switched on and a correction that was not dropped


class HessianFree:
    """Hessian-free optimisation of a problem by a rule of `RULES`.

    The metric sees the chunks of the training cases in turn, one per update. The damping is Levenberg's and
    Marquardt's: it follows how well the quadratic model predicted the last update. `y` holds the parameters;
    `problem.layout.write(optimizer.y)` puts them into the module.

    problem: the network, its output family and its training cases.
    y: the parameters to start from, flat; usually `problem.layout.read()`.
    rule: "ng", "mid", "geo" or "geof"; "mid" ends lowest where we measured (docs/optimizer.md).
    settings: damping, truncation, line search and the like; the paper's by default.
    seed: of the draws that the damping "diagonal" makes; any integer.
    """

    def __init__(
        self, problem: Problem, y: Tensor, rule: str = "geo", settings: HessianFreeSettings | None = None, seed: int = 0
    ) -> None:
        self.rule = choose("rule", rule, {name: r for name, r in RULES.items() if math.isfinite(r.order)})
        self.problem, self.y, self.settings = problem, y, settings or HessianFreeSettings()
        self.next_damping, self.updates = Damping(self.settings.damping, self.settings.damping), 0
        self.warm: Warm = {}
        self.last: Memory = None  # the rule's own memory
        self.now: Evaluation | None = None
        self._draw = Generator().manual_seed(seed)

    @property
    def damping(self) -> float:
        """The damping of the next update."""
        return self.next_damping.value

    def step(self) -> HessianFreeReport:
        """Take one update; one that fails leaves the parameters where they were and raises the damping."""
        rule = self.rule if self.damping < self.settings.threshold else RULES["ng"]
        chunk, start, damping = self.updates % self.problem.cases.chunks, self.y, self.damping
        flow = HessianFreeFlow(self.problem, self.settings, start, damping, chunk, self.warm, self.now, self._draw)
        self.updates += 1
        try:
            move, last = rule.step(flow, start, self.settings.control, self.last)
        except StepFailure:
            move, last = Move(start, torch.zeros_like(start), 0.0, False), None
        ratio = reduction_ratio(flow, move) if move.accepted else -math.inf
        self.next_damping = self.settings.schedule.next(self.next_damping, ratio, move.accepted)
        self.now = flow.evaluation(move.y) if move.accepted else self.now or self.problem.evaluate(start)
        self.y, self.last, self.warm = move.y, last, flow.warm if move.accepted else {}
        return HessianFreeReport(
            self.now.loss, self.now.error, damping, ratio, move.h, flow.iterations, move.accepted and flow.corrected
        )

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next update depends on, as tensors and numbers."""
        return {
            "y": self.y,
            "damping": self.damping,
            "growth": self.next_damping.growth,
            "updates": self.updates,
            "warm": dict(self.warm),
            "last": self.last,
            "now": None if self.now is None else {"loss": self.now.loss, "error": self.now.error},
            "draw": self._draw.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state_dict` was called; raise Refused for the state of another network or optimiser."""
        require_keys("HessianFree", state, [key for key in self.state_dict() if key not in LATER])
        state = {**LATER, **state}
        size = self.problem.layout.size
        require(len(state["y"]) == size, f"this state has {len(state['y'])} parameters, the network {size}")
        self.y, self.updates = state["y"], state["updates"]
        self.next_damping = replace(self.next_damping, value=state["damping"], growth=state["growth"])
        self.warm, self.last = dict(state["warm"]), state["last"]
        self.now = None if state["now"] is None else Evaluation(**state["now"])
        self._draw.set_state(state["draw"])


def reduction_ratio(flow: HessianFreeFlow, move: Move) -> float:
    """Divide the actual by the predicted reduction of the loss; the damped quadratic model predicts it, along v."""
    curvature = float(move.v @ flow.at(flow.base).product(move.v))
    predicted = move.h * flow.slope(flow.base, move.v) + 0.5 * move.h**2 * curvature
    return gain_ratio(flow, flow.base, move.y, predicted)

"""The natural gradient as a torch optimiser, for any module."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from geonpg.errors import Refused, require

from .batch import Batch, CallsBatch, Forward, LossOfOutputs, OutputsBatch, forward
from .checks import check_settings, mean_loss, rule_and_solver
from .contexts import autocast_now, restoring_buffers, without_autocast
from .control import Controller, Move, TrustRegion
from .damping import Damping
from .families import Family
from .fisher import FactorSettings, KroneckerFisher
from .flow import StepFailure
from .layout import Layout
from .network import Network
from .network_flow import NetworkFlow
from .point import FlowMemory, Geometry, check_together
from .ranks import ALONE, Ranks
from .report import Report, report_of
from .residuals import Term, residuals_batch
from .rules import Memory
from .saved import check_fits, memory_of, moved, remembered, require_keys, restore_generator
from .solvers import Solver

log = logging.getLogger(__name__)

LIMITS = "no step along the curve was finite and within its limits"
FEWEST_CASES = 256  # that curvature is measured on, if a batch has so many
LATER: dict[str, Any] = {"direction": None, "signal": [], "growth": Damping.growth}  # that earlier states lack


class NaturalGradient(torch.optim.Optimizer):
    """Natural gradient descent with higher-order invariance, for a module and its output family.

    `step(closure)` takes the usual closure, which clears the gradients, computes the loss from a call of the module,
    calls `backward()` and returns the loss; the metric is measured on the inputs of that call, or of all calls that
    the loss depends on. Parameters that are frozen later (`requires_grad_(False)`) stay where they are.

    module: any module whose call returns the parameters z of the output family, [cases, ..., size].
    family: the output family: `FixedGaussian()` for a squared loss, `Categorical()` for cross-entropy, and so on.
    lr: the longest step, which schedulers may change (0.01 to 1); by default the controller's own, 1.
    rule: "ng", "mid", "geo" or "geof" (see `rules.py`); "ng_exact" and "geo_exact" with solver "dense".
    solver: "kfac", "pcg", "cg", "dense" or "jacobian", or a Solver with its own settings, as `CgSolver(iterations=20)`.
    control: how the step size is chosen; `TrustRegion()` by default.
    damping: the multiple of the identity added to the metric (1e-3 to 0.1); rejected steps raise it for a while.
    alpha: the connection, in [-1, 1]: 0 Levi-Civita (the paper), 1 exponential, -1 mixture.
    calibrate: scale the correction to its least-squares length; False is the published form.
    gradient_averaging: decay of an average of gradients over updates, in [0, 1) (0 to 0.9).
    cautious: hold steps to what fresh batches confirm of the last one, and to what earlier batches would see of them.
    curvature_every: measure metric, connection and KL on every such case of a batch (1 to 8), but on at least 256; the
        gradient takes all.
    factors: how the Kronecker factors are estimated; `FactorSettings()` by default.
    parameters: those of the module's parameters that are trained; all that are trainable by default.
    seed: of the draws behind the Kronecker factors; any integer.
    ranks: the processes that share each batch in equal parts; alone by default.
    """

    def __init__(
        self,
        module: nn.Module,
        family: Family,
        lr: float | None = None,
        *,
        rule: str = "geo",
        solver: str | Solver = "pcg",
        control: Controller | None = None,
        damping: float = 0.01,
        alpha: float = 0.0,
        calibrate: bool = True,
        gradient_averaging: float = 0.0,
        cautious: bool = False,
        curvature_every: int = 1,
        factors: FactorSettings | None = None,
        parameters: Sequence[Tensor] | None = None,
        seed: int = 0,
        ranks: Ranks = ALONE,
    ) -> None:
        check_settings(damping, alpha, gradient_averaging)
        require(curvature_every >= 1, f"curvature_every must be at least 1, not {curvature_every}")
        self.rule, chosen = rule_and_solver(rule, solver)
        self.control = control or TrustRegion()
        lr = self._longest_step(lr)
        layout = Layout(module, parameters)
        fisher = KroneckerFisher(module, family, factors or FactorSettings(), layout, ranks)
        network = Network(module, list(fisher.layers), layout=layout)
        self.geometry = Geometry(network, fisher, chosen, alpha, calibrate, gradient_averaging, cautious, ranks)
        check_together(self.geometry, self.control)
        self.module, self.curvature_every = module, curvature_every
        self.next_damping = Damping(damping, damping)
        self.memory = FlowMemory()
        self.last: Memory = None  # the rule's own memory
        self.steps = self.rejected = 0
        self.report = Report()
        self.generator = torch.Generator(device=layout.parameters[0].device).manual_seed(seed)
        super().__init__(layout.parameters, {"lr": lr})

    def _longest_step(self, lr: float | None) -> float:
        """The longest step, by `lr` or by the controller; Refused if they contradict each other."""
        own, default = self.control.lr, type(self.control).lr
        once = lr is None or own in (lr, default)
        require(once, f"the longest step is given twice: lr = {lr}, and {own} by the controller")
        return replace(self.control, lr=own if lr is None else lr).lr  # which refuses one that is not legal

    @property
    def damping(self) -> float:
        """The damping of the next step."""
        return self.next_damping.value

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add the one group that torch's own constructor adds; raise Refused for any other."""
        require(not self.param_groups, "NaturalGradient has one parameter group: its module's parameters")
        super().add_param_group(param_group)

    def coverage(self) -> str:
        """Return a table of every trainable parameter and the curvature block that covers it."""
        return self.geometry.fisher.coverage()

    def condition_numbers(self) -> dict[str, float]:
        """Compute the condition number of every layer's damped Kronecker block; empty before the first step."""
        fisher, statistics = self.geometry.fisher, self.memory.factors.statistics
        numbers = dict(zip((id(block) for block in fisher.blocks), statistics, strict=False))
        return {
            name: block.condition(numbers[id(block)], self.damping)
            for name, block in fisher.layers.items()
            if id(block) in numbers
        }

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Take one update and return the loss before it; one that fails leaves the parameters untouched."""
        if closure is None:
            raise Refused("NaturalGradient.step needs a closure that computes the loss and returns it")
        loss, flow = self.flow(closure)
        self._take(flow)
        return loss

    def step_outputs(self, inputs: Any, loss: LossOfOutputs, known: Forward | None = None) -> Tensor:
        """Take one update on a loss that is a function of the module's outputs; return the loss before it.

        As `step`, but the network is run once per point, and a chain of linear layers and activations without autograd.
        inputs: the batch, whatever the module takes as its one argument.
        loss: a function of the outputs [cases, ..., size].
        known: what `forward` returned for these inputs, if the parameters have not changed since.
        """
        if self.geometry.network.is_written_out(inputs):
            first, flow = self._outputs_flow(inputs, loss, known)
            self._take(flow)
            return first

        def closure() -> Tensor:
            found = loss(self.module(inputs))
            if found.requires_grad:  # unless every parameter is frozen
                found.backward()
            return found

        return self.step(closure)

    def forward(self, inputs: Tensor) -> Forward | None:
        """Run the module for a later `step_outputs`; None if it is no chain of linear layers and activations."""
        network = self.geometry.network
        return forward(network, network.layout.read(), inputs) if network.is_written_out(inputs) else None

    def _outputs_flow(self, inputs: Tensor, loss: LossOfOutputs, known: Forward | None) -> tuple[Tensor, NetworkFlow]:
        network, ranks = self.geometry.network, self.geometry.ranks
        now = network.layout.read()  # which somebody may have changed since
        if known is None or known.x is not inputs or not torch.equal(known.y, now):
            known = forward(network, now, inputs)
        batch = OutputsBatch(network, known, loss, self._every(len(inputs)), ranks)
        return batch.first, self._flow(batch, known.y)

    def _flow(self, batch: Batch, start: Tensor) -> NetworkFlow:
        return NetworkFlow(self.geometry, batch, start, self.memory, self.damping, self.generator)

    def step_residuals(self, *terms: Term) -> float:
        """Take one update on residuals, functions of the module that should vanish; return the loss before it.

        Usually with the family `FixedGaussian()`, solver "jacobian" and control `LevenbergMarquardt()`.
        """
        batch, start = residuals_batch(self.geometry, terms), self.geometry.network.layout.read()
        with without_autocast(start.device):
            loss = batch.first_loss(start)
        self._take(self._flow(batch, start))
        return loss

    def _every(self, cases: int) -> int:
        """Of how many cases curvature is measured on one."""
        return max(1, min(self.curvature_every, cases * self.geometry.ranks.size // FEWEST_CASES))

    def _take(self, flow: NetworkFlow) -> None:
        """Take a step of the rule from the flow's base, or reject it."""
        start = flow.base
        control = replace(self.control, lr=self.param_groups[0]["lr"])
        self.steps += 1
        with restoring_buffers(self.module), without_autocast(start.device):
            try:
                move = self._attempt(flow, control)
            finally:
                self.geometry.network.layout.write(start)  # a rule may have left the parameters at a midpoint
        if move.accepted:
            self.geometry.network.layout.write(move.y)

    def _attempt(self, flow: NetworkFlow, control: Controller) -> Move:
        """Try the step, with one damping after the other where the controller asks for that."""
        before, last = self.next_damping, self.last
        for attempt in range(control.attempts):
            try:
                if attempt:  # another damping makes another step, of which the last displacement is no measure
                    flow, last = flow.with_damping(self.damping), None
                move, last = self.rule.step(flow, flow.base, control, last)
                failed = ""
            except StepFailure as failure:
                move, failed = Move(flow.base, torch.zeros_like(flow.base), 0.0, False), str(failure)
            self.next_damping = control.next_damping(self.next_damping, move)
            if move.accepted:
                self.memory, self.last, self.report = flow.after(move.v), last, report_of(flow, move)
                return move
            if flow.points == 0:  # the gradient is not finite, whatever the damping
                break
        if control.attempts > 1 and (flow.points == 0 or (not failed and flow.promises_nothing(move.v))):
            self.next_damping = before  # which was not what failed
        self.rejected += 1
        self.report = Report(damping=flow.damping, points=flow.points)
        level = logging.INFO if control.attempts > 1 else logging.WARNING  # a minimum is no news
        log.log(level, "step %d rejected: %s; damping is now %g", self.steps, failed or LIMITS, self.damping)
        return move

    def flow(self, closure: Callable[[], Any]) -> tuple[Any, NetworkFlow]:
        """Return the loss where we are, and the flow on the closure's batch from there: what a step integrates.

        The closure runs once, and again at every other point that the flow is asked about, with the
        parameters set to that point.
        """
        layout, ranks = self.geometry.network.layout, self.geometry.ranks
        start = layout.read()
        as_now = autocast_now(start.device)

        def run() -> tuple[Any, Tensor]:
            self.zero_grad()
            with torch.enable_grad(), as_now:
                loss = mean_loss(closure(), ranks)
            return loss, ranks.mean(layout.gradient())

        with self.geometry.network.watching() as watched:
            first = run()
        require(len(watched) > 0, "the closure must call the module that NaturalGradient was given")

        def evaluate(y: Tensor) -> tuple[float, Tensor]:
            if y is not start:
                layout.write(y)
            loss, gradient = first if y is start else run()
            return float(loss), gradient

        every = self._every(sum(each.call.cases for each in watched))
        calls = [each.call.thinned(every) for each in watched]
        values = [each.values for each in watched] if every == 1 else ()
        batch = CallsBatch(self.geometry.network, calls, evaluate, start, values)
        return first[0], self._flow(batch, start)

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles need; torch's own part alone could not take a step.

        Left behind are hooks and the `step` that a scheduler puts in place of ours: they belong to the original.
        """
        return {name: value for name, value in vars(self).items() if name != "step" and not name.startswith("_")}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next update depends on, besides the parameters."""
        state = super().state_dict()
        state["state"] = {
            **remembered(self.memory),
            "last": self.last,
            "damping": self.damping,
            "growth": self.next_damping.growth,
            "steps": self.steps,
            "rejected": self.rejected,
            "generator": self.generator.get_state(),
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was called; raise Refused for the state of another module.

        Tensors are restored in the parameters' dtype, the statistics in that of saving, all on the parameters' device.
        """
        require_keys("NaturalGradient", state_dict, ("state", "param_groups"))
        expected = [key for key in self.state_dict()["state"] if key not in LATER]
        require_keys("NaturalGradient", state_dict["state"], expected)
        like, state = self.geometry.network.layout.read(), {**LATER, **state_dict["state"]}
        check_fits(state, like.numel(), self.geometry.fisher)
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})
        self.memory, self.last = memory_of(state, like), moved(state["last"], like.device, like.dtype)
        self.next_damping = replace(self.next_damping, value=state["damping"], growth=state["growth"])
        self.steps, self.rejected = state["steps"], state["rejected"]
        restore_generator(self.generator, state["generator"])

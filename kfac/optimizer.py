"""The natural gradient as a torch optimiser, for any module."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from geonpg.errors import Refused, require

from .batch import Batch, Forward, LossOfOutputs, OutputsBatch, forward
from .checks import check_settings, mean_loss, rule_and_solver
from .contexts import autocast_now, restoring_buffers, without_autocast
from .control import Controller, Move, TrustRegion
from .families import Family
from .fisher import FactorMemory, FactorSettings, KroneckerFisher
from .flow import StepFailure
from .layout import Layout
from .network import Network
from .network_flow import FlowMemory, Geometry, NetworkFlow
from .ranks import ALONE, Ranks
from .report import Report, report_of
from .rules import Memory
from .saved import require_keys, restore_generator
from .signal import Signal
from .solvers import Solver

log = logging.getLogger(__name__)

# A rejected step multiplies the damping; accepted ones bring it back to where it was set.
DAMPING_RAISE, DAMPING_RELAX, MAX_DAMPING = 10.0, 0.8, 1e6
FEWEST_CASES = 256  # that curvature is measured on, if a batch has so many

# What states of an earlier version lack.
LATER: dict[str, Any] = {"direction": None, "signal": []}


class NaturalGradient(torch.optim.Optimizer):
    """Natural gradient descent with higher-order invariance, for a module and its output family.

    `step(closure)` takes the usual closure, which clears the gradients, computes the loss from a call of the module,
    calls `backward()` and returns the loss; the metric is measured on the inputs of that call, or of all calls that
    the loss depends on. Parameters that are frozen later (`requires_grad_(False)`) stay where they are.

    module: any module whose call returns the parameters z of the output family, [cases, ..., size].
    family: the output family: `FixedGaussian()` for a squared loss, `Categorical()` for cross-entropy, and so on.
    lr: the longest step, which schedulers may change (0.01 to 1); by default the controller's own, 1.
    rule: "ng", "mid", "geo" or "geof" (see `rules.py`); "ng_exact" and "geo_exact" with solver "dense".
    solver: "kfac", "pcg", "cg" or "dense", or a Solver object with settings of its own, as `CgSolver(iterations=20)`.
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
        self.module, self.curvature_every = module, curvature_every
        self.base_damping = self.damping = damping
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
        flow = NetworkFlow(self.geometry, batch.data(), known.y, self.memory, self.damping, self.generator)
        return batch.first, flow

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
                move, last = self.rule.step(flow, start, control, self.last)
            except StepFailure as failure:
                self._reject(str(failure))
            else:
                self._finish(flow, move, last)
            finally:
                self.geometry.network.layout.write(start)  # a rule may have left the parameters at a midpoint
        if self.report.accepted:
            self.geometry.network.layout.write(move.y)

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
        batch = Batch(calls, evaluate, [each.values for each in watched] if every == 1 else ())
        return first[0], NetworkFlow(self.geometry, batch, start, self.memory, self.damping, self.generator)

    def _finish(self, flow: NetworkFlow, move: Move, last: Memory) -> None:
        if not move.accepted:
            self._reject("no step along the curve was finite and within its limits")
            return
        self.memory, self.last = flow.after(move.v), last
        self.report = report_of(flow, move)
        self.damping = max(self.base_damping, DAMPING_RELAX * self.damping)

    def _reject(self, reason: str) -> None:
        self.rejected += 1
        self.report = Report(damping=self.damping)
        self.damping = min(DAMPING_RAISE * max(self.damping, 1e-4), MAX_DAMPING)
        log.warning("step %d rejected: %s; damping is now %g", self.steps, reason, self.damping)

    def __getstate__(self) -> dict[str, Any]:
        """Return what copies and pickles need; torch's own part alone could not take a step.

        Left behind are hooks and the `step` that a scheduler puts in place of ours: they belong to the original.
        """
        return {name: value for name, value in vars(self).items() if name != "step" and not name.startswith("_")}

    def state_dict(self) -> dict[str, Any]:
        """Return everything that the next update depends on, besides the parameters."""
        state = super().state_dict()
        state["state"] = {
            "gradient": self.memory.gradient,
            "seen": self.memory.seen,
            "statistics": self.memory.factors.statistics,
            "inverses": self.memory.factors.inverses,
            "factors_seen": self.memory.factors.seen,
            "factors_damping": self.memory.factors.damping,
            "last": self.last,
            "damping": self.damping,
            "steps": self.steps,
            "rejected": self.rejected,
            "generator": self.generator.get_state(),
            "direction": self.memory.direction,
            "signal": [self.memory.signal.log_share, self.memory.signal.power, self.memory.signal.weight],
        }
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue where `state_dict` was called; raise Refused for the state of another module.

        Tensors are restored in the parameters' dtype, the statistics in that of saving, all on the parameters' device.
        """
        require_keys("NaturalGradient", state_dict, ("state", "param_groups"))
        require_keys(
            "NaturalGradient", state_dict["state"], [key for key in self.state_dict()["state"] if key not in LATER]
        )
        like, state = self.geometry.network.layout.read(), {**LATER, **state_dict["state"]}
        self._check_fits(state)
        super().load_state_dict({"state": {}, "param_groups": state_dict["param_groups"]})

        def moved(kept: Any, dtype: torch.dtype | None) -> Any:
            return tree_map(lambda x: x.to(like.device, dtype) if isinstance(x, Tensor) else x, kept)

        statistics, inverses = moved(state["statistics"], None), moved(state["inverses"], like.dtype)
        factors = FactorMemory(statistics, inverses, state["factors_seen"], state["factors_damping"])
        gradient, direction = (moved(state[name], like.dtype) for name in ("gradient", "direction"))
        self.memory = FlowMemory(gradient, state["seen"], factors, direction, Signal(*state["signal"]))
        self.last = moved(state["last"], like.dtype)
        self.damping, self.steps, self.rejected = state["damping"], state["steps"], state["rejected"]
        restore_generator(self.generator, state["generator"])

    def _check_fits(self, state: dict[str, Any]) -> None:
        size, blocks = self.geometry.network.layout.size, self.geometry.fisher.blocks
        gradient, statistics = state["gradient"], state["statistics"]
        self.geometry.fisher.adopt_diagonals(statistics)
        fits = (gradient is None or gradient.numel() == size) and len(statistics) in (0, len(blocks))
        ours = f"ours has {size} parameters in {len(blocks)} blocks"
        require(fits, f"this optimiser state belongs to another module: {ours}")
        shapes = [[tuple(x.shape) for x in each] for each in statistics]
        alike = not statistics or shapes == [block.shapes for block in blocks]
        require(alike, "this optimiser state has factors of other shapes than ours: was its max_factor another?")

"""How the cost of training grows with the batch, the network, the environments and the processes that share them.

Median milliseconds of each phase of an update, on HalfCheetah-v4 with the default preset and one thing changed at a
time. Processes share one machine here: on two cores, two ranks have one each, and one process has both for its physics.
What more cores would give is extrapolated from measured parts, in cores.py.
"""

import statistics
import tempfile
import time
import timeit
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch.multiprocessing import get_context
from torch.multiprocessing.spawn import start_processes
from tqdm import tqdm

from geonpg.agents import ACKTR
from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.kfac import ALONE, ProcessGroup, Ranks
from geonpg.scripts.benches import cores
from geonpg.scripts.benches.breakdown import PHASES
from geonpg.scripts.benches.findings import DrawnFindings, Numbers
from geonpg.scripts.common.style import plain
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.process import prepare

ENV_ID, SEED = "HalfCheetah-v4", 0
BATCHES = (512, 1024, 2048, 8192, 50_000)
WIDTHS = (64, 128, 256, 512, 1024)
ENV_COUNTS = (1, 4, 16, 64, 256)
RANKS = 2
RANK_BATCHES = (1024, 8192)
WIDE_BATCH = ENV_BATCH = 2048
MESSAGES = (1, 1000, 10_000, 100_000, 1_000_000)  # numbers in one, in double precision
WARM_UP, LEAST_UPDATES, LEAST_SECONDS = 2, 3, 4.0
REPEATS = 7

COLOURS = {"rollout": "#56B4E9", "values": "#999999", "policy": "#D55E00", "critic": "#009E73", "inverses": "#D55E00"}
LABELS = {
    "batch": "steps per update",
    "width": f"width of two hidden layers, {WIDE_BATCH} steps per update",
    "envs": f"environments, {ENV_BATCH} steps per update",
}


@dataclass(frozen=True)
class UpdateCost:
    """What one update takes."""

    milliseconds: Mapping[str, float]  # of each phase, of the whole update, and of the policy's inverses: medians
    messages: int  # that it sends to other processes

    def numbers(self) -> Numbers:
        """Return the times, and the messages where any were sent."""
        times = {f"{name}_ms": value for name, value in self.milliseconds.items()}
        return times | ({"messages": self.messages} if self.messages else {})


@dataclass(frozen=True)
class ScalingFindings(DrawnFindings):
    """What an update takes, as one thing grows."""

    sweeps: Mapping[str, Mapping[int, UpdateCost]]  # what grows -> its value
    ranks: Mapping[int, Mapping[int, UpdateCost]]  # steps per update -> number of processes
    sums: Mapping[int, float]  # milliseconds of a sum over two processes, by the numbers in it
    parts: Mapping[str, Mapping[str, cores.Parts]]  # id -> environments x steps

    def groups(self) -> dict[str, Mapping[int, UpdateCost]]:
        """Return the sweeps, and for each batch a sweep over the number of processes."""
        return {**self.sweeps, **{f"ranks-{batch}": costs for batch, costs in self.ranks.items()}}

    def numbers(self) -> Numbers:
        found: dict[str, Numbers] = {
            sweep: {str(x): cost.numbers() for x, cost in costs.items()} for sweep, costs in self.groups().items()
        }
        found["sum"] = {f"{length}_ms": value for length, value in self.sums.items()}
        found["cores"] = {
            env_id: {shape: parts.numbers() for shape, parts in shapes.items()} for env_id, shapes in self.parts.items()
        }
        return {"scaling": found}

    def table(self) -> str:
        columns = (*PHASES, "update", "inverses")
        lines = [f"milliseconds per update, {ENV_ID}, medians"]
        for sweep, costs in self.groups().items():
            lines += ["", f"{sweep:>12}" + "".join(f"{name:>10}" for name in columns)]
            for x, cost in costs.items():
                lines.append(f"{x:12}" + "".join(f"{cost.milliseconds[name]:10.1f}" for name in columns))
        lines += ["", "a sum over two ranks, by the numbers in it"]
        lines += [f"{length:12}{value:10.3f}" for length, value in self.sums.items()]
        for batch, costs in self.ranks.items():
            lines.append(f"messages per update with two ranks, {batch} steps: {costs[RANKS].messages}")
        return "\n".join([*lines, *cores.table(self.parts)])

    def figure(self) -> Figure:
        """Draw a panel per sweep, phases on logarithmic axes."""
        drawn = Figure(figsize=(13, 4), layout="constrained")
        for ax, (sweep, costs) in zip(drawn.subplots(1, len(LABELS), sharey=True), self.sweeps.items(), strict=True):
            for name, colour in COLOURS.items():
                heights = [cost.milliseconds[name] for cost in costs.values()]
                line = "o:" if name == "inverses" else "o-"  # a part of the policy's
                ax.loglog(list(costs), heights, line, color=colour, label=name, markersize=4)
            ax.set_xlabel(LABELS[sweep])
            plain(ax)
        drawn.axes[0].set_ylabel("milliseconds per update")
        drawn.axes[0].legend(frameon=False)
        return drawn


def milliseconds(work: Callable[[], Any]) -> float:
    """Time some work; return the median."""
    return 1000 * statistics.median(timeit.repeat(work, number=1, repeat=REPEATS))


def inverses(agent: ACKTR) -> float:
    """Time the inverses of all the actor's Kronecker factors together, in milliseconds."""
    fisher, factors = agent.optimizer.geometry.fisher, agent.optimizer.memory.factors
    return milliseconds(lambda: fisher.invert(factors, factors.damping, torch.float32))


def update_cost(settings: Mapping[str, Any], least_seconds: float, ranks: Ranks = ALONE) -> UpdateCost:
    """Time updates for at least so long, alone or as one of several processes."""
    plan = OurPlan(ENV_ID, SEED, load("default", ENV_ID, settings))
    prepare(plan.settings)
    env, agent = plan.make(ranks)
    stepper, samples = Stepper(agent, plan.settings.steps), dict[str, list[float]]()
    for number in range(1_000_000):
        agent.seconds.clear()
        start = time.perf_counter()
        stepper.step()
        spent = agent.seconds | {"update": time.perf_counter() - start}
        if number >= WARM_UP:
            for name, seconds in spent.items():
                samples.setdefault(name, []).append(1000 * seconds)
        enough = sum(samples.get("update", [])) > 1000 * least_seconds
        if ranks.any(number - WARM_UP >= LEAST_UPDATES and enough):
            break
    medians = {name: statistics.median(values) for name, values in samples.items()}
    medians["inverses"], messages = inverses(agent), 0
    if ranks.size > 1:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            stepper.step()
        messages = sum(event.count for event in profile.key_averages() if event.key.startswith("gloo:"))
    env.close()
    return UpdateCost(medians, messages)


def sweeps() -> dict[str, dict[int, dict[str, Any]]]:
    """Return the settings of every point that is measured."""
    return {
        "batch": {batch: {"n_steps": batch // 16} for batch in BATCHES},
        "width": {
            width: {"n_steps": WIDE_BATCH // 16, "hidden": (width, width), "critic_hidden": (width, width)}
            for width in WIDTHS
        },
        "envs": {number: {"n_envs": number, "n_steps": ENV_BATCH // number} for number in ENV_COUNTS},
    }


def work_on_rank(rank: int, folder: str, batches: Sequence[int], seconds: float, out: Any) -> None:
    """Measure as one of the processes that train an agent together; the first puts its findings into the queue."""
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=RANKS)
    settings: dict[int, dict[str, Any]] = {batch: {"n_steps": batch // 16, "env_threads": 1} for batch in batches}
    costs = {batch: update_cost(chosen, seconds, ProcessGroup()) for batch, chosen in settings.items()}
    sums = {length: sum_cost(length) for length in MESSAGES}
    if rank == 0:
        out.put((costs, sums))
    dist.destroy_process_group()


def sum_cost(length: int) -> float:
    """Time a sum over the processes of so many numbers, in milliseconds."""
    return milliseconds(partial(dist.all_reduce, torch.zeros(length, dtype=torch.float64)))


def shared_costs() -> tuple[dict[int, UpdateCost], dict[int, float]]:
    """Start the processes; return what updates cost by batch, and sums by length, as the first measured them."""
    context = get_context("forkserver")
    context.set_forkserver_preload([__name__, "torch._dynamo"])  # imported once, for all of them
    out = context.SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (folder, RANK_BATCHES, LEAST_SECONDS, out)
        start_processes(work_on_rank, arguments, nprocs=RANKS, start_method="forkserver")
    costs, sums = out.get()
    return costs, sums


def measure() -> ScalingFindings:
    """Measure every point, several processes, their messages, and the parts that more cores would share."""
    found: dict[str, dict[int, UpdateCost]] = {sweep: {} for sweep in sweeps()}
    points = [(sweep, x, settings) for sweep, at in sweeps().items() for x, settings in at.items()]
    for sweep, x, settings in tqdm(points, desc="scaling", leave=False, disable=None):
        found[sweep][x] = update_cost(settings, LEAST_SECONDS)
    alone = {batch: update_cost({"n_steps": batch // 16}, LEAST_SECONDS) for batch in RANK_BATCHES}
    together, sums = shared_costs()
    ranks = {batch: {1: alone[batch], RANKS: together[batch]} for batch in RANK_BATCHES}
    return ScalingFindings(found, ranks, sums, cores.measure_cores())

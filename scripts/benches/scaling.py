"""How the cost of training grows with the batch, the network, the environments and the processes that share them.

Milliseconds of each phase of an update, medians, on HalfCheetah-v4 with the default preset and one thing changed at a
time. Processes share one machine here: of its two cores two ranks have one each, and one process both for its physics.
"""

import statistics
import tempfile
import time
import timeit
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from matplotlib.figure import Figure
from torch.multiprocessing import get_context
from torch.multiprocessing.spawn import spawn
from tqdm import tqdm

from geonpg.agents import ACKTR
from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.kfac import ALONE, ProcessGroup, Ranks
from geonpg.scripts.common.style import plain
from geonpg.scripts.runs.our_plan import OurPlan
from geonpg.scripts.runs.process import prepare

ENV, SEED = "HalfCheetah-v4", 0
PHASES = ("rollout", "values", "policy", "critic")
BATCHES = (512, 1024, 2048, 8192, 50_000)
WIDTHS = (64, 128, 256, 512, 1024)
ENVS = (1, 4, 16, 64, 256)
RANKS = (1, 2)
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


def milliseconds(work: Callable[[], Any]) -> float:
    """The median."""
    return 1000 * statistics.median(timeit.repeat(work, number=1, repeat=REPEATS))


def inverses(agent: ACKTR) -> float:
    """Of the actor's Kronecker factors, all together: milliseconds."""
    fisher, factors = agent.optimizer.geometry.fisher, agent.optimizer.memory.factors
    return milliseconds(lambda: fisher.invert(factors, factors.damping, torch.float32))


def phases(settings: Mapping[str, Any], ranks: Ranks = ALONE) -> dict[str, float]:
    """Milliseconds of every phase of an update, of all together, and of the policy's inverses: medians.

    And the messages that an update sends, where there is anyone to send them to.
    """
    plan = OurPlan(ENV, SEED, load("default", ENV, settings))
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
        enough = sum(samples.get("update", [])) > 1000 * LEAST_SECONDS
        if ranks.any(number - WARM_UP >= LEAST_UPDATES and enough):
            break
    found = {f"{name}_ms": statistics.median(values) for name, values in samples.items()}
    found["inverses_ms"] = inverses(agent)
    if ranks.size > 1:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
            stepper.step()
        found["messages"] = sum(event.count for event in profile.key_averages() if event.key.startswith("gloo:"))
    env.close()
    return found


def sweeps() -> dict[str, dict[int, dict[str, Any]]]:
    """What is measured: the settings of every point."""
    return {
        "batch": {batch: {"n_steps": batch // 16} for batch in BATCHES},
        "width": {
            width: {"n_steps": WIDE_BATCH // 16, "hidden": (width, width), "critic_hidden": (width, width)}
            for width in WIDTHS
        },
        "envs": {number: {"n_envs": number, "n_steps": ENV_BATCH // number} for number in ENVS},
    }


def on_rank(rank: int, size: int, folder: str, settings: Mapping[str, Any], out: Any) -> None:
    meet(rank, size, folder)
    found = phases(settings, ProcessGroup())
    if rank == 0:
        out.put(found)
    dist.destroy_process_group()


def send_on_rank(rank: int, size: int, folder: str, out: Any) -> None:
    """How long a sum over the ranks takes, by its length."""
    meet(rank, size, folder)
    found = dict[int, float]()
    for length in MESSAGES:
        found[length] = milliseconds(partial(dist.all_reduce, torch.zeros(length, dtype=torch.float64)))
    if rank == 0:
        out.put(found)
    dist.destroy_process_group()


def meet(rank: int, size: int, folder: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=size)


def shared(size: int, settings: Mapping[str, Any]) -> dict[str, float]:
    """The same, of an agent that several processes train; as the first one measures it."""
    if size == 1:
        return phases(settings)
    return first_says(on_rank, size, {**settings, "env_threads": 1})


def first_says(work: Callable[..., None], size: int, *arguments: Any) -> Any:
    """What the first of `size` processes that do this work puts into its queue."""
    out = get_context("spawn").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        spawn(work, args=(size, folder, *arguments, out), nprocs=size)
    return out.get()


def measure() -> dict[str, float]:
    results: dict[str, float] = {}
    points = [(sweep, x, settings) for sweep, at in sweeps().items() for x, settings in at.items()]
    for sweep, x, settings in tqdm(points, desc="scaling", leave=False, disable=None):
        results |= {f"scaling/{sweep}/{x}/{name}": value for name, value in phases(settings).items()}
    for batch in RANK_BATCHES:
        for size in RANKS:
            found = shared(size, {"n_steps": batch // 16})
            results |= {f"scaling/ranks-{batch}/{size}/{name}": value for name, value in found.items()}
    sums = first_says(send_on_rank, 2)
    return results | {f"scaling/sum/{length}_ms": value for length, value in sums.items()}


def points_of(results: Mapping[str, float], sweep: str) -> list[int]:
    names = [name.split("/") for name in results]
    return sorted({int(parts[2]) for parts in names if parts[1] == sweep})


def table(results: Mapping[str, float]) -> str:
    columns = (*PHASES, "update", "inverses")
    lines = [f"milliseconds per update, {ENV}, medians"]
    for sweep in (*sweeps(), *(f"ranks-{batch}" for batch in RANK_BATCHES)):
        lines += ["", f"{sweep:>12}" + "".join(f"{name:>10}" for name in columns)]
        for x in points_of(results, sweep):
            cells = "".join(f"{results[f'scaling/{sweep}/{x}/{name}_ms']:10.1f}" for name in columns)
            lines.append(f"{x:12}{cells}")
    lines += ["", "a sum over two ranks, by the numbers in it"]
    lines += [f"{length:12}{results[f'scaling/sum/{length}_ms']:10.3f}" for length in MESSAGES]
    lines += [
        f"messages per update with two ranks, {batch} steps: {results[f'scaling/ranks-{batch}/2/messages']:.0f}"
        for batch in RANK_BATCHES
    ]
    return "\n".join(lines)


def figure(results: Mapping[str, float]) -> Figure:
    """A panel per sweep, phases on logarithmic axes."""
    drawn = Figure(figsize=(13, 4), layout="constrained")
    for ax, sweep in zip(drawn.subplots(1, len(LABELS), sharey=True), LABELS, strict=True):
        at = points_of(results, sweep)
        for name, colour in COLOURS.items():
            heights = [results[f"scaling/{sweep}/{x}/{name}_ms"] for x in at]
            line = "o:" if name == "inverses" else "o-"  # a part of the policy's
            ax.loglog(at, heights, line, color=colour, label=name, markersize=4)
        ax.set_xlabel(LABELS[sweep])
        plain(ax)
    drawn.axes[0].set_ylabel("milliseconds per update")
    drawn.axes[0].legend(frameon=False)
    return drawn

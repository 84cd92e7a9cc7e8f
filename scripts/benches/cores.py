"""What more cores would give: the parts of training that are measured here, and a formula that puts them together.

Measured, in microseconds per step: the kernel, by the CPU time of its one thread; what runs beside it, the critic, by
the wall clock; and the serial rest, in which only one core works. Extrapolated: the time on some number of cores.
"""

import math
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace

from tqdm import tqdm

from geonpg.scripts.benches.breakdown import Segment, breakdown
from geonpg.scripts.benches.contest import CORES
from geonpg.scripts.benches.findings import Numbers
from geonpg.scripts.benches.ours import our_agent, settings_of, train_more
from geonpg.scripts.runs.process import prepare

ENV_IDS = ("HalfCheetah-v4", "Walker2d-v4")
SHAPES = ((16, 64), (64, 16), (64, 64))  # environments, and steps of each per update
CORE_COUNTS = (2, 4, 8, 16, 64)
WARM_UP, UPDATES = 10, 30
FORMULA = "max((kernel + beside) / cores, kernel / environments, beside) + serial"


@dataclass(frozen=True)
class Parts:
    """Where the time of a step of training goes, in microseconds."""

    environments: int
    kernel: float  # shared by the environments' threads, of which there are no more than environments
    beside: float  # what one more thread does meanwhile
    serial: float  # everything else
    measured: float  # steps per second, with all cores of this machine

    def microseconds(self, cores: int) -> float:
        """Extrapolate the time of a step, as if threads shared the kernel evenly and cost one another nothing."""
        shared = max((self.kernel + self.beside) / cores, self.kernel / self.environments)
        return max(shared, self.beside) + self.serial

    @property
    def update_dominates(self) -> int | None:
        """Cores from which on half the time or more is what no core takes away; None if environments are too few."""
        fixed = 2 * self.beside + self.serial  # microseconds(cores) <= 2 (beside + serial), solved for what is shared
        if self.kernel / self.environments > fixed:
            return None
        return math.ceil((self.kernel + self.beside) / fixed)

    def numbers(self) -> Numbers:
        """Return the parts, and steps per second: extrapolated by cores, and measured."""
        parts = {f"{name}_us": getattr(self, name) for name in ("kernel", "beside", "serial")}
        speeds = {f"steps_per_second_on_{cores}": 1e6 / self.microseconds(cores) for cores in CORE_COUNTS}
        found = parts | speeds | {"measured_steps_per_second": self.measured}
        cores = self.update_dominates
        return found if cores is None else found | {"update_dominates_from": cores}

    def line(self) -> str:
        """Return the parts' line of the table."""
        parts = "".join(f"{value:8.1f}" for value in (self.kernel, self.beside, self.serial))
        speeds = "".join(f"{1e6 / self.microseconds(cores):9.0f}" for cores in CORE_COUNTS)
        cores = self.update_dominates
        return f"{parts}{self.measured:10.0f}{speeds}{'never' if cores is None else cores:>8}"


def table(found: Mapping[str, Mapping[str, Parts]]) -> list[str]:
    """Return the lines of the table: measured parts, then what they extrapolate to."""
    lines = ["", "what more cores would give", "kernel, beside, serial: measured, microseconds per step"]
    lines.append(f"here: steps per second, measured on {CORES} cores; by cores: extrapolated, one million over")
    lines += [FORMULA, "half: cores from which on half the time or more is update, which no core takes away"]
    speeds = "".join(f"{f'{cores} cores':>9}" for cores in CORE_COUNTS)
    for env_id, shapes in found.items():
        lines += ["", f"{env_id:16}{'kernel':>8}{'beside':>8}{'serial':>8}{'here':>10}{speeds}{'half':>8}"]
        lines += [f"{shape:16}{parts.line()}" for shape, parts in shapes.items()]
    return lines


def parts_of(segment: Segment, environments: int, measured: float) -> Parts:
    """Take training with one thread of the environments' apart."""
    us, kernel = 1e6 / segment.steps, segment.kernel
    beside = segment.phases["critic"] if segment.is_overlapping else 0.0
    serial = segment.seconds - max(kernel.seconds, beside)
    return Parts(environments, us * kernel.cpu_seconds, us * beside, us * serial, measured)


def measure_point(env_id: str, environments: int, n_steps: int) -> Parts:
    """Train with all cores for the speed, and with one thread of the environments' for the parts."""
    size = environments * n_steps
    with ExitStack() as stack:
        settings = settings_of(env_id, n_envs=environments, n_steps=n_steps)
        alone = replace(settings, env_threads=1)
        agent, single = (our_agent(env_id, chosen, stack) for chosen in (settings, alone))
        prepare(settings)
        train_more(agent, WARM_UP * size)
        start = time.perf_counter()
        steps = train_more(agent, UPDATES * size)
        measured = steps / (time.perf_counter() - start)
        train_more(single, WARM_UP * size)
        return parts_of(breakdown(single, alone, UPDATES), environments, measured)


def measure_cores() -> dict[str, dict[str, Parts]]:
    """Measure every id and shape."""
    found: dict[str, dict[str, Parts]] = {env_id: {} for env_id in ENV_IDS}
    points = [(env_id, *shape) for env_id in ENV_IDS for shape in SHAPES]
    for env_id, environments, n_steps in tqdm(points, desc="cores", leave=False, disable=None):
        found[env_id][f"{environments}x{n_steps}"] = measure_point(env_id, environments, n_steps)
    return found

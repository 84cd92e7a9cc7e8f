"""The experiments of `geonpg invariance` together: how much of each, what they write, what must hold."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch
from matplotlib.figure import Figure
from tqdm import tqdm

from geonpg.files import write_text
from geonpg.scripts.common.artifacts import Table, markdown, write_tables
from geonpg.scripts.common.style import write_figure
from geonpg.scripts.geometry.figures import gamma_figure, order_figure, policy_figure
from geonpg.scripts.geometry.gamma import (
    GammaStudy,
    gamma_cost,
    invariance_table,
    run_gamma,
    speed_table,
    trajectory_table,
)
from geonpg.scripts.geometry.orders import OrderStudy, order_cost, order_error_table, order_table, run_orders
from geonpg.scripts.geometry.policy import (
    PolicyStudy,
    linear_table,
    policy_cost,
    policy_kl_table,
    policy_table,
    run_policy,
)


@dataclass(frozen=True)
class Workload:
    """How much work the studies do."""

    iterations: int = 20
    divisions: tuple[int, ...] = (5, 10, 20, 40, 80)
    # closer together where slopes are fitted
    predicted_kl: tuple[float, ...] = tuple(10.0**k for k in (-8, -7.5, -7, -6.5, -6, -5, -4, -3, -2))
    batches: int = 2
    batch_size: int = 400

    @property
    def cost(self) -> float:
        """What the studies will tick in all."""
        policy = self.batches * policy_cost(self.predicted_kl)
        return gamma_cost(self.iterations) + order_cost(self.divisions) + policy


FULL = Workload()
QUICK = Workload(iterations=2, divisions=(4, 8), predicted_kl=(1e-7, 1e-6, 1e-2), batches=1)


@dataclass(frozen=True)
class InvarianceResults:
    """What all experiments found."""

    gamma: GammaStudy
    orders: OrderStudy
    policies: list[PolicyStudy]  # one per batch

    def tables(self) -> list[Table]:
        """Return the tables for people."""
        return [
            invariance_table(self.gamma),
            speed_table(self.gamma),
            order_table(self.orders),
            policy_table(self.policies),
            linear_table(self.policies),
        ]

    def data(self) -> list[Table]:
        """Return every number behind the tables and the figures."""
        return [trajectory_table(self.gamma), order_error_table(self.orders), policy_kl_table(self.policies)]

    def figures(self) -> dict[str, Figure]:
        """Draw the figures, by file name."""
        return {
            "gamma.png": gamma_figure(self.gamma),
            "orders.png": order_figure(self.orders),
            "policy.png": policy_figure(self.policies),
        }


@dataclass(frozen=True)
class Check:
    """A number that must not exceed its limit."""

    what: str
    value: float
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the number is within its limit."""
        return self.value <= self.limit  # false for nan

    def __str__(self) -> str:
        verdict = "within" if self.passed else "beyond"
        return f"{self.what}: {self.value:.1e}, {verdict} the limit of {self.limit:.0e}"


def checks(results: InvarianceResults) -> list[Check]:
    """Return what must hold whatever the machine."""
    linear = max(study.linear_error(method) for study in results.policies for method in study.linear)
    return [
        Check("exact methods, largest distance between parameterisations", results.gamma.exact_error(), 1e-6),
        Check("linear change of parameters, KL as a part of the predicted KL", linear, 1e-12),
    ]


@contextmanager
def one_thread() -> Iterator[None]:
    """Give torch one thread: tensors this small lose more to waiting for a second than they gain, tenfold if busy."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def run_experiments(workload: Workload) -> InvarianceResults:
    """Run every experiment, with a progress bar."""
    form = "{desc:14} {percentage:3.0f}% |{bar}| {elapsed}, {remaining} left"
    # the first steps also load parts of torch, and would promise hours: the bar waits for them
    with one_thread(), tqdm(total=workload.cost, bar_format=form, file=sys.stderr, smoothing=0, delay=3) as bar:

        def named(name: str) -> Callable[[float], object]:
            bar.set_description(name)
            return bar.update

        gamma = run_gamma(workload.iterations, named("Gamma fit"))
        orders = run_orders(workload.divisions, named("orders"))
        kl, size, tick = workload.predicted_kl, workload.batch_size, named("neural policy")
        policies = [run_policy(kl, size, seed, tick) for seed in range(workload.batches)]
    return InvarianceResults(gamma, orders, policies)


def write_results(results: InvarianceResults, out: Path) -> list[Path]:
    """Write every table and figure into `out`; return the files."""
    tables, figures = results.tables(), results.figures()
    texts = {f"{table.name}.csv": table.csv() for table in [*tables, *results.data()]}
    for name, text in texts.items():
        write_text(out / name, text)
    write_tables(tables, out / "tables.md", "Invariance")
    for name, figure in figures.items():
        write_figure(figure, out / name)
    return [out / name for name in (*texts, "tables.md", *figures)]


def study_invariance(out: Path, quick: bool) -> int:
    """Run everything and write it into `out`; return the command's exit code."""
    results = run_experiments(QUICK if quick else FULL)
    written = write_results(results, out)
    print(markdown(results.tables()))
    print("\nwritten:", *(f"  {path}" for path in written), "", sep="\n")
    found = checks(results)
    print(*found, sep="\n")
    failed = [check for check in found if not check.passed]
    for check in failed:
        print(f"geonpg invariance: {check}", file=sys.stderr)
    return 1 if failed else 0

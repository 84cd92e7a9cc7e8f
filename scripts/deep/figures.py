"""The tables and figures of `geonpg deepnets`."""

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.scripts.common.artifacts import Cell, Table
from geonpg.scripts.common.style import METHOD_STYLE, plain
from geonpg.scripts.deep.runs import Row, first_at_or_below

RowsByMethod = Mapping[str, list[Row]]
REFERENCE = "ng"
MOST_LEVELS = 12
SMALL_CURVATURE = ("geodesic", "perturb")  # the two methods of that study
ROUND = sorted((m * 10.0**e for e in range(-4, 4) for m in (1, 2, 3, 5, 7)), reverse=True)  # levels of an error
# The training error in the paper's figure by update (MNIST autoencoder).
PAPER_UPDATES = (20, 40, 60, 80, 140)
PAPER_MNIST = {
    "ng": (38.8, 20.0, 4.67, 3.10, 2.2), "mid": (8.5, 3.44, 3.24, 2.94, 2.4), "geo": (14.1, 4.38, 3.19, 2.71, 2.2),
    "geof": (19.2, 4.73, 3.2, 2.76, 2.2), "adam-full": (54.6, 52.8, 49.7, 43.9, 29.7),
}  # fmt: skip
OTHER_STYLE = {
    "adam": "#CC79A7", "adam-full": "#BBBBBB", "kfac": "#E69F00", "kfac-geo": "#56B4E9",
    "geodesic": "#D55E00", "perturb": "#CC79A7", "ng-long": "#666666",
}  # fmt: skip


def style(name: str) -> dict[str, Any]:
    """Return a method's colour."""
    known = METHOD_STYLE.get(name)
    return {"color": known["color"] if known else OTHER_STYLE.get(name, "#444444"), "linewidth": 1.8}


def run_figure(runs: RowsByMethod, title: str, unit: str, paper: bool) -> Figure:
    """Draw the error by update and by second, training solid and test dotted; and the damping, which sets the pace."""
    figure = Figure(figsize=(16, 5), layout="constrained")
    axes = figure.subplots(1, 3)
    axes[1].sharey(axes[0])
    for ax, x in zip(axes[:2], ("update", "cpu_seconds"), strict=True):
        for name, rows in runs.items():
            at = [row[x] for row in rows]
            ax.semilogy(at, [row["train_error"] for row in rows], label=name, **style(name))
            ax.semilogy(at, [row["test_error"] for row in rows], linestyle=":", alpha=0.7, **style(name))
    for name, rows in runs.items():
        axes[2].semilogy([row["update"] for row in rows], [row["damping"] for row in rows], **style(name))
    for ax in axes:
        plain(ax)
    axes[2].set(xlabel="update", ylabel="damping")
    axes[0].set(xlabel="update (Adam and K-FAC on mini-batches: pass over the data)", ylabel=unit)
    axes[1].set(xlabel="seconds of training (processor time)")
    if paper:
        mark_paper(axes[0], runs)
    axes[0].legend(frameon=False)
    figure.suptitle(f"{title}: training (solid) and test (dotted)")
    return figure


def mark_paper(ax: Axes, runs: RowsByMethod) -> None:
    """Mark the training error of the paper's figure, as circles in the colours of our lines."""
    for name in runs.keys() & PAPER_MNIST.keys():
        updates = [update for update in PAPER_UPDATES if update <= len(runs[name])]
        ax.plot(updates, PAPER_MNIST[name][: len(updates)], "o", markerfacecolor="none", **style(name))
    ax.plot([], [], "o", markerfacecolor="none", color="#444444", label="the paper's, 60,000 cases")


def figures_of(runs: RowsByMethod, title: str, unit: str, paper: bool) -> dict[str, Figure]:
    """Draw the runs, and the small-curvature study beside its reference if it was made; return figures by file name."""
    figures = {"figure.png": {name: rows for name, rows in runs.items() if name not in SMALL_CURVATURE} or runs}
    if all(name in runs for name in SMALL_CURVATURE):
        study = (REFERENCE, *SMALL_CURVATURE)
        figures["small-curvature.png"] = {name: runs[name] for name in study if name in runs}
    return {file: run_figure(shown, title, unit, paper) for file, shown in figures.items()}


def summary_table(runs: RowsByMethod, title: str, unit: str) -> Table:
    """Make a row per method; the last column is the first update at or below ng's last training error."""
    level = runs[REFERENCE][-1]["train_error"] if REFERENCE in runs else float("nan")
    columns = ("method", "updates", f"train {unit}", f"test {unit}", "CPU s", "CPU s/update", "reaches ng's last at")
    rows: list[list[Cell]] = []
    for name, run in runs.items():
        last, cpu = run[-1], run[-1]["cpu_seconds"]
        rows.append([
            name, len(run), last["train_error"], last["test_error"], cpu, cpu / len(run), reached(run, level),
        ])  # fmt: skip
    return Table("summary", title, columns, rows)


def reached(run: list[Row], level: float) -> Cell:
    """Return the first update at or below a training error, or a dash."""
    update = first_at_or_below(run, level)
    return int(update) if update == update else "-"


def levels_table(runs: RowsByMethod) -> Table:
    """Count the updates of each method to round levels of the training error: where a lead is won, and kept."""
    errors = [row["train_error"] for rows in runs.values() for row in rows]
    levels = [level for level in ROUND if min(errors) <= level < errors[0]][:MOST_LEVELS]
    rows = [[name, *(reached(run, level) for level in levels)] for name, run in runs.items()]
    columns = ("method", *(f"{level:.4g}" for level in levels))
    return Table("levels", "First update at or below a training error", columns, rows)


def course_table(runs: RowsByMethod, updates: Sequence[int]) -> Table:
    """Make a table of the training error at some updates."""
    columns = ("method", *(f"at {u}" for u in updates))
    rows: list[list[Cell]] = [
        [name, *(run[u - 1]["train_error"] if u <= len(run) else "-" for u in updates)] for name, run in runs.items()
    ]
    return Table("course", "Training error by update", columns, rows)


def paper_table(runs: RowsByMethod) -> Table:
    """Make a table of the MNIST autoencoder beside the paper's figure: ours / theirs."""
    columns = ("method", *(f"at {u}, ours / paper" for u in PAPER_UPDATES[:3]))
    rows: list[list[Cell]] = []
    for name, run in runs.items():
        theirs = PAPER_MNIST.get(name)
        cells: list[Cell] = [name]
        for k, update in enumerate(PAPER_UPDATES[:3]):
            ours = f"{run[update - 1]['train_error']:.3g}" if update <= len(run) else "-"
            cells.append(f"{ours} / {theirs[k] if theirs else '-'}")
        rows.append(cells)
    note = "The paper trains on 60,000 cases; how many ours had stands in the title of the summary."
    return Table("paper", "Training error beside the paper's", columns, rows, note)

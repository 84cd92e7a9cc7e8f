"""The figures of `geonpg invariance`."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from geonpg.kfac import RULES
from geonpg.scripts.common.style import METHOD_STYLE, plain
from geonpg.scripts.geometry.gamma import CHARTS, GammaStudy, spread_of
from geonpg.scripts.geometry.orders import APPROXIMATE, EXPECTED, OrderStudy
from geonpg.scripts.geometry.policy import LINEAR, OTHERS, REFERENCE, PolicyStudy

# From thick to thin, so that lines which coincide all stay visible.
CHART_STYLE: Sequence[dict[str, Any]] = (
    {"color": "#56B4E9", "linewidth": 6.5},
    {"color": "#E69F00", "linewidth": 3.6},
    {"color": "#000000", "linewidth": 1.8, "linestyle": (0, (4, 3))},
    {"color": "#C2185B", "linewidth": 1.6, "linestyle": (0, (1, 2))},
)
CROSS: Mapping[str, Any] = {"marker": "X", "color": "red", "markersize": 10, "linestyle": "none", "zorder": 6}
# Below this the excess NLL is rounding.
SMALLEST_NLL = 1e-10


def greek(text: str) -> str:
    """Replace the names of Greek letters by the letters."""
    return re.sub(r"\b(alpha|beta|sigma)\b", r"$\\\1$", text)


def logarithmic(ax: Axes) -> None:
    """Label decades; only tick what lies between."""
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_minor_formatter(NullFormatter())
    ax.yaxis.set_major_locator(LogLocator(numticks=9))


def guides(ax: Axes, x: Sequence[float], lines: Sequence[Sequence[float]], slopes: tuple[float, float]) -> None:
    """Draw thin lines of the lower slope above all `lines` and of the higher slope below them."""
    lowest = int(np.argmin(x))
    ends = np.array([min(x), max(x)])
    at_lowest = [line[lowest] for line in lines]
    for slope, anchor, above in ((slopes[0], 3 * max(at_lowest), True), (slopes[1], min(at_lowest) / 3, False)):
        y = anchor * (ends / ends[0]) ** slope
        ax.plot(ends, y, color="0.5", linewidth=1.0, linestyle="--", zorder=1)
        middle = (np.sqrt(ends[0] * ends[1]), np.sqrt(y[0] * y[1]))
        shift, sides = ((-4, 3), ("right", "bottom")) if above else ((4, -3), ("left", "top"))
        ax.annotate(
            f"slope {slope:g}", middle, shift, textcoords="offset points", color="0.35", fontsize=9,
            ha=sides[0], va=sides[1],
        )  # fmt: skip


def gamma_figure(study: GammaStudy) -> Figure:
    """Draw a column per method: where its four lines coincide, the method is invariant."""
    figure = Figure(figsize=(16, 7), layout="constrained")
    axes = figure.subplots(2, len(study.trajectories), sharex="row", sharey="row")
    alpha, beta = study.sample.best().tolist()
    for (top, bottom), (method, many) in zip(axes.T, study.trajectories.items(), strict=True):
        for trajectory, style in zip(many, CHART_STYLE, strict=True):
            excess = study.excess(trajectory).clamp(min=SMALLEST_NLL).numpy()
            shape, rate = trajectory.points.T.numpy()
            top.semilogy(excess, label=greek(trajectory.chart.name), **style)
            # along the fit beta stays close to alpha: their ratio shows what a plot of beta would hide
            bottom.semilogx(shape, rate / shape, **style)
            if trajectory.left_domain:
                top.plot(len(excess) - 1, excess[-1], **CROSS)
                bottom.plot(shape[-1], rate[-1] / shape[-1], **CROSS)
        bottom.plot(alpha, beta / alpha, "*", color="white", markersize=15, markeredgecolor="black", zorder=5)
        top.set(title=f"{method}\napart by {spread_of(many).largest:.2g}", xlabel="iteration")
        bottom.set(xlabel=greek("alpha"), xticks=[1, 2, 5, 10, 20], xticklabels=["1", "2", "5", "10", "20"])
        bottom.xaxis.set_minor_formatter(NullFormatter())
        plain(top)
        plain(bottom)
    axes[0, 0].set_ylabel("NLL above the best fit")
    axes[1, 0].set_ylabel(greek("beta / alpha"))
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center", ncols=len(CHARTS), frameon=False, title="held as", handlelength=5,
    )  # fmt: skip
    figure.suptitle(
        greek("Gamma fit from alpha = beta = 1 with step 0.5, trajectories mapped back to (alpha, beta)\n")
        + greek('star: best fit; red cross: left the domain; "apart by": largest distance in (alpha, beta)')
    )
    return figure


def order_figure(study: OrderStudy) -> Figure:
    """Draw a panel per truth: each rule's error over the step size."""
    figure = Figure(figsize=(14, 5), layout="constrained")
    axes = figure.subplots(1, len(EXPECTED), sharey=True)
    for ax, truth in zip(axes, EXPECTED, strict=True):
        for method in APPROXIMATE:
            label = f"{method}: {study.slope(truth, method):.2f} ({EXPECTED[truth][method]:g})"
            ax.loglog(study.h, study.errors[truth][method], label=label, **METHOD_STYLE[method])
        guides(ax, study.h, list(study.errors[truth].values()), (1, 2))
        ax.set(xlabel="step size h", title=f"from the {truth}", xticks=study.h, xticklabels=[f"{h:g}" for h in study.h])
        ax.legend(title="slope (expected)", frameon=False, loc="lower right")
        plain(ax)
        logarithmic(ax)
    axes[0].set_ylabel(greek("distance in (alpha, beta)"))
    figure.suptitle("Gamma model: how far each rule is, after a fixed time")
    return figure


def policy_figure(studies: Sequence[PolicyStudy]) -> Figure:
    """Draw a panel per parameterisation: the KL between policies over the step size."""
    figure = Figure(figsize=(16, 5.8), layout="constrained")
    axes = figure.subplots(1, len(OTHERS), sharey=True)
    for ax, other in zip(axes, OTHERS, strict=True):
        policy_panel(ax, studies, other.name)
    axes[0].set(ylabel="KL between the two policies", ylim=(1e-33, 1e3))
    figure.suptitle(
        greek(f"One update of the same Hopper policy: KL from its update when held as {REFERENCE.name}")
        + "\nexact solves, no damping; dotted: a second recorded batch; shaded: where slopes are fitted"
    )
    return figure


def policy_panel(ax: Axes, studies: Sequence[PolicyStudy], name: str) -> None:
    """Draw one parameterisation, with step sizes in units of the one whose predicted KL would be 1."""
    linear = name == LINEAR.name
    units = [kl**0.5 for kl in studies[0].predicted_kl]
    for method in APPROXIMATE:
        slopes = ", ".join(f"{study.slope(name, method):.2f}" for study in studies)
        label = method if linear else f"{method}: {slopes} ({2 * RULES[method].order + 2:g})"
        for study, line in zip(studies, ("-", ":"), strict=False):
            style = {**METHOD_STYLE[method], "linestyle": line, "markersize": 4.5 if line == "-" else 3}
            ax.loglog(units, study.kl[name][method], label=label if line == "-" else None, **style)
    if not linear:
        guides(ax, units, [study.kl[name][method] for study in studies for method in APPROXIMATE], (4, 6))
    ax.axvspan(units[0], units[studies[0].fitted() - 1], color="0.95", zorder=0)
    ax.set(title=greek(f"held as {name}"), xlabel="step size (1: predicted KL would be 1)")
    if linear:
        ax.legend(title="rounding only", frameon=False, loc="upper right")
    else:
        ax.legend(title="slopes (expected)", frameon=False, loc="lower right")
    plain(ax)
    logarithmic(ax)
    above = ax.secondary_xaxis("top", functions=(np.square, np.sqrt))
    above.set_xlabel("predicted KL of the step", fontsize=9)

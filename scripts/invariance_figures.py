"""The figures of `geonpg invariance`."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from geonpg.kfac import RULES
from geonpg.scripts.gamma import CHARTS, GammaStudy, spread
from geonpg.scripts.neural_invariance import FIT_UP_TO, LINEAR, REFERENCE, PolicyStudy
from geonpg.scripts.orders import EXPECTED, METHODS, OrderStudy

# Colours that stay apart for colour-blind readers (Okabe and Ito).
METHOD_STYLE: Mapping[str, dict[str, Any]] = {
    "ng": {"color": "#000000", "marker": "o"},
    "mid": {"color": "#0072B2", "marker": "s"},
    "geo": {"color": "#D55E00", "marker": "^"},
    "geof": {"color": "#009E73", "marker": "v"},
}
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


def plain(ax: Axes) -> None:
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)


def logarithmic(ax: Axes) -> None:
    """Decades are labelled, what lies between is only ticked."""
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_minor_formatter(NullFormatter())
        axis.set_major_locator(LogLocator(numticks=9))


def guides(ax: Axes, x: Sequence[float], lines: Sequence[Sequence[float]], slopes: tuple[float, float]) -> None:
    """Thin lines of the lower slope above all `lines` and of the higher slope below them."""
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
    """One column per method: where its four lines coincide, the method is invariant."""
    figure = Figure(figsize=(16, 7), layout="constrained")
    axes = figure.subplots(2, len(study.trajectories), sharex="row", sharey="row")
    alpha, beta = study.sample.best().tolist()
    for (top, bottom), (method, many) in zip(axes.T, study.trajectories.items(), strict=True):
        for trajectory, style in zip(many, CHART_STYLE, strict=True):
            excess = study.excess(trajectory).clamp(min=SMALLEST_NLL).numpy()
            shape, rate = trajectory.points.T.numpy()
            top.semilogy(excess, label=trajectory.chart.name, **style)
            # along the fit beta stays close to alpha: their ratio shows what a plot of beta would hide
            bottom.semilogx(shape, rate / shape, **style)
            if trajectory.left_domain:
                top.plot(len(excess) - 1, excess[-1], **CROSS)
                bottom.plot(shape[-1], rate[-1] / shape[-1], **CROSS)
        bottom.plot(alpha, beta / alpha, "*", color="white", markersize=15, markeredgecolor="black", zorder=5)
        top.set(title=f"{method}\napart by {spread(many).largest:.2g}", xlabel="iteration")
        bottom.set(xlabel="α", xticks=[1, 2, 5, 10, 20], xticklabels=["1", "2", "5", "10", "20"])
        bottom.xaxis.set_minor_formatter(NullFormatter())
        plain(top)
        plain(bottom)
    axes[0, 0].set_ylabel("NLL above the best fit")
    axes[1, 0].set_ylabel("β / α")
    figure.legend(
        *axes[0, 0].get_legend_handles_labels(),
        loc="outside lower center", ncols=len(CHARTS), frameon=False, title="held as", handlelength=5,
    )  # fmt: skip
    figure.suptitle(
        "Gamma fit from α = β = 1 with step 0.5, trajectories mapped back to (α, β)\n"
        "star: best fit; red cross: left the domain; “apart by”: largest distance in (α, β)"
    )
    return figure


def order_figure(study: OrderStudy) -> Figure:
    figure = Figure(figsize=(14, 5), layout="constrained")
    axes = figure.subplots(1, len(EXPECTED), sharey=True)
    for ax, truth in zip(axes, EXPECTED, strict=True):
        for method in METHODS:
            label = f"{method}: {study.slope(truth, method):.2f} ({EXPECTED[truth][method]:g})"
            ax.loglog(study.h, study.errors[truth][method], label=label, **METHOD_STYLE[method])
        guides(ax, study.h, list(study.errors[truth].values()), (1, 2))
        ax.set(xlabel="step size h", title=f"from the {truth}")
        ax.legend(title="slope (expected)", frameon=False, loc="lower right")
        plain(ax)
        logarithmic(ax)
    axes[0].set_ylabel("distance in (α, β)")
    figure.suptitle("Gamma model: how far each rule is, after a fixed time, …")
    return figure


def policy_figure(study: PolicyStudy) -> Figure:
    figure = Figure(figsize=(16, 5.6), layout="constrained")
    axes = figure.subplots(1, len(study.kl), sharey=True)
    per_h2 = study.predicted_kl[0] / study.h[0] ** 2
    for ax, (name, methods) in zip(axes, study.kl.items(), strict=True):
        for method, kl in methods.items():
            slope = f"{study.slope(name, method):.2f} ({2 * RULES[method].order + 2:g})"
            label = method if name == LINEAR.name else f"{method}: {slope}"
            ax.loglog(study.h, kl, label=label, markersize=4.5, **METHOD_STYLE[method])
        if name != LINEAR.name:
            guides(ax, study.h, list(methods.values()), (4, 6))
        ax.axvspan(study.h[0], study.h[study.fitted() - 1], color="0.95", zorder=0)
        ax.set(title=f"held as {name}", xlabel="step size h")
        ax.legend(title="rounding only" if name == LINEAR.name else "slope (expected)", frameon=False, loc="best")
        plain(ax)
        logarithmic(ax)
        above = ax.secondary_xaxis("top", functions=(lambda h: per_h2 * h**2, lambda kl: np.sqrt(kl / per_h2)))
        above.set_xlabel("predicted KL of the step", fontsize=9)
    axes[0].set_ylabel("KL between the two policies")
    figure.suptitle(
        f"One update of the same Hopper policy: KL from its update when held as {REFERENCE.name}; exact solves, no"
        f" damping\nshaded: predicted KL up to {FIT_UP_TO:g}, where slopes are fitted"
    )
    return figure

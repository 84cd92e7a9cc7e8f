"""The figure of a map: gain over KL, a line for each variant, a panel for each batch."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.scripts.common.style import METHOD_STYLE, OTHER_COLOURS, WIDTH, plain
from geonpg.scripts.maps.analysis import MapStudy, Place
from geonpg.scripts.maps.grid import CLIP, Variant

DASHES = {"kfac": "--", "cg": ":"}
MOST_LINES = 14  # that eyes can follow


def map_figure(study: MapStudy) -> Figure:
    """A row of panels for each task, a column for each batch."""
    tasks, batches, names = list(study.rows), study.grid.batches, shown(study)
    figure = Figure(figsize=(WIDTH, 1.2 + 2.3 * len(tasks)), layout="constrained")
    axes = figure.subplots(len(tasks), len(batches), sharex=True, sharey="row", squeeze=False)
    styles = {name: style_of(study.grid.variants[name], names[:i], study.grid.variants) for i, name in enumerate(names)}
    for row, env_id in zip(axes, tasks, strict=True):
        for ax, batch in zip(row, batches, strict=True):
            draw(ax, study, env_id, batch, styles)
        row[0].set_ylabel(f"{env_id.split('-')[0]}\ngain x 1000")
    for ax, batch in zip(axes[0], batches, strict=True):
        ax.set_title(f"{batch:,} steps".replace(",", " "), fontsize=10)
    for ax in axes[-1]:
        ax.set_xlabel("KL of the step")
    handles, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(len(labels), 6), frameon=False)
    left_out = f" (the first {len(names)} variants)" if len(names) < len(study.grid.variants) else ""
    figure.suptitle(f"What one update gains on steps that it has not seen, by batch and size of step{left_out}")
    return figure


def shown(study: MapStudy) -> list[str]:
    """The variants that are drawn: all, or of an exploring map the first ones."""
    return list(study.grid.variants)[:MOST_LINES]


def is_plain(variant: Variant) -> bool:
    """Whether a variant is one of the rules as they stand, drawn in the rule's own colour."""
    as_rule = Variant(variant.rule, variant.solver, variant.damping, iterations=variant.iterations)
    return variant.rule != CLIP and variant == as_rule


def style_of(variant: Variant, before: Sequence[str], variants: Mapping[str, Variant]) -> dict[str, Any]:
    """Colour by rule, dashes by solver; what is no plain rule, or looks like one already drawn, has its own colour."""
    earlier = [variants[name] for name in before]
    plain_ones = {(each.rule, each.solver) for each in earlier if is_plain(each)}
    if is_plain(variant) and (variant.rule, variant.solver) not in plain_ones:
        base = METHOD_STYLE[variant.rule]
    else:
        base = {"color": OTHER_COLOURS[(len(earlier) - len(plain_ones)) % len(OTHER_COLOURS)], "marker": "x"}
    return {**base, "linestyle": DASHES.get(variant.solver, "-")}


def draw(ax: Axes, study: MapStudy, env_id: str, batch: int, styles: Mapping[str, Mapping[str, Any]]) -> None:
    """One panel: the mean over checkpoints of every variant's gain, at the KL that its steps had."""
    for name, style in styles.items():
        places = [Place(batch, kl) for kl in study.grid.kls]
        reached = [study.values(env_id, place, name, "actual_kl").mean() for place in places]
        gains = [1e3 * study.values(env_id, place, name).mean() for place in places]
        order = np.argsort(reached)
        ax.plot(np.array(reached)[order], np.array(gains)[order], label=name, markersize=4, linewidth=1.2, **style)
    ax.set_xscale("log")
    ax.set_xticks(study.grid.kls, [f"{kl:g}" for kl in study.grid.kls])
    ax.minorticks_off()
    plain(ax)

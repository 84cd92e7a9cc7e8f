"""What the branches say: paired differences to `ng` at the same checkpoint, with intervals and verdicts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from numpy.typing import NDArray

from geonpg.scripts.branches.trunk import RULES, Branch, read_rows
from geonpg.scripts.common.artifacts import Cell, Table, aligned, number
from geonpg.scripts.common.intervals import Estimate, bootstrap
from geonpg.scripts.common.published import PAPER_LEVEL, RANDOM_LEVEL, is_anchored, task_of
from geonpg.scripts.common.style import METHOD_STYLE, plain

Array = NDArray[np.float64]

REFERENCE = "ng"
ALL = "all tasks"
PRIMARY = "score"
FEWEST = 50  # checkpoints per task, as the design has them; below this, no verdict


@dataclass(frozen=True)
class Measure:
    """A column of the rows. `better`: the sign of a difference that is good news, 0 if neither sign is."""

    title: str
    better: int


MEASURES: Mapping[str, Measure] = {
    "score": Measure("return after the branch", 1),
    "surrogate": Measure("held-out surrogate of the whole branch", 1),
    "first_surrogate": Measure("held-out surrogate of its first update", 1),
    "kl_miss": Measure("distance of actual over predicted KL from 1", -1),
    "entropy": Measure("change of the policy's entropy", 0),
}

Study = Mapping[str, Mapping[str, Sequence[Branch]]]  # task, rule, checkpoints in the same order for every rule


def read_study(folder: Path) -> Study:
    """The checkpoints that every rule has been tried at; no task without one."""
    study: dict[str, dict[str, list[Branch]]] = {}
    for path in sorted(folder.glob("*/*.csv")):
        rows = read_rows(path)
        whole = len(rows) // len(RULES) * len(RULES)  # the last checkpoint may be under way
        for row in rows[:whole]:
            study.setdefault(path.parent.name, {rule: [] for rule in RULES})[row.rule].append(row)
    return study


def values(study: Study, env_id: str, rule: str, measure: str) -> Array:
    return np.array([getattr(row, measure) for row in study[env_id][rule]])


def scale(env_id: str, measure: str) -> float:
    """By which differences of tasks become comparable: returns are put on the scale of normalised scores."""
    if measure != PRIMARY or not is_anchored(env_id):
        return 1.0
    return PAPER_LEVEL[task_of(env_id)] - RANDOM_LEVEL[task_of(env_id)]


def mean_of_means(groups: Sequence[Array]) -> Array:
    return np.stack([group.mean(axis=1) for group in groups]).mean(axis=0)


def estimate(study: Study, rule: str, measure: str, env_id: str) -> Estimate:
    """Mean paired difference to `ng`; over all tasks, the mean of the tasks' means, each on its scale."""
    envs = list(study) if env_id == ALL else [env_id]
    differences = [values(study, env, rule, measure) - values(study, env, REFERENCE, measure) for env in envs]
    if env_id == ALL:
        differences = [d / scale(env, measure) for d, env in zip(differences, envs, strict=True)]
    return bootstrap(mean_of_means, differences)


def verdict(found: Estimate, better: int, checkpoints: int) -> str:
    if checkpoints < FEWEST:
        return "too few checkpoints"
    if not (np.isfinite(found.low) and np.isfinite(found.high)):
        return "not known"
    if found.low <= 0 <= found.high:
        return "not significant"
    higher = found.low > 0
    if better == 0:
        return "higher" if higher else "lower"
    return "better" if higher == (better > 0) else "worse"


def rivals() -> list[str]:
    return [rule for rule in RULES if rule != REFERENCE]


def places(study: Study) -> list[str]:
    return [*([ALL] if len(study) > 1 else []), *study]


def tables(study: Study) -> list[Table]:
    checkpoints = ", ".join(f"{env_id} {len(rules[REFERENCE])}" for env_id, rules in study.items())
    found = [means_table(study, checkpoints)]
    for name, measure in MEASURES.items():
        rows: list[list[Cell]] = []
        for place in places(study):
            for rule in rivals():
                e = estimate(study, rule, name, place)
                fewest = min(len(study[env][rule]) for env in ([place] if place != ALL else study))
                value, low, high = aligned(float(e.value), float(e.low), float(e.high))
                rows.append([place, rule, verdict(e, measure.better, fewest), value, f"{low} to {high}"])
        note = "Over all tasks, returns are divided by the span of normalised scores." if name == PRIMARY else ""
        title = f"Difference to {REFERENCE}: {measure.title}" + (" (primary: all tasks)" if name == PRIMARY else "")
        found.append(Table(name, title, ("task", "rule", "verdict", "difference", "95 % interval"), rows, note))
    return found


def means_table(study: Study, checkpoints: str) -> Table:
    columns = ("task", "rule", "return", "surrogate", "first surrogate", "actual / predicted KL", "entropy")
    names = ("score", "surrogate", "first_surrogate", "kl_ratio", "entropy")
    rows: list[list[Cell]] = [
        [env_id, rule, *(number(values(study, env_id, rule, name).mean()) for name in names)]
        for env_id in study
        for rule in RULES
    ]
    return Table("means", f"Means over checkpoints ({checkpoints})", columns, rows)


def flat(study: Study) -> dict[str, float]:
    """Every estimate as branch/<task or all>/<rule>/<measure> with /low and /high."""
    numbers: dict[str, float] = {}
    for place in places(study):
        for rule in rivals():
            for name in MEASURES:
                e, key = estimate(study, rule, name, place), f"branch/{place.replace(' ', '-')}/{rule}/{name}"
                numbers |= {key: float(e.value), f"{key}/low": float(e.low), f"{key}/high": float(e.high)}
    return numbers


def figure(study: Study) -> Figure:
    """A panel per measure: differences to `ng` with their intervals, per rule, all tasks together and each."""
    names = ("score", "surrogate", "kl_miss", "entropy")
    drawn = Figure(figsize=(13, 4.2), layout="constrained")
    where = places(study)
    for ax, name in zip(drawn.subplots(1, len(names)), names, strict=True):
        ax.axvline(0, color="#888888", linewidth=1)
        for i, place in enumerate(reversed(where)):
            # every task on the scale of all of them together, so that they share an axis
            unit = scale(place, name) if place != ALL else 1.0
            for j, rule in enumerate(reversed(rivals())):
                e, height = estimate(study, rule, name, place), i + 0.18 * (j - 1.5)
                colour = METHOD_STYLE.get(rule, {"color": "#CC79A7"})["color"]
                ax.plot([float(e.low) / unit, float(e.high) / unit], [height] * 2, color=colour, linewidth=3, alpha=0.5)
                label = rule if i == 0 else None
                ax.plot(float(e.value) / unit, height, "o", color=colour, markersize=5, label=label)
        better = {1: " →", -1: " ←", 0: ""}[MEASURES[name].better]
        ax.set_title(MEASURES[name].title + better, fontsize=9)
        ax.set_yticks(range(len(where)), reversed(where) if name == names[0] else [""] * len(where))
        plain(ax)
    drawn.axes[0].set_xlabel("normalised return")
    handles, labels = drawn.axes[0].get_legend_handles_labels()
    drawn.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=len(labels), frameon=False)
    drawn.suptitle(f"Paired difference to {REFERENCE} from the same checkpoints, 95 % intervals", fontsize=11)
    return drawn

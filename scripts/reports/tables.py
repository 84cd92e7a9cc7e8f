"""The tables of `geonpg report`."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from geonpg.scripts.common.artifacts import Table, aligned, number
from geonpg.scripts.common.intervals import COUNT, Estimate, student
from geonpg.scripts.common.published import (
    PAPER_LEVEL,
    PUBLISHED,
    RANDOM_LEVEL,
    STEPS,
    TASKS,
    is_anchored,
    kept,
    task_of,
)
from geonpg.scripts.reports.comparisons import Comparison, Pair, iqm, over_baseline, over_others, scored
from geonpg.scripts.reports.run_files import Kind, Name, Run
from geonpg.scripts.reports.study import Group, Study

Array = NDArray[np.float64]

INTERVAL = "95 % interval"
UNKNOWN = "not known"  # the interval of a single run
GEOMETRY = "Does geometry help?"
WHOLE = "whole"  # the label of runs that ablations are held against: the preset itself, with their number of steps


def tables(study: Study) -> list[Table]:
    """Those that have rows, in the order of the page."""
    against_ng, against_others = over_baseline(study), over_others(study)
    found = [
        verdict_table("verdicts", GEOMETRY, against_ng),
        verdict_table("others", "Against other algorithms", against_others),
        difference_table(against_ng),
        iqm_table(study),
        task_table(study),
        kept_table(study),
        level_table(study),
        published_table(study),
        ablation_table(study),
    ]
    return [table for table in found if table.rows]


def steps_text(steps: float) -> str:
    if np.isinf(steps):
        return "never"
    return f"{steps / 1e6:.2f} M" if steps >= 1e5 else f"{steps / 1e3:.0f} k"


def estimated(estimate: Estimate) -> list[str]:
    """The value, and its interval if there is one."""
    value, low, high = aligned(float(estimate.value), float(estimate.low), float(estimate.high))
    return [value, f"{low} to {high}" if np.isfinite(estimate.high) else UNKNOWN]


def span(values: Iterable[float]) -> str:
    """'5', or '3 to 5'."""
    ends = sorted(set(values))
    return " to ".join(f"{end:g}" for end in dict.fromkeys([*ends[:1], *ends[-1:]]))


def counted(thing: str, *counts: int) -> str:
    """'1 task', '2 tasks', '3 to 5 tasks'."""
    return f"{span(counts)} {thing}{'' if set(counts) == {1} else 's'}"


def episodes_text(runs: Sequence[Run]) -> str:
    """How many episodes evaluations have: the last one of a run that has ended has more."""
    last = [run.episodes[-1] for run in runs if run.has_ended]
    others = [count for run in runs for count in run.episodes[: -1 if run.has_ended else None]]
    if not last:
        return f"An evaluation has {counted('deterministic episode', *others)}." if others else ""
    rest = f", the others {span(others)}" if others else ""
    return f"A run's last evaluation has {counted('deterministic episode', *last)}{rest}."


def verdict_table(name: str, title: str, comparisons: Sequence[Comparison]) -> Table:
    rows = []
    for each in comparisons:
        found = each.improvement()
        word, seeds = each.verdict(), span(pair.seeds for pair in each.pairs.values())
        rows.append([str(each), word, *estimated(found), str(len(each.pairs)), seeds])
    note = (
        "Probability that a run ends above a run of the other on the same task (last evaluation), mean over tasks; "
        "0.5 is no difference."
    )
    return Table(name, title, ("comparison", "verdict", "probability", INTERVAL, "tasks", "seeds"), rows, note)


def difference_table(comparisons: Sequence[Comparison]) -> Table:
    rows = []
    for each in comparisons:
        for env_id, pair in each.pairs.items():
            rows.append([env_id, pair.verdict(), str(each), *estimated(pair.difference()), str(pair.seeds)])
    columns = ("task", "verdict", "comparison", "difference", INTERVAL, "seeds")
    note = "Difference of the means over seeds of the last evaluation."
    return Table("differences", "Task by task", columns, sorted(rows, key=lambda row: (row[0], row[2])), note)


def iqm_table(study: Study) -> Table:
    rows = []
    for kind in study.kinds:
        if groups := scored(study, kind):
            final = iqm(groups, [group.finals for group in groups], COUNT)
            training = iqm(groups, [group.training_finals for group in groups], COUNT)
            seeds = span(group.seeds for group in groups)
            row = [str(kind), *estimated(final), *estimated(training), str(len(groups)), seeds]
            rows.append([*row, steps_text(groups[0].budget)])
    columns = ("method", "evaluation", INTERVAL, "training", INTERVAL, "tasks", "seeds", "steps")
    note = (
        "Interquartile mean over tasks and seeds of normalised scores: 0 is a random policy, 1 the paper's ACKTR at "
        "1 M steps (a training return). Rows over different tasks do not compare."
    )
    return Table("iqm", "All tasks together", columns, rows, note)


def task_table(study: Study) -> Table:
    rows = []
    for (env_id, kind), group in study.main.items():
        final, area = student(group.finals), student(group.areas)
        row = [env_id, str(kind), *estimated(final), number(group.training_finals.mean()), *estimated(area)]
        row.append(number(float(np.median(group.minutes))))
        rows.append([*row, steps_text(group.budget), str(group.seeds)])
    columns = ("task", "method", "evaluation", INTERVAL, "training", "area", INTERVAL, "minutes", "steps", "seeds")
    note = (
        f"Means over seeds. Evaluation: the last one. {episodes_text(study.shown)} Training: return of training "
        "episodes at the end. Area: under the training curve, divided by the steps. Minutes: median of a run's "
        "wall-clock, evaluations included."
    )
    return Table("tasks", "Every task", columns, rows, note)


def kept_shares(study: Study) -> dict[Name, Array]:
    """Of every group whose task has a known level of random policies: [seeds]."""
    return {
        name: kept(name.env_id, group.bests, group.finals)
        for name, group in study.main.items()
        if task_of(name.env_id) in RANDOM_LEVEL
    }


def kept_table(study: Study) -> Table:
    rows = []
    for (env_id, kind), shares in kept_shares(study).items():
        group = study.main[Name(env_id, kind)]
        best, last = aligned(float(group.bests.mean()), float(group.finals.mean()))
        each = ", ".join(f"{share:.0%}" for share in shares)
        rows.append([env_id, str(kind), f"{shares.min():.0%}", best, last, each])
    columns = ("task", "method", "least", "best", "last", "each seed")
    note = (
        "How much a run keeps of what it had reached: the last evaluation's distance from a random policy, as a share "
        f"of that of its best evaluation, which is the best by luck too. {episodes_text(study.shown)}"
    )
    return Table("kept", "Kept to the end", columns, rows, note)


def level_table(study: Study) -> Table:
    rows = []
    for (env_id, kind), group in study.main.items():
        if is_anchored(env_id):
            level = PAPER_LEVEL[task_of(env_id)]
            steps = group.steps_to(level)
            there, each = f"{np.isfinite(steps).sum()} of {group.seeds}", ", ".join(map(steps_text, steps))
            rows.append([env_id, str(kind), number(level), steps_text(float(np.median(steps))), there, each])
    columns = ("task", "method", "level", "median", "seeds there", "each seed")
    note = (
        "Steps until the training return first is at the paper's level, which is ACKTR's training return at 1 M steps."
    )
    return Table("levels", "Steps to the paper's level", columns, rows, note)


def published_table(study: Study) -> Table:
    """Ours in both metrics, then the literature."""
    versions = sorted({env_id.rpartition("-")[2] for env_id in study.env_ids if is_anchored(env_id)})
    rows = [row for kind in study.kinds for version in versions for row in our_rows(study, kind, version)]
    if rows:
        rows += [[p.method, p.source, p.metric, p.seeds, steps_text(STEPS), *p.returns] for p in PUBLISHED]
    columns = ("method", "source", "metric", "seeds", "steps", *TASKS)
    note = (
        "TRN: return of stochastic training episodes. FIN: final evaluation. MAX: best over time of the mean over "
        "seeds, which flatters. ± is the standard deviation over seeds."
    )
    return Table("published", "Beside what is published", columns, rows, note)


def our_rows(study: Study, kind: Kind, version: str) -> list[list[str]]:
    """One row per metric, if there is anything to show."""
    named = [study.of_kind(kind).get(f"{task}-{version}") for task in TASKS]
    groups = [group for group in named if group]
    if not groups:
        return []
    seeds, steps = span(g.seeds for g in groups), " to ".join(map(steps_text, sorted({g.budget for g in groups})))
    head, tail = [str(kind), f"here, {version}"], [seeds, steps]
    return [
        [*head, "FIN", *tail, *(spread(group.finals) if group else "" for group in named)],
        [*head, "TRN", *tail, *(spread(group.training_finals) if group else "" for group in named)],
    ]


def spread(scores: Array) -> str:
    return " ± ".join(aligned(scores.mean(), scores.std())) if len(scores) > 1 else number(scores.mean())


def ablation_table(study: Study) -> Table:
    rows = []
    for (env_id, kind), group in study.groups.items():
        if group.ablation_of is not None and kind.preset != WHOLE:
            verdict, *rest = against_whole(study, group)
            row = [env_id, verdict, str(kind), *rest, number(group.finals.mean())]
            rows.append([*row, str(group.ablation_of), steps_text(group.budget), str(group.seeds)])
    columns = ("task", "verdict", "ablation", "difference", INTERVAL, "whole", "evaluation", "of", "steps", "seeds")
    note = (
        "Difference: of the ablation's mean evaluation from that of the whole method after as many steps; where steps "
        f"are annealed, of runs under the label {WHOLE!r} that had as many. "
        "Worse: what was taken away had helped."
    )
    return Table("ablations", "What each ingredient brings", columns, rows, note)


def against_whole(study: Study, group: Group) -> list[str]:
    """Verdict, difference, interval and the mean of the untouched method."""
    assert group.ablation_of is not None
    same_budget = Name(group.name.env_id, Kind(WHOLE, group.ablation_of.method))
    whole = study.groups.get(same_budget)
    if whole is None or whole.ablation_of != group.ablation_of:
        whole = study.of_kind(group.ablation_of).get(group.name.env_id)
    if whole is None:
        return ["nothing to compare with", "", "", ""]
    pair = Pair(group, whole)
    return [pair.verdict(), *estimated(pair.difference()), number(pair.finals[1].mean())]

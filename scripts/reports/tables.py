"""The tables of `geonpg report`."""

from collections.abc import Sequence

import numpy as np

from geonpg.scripts.common.artifacts import Table, aligned, number
from geonpg.scripts.common.intervals import COUNT, Array, estimated, student
from geonpg.scripts.common.published import (
    PAPER_LEVEL,
    PUBLISHED,
    PUBLISHED_STEPS,
    RANDOM_LEVEL,
    TASKS,
    is_anchored,
    kept,
    task_of,
)
from geonpg.scripts.reports.comparisons import Comparison, Pair, iqm, over_others, over_reference, scored
from geonpg.scripts.reports.few_updates import large_tables
from geonpg.scripts.reports.recorded_run import Contender, GroupName
from geonpg.scripts.reports.study import SeedGroup, Study
from geonpg.scripts.reports.words import episodes_text, span, steps_range, steps_text

INTERVAL = "95 % interval"
GEOMETRY = "Does geometry help?"
WHOLE = "whole"  # the label of runs that ablations are compared with: the preset itself, with their number of steps


def report_tables(study: Study) -> list[Table]:
    """Those that have rows, in the order of the page."""
    against_ng, against_others = over_reference(study), over_others(study)
    found = [
        verdict_table("verdicts", GEOMETRY, against_ng),
        verdict_table("others", "Against other algorithms", against_others),
        difference_table(against_ng),
        iqm_table(study),
        task_table(study),
        kept_table(study),
        level_table(study),
        published_table(study),
        *large_tables(study),
        long_table(study),
        ablation_table(study),
    ]
    return [table for table in found if table.rows]


def verdict_table(name: str, title: str, comparisons: Sequence[Comparison]) -> Table:
    """Probability of improvement of every comparison, over all its tasks."""
    rows = []
    for each in comparisons:
        found = each.improvement()
        word, seeds = each.verdict(), span(pair.seeds for pair in each.pairs.values())
        rows.append([str(each), word, *estimated(found), str(len(each.pairs)), seeds])
    note = (
        "Probability that a run's last evaluation is above that of a run of the other method on the same task, "
        "averaged over tasks; 0.5 means no difference."
    )
    return Table(name, title, ("comparison", "verdict", "probability", INTERVAL, "tasks", "seeds"), rows, note)


def difference_table(comparisons: Sequence[Comparison]) -> Table:
    """Difference of means of every comparison on each of its tasks."""
    rows = []
    for each in comparisons:
        for env_id, pair in each.pairs.items():
            rows.append([env_id, pair.verdict(), str(each), *estimated(pair.difference()), str(pair.seeds)])
    columns = ("task", "verdict", "comparison", "difference", INTERVAL, "seeds")
    note = "Difference of the mean returns of the last evaluation."
    return Table("differences", "Task by task", columns, sorted(rows, key=lambda row: (row[0], row[2])), note)


def iqm_table(study: Study) -> Table:
    """Normalised scores over all tasks that have one."""
    rows = []
    for contender in study.contenders:
        if groups := scored(study, contender):
            final = iqm(groups, [group.finals for group in groups], COUNT)
            training = iqm(groups, [group.training_finals for group in groups], COUNT)
            seeds = span(group.seeds for group in groups)
            row = [str(contender), *estimated(final), *estimated(training), str(len(groups)), seeds]
            rows.append([*row, steps_text(groups[0].budget)])
    columns = ("method", "evaluation", INTERVAL, "training", INTERVAL, "tasks", "seeds", "steps")
    note = (
        "Interquartile mean over tasks and seeds of normalised scores: 0 is a random policy, 1 the paper's ACKTR at "
        "1 M steps (its training return). Rows over different tasks cannot be compared."
    )
    return Table("iqm", "All tasks together", columns, rows, note)


def task_table(study: Study) -> Table:
    """Everything that is measured, for every task and method."""
    rows = []
    for (env_id, contender), group in study.main.items():
        final, area = student(group.finals), student(group.areas)
        row = [env_id, str(contender), *estimated(final), number(group.training_finals.mean()), *estimated(area)]
        row.append(number(float(np.median(group.minutes))))
        rows.append([*row, steps_text(group.budget), str(group.seeds)])
    columns = ("task", "method", "evaluation", INTERVAL, "training", "area", INTERVAL, "minutes", "steps", "seeds")
    note = (
        f"Means over seeds. Evaluation: the last one. {episodes_text(study.shown)} Training: return of training "
        "episodes at the end. Area: under the training curve, divided by the number of steps. Minutes: median "
        "wall-clock of a run, including evaluations."
    )
    return Table("tasks", "Every task", columns, rows, note)


def kept_shares(study: Study) -> dict[GroupName, Array]:
    """How much each run keeps of its best evaluation, where random policies have a known level: [seeds]."""
    return {
        name: kept(name.env_id, group.bests, group.finals)
        for name, group in study.main.items()
        if task_of(name.env_id) in RANDOM_LEVEL
    }


def kept_table(study: Study) -> Table:
    """What runs keep to their end of the best that they had reached."""
    rows = []
    for (env_id, contender), shares in kept_shares(study).items():
        group = study.main[GroupName(env_id, contender)]
        best, last = aligned(float(group.bests.mean()), float(group.finals.mean()))
        each = ", ".join(f"{share:.0%}" for share in shares)
        rows.append([env_id, str(contender), f"{shares.min():.0%}", best, last, each])
    columns = ("task", "method", "least", "best", "last", "each seed")
    note = (
        "The last evaluation as a share of the run's best one, both measured from the level of a random policy. The "
        f"best of many evaluations is partly luck, so expect a little less than 100 %. {episodes_text(study.shown)}"
    )
    return Table("kept", "Kept to the end", columns, rows, note)


def level_table(study: Study) -> Table:
    """How many steps runs took to the level that the paper reached in a million."""
    rows = []
    for (env_id, contender), group in study.main.items():
        if is_anchored(env_id):
            level = PAPER_LEVEL[task_of(env_id)]
            steps = group.steps_to(level)
            there, each = f"{np.isfinite(steps).sum()} of {group.seeds}", ", ".join(map(steps_text, steps))
            rows.append([env_id, str(contender), number(level), steps_text(float(np.median(steps))), there, each])
    columns = ("task", "method", "level", "median", "seeds there", "each seed")
    note = "Steps until the training return first reaches the paper's level: ACKTR's training return at 1 M steps."
    return Table("levels", "Steps to the paper's level", columns, rows, note)


def published_table(study: Study) -> Table:
    """Ours in both metrics, then the literature."""
    versions = sorted({env_id.rpartition("-")[2] for env_id in study.env_ids if task_of(env_id) in TASKS})
    rows = [row for each in study.contenders for version in versions for row in our_rows(study, each, version)]
    if rows:
        rows += [[p.method, p.source, p.metric, p.seeds, steps_text(PUBLISHED_STEPS), *p.returns] for p in PUBLISHED]
    columns = ("method", "source", "metric", "seeds", "steps", *TASKS)
    note = (
        "TRN: return of stochastic training episodes. FIN: final evaluation. MAX: best over time of the mean over "
        "seeds, which flatters (rlfromscratch: mean of the five best). ± is the standard deviation over seeds."
    )
    return Table("published", "Published results", columns, rows, note)


def our_rows(study: Study, contender: Contender, version: str) -> list[list[str]]:
    """One row per metric, if there is anything to show."""
    named = [study.groups_of(contender).get(f"{task}-{version}") for task in TASKS]
    groups = [group for group in named if group]
    if not groups:
        return []
    head, tail = (
        [str(contender), f"here, {version}"],
        [span(g.seeds for g in groups), steps_range(g.budget for g in groups)],
    )
    return [
        [*head, "FIN", *tail, *(spread(group.finals) if group else "" for group in named)],
        [*head, "TRN", *tail, *(spread(group.training_finals) if group else "" for group in named)],
    ]


def spread(scores: Array) -> str:
    """Mean and standard deviation."""
    return " ± ".join(aligned(scores.mean(), scores.std())) if len(scores) > 1 else number(scores.mean())


def long_table(study: Study) -> Table:
    """What the main preset reaches in more steps."""
    rows = []
    for (env_id, _), group in study.groups.items():
        if group.is_long:
            row = [env_id, str(group.ablation_of), steps_text(group.budget), *estimated(student(group.finals))]
            row += [number(group.bests.mean()), number(group.training_finals.mean())]
            rows.append([*row, number(float(np.median(group.minutes))), str(group.seeds)])
    columns = ("task", "method", "steps", "evaluation", INTERVAL, "best", "training", "minutes", "seeds")
    note = "Means over seeds. Evaluation: the last one; best: each run's best one. Minutes: median wall-clock of a run."
    return Table("long", "Longer runs", columns, rows, note)


def ablation_table(study: Study) -> Table:
    """Every ablation against the method that it is an ablation of."""
    rows = []
    for (env_id, contender), group in study.groups.items():
        if group.ablation_of is not None and contender.preset != WHOLE and not group.is_long:
            verdict, *rest = against_whole(study, group)
            row = [env_id, verdict, str(contender), *rest, number(group.finals.mean())]
            rows.append([*row, str(group.ablation_of), steps_text(group.budget), str(group.seeds)])
    columns = ("task", "verdict", "ablation", "difference", INTERVAL, "whole", "evaluation", "of", "steps", "seeds")
    note = (
        "Difference: the ablation's mean evaluation minus that of the whole method. The whole method is the runs "
        f"labelled {WHOLE!r}, which have the same number of steps; without such runs, it is the main runs after as "
        'many steps. "Worse" means that the ingredient had helped.'
    )
    return Table("ablations", "Ablations", columns, rows, note)


def against_whole(study: Study, group: SeedGroup) -> list[str]:
    """Verdict, difference, interval and the mean of the untouched method."""
    assert group.ablation_of is not None
    same_budget = GroupName(group.name.env_id, Contender(WHOLE, group.ablation_of.method))
    whole = study.groups.get(same_budget)
    if whole is None or whole.ablation_of != group.ablation_of:
        whole = study.groups_of(group.ablation_of).get(group.name.env_id)
    if whole is None:
        return ["nothing to compare with", "", "", ""]
    pair = Pair(group, whole)
    return [pair.verdict(), *estimated(pair.difference()), number(pair.finals[1].mean())]

"""Runs of the preset `large`, whose updates are few and long: what they return after so many updates."""

from geonpg.scripts.branches.analysis import REFERENCE
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.intervals import estimated, student, with_interval
from geonpg.scripts.reports.comparisons import Comparison, over_reference
from geonpg.scripts.reports.study import SeedGroup, Study
from geonpg.scripts.reports.words import span

LARGE = "large"  # the preset
UPDATES = (20, 50, 100)
ALL = "all"


def large_groups(study: Study) -> list[SeedGroup]:
    """The groups of the preset `large`."""
    return [group for name, group in study.main.items() if name.contender.preset == LARGE]


def over_reference_after(study: Study, updates: int) -> list[Comparison]:
    """Every method of the preset `large` against its `ng` after so many updates."""
    return [each for each in over_reference(study, updates) if each.contender.preset == LARGE]


def large_tables(study: Study) -> list[Table]:
    """Returns, then verdicts; nothing without runs of the preset."""
    return [returns_table(study), verdicts_table(study)] if large_groups(study) else []


def returns_table(study: Study) -> Table:
    """Mean returns of every method on every task after so many updates."""
    rows = []
    for group in large_groups(study):
        made = [updates for updates in UPDATES if group.has_made(updates)]
        cells = [with_interval(student(group.finals_after(updates))) for updates in made]
        cells += [""] * (len(UPDATES) - len(made))
        rows.append([group.name.env_id, group.name.contender.method, *cells, str(group.batch), str(group.seeds)])
    columns = ("task", "method", *(f"{updates} updates" for updates in UPDATES), "steps of an update", "seeds")
    note = "Mean return of deterministic episodes, with Student's 95 % interval."
    return Table("large-curves", "Few and long updates: preset large", columns, rows, note)


def verdicts_table(study: Study) -> Table:
    """Every method against `ng`, on all tasks and on each, after so many updates."""
    rows = []
    for updates in UPDATES:
        for each in over_reference_after(study, updates):
            seeds, what = span(pair.seeds for pair in each.pairs.values()), each.contender.method
            rows.append([str(updates), ALL, what, each.verdict(), *estimated(each.improvement()), seeds])
            for env_id, pair in each.pairs.items():
                cells = [pair.verdict(), *estimated(pair.difference()), str(pair.seeds)]
                rows.append([str(updates), env_id, what, *cells])
    columns = ("updates", "task", "method", "verdict", "over ng", "95 % interval", "seeds")
    note = "All tasks: probability that a run is above one of ng on the same task. One task: difference of means."
    return Table("large-verdicts", "Few and long updates: against ng", columns, rows, note)


def large_numbers(study: Study) -> dict[str, float]:
    """Mean returns as large-curves/<task>/<method>/<updates>; the probability of improvement over `ng`, pooled."""
    numbers = {
        f"large-curves/{group.name.env_id}/{group.name.contender.method}/{updates}": float(
            group.finals_after(updates).mean()
        )
        for group in large_groups(study)
        for updates in UPDATES
        if group.has_made(updates)
    }
    for updates in UPDATES:
        for each in over_reference_after(study, updates):
            key = f"large-curves/{ALL}/{each.contender.method}_over_{REFERENCE}/{updates}"
            numbers |= each.improvement().numbers(key)
    return numbers

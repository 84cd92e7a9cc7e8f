"""The paper's figure, from the runs of `geonpg compare results/paper.toml`: ours beside the paper's own points.

As the paper does, it counts the return of training episodes, the mean of the last hundred. The analysis was fixed
before a run had ended (docs/paper.md).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from matplotlib.figure import Figure

from geonpg.scripts.common.artifacts import Table, number
from geonpg.scripts.common.intervals import Estimate, Needed, estimated, student, verdict, welch
from geonpg.scripts.common.published import PAPER_FINALS, PAPER_TASKS, PUBLISHED_STEPS, paper_points, task_of
from geonpg.scripts.reports.curves import STEP_UNITS, CurveFigure, Line, Panel, band, singles
from geonpg.scripts.reports.figures import combined
from geonpg.scripts.reports.recorded_run import Contender
from geonpg.scripts.reports.study import SeedGroup, Study

FOLDER = "paper"  # of the runs, beside those of other studies
PRESETS = ("paper", "paper-published")
METHODS = ("ng", "mid", "geo")  # that the paper's figure shows
PAIRS = (("geo", "ng"), ("mid", "ng"), ("geo", "mid"))
WANTED = Needed(3, "seeds")
WORDS = {"better": "confirmed", "worse": "contradicted", "not significant": "undecided"}
RULE = (
    "Confirmed: Welch's 95 % interval of our difference excludes zero on the paper's side; contradicted: on the other "
    f"side; undecided: it includes zero. No verdict with fewer than {WANTED.least} seeds. Nothing is corrected for the "
    "number of comparisons."
)
NOTE = (
    "Return of training episodes, mean of the last hundred, mean over seeds with its 95 % interval, in gymnasium's v4 "
    "tasks. Circles: read off the paper's figure, of v2 tasks. Thin lines: unfinished runs. Bands are the bootstrap's, "
    "too narrow for three seeds: verdicts rest on Welch's intervals."
)


@dataclass(frozen=True)
class Ordering:
    """Two methods of which the paper has one above the other after a million steps, on one task of ours."""

    upper: SeedGroup
    lower: SeedGroup

    @property
    def env_id(self) -> str:
        """The task."""
        return self.upper.name.env_id

    @property
    def methods(self) -> tuple[str, str]:
        """The one that the paper has above, and the other."""
        return self.upper.name.contender.method, self.lower.name.contender.method

    @property
    def published(self) -> float:
        """The paper's difference, which is positive."""
        upper, lower = (PAPER_FINALS[method][task_of(self.env_id)] for method in self.methods)
        return upper - lower

    @property
    def seeds(self) -> int:
        """Runs of the smaller group."""
        return min(self.upper.seeds, self.lower.seeds)

    def difference(self) -> Estimate:
        """Our difference of the same two."""
        return welch(self.upper.training_finals, self.lower.training_finals)

    def verdict(self) -> str:
        """Say whether our runs confirm the paper's ordering."""
        word = verdict(self.difference(), self.seeds, WANTED)
        return WORDS.get(word, word)


def paper_groups(study: Study) -> list[SeedGroup]:
    """The finished groups of the figure, task by task in the paper's order."""
    return [group for env_id in tasks_of(study) for group in whole_groups(study, env_id, contenders_of(study))]


def whole_groups(study: Study, env_id: str, contenders: Sequence[Contender]) -> list[SeedGroup]:
    """The groups of these contenders on a task that have as many steps as the paper's figure."""
    return [group for group in study.groups_on(env_id, contenders) if group.budget >= PUBLISHED_STEPS]


def tasks_of(study: Study) -> list[str]:
    """The paper's tasks that were run, in its order."""
    known = [env_id for env_id in study.env_ids if task_of(env_id) in PAPER_TASKS]
    return sorted(known, key=lambda env_id: PAPER_TASKS.index(task_of(env_id)))


def contenders_of(study: Study) -> list[Contender]:
    """The presets and methods of the figure that were run, in the paper's order."""
    every = [Contender(preset, method) for preset in PRESETS for method in METHODS]
    return [contender for contender in every if contender in study.contenders]


def orderings(study: Study) -> Iterator[Ordering]:
    """Every pair of methods on every task, each as the paper's figure has it after a million steps."""
    for env_id in tasks_of(study):
        for pair in PAIRS:
            upper, lower = sorted(pair, key=lambda method: -PAPER_FINALS[method][task_of(env_id)])
            groups = whole_groups(study, env_id, [Contender(PRESETS[0], upper), Contender(PRESETS[0], lower)])
            if len(groups) == len(pair):
                yield Ordering(*groups)


def paper_tables(study: Study) -> list[Table]:
    """Returns after a million steps, and what they say of the paper's orderings; nothing without finished runs."""
    return [table for table in (returns_table(study), orderings_table(study)) if table.rows]


def returns_table(study: Study) -> Table:
    """Our training returns at the end, beside the paper's."""
    rows = []
    for group in paper_groups(study):
        env_id, contender = group.name
        published = number(PAPER_FINALS[contender.method][task_of(env_id)])
        rows.append([env_id, str(contender), *estimated(student(group.training_finals)), published, str(group.seeds)])
    columns = ("task", "method", "return", "95 % interval", "the paper", "seeds")
    note = "Mean return of the last hundred training episodes of a run, mean over seeds, with Student's interval."
    return Table("paper-returns", "The paper's figure: returns at its end", columns, rows, note)


def orderings_table(study: Study) -> Table:
    """Each of the paper's orderings, and whether our runs confirm it."""
    rows = []
    for each in orderings(study):
        words = [each.env_id, each.verdict(), " over ".join(each.methods), number(each.published)]
        rows.append([*words, *estimated(each.difference()), str(each.seeds)])
    columns = ("task", "verdict", "the paper's ordering", "its difference", "ours", "95 % interval", "seeds")
    return Table("paper-orderings", "The paper's figure: its orderings", columns, rows, RULE)


def paper_numbers(study: Study) -> dict[str, float | str]:
    """Returns as paper/<task>/<method>, orderings as paper/<task>/<method>_over_<method>/verdict, and how many of each.

    Ends of intervals are left out where a single run leaves them unknown.
    """
    found: dict[str, float | str] = {}
    for group in paper_groups(study):
        env_id, (preset, method) = group.name
        key = f"{preset}/{env_id}/{method}"
        found |= {**student(group.training_finals).numbers(key), f"{key}/seeds": group.seeds}
    verdicts = []
    for each in orderings(study):
        key = f"{PRESETS[0]}/{each.env_id}/{'_over_'.join(each.methods)}"
        verdicts.append(each.verdict())
        found |= {**each.difference().numbers(key), f"{key}/published": each.published}
        found[f"{key}/verdict"] = verdicts[-1]
    return found | {f"{PRESETS[0]}/{word}": verdicts.count(word) for word in WORDS.values() if verdicts}


def paper_figure(study: Study) -> Figure:
    """Training return over steps, a panel for each task, with the paper's own points."""
    contenders, panels = contenders_of(study), []
    for env_id in tasks_of(study):
        groups = study.groups_on(env_id, contenders)
        curves = [(group.name.contender, *band([run.training for run in group.runs], group.budget)) for group in groups]
        lines = [Line(*curve) for curve in curves] + singles(study, contenders, env_id, lambda run: run.training)
        points = {method: paper_points(method, task_of(env_id)) for method in METHODS}
        panels.append(Panel(env_id, STEP_UNITS[1e6], "return", lines, unit=1e6, points=points))
    return combined(CurveFigure("training", "presets", contenders, panels), study)

"""Everything that a run has recorded: the rows of its tables. Checkpoints hold it, so the tables can be rewritten."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter
from pathlib import Path
from typing import Any

from geonpg.agents.forms import Many, OneOf
from geonpg.configs import Settings
from geonpg.scripts.runs.folder import CURVE, EVALUATIONS, TIMES, CurveRow, Evaluation, Times

FINAL_EPISODES = 20  # of the evaluation at a run's end
PHASES = TIMES.columns[1:]  # what seconds are counted of: all of them together first

# The form of a history in a checkpoint (see forms.py); SB3's algorithms count no rejected steps.
FORM = {
    "curve": Many([0, *[0.0] * (len(CURVE.columns) - 2), OneOf((0, 0.0))]),
    "evaluations": Many([0, 0.0, 0.0, Many(0.0)]),
    "times": Many([0, *[0.0] * (len(TIMES.columns) - 1)]),
    "seconds": dict.fromkeys(PHASES, 0.0),
}


@dataclass
class History:
    """The rows of a run's tables, and the seconds spent in each phase."""

    curve: list[CurveRow] = field(default_factory=list)
    evaluations: list[Evaluation] = field(default_factory=list)
    times: list[Times] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PHASES, 0.0))

    @classmethod
    def of_state(cls, state: Mapping[str, Any]) -> "History":
        """Make a history from a checkpoint's data, which has the form FORM."""
        return cls(
            [CurveRow(*row) for row in state["curve"]],
            [Evaluation(*row) for row in state["evaluations"]],
            [Times(*row) for row in state["times"]],
            state["seconds"],
        )

    def state(self) -> dict[str, Any]:
        """Return plain data for a checkpoint; rows become lists."""
        return {
            "curve": [list(row) for row in self.curve],
            "evaluations": [list(row) for row in self.evaluations],
            "times": [list(row) for row in self.times],
            "seconds": self.seconds,
        }

    @property
    def evaluated(self) -> int:
        """The step of the last evaluation; 0 if there is none."""
        return self.evaluations[-1].steps if self.evaluations else 0

    @property
    def recorded(self) -> int:
        """The step of the last row of the curve; 0 if there is none."""
        return self.curve[-1].steps if self.curve else 0

    @property
    def best(self) -> Evaluation | None:
        """The best evaluation, the first if several are equal; None if there is none."""
        return max(self.evaluations, key=attrgetter("mean"), default=None)

    def record(self, row: CurveRow) -> None:
        """Append a row to the curve, and one to the times."""
        self.curve.append(row)
        self.times.append(Times(row.steps, **self.seconds))

    def tables(self) -> Iterator[tuple[str, str]]:
        """Yield the name and content of every table's file."""
        yield CURVE.file, CURVE.text(self.curve)
        yield EVALUATIONS.file, EVALUATIONS.text(self.evaluations)
        yield TIMES.file, TIMES.text(self.times)

    def write(self, folder: Path) -> None:
        """Write the tables into the folder, except those that are already up to date."""
        CURVE.write(folder, self.curve)
        EVALUATIONS.write(folder, self.evaluations)
        TIMES.write(folder, self.times)

    def contradiction(self, settings: Settings, steps: int) -> str:
        """Describe what no run could have recorded by this step; empty if nothing is wrong."""
        if [row.steps for row in self.curve] != [row.steps for row in self.times]:
            return "its curve and its times are not of the same steps"
        if any(len(row.returns) not in (settings.eval_episodes, FINAL_EPISODES) for row in self.evaluations):
            return f"an evaluation does not have {settings.eval_episodes} episodes, or {FINAL_EPISODES} at the end"
        at = [0, *(row.steps for row in self.evaluations), steps + 1]
        longest = settings.eval_every + settings.n_envs * settings.n_steps  # an update later than it is due
        if any(not 0 < later - earlier <= longest for earlier, later in pairwise(at)):
            return "its evaluations are not of the steps that they were due at"
        return ""

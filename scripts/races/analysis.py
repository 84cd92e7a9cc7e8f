"""What races have shown: returns after minutes, and minutes to returns."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from geonpg.configs import task_names
from geonpg.configs.presets import blaming
from geonpg.errors import known, require
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.intervals import Array, Estimate, steps_to, student, with_interval
from geonpg.scripts.races.contestants import CONTESTANTS
from geonpg.scripts.races.rows import FACTS, Row, entry_folders, machines_by_race, read_finished

MAIN_MINUTES = (1, 2, 5, 10, 20, 50, 100, 200, 500)  # columns of the tables, beside a race's end
# Returns that the minutes to are told of; on other tasks, round numbers between the worst and the best that was seen.
LEVELS: Mapping[str, tuple[float, ...]] = {
    "HalfCheetah": (1000, 2000, 3000, 5000, 7000, 9000),
    "Walker2d": (1000, 2000, 3000, 4000, 5000),
    "Hopper": (1000, 2000, 3000),
    "Ant": (1000, 2000, 3000, 4000, 5000),
    "Humanoid": (500, 1000, 3000, 5000),
    "HumanoidStandup": (80_000, 100_000, 150_000),
    "Swimmer": (50, 100, 200, 300, 350),
    "Reacher": (-10, -6, -5, -4),
    "InvertedPendulum": (500, 1000),
    "InvertedDoublePendulum": (1000, 5000, 9000),
}
OTHER_LEVELS = 4  # at most


@dataclass(frozen=True)
class Race:
    """All entries of one length on one task that have ended."""

    env_id: str
    minutes: float
    entries: Mapping[str, Sequence[Sequence[Row]]]  # by contestant, one for each seed

    @property
    def times(self) -> list[float]:
        """Minutes after which policies were evaluated."""
        return sorted({row.minute for seeds in self.entries.values() for rows in seeds for row in rows})

    def curve(self, contestant: str) -> tuple[Array, Array]:
        """Minutes, [n], and returns, [seeds, n], of a contestant."""
        seeds = self.entries[contestant]
        minutes = np.array([row.minute for row in seeds[0]])
        return minutes, np.array([[row.mean for row in rows] for rows in seeds])

    def steps(self, contestant: str) -> Array:
        """Steps of a contestant after its minutes, the mean over seeds: [n]."""
        return np.array([[row.steps for row in rows] for rows in self.entries[contestant]]).mean(axis=0)

    def after(self, contestant: str, minute: float) -> Estimate:
        """Return of a contestant after so many minutes, over seeds."""
        minutes, returns = self.curve(contestant)
        return student(returns[:, list(minutes).index(minute)])

    def minutes_to(self, contestant: str, level: float) -> float:
        """Minutes until a contestant's mean over seeds was first found at a return; infinity if it never was."""
        minutes, returns = self.curve(contestant)
        return steps_to(level, minutes, returns.mean(axis=0))

    def first(self, minute: float) -> list[str]:
        """The contestants with the highest return after so many minutes: one, or several with the same."""
        returns = {contestant: float(self.after(contestant, minute).value) for contestant in self.entries}
        return [contestant for contestant, found in returns.items() if found == max(returns.values())]

    @property
    def main_minutes(self) -> list[float]:
        """The minutes that tables show."""
        return [minute for minute in self.times if minute in MAIN_MINUTES or minute == self.minutes]

    @property
    def levels(self) -> list[float]:
        """Returns that the minutes to are told of."""
        if (task := task_names(self.env_id)[0]) in LEVELS:
            return list(LEVELS[task])
        seen = np.concatenate([self.curve(contestant)[1].mean(axis=0) for contestant in self.entries])
        ticks = MaxNLocator(OTHER_LEVELS).tick_values(seen.min(), seen.max())
        return [float(tick) for tick in ticks if seen.min() < tick <= seen.max()]


@dataclass(frozen=True)
class RaceStudy:
    """All races in a folder; remarks: sentences on how they were made, for whoever reads the numbers."""

    races: Sequence[Race]
    remarks: Sequence[str]

    def __bool__(self) -> bool:
        return bool(self.races)

    @property
    def contestants(self) -> list[str]:
        """Everyone who raced, in the order of CONTESTANTS."""
        raced = {contestant for race in self.races for contestant in race.entries}
        return [contestant for contestant in CONTESTANTS if contestant in raced]


NO_RACES = RaceStudy((), ())


def read_races(folder: Path) -> RaceStudy:
    """Read all entries in a folder that have come to their end; raise Refused if they contradict one another.

    Entries that have not ended, and races on several machines, whose minutes do not compare, are left out and named.
    """
    found: dict[tuple[str, float], dict[str, list[list[Row]]]] = {}
    made: dict[tuple[str, float, str, int], Mapping[str, Any]] = {}  # what each was made with
    unfinished = []
    for entry in entry_folders(folder):
        finished = read_finished(entry)
        if finished is None:
            unfinished.append(str(entry.relative_to(folder)))
            continue
        facts, rows = finished
        with blaming(str(entry / FACTS)):
            known("contestant", facts["contestant"], CONTESTANTS)
        race = found.setdefault((facts["env"], float(facts["minutes"])), {})
        others = next(iter(race.values()), [rows])[0]
        same = [row.minute for row in rows] == [row.minute for row in others]
        require(same, f"{entry} was evaluated after other minutes than others of its race: move it away")
        key = facts["env"], float(facts["minutes"]), facts["contestant"], facts["seed"]
        require(key not in made, f"{entry} is of the same seed as another entry: move it out of {folder}")
        made[key] = facts
        race.setdefault(facts["contestant"], []).append(rows)
    mixed = mixed_races(made.values())
    races = [Race(*race, in_order(entries)) for race, entries in found.items() if race not in mixed]
    in_turn = sorted(races, key=lambda race: (race.minutes, race.env_id))
    return RaceStudy(in_turn, remarks_on(list(made.values()), unfinished))


def remarks_on(made: Sequence[Mapping[str, Any]], unfinished: Sequence[str]) -> list[str]:
    """Say where entries were made, whether by one version of everything, who disturbed them, and what is missing."""
    found = remarks_on_machines(made)
    revisions = {facts.get("git") for facts in made}
    if len(revisions) > 1:
        found.append(f"Made by {len(revisions)} revisions of this program.")
    seen: dict[str, set[str]] = {}
    for facts in made:
        for project, number in facts.get("versions", {}).items():
            seen.setdefault(project, set()).add(number)
    for project, numbers in seen.items():
        if len(numbers) > 1:
            found.append(f"Made with several versions of {project}: {', '.join(sorted(numbers))}.")
    if busy := [float(facts["others"]) for facts in made if "others" in facts]:
        found.append(f"Other programs used at most {max(busy):.2f} of a core while an entry trained.")
    if unfinished:
        found.append(f"Not ended, and not counted: {', '.join(unfinished)}.")
    return found


def remarks_on_machines(made: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say on which machine entries were made; if on several, which task on which, and what is left out for that."""
    tasks: dict[str, set[str]] = {}
    for facts in made:
        tasks.setdefault(facts["machine"], set()).add(facts["env"])
    if len(tasks) < 2:
        return [f"Machine: {machine}." for machine in tasks]
    found = [f"{', '.join(sorted(tasks[machine]))} on {machine}" for machine in sorted(tasks)]
    said = [f"Machines: {'; '.join(found)}."]
    mixed = ", ".join(f"{env_id} ({minutes:g} minutes)" for env_id, minutes in sorted(mixed_races(made)))
    return [*said, f"Raced on several, so that nobody can be compared, and left out: {mixed}."] if mixed else said


def mixed_races(made: Iterable[Mapping[str, Any]]) -> set[tuple[str, float]]:
    """Races, by task and minutes, whose entries were not all made on one machine."""
    return {race for race, machines in machines_by_race(made).items() if len(machines) > 1}


def in_order(entries: Mapping[str, list[list[Row]]]) -> dict[str, list[list[Row]]]:
    """The entries in the order of CONTESTANTS."""
    return {contestant: entries[contestant] for contestant in CONTESTANTS if contestant in entries}


# tables and numbers


def race_tables(study: RaceStudy) -> list[Table]:
    """For every length of race: returns after minutes, and minutes to returns."""
    lengths = dict.fromkeys(race.minutes for race in study.races)
    groups = [[race for race in study.races if race.minutes == minutes] for minutes in lengths]
    tables = [table for races in groups for table in (returns_table(races, study.remarks), minutes_table(races))]
    return [table for table in tables if table.rows]


def length(races: Sequence[Race]) -> str:
    """The length of races in words."""
    minutes = races[0].minutes
    return f"{minutes:g} minute{'' if minutes == 1 else 's'}"


def returns_table(races: Sequence[Race], remarks: Sequence[str]) -> Table:
    """Mean returns of everyone on every task, who was first, and the steps that were made."""
    minutes, rows = sorted({minute for race in races for minute in race.main_minutes}), []
    for race in races:
        leaders = {minute: race.first(minute) for minute in race.main_minutes}
        for contestant, seeds in race.entries.items():
            shown = {minute: with_interval(race.after(contestant, minute)) for minute in leaders}
            cells = [shown.get(minute, "") for minute in minutes]
            ahead = ", ".join(f"{minute:g}" for minute, first in leaders.items() if contestant in first)
            steps = f"{race.steps(contestant)[-1] / 1e3:,.0f} k"
            rows.append([race.env_id, contestant, *cells, ahead, steps, str(len(seeds))])
    columns = ("task", "contestant", *(f"{minute:g} min" for minute in minutes), "first at", "steps", "seeds")
    note = (
        "Mean return of deterministic episodes after minutes of training, one contestant at a time; "
        "of several seeds with Student's 95 % interval. The clock stands still during evaluations."
    )
    note = " ".join([note, *remarks])
    return Table(f"race-{races[0].minutes:g}", f"A race of {length(races)}", columns, rows, note)


def minutes_table(races: Sequence[Race]) -> Table:
    """Minutes that everyone took to returns, without returns that nobody reached."""
    names = list(dict.fromkeys(contestant for race in races for contestant in race.entries))
    rows = []
    for race in races:
        for level in race.levels:
            found = {name: race.minutes_to(name, level) for name in race.entries}
            if np.isfinite(list(found.values())).any():
                rows.append([race.env_id, f"{level:g}", *(minutes_text(found.get(name)) for name in names)])
    note = "Minutes of the first evaluation at which the mean over seeds is at least the return."
    title = f"Minutes to a return, in a race of {length(races)}"
    return Table(f"race-{races[0].minutes:g}-minutes-to", title, ("task", "return", *names), rows, note)


def minutes_text(minutes: float | None) -> str:
    """A number of minutes, "never", or nothing for someone who did not race."""
    if minutes is None:
        return ""
    return f"{minutes:g}" if np.isfinite(minutes) else "never"


def race_numbers(study: RaceStudy) -> dict[str, float]:
    """Every return as race/<task>/<contestant>/<minute>, and the minutes to returns.

    A minute that several races have is told of the shortest. A longer race, which may have fewer seeds, tells the
    minutes to a return only if the shorter ones had ended by then.
    """
    numbers: dict[str, float] = {}
    ended: dict[str, float] = {}  # minutes of the longest race so far
    for race in study.races:  # the shortest first
        for contestant in race.entries:
            start = f"race/{race.env_id}/{contestant}"
            for minute in race.times:
                if (key := f"{start}/{minute:g}") not in numbers:
                    numbers |= race.after(contestant, minute).numbers(key)
            for level in race.levels:
                minutes = race.minutes_to(contestant, level)
                if ended.get(start, 0.0) < minutes < np.inf:
                    numbers.setdefault(f"{start}/minutes_to/{level:g}", minutes)
            ended[start] = race.minutes
    return numbers

"""Read a folder of runs into a study: DIR/…/<task>/<preset or algorithm>/<method or settings>/<seed>/, as `geonpg
compare` leaves them, or DIR/<any name>/, as `geonpg train` does; DIR may also be such a run itself.

A run that has not ended, or whose files do not say what they should, is named and left out; the curves of one that has
not ended are kept. A run of `compare` whose folders are not called after its preset and method is an ablation of these.
Runs of `train` that share a preset and a method but differ in other settings get these settings into their names.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from geonpg.configs import shown
from geonpg.errors import Refused
from geonpg.scripts.reports.recorded_run import (
    CHANGED,
    Contender,
    GroupName,
    Incomplete,
    RecordedRun,
    last_step,
    read_run,
)
from geonpg.scripts.reports.study import SeedGroup, Study
from geonpg.scripts.runs.folder import FACTS


def read_study(folder: Path) -> Study:
    """Read every run in a folder; whatever cannot be used is named in `left_out`."""
    left_out: list[str] = []
    runs = one_per_seed(told_apart(read_runs(folder, left_out)), left_out)
    unfinished = [run for run in runs if not run.has_ended and run.ablation_of is None]
    return Study(grouped([run for run in runs if run.has_ended], left_out), sorted(left_out), unfinished)


def read_runs(folder: Path, left_out: list[str]) -> dict[str, RecordedRun]:
    """Every run that can be read, by its place in the folder."""
    found: dict[str, RecordedRun] = {}
    for path, is_placed in run_folders(folder):
        where = path.relative_to(folder).as_posix() if path != folder else path.name
        try:
            found[where] = read_run(path, is_placed)
        except Incomplete as reason:
            left_out.append(f"{where} is incomplete: {reason}")
        except (OSError, Refused) as reason:
            left_out.append(f"{where} is damaged: {reason}")
    return found


def run_folders(folder: Path) -> Iterator[tuple[Path, bool]]:
    """Find the folders of runs, and whether their place says what they are."""
    for path in sorted(path for path in folder.glob("**/*/*/*/*") if path.is_dir() and path.name.isdigit()):
        yield path, True
    for path in sorted([folder, *folder.glob("[!.]*")]):
        if (path / FACTS).is_file():
            yield path, False


def one_per_seed(read: Mapping[str, RecordedRun], left_out: list[str]) -> list[RecordedRun]:
    """One run for each name and seed, one that has ended if there is one; sorted by name."""
    runs: dict[GroupName, dict[int, RecordedRun]] = {}
    for where, run in sorted(read.items(), key=lambda item: not item[1].has_ended):
        together = runs.setdefault(run.name, {})
        if run.seed in together:
            left_out.append(f"{where} is a second run of {run.name}, seed {run.seed}: only one counts")
            continue
        together[run.seed] = run
        if not run.has_ended:
            left_out.append(f"{where} is incomplete: evaluated up to step {last_step(run.evaluation)} of {run.budget}")
    return [run for _, together in sorted(runs.items()) for run in together.values()]


def told_apart(runs: Mapping[str, RecordedRun]) -> dict[str, RecordedRun]:
    """The same runs, where those that are named by their files alone are named by changed settings too."""
    return {
        where: run if run.is_placed else replace(run, name=distinct_name(run, list(runs.values())))
        for where, run in runs.items()
    }


def distinct_name(run: RecordedRun, runs: Sequence[RecordedRun]) -> GroupName:
    """Its name, with settings that are not the preset's where runs of its task and preset differ in them."""
    env_id, (preset, method) = run.name
    alike = [other for other in runs if (other.name.env_id, other.name.contender.preset) == (env_id, preset)]
    is_agreed = all(other.preset_settings == run.preset_settings for other in alike)
    of_preset = run.preset_settings if is_agreed else {}
    changed = {
        key: value
        for key, value in run.settings.items()
        if any(other.settings.get(key, value) != value for other in alike) and value != of_preset.get(key)
    }
    label = CHANGED.join([preset, *(f"{key}={shown(value)}" for key, value in changed.items())])
    return GroupName(env_id, Contender(label, method))


def grouped(runs: Sequence[RecordedRun], left_out: list[str]) -> dict[GroupName, SeedGroup]:
    """Group runs by name, sorted by seed; those with fewer steps than others of their group are left out."""
    groups: dict[GroupName, SeedGroup] = {}
    for name in dict.fromkeys(run.name for run in runs):
        members = sorted((run for run in runs if run.name == name), key=lambda run: run.seed)
        budget = max(run.budget for run in members)
        shorter = [run for run in members if run.budget < budget]
        left_out += [f"{name}/{run.seed} is shorter: {run.budget} of {budget} steps" for run in shorter]
        groups[name] = SeedGroup(name, [run for run in members if run.budget == budget])
    return groups

"""The lines at the top of the page: what was run, what it reached, whether geometry helped."""

from geonpg.scripts.branches.analysis import ALL, PRIMARY, REFERENCE, BranchStudy, judged, places
from geonpg.scripts.common.intervals import COUNT, SEEDS, student, with_interval
from geonpg.scripts.reports.comparisons import iqm, over_reference, scored
from geonpg.scripts.reports.study import Study
from geonpg.scripts.reports.words import counted, steps_range

MOST_RESULTS = 4  # in a line


def summary(study: Study, branched: BranchStudy) -> dict[str, str]:
    """A line for each question, by its title."""
    return {"Runs": runs_line(study), "Results": results_line(study), "Geometry": geometry_line(study, branched)}


def runs_line(study: Study) -> str:
    """Count what was run, and what of it is not in the tables."""
    sentences = [finished_sentence(study)]
    beside = [group for name, group in study.groups.items() if name not in study.main]
    longer = sum(group.seeds for group in beside if group.is_long)
    if ablations := sum(group.seeds for group in beside) - longer:
        sentences.append(f"{counted('ablation run', ablations)}.")
    if longer:
        sentences.append(f"{counted('longer run', longer)}.")
    if study.unfinished:
        sentences.append(f"{counted('unfinished run', len(study.unfinished))}, drawn in thin lines.")
    if others := len(study.left_out) - len(study.unfinished):
        sentences.append(f"{counted('run', others)} left out, listed below.")
    return " ".join(sentences)


def finished_sentence(study: Study) -> str:
    """Count finished runs by method, task and seed."""
    groups = study.main.values()
    if not groups:
        return "No run has ended yet."
    methods, tasks = {group.name.contender for group in groups}, {group.name.env_id for group in groups}
    runs, seeds = counted("finished run", sum(group.seeds for group in groups)), [group.seeds for group in groups]
    what = f"{counted('method', len(methods))} on {counted('task', len(tasks))}, {counted('seed', *seeds)} each"
    return f"{runs}: {what}, {steps_range(group.budget for group in groups)} steps."


def results_line(study: Study) -> str:
    """Normalised scores over several tasks, the best first; without them, the best return on each task."""
    levels = {
        contender: iqm(groups, [group.finals for group in groups], COUNT)
        for contender in study.contenders
        if len(groups := scored(study, contender)) > 1
    }
    if levels:
        best = sorted(levels, key=lambda contender: -float(levels[contender].value))[:MOST_RESULTS]
        shown = ", ".join(f"{contender} {with_interval(levels[contender])}" for contender in best)
        return f"normalised score {shown}; 0 is a random policy, 1 the paper's ACKTR after 1 M steps."
    found = []
    for env_id in study.env_ids[:MOST_RESULTS]:
        if groups := [group for name, group in study.main.items() if name.env_id == env_id]:
            group = max(groups, key=lambda group: float(group.finals.mean()))
            found.append(f"{group.name.contender} {with_interval(student(group.finals))} on {env_id}")
    return f"return of the last evaluation: {', '.join(found)}." if found else "the curves show how far the runs are."


def geometry_line(study: Study, branched: BranchStudy) -> str:
    """What whole runs and branches say about methods other than `ng`."""
    found = [
        f"{each.contender} beats {REFERENCE} with probability {with_interval(each.improvement())}, {each.verdict()}"
        for each in over_reference(study)[:MOST_RESULTS]
    ]
    if branched:
        place = places(branched)[0]
        estimate, verdict = judged(branched, "geo", PRIMARY, place)
        what = "the normalised return" if place == ALL else f"the return on {place}"
        found.append(f"from the same checkpoints geo changes {what} by {with_interval(estimate)}, {verdict}")
    nothing = f"no verdict without {SEEDS.least} seeds of {REFERENCE} and of another method."
    return f"{'; '.join(found)}." if found else nothing

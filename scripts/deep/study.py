"""What `geonpg deepnets` does with its arguments: train each method in turn, write tables and figures of all."""

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from geonpg.errors import Refused, choose
from geonpg.scripts.common.artifacts import RUNS, Table, markdown, write_tables
from geonpg.scripts.common.locks import locked
from geonpg.scripts.common.pin import pin
from geonpg.scripts.common.stopping import INTERRUPTED
from geonpg.scripts.common.style import write_figure
from geonpg.scripts.deep.data import DataError
from geonpg.scripts.deep.figures import RowsByMethod, course_table, figures_of, levels_table, paper_table, summary_table
from geonpg.scripts.deep.methods import DEEP_METHODS
from geonpg.scripts.deep.runs import SETTINGS, DeepRun, csv_path, read_rows, restore_run, train_run
from geonpg.scripts.deep.tasks import DEEP_TASKS, DeepTask, Experiment, Size, make_experiment

COURSE = (1, 5, 10, 20, 30, 40, 60, 100, 140)


def chosen_size(arguments: Namespace, task: DeepTask) -> Size:
    """Return the size that was asked for, with the counts that were given instead of its own."""
    size: Size = task.sizes[arguments.size]
    asked = {"train": arguments.cases, "test": arguments.test_cases, "updates": arguments.updates}
    size = replace(size, **{name: value for name, value in asked.items() if value is not None})
    if size.train < task.chunks:
        raise DataError(f"--cases must be at least {task.chunks}, not {size.train}")
    return size


def chosen_threads(arguments: Namespace) -> int:
    """Return torch's number of threads: one for the small size, which gains little from more, so that bits agree."""
    usual = 1 if arguments.size == "small" else torch.get_num_threads()
    return usual if arguments.threads is None else int(arguments.threads)


def chosen_data(arguments: Namespace, task: DeepTask) -> Path | None:
    """Return the folder to read from; None where images are drawn."""
    folder: Path | None = arguments.data if task.files else None
    if folder is None and task.files and arguments.size == "full":
        raise DataError(f"--size full of {arguments.task} needs --data DIR, a folder that holds {task.files}")
    if folder is not None and not folder.is_dir():
        raise DataError(f"--data {str(folder)!r} is not a folder: it must hold {task.files}")
    return folder


def title_of(arguments: Namespace, size: Size, drawn: bool) -> str:
    """Say what is trained: the title of tables and figures, which all runs of a folder share."""
    widths = "-".join(map(str, size.widths))
    stand_in = ", drawn stand-in data" if drawn and arguments.task != "curves" else ""
    return f"{arguments.task} {widths}, {size.train} cases{stand_in}, seed {arguments.seed}"


def train_all(arguments: Namespace, size: Size, experiment: Experiment, out: Path) -> bool:
    """Train each method in turn; return False if interrupted."""
    form = "{desc} {percentage:3.0f}% |{bar}| {n_fmt}/{total_fmt}, {elapsed}, {remaining} left{postfix}"
    for name in dict.fromkeys(arguments.method):
        run = DeepRun(name, DEEP_METHODS[name](experiment, arguments.seed))
        restore_run(run, out, size.updates)
        with tqdm(total=size.updates, initial=len(run.rows), desc=f"{name:9}", bar_format=form, smoothing=0.3) as bar:

            def tick(run: DeepRun, bar: Any = bar) -> None:
                bar.set_postfix_str(f"error {run.rows[-1]['train_error']:.4g}", refresh=False)
                bar.update()

            if not train_run(run, experiment, size.updates, out, tick):
                return False
    return True


def known_runs(out: Path) -> RowsByMethod:
    """Read every run whose table is in the folder, in the order of DEEP_METHODS."""
    runs = {name: read_rows(csv_path(out, name)) for name in DEEP_METHODS if csv_path(out, name).exists()}
    return {name: rows for name, rows in runs.items() if rows}


def write_report(runs: RowsByMethod, title: str, task: DeepTask, paper: bool, out: Path) -> list[Table]:
    """Write tables and figures of all runs in the folder; return the tables."""
    longest = max(len(rows) for rows in runs.values())
    course = course_table(runs, [update for update in COURSE if update <= longest])
    tables = [summary_table(runs, title, task.unit), course, levels_table(runs)]
    tables += [paper_table(runs)] if paper else []
    write_tables(tables, out / "tables.md", title)
    for name, figure in figures_of(runs, title, task.unit, paper).items():
        write_figure(figure, out / name)
    return tables


def study_deepnets(arguments: Namespace) -> int:
    """Train what the arguments name and report on all that is there; return the command's exit code."""
    task = choose("task", arguments.task, DEEP_TASKS)
    for name in arguments.method:
        choose("method", name, DEEP_METHODS)
    out = arguments.out or RUNS / "deepnets" / f"{arguments.task}-{arguments.size}"
    try:
        size, folder = chosen_size(arguments, task), chosen_data(arguments, task)
        torch.set_num_threads(chosen_threads(arguments))
        out.mkdir(parents=True, exist_ok=True)
        title = title_of(arguments, size, folder is None)
        with locked(out):
            experiment = make_experiment(task, size, folder, arguments.seed)
            pin(out / SETTINGS, {"title": title, "test": size.test}, "choose another --out")
            finished = train_all(arguments, size, experiment, out)
            as_paper = arguments.task == "mnist" and arguments.size == "full"
            tables = write_report(known_runs(out), title, task, as_paper, out)
    except OSError as error:
        raise Refused(f"cannot write to the folder {str(out)!r}: {error.strerror}") from None
    print(markdown(tables))
    print(f"\nwritten to {out}: tables.md, figures and one CSV per method")
    if not finished:
        print("interrupted: the same command continues", file=sys.stderr)
        return INTERRUPTED
    return 0

"""What `geonpg report` makes: tables, verdicts and figures of a folder of runs, and the page that holds them."""

import json
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path

from matplotlib.figure import Figure

from geonpg.errors import require
from geonpg.files import write_text
from geonpg.scripts.branches import analysis as branches
from geonpg.scripts.common.artifacts import Table, markdown
from geonpg.scripts.common.style import KINDS, write_figure
from geonpg.scripts.reports import figures
from geonpg.scripts.reports.comparisons import over_baseline
from geonpg.scripts.reports.page import page
from geonpg.scripts.reports.sections import curves, sections, summary
from geonpg.scripts.reports.study import Study, read_study
from geonpg.scripts.reports.tables import kept_shares, tables

TITLE = "geonpg: sample efficiency"


def aggregates(study: Study) -> dict[str, Figure]:
    """By the table that each belongs to."""
    found = {"verdicts": figures.improvement_figure(study, over_baseline(study)), "iqm": figures.iqm_figure(study)}
    return {name: figure for name, figure in found.items() if figure}


def numbers(study: Study) -> dict[str, float]:
    """One flat object for programs."""
    found: dict[str, float] = {}
    for name, group in study.groups.items():
        found |= {f"final/{name}": float(group.finals.mean()), f"seeds/{name}": group.seeds}
    found |= {f"kept/{name}": float(shares.min()) for name, shares in kept_shares(study).items()}
    for each in over_baseline(study):
        estimate, key = each.improvement(), f"improvement/{each.kind}_over_{each.other.method}"
        found |= {key: float(estimate.value), f"{key}/low": float(estimate.low), f"{key}/high": float(estimate.high)}
    return found


def write(study: Study, found: Sequence[Table], branched: branches.Study, out: Path) -> list[Path]:
    """The page and its figures; returns what was written."""
    (out / "figures").mkdir(parents=True, exist_ok=True)
    drawn, many, style = aggregates(study), curves(study), figures.styles(study)
    written = [out / "report.html"]
    write_text(written[0], page(TITLE, summary(study, branched), sections(study, found, drawn, many, branched)))
    together = {
        f"{c.measure}-{c.where}": figures.combined(c.panels, style, figures.legend_labels(study, c.kinds)) for c in many
    }
    for name, figure in {**drawn, **together}.items():
        for kind in KINDS:
            written.append(out / "figures" / f"{name}.{kind}")
            write_figure(figure, written[-1])
    return written


def report(arguments: Namespace) -> None:
    """Write the page and its figures, and print the tables."""
    study = read_study(arguments.folder)
    for sentence in study.left_out:
        print(f"left out: {sentence}", file=sys.stderr)
    nothing = f"{arguments.folder} holds no run with a curve, at <name>/ or <task>/<preset>/<method>/<seed>/"
    require(bool(study.groups or study.unfinished), nothing)
    found, branched = tables(study), branches.read_study(arguments.folder / "branch")
    written = write(study, found, branched, arguments.out)
    if arguments.json:
        print(json.dumps(numbers(study) | branches.flat(branched)))
    else:
        print(markdown([*found, *(branches.tables(branched) if branched else ())]))
        print("\nwritten:", *(f"  {path}" for path in written), sep="\n")

"""What `geonpg report` makes: tables, verdicts and figures of a folder of runs, and the page that holds them."""

import json
import sys
from argparse import Namespace
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from matplotlib.figure import Figure

from geonpg.errors import Refused, require
from geonpg.files import write_text
from geonpg.scripts.branches.analysis import BranchStudy, branch_numbers, branch_tables, read_branches
from geonpg.scripts.common.artifacts import Table, markdown
from geonpg.scripts.common.style import FORMATS, write_figure
from geonpg.scripts.maps.analysis import MapStudy, map_numbers, map_tables, read_map
from geonpg.scripts.races.analysis import NO_RACES, RaceStudy, race_numbers, race_tables, read_races
from geonpg.scripts.races.figures import race_figure
from geonpg.scripts.reports.comparisons import over_reference
from geonpg.scripts.reports.curves import CurveFigure, curve_figures
from geonpg.scripts.reports.few_updates import large_numbers
from geonpg.scripts.reports.figures import combined, improvement_figure, iqm_figure
from geonpg.scripts.reports.headline import headline_figure
from geonpg.scripts.reports.page import page_html
from geonpg.scripts.reports.paper import FOLDER, paper_figure, paper_numbers, paper_tables, tasks_of
from geonpg.scripts.reports.reading import read_study
from geonpg.scripts.reports.sections import sections
from geonpg.scripts.reports.study import Study
from geonpg.scripts.reports.summary import summary
from geonpg.scripts.reports.tables import kept_shares, report_tables

TITLE = "geonpg: sample efficiency"


@dataclass(frozen=True)
class Report:
    """Everything that is made of a study, and of the branches, the map, the races and the paper's figure beside it."""

    study: Study
    branched: BranchStudy
    mapped: MapStudy
    raced: RaceStudy
    paper: Study

    @cached_property
    def tables(self) -> list[Table]:
        """Tables of the runs."""
        return report_tables(self.study)

    @cached_property
    def aggregates(self) -> dict[str, Figure]:
        """Figures over all tasks, by the name of the table that each belongs to."""
        verdicts = improvement_figure(self.study, over_reference(self.study))
        found = {"verdicts": verdicts, "iqm": iqm_figure(self.study)}
        return {name: figure for name, figure in found.items() if figure}

    @cached_property
    def curves(self) -> list[CurveFigure]:
        """What the figures over steps and time show."""
        return curve_figures(self.study)

    def page(self) -> str:
        """The page, with its figures inside."""
        beside = self.branched, self.mapped, self.raced, self.paper
        parts = sections(self.study, self.tables, self.aggregates, self.curves, *beside)
        return page_html(TITLE, summary(self.study, self.branched), parts)

    def figures(self) -> dict[str, Figure]:
        """The figures that are files too, by name."""
        races = {"race": race_figure(self.raced)} if self.raced else {}
        paper = {"paper": paper_figure(self.paper)} if tasks_of(self.paper) else {}
        curves = {f"{each.measure}-{each.which}": combined(each, self.study) for each in self.curves}
        headline = headline_figure(self.study, self.raced)
        return self.aggregates | curves | races | paper | ({"headline": headline} if headline else {})

    def markdown(self) -> str:
        """Every table, for the terminal."""
        branches = branch_tables(self.branched) if self.branched else ()
        maps = map_tables(self.mapped) if self.mapped else ()
        beside = [*paper_tables(self.paper), *branches, *maps, *race_tables(self.raced)]
        return markdown([*self.tables, *beside])

    def numbers(self) -> dict[str, float | str]:
        """One flat object for programs."""
        found: dict[str, float | str] = {}
        for name, group in self.study.groups.items():
            found |= {f"final/{name}": float(group.finals.mean()), f"seeds/{name}": group.seeds}
        found |= {f"kept/{name}": float(shares.min()) for name, shares in kept_shares(self.study).items()}
        for each in over_reference(self.study):
            found |= each.improvement().numbers(f"improvement/{each.contender}_over_{each.other.method}")
        beside = branch_numbers(self.branched) | map_numbers(self.mapped) | race_numbers(self.raced)
        return found | large_numbers(self.study) | beside | paper_numbers(self.paper)

    def write(self, out: Path) -> list[Path]:
        """Write the page and its figures; returns what was written."""
        (out / "figures").mkdir(parents=True, exist_ok=True)
        written = [out / "report.html"]
        write_text(written[0], self.page())
        for name, figure in self.figures().items():
            for kind in FORMATS:
                written.append(out / "figures" / f"{name}.{kind}")
                write_figure(figure, written[-1])
        return written


def read_report(folder: Path) -> Report:
    """Read the runs in a folder, and what lies in its `branch`, `large`, `race` and `paper`.

    Refused if there are neither runs nor races.
    """
    study = read_study(folder)
    for sentence in study.left_out:
        print(f"left out: {sentence}", file=sys.stderr)
    try:
        raced = read_races(folder / "race")
    except Refused as error:
        print(f"left out: all races: {error}", file=sys.stderr)
        raced = NO_RACES
    nothing = f"{folder} holds no run with a curve, at <name>/ or <task>/<preset>/<method>/<seed>/"
    require(bool(study.groups or study.unfinished or raced), nothing)
    branched, mapped = read_branches(folder / "branch"), read_map(folder / "large")
    return Report(study, branched, mapped, raced, read_study(folder / FOLDER))


def report(arguments: Namespace) -> None:
    """Write the page and its figures, and print the tables."""
    found = read_report(arguments.folder)
    written = found.write(arguments.out)
    if arguments.json:
        print(json.dumps(found.numbers()))
    else:
        print(found.markdown())
        print("\nwritten:", *(f"  {path}" for path in written), sep="\n")

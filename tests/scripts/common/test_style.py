"""Figures as files: written whole or not at all, the same bytes for the same data."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from geonpg.errors import Refused
from geonpg.scripts.common.style import FORMATS, plain, write_figure


def drawing() -> Figure:
    figure = Figure(layout="constrained")
    ax = figure.subplots()
    ax.plot([1, 2, 3], [2, 1, 3], label="a line")
    ax.set(title="A title")
    plain(ax)
    return figure


@pytest.mark.parametrize("kind", FORMATS)
def test_the_same_data_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    paths = [tmp_path / f"{name}.{kind}" for name in ("one", "two")]
    for path in paths:
        write_figure(drawing(), path)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert sorted(tmp_path.iterdir()) == paths  # nothing temporary is left


def test_text_stays_text_in_svg(tmp_path: Path) -> None:
    write_figure(drawing(), tmp_path / "figure.svg")
    assert "A title</text>" in (tmp_path / "figure.svg").read_text()


def test_an_unknown_format_is_refused_and_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "figure.gif"
    path.write_text("old")
    with pytest.raises(Refused, match=r"unknown format of figures .gif.: choose one of png, svg"):
        write_figure(drawing(), path)
    assert path.read_text() == "old"

"""How figures look and how they are written, whichever command draws them."""

from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.errors import known
from geonpg.files import replacing

T = TypeVar("T")

FORMATS = ("png", "svg")
DPI = 120
WIDTH = 9.6  # inches of a full-width figure: shown 800 pixels wide, as in a README, 10-point text is 12 pixels high

# Colours that stay apart for colour-blind readers (Okabe and Ito).
METHOD_STYLE: Mapping[str, dict[str, Any]] = {
    "ng": {"color": "#000000", "marker": "o"},
    "mid": {"color": "#0072B2", "marker": "s"},
    "geo": {"color": "#D55E00", "marker": "^"},
    "geof": {"color": "#009E73", "marker": "v"},
}
OTHER_COLOURS = ("#CC79A7", "#E69F00", "#56B4E9", "#999999")  # for what is drawn beside the methods
GREY = "#888888"  # for levels and zero lines


def cycled(choices: Sequence[T], i: int) -> T:
    """The choice of a number, from the beginning again after the last."""
    return choices[i % len(choices)]


def plain(ax: Axes) -> None:
    """Leave two spines, a faint grid and no background, so that the figure's own or the page's shows."""
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)


def encoded(figure: Figure, kind: str, facecolor: str = "white") -> bytes:
    """Encode as svg or png: text stays text, and without dates and versions the same data give the same bytes."""
    known("format of figures", kind, FORMATS)
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type")) if kind == "svg" else {"Software": None}
    file = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "geonpg", "svg.fonttype": "none"}):
        figure.savefig(file, format=kind, dpi=DPI, facecolor=facecolor, metadata=metadata)
    return file.getvalue()


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name ends with, whole or not at all."""
    data = encoded(figure, path.suffix[1:])
    with replacing(path) as temporary:
        temporary.write_bytes(data)

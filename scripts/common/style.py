"""How figures look, whichever command draws them."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from geonpg.errors import known
from geonpg.files import replacing

KINDS = ("png", "svg")  # of files that figures are written to
DPI = 120

# Colours that stay apart for colour-blind readers (Okabe and Ito).
METHOD_STYLE: Mapping[str, dict[str, Any]] = {
    "ng": {"color": "#000000", "marker": "o"},
    "mid": {"color": "#0072B2", "marker": "s"},
    "geo": {"color": "#D55E00", "marker": "^"},
    "geof": {"color": "#009E73", "marker": "v"},
}


def plain(ax: Axes) -> None:
    """Two spines, a faint grid, and no background: that of the figure, or of the page around it, shows."""
    ax.set_facecolor("none")
    ax.spines[["top", "right"]].set_visible(False)
    ax.grid(alpha=0.25, linewidth=0.6)


def encoded(figure: Figure, kind: str, facecolor: str = "white") -> bytes:
    """Encode as svg or png: text stays text, and without dates and versions the same data give the same bytes."""
    known("format of figures", kind, KINDS)
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

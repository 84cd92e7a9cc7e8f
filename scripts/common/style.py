"""How figures look, whichever command draws them."""

from collections.abc import Mapping
from io import BytesIO
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

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
    """As svg or png: text stays text, and without dates and versions the same data give the same bytes."""
    metadata = dict.fromkeys(("Date", "Creator", "Format", "Type")) if kind == "svg" else {"Software": None}
    file = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "geonpg", "svg.fonttype": "none"}):
        figure.savefig(file, format=kind, dpi=120, facecolor=facecolor, metadata=metadata)
    return file.getvalue()

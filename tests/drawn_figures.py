"""Checks of figures as they are shown: in a README, 800 pixels wide."""

from itertools import pairwise

from matplotlib.figure import Figure
from matplotlib.text import Text

from geonpg.scripts.common.style import encoded

README_WIDTH = 800  # pixels


def laid_out(figure: Figure) -> Figure:
    """The figure, with everything in its place."""
    encoded(figure, "png")
    return figure


def least_text_height(figure: Figure) -> float:
    """Pixels of the smallest text at the width of a README."""
    texts = [text for text in figure.findobj(Text) if isinstance(text, Text) and text.get_text().strip()]
    return min(text.get_fontsize() for text in texts) * README_WIDTH / figure.get_figwidth() / 72


def has_overlapping_ticks(figure: Figure) -> bool:
    """Whether two numbers along an axis run into each other."""
    for ax in (ax for ax in figure.axes if ax.axison):
        boxes = [label.get_window_extent() for label in ax.get_xticklabels() if label.get_text()]
        if any(left.x1 >= right.x0 for left, right in pairwise(boxes)):
            return True
    return False

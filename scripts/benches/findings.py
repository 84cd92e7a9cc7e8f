"""What a benchmark is: a module of this room whose function `measure` returns its findings.

`geonpg bench NAME` imports the module of that name ("_" for "-"), calls `measure` with the counts that its command line
takes, and prints the findings: their table, or with `--json` their numbers under flat names.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Numbers: TypeAlias = Mapping[str, "float | Numbers"]


class Findings(ABC):
    """What a benchmark measured: a frozen dataclass of measurements, from which tables and ratios are computed."""

    @abstractmethod
    def numbers(self) -> Numbers:
        """Return every number under nested names; joined by "/", they are the keys of `--json`."""

    @abstractmethod
    def table(self) -> str:
        """Return the text that people read."""

    @property
    def failed(self) -> bool:
        """Whether the benchmark found a fault, for which the command's exit code is 1."""
        return False


class DrawnFindings(Findings):
    """Findings that `--figure` can draw."""

    @abstractmethod
    def figure(self) -> "Figure":
        """Draw the numbers."""


def flat(numbers: Numbers, prefix: str = "") -> dict[str, float]:
    """Join nested names by "/"."""
    found: dict[str, float] = {}
    for name, value in numbers.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{name}/")
        else:
            found[prefix + name] = float(value)
    return found

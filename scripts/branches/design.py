"""What `geonpg branch` runs, in numbers."""

import json
from dataclasses import dataclass
from pathlib import Path

from geonpg.errors import Refused

DESIGN = "design.json"  # in the folder of results
BRANCH_TASKS = "HalfCheetah-v4,Hopper-v4,Walker2d-v4"


@dataclass(frozen=True)
class Design:
    """What is run; changing it means another study."""

    preset: str = "default"
    trunks: int = 5  # seeds
    first_seed: int = 1000  # far from those of learning curves and of tuning
    checkpoints: int = 10  # of each trunk
    every: int = 50_000  # steps between them
    updates: int = 10  # of each branch
    episodes: int = 10  # deterministic, after a branch
    held_out: int = 8  # rollouts

    @property
    def seeds(self) -> range:
        """Seeds of the trunks."""
        return range(self.first_seed, self.first_seed + self.trunks)


def design_of(folder: Path) -> Design:
    """Read the design of a folder of results; Refused if the file is damaged."""
    path = folder / DESIGN
    try:
        return Design(**json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise Refused(f"{path} is no design of geonpg branch: {error}") from None

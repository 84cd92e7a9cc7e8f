"""One trunk of a map: a training run, and at its checkpoints one update by every variant from every batch.

Rows go into <task>/<seed>.csv as they come; the trunk's state stays beside them until it has ended.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from geonpg.agents.checkpoint import read
from geonpg.agents.outputs import Networks
from geonpg.agents.state import set_state
from geonpg.agents.stepping import Stepper
from geonpg.configs import Settings, load
from geonpg.scripts.branches.rows import rows_path
from geonpg.scripts.branches.trunk import as_process_of_its_own, train_trunk
from geonpg.scripts.maps.grid import Grid, Variant, read_grid
from geonpg.scripts.maps.recorded import MOST_RATIO, Recorded, first_rows, record
from geonpg.scripts.maps.rows import Row, read_rows, write_rows
from geonpg.scripts.maps.updates import Updater
from geonpg.scripts.runs.building import make_agent, make_env
from geonpg.scripts.runs.process import prepare

GRID = "grid.toml"  # in the folder of results


def settings_of(grid: Grid, env_id: str) -> Settings:
    """The settings of a task's trunks."""
    return load(grid.preset, env_id, {**grid.trunk, "env_threads": 1, "torch_threads": 1})


class Checkpoint:
    """A policy with what was recorded of it: steps for updates, and others to judge them on.

    number: updates of the trunk.
    stepper: the trunk's.
    seed: of the random numbers of what is recorded.
    """

    def __init__(self, grid: Grid, stepper: Stepper, number: int, seed: int) -> None:
        self.grid, self.number, self.agent = grid, number, stepper.agent
        self.networks: Networks = stepper.agent.networks
        self.steps = record(stepper, max(grid.batches), seed)
        self.unseen = record(stepper, grid.held_out, seed + 500)
        with torch.no_grad():
            self.before = self.networks.actor(self.unseen.inputs)

    def rows(self, name: str, variant: Variant, batch: int) -> list[Row]:
        """Make the updates of a variant from a batch, and measure them."""
        part = self.steps.part(first_rows(batch, self.agent.n_envs, self.agent.n_steps))
        updater = Updater(self.networks, part, self.grid.every(batch))
        dampings = variant.damping[self.grid.batches.index(batch)]
        return [
            Row(checkpoint=self.number, batch=batch, variant=name, **asdict(made), **self.measured(part))
            for made in updater.made(variant, dict(zip(self.grid.kls, dampings, strict=True)))
        ]

    @torch.no_grad()
    def measured(self, part: Recorded) -> dict[str, Any]:
        """What the policy as it stands is worth, by the names of a row's columns."""
        networks, family = self.networks, self.networks.family
        now = networks.actor(self.unseen.inputs)
        return {
            "held_out": self.unseen.gain_of(family, now, MOST_RATIO),
            "own": part.gain(networks),
            "unseen_kl": float(family.kl(self.before, now).mean()),
            "entropy": float((family.entropy(now) - family.entropy(self.before)).mean()),
        }


def grow(folder: Path, env_id: str, seed: int, stop: Callable[[], bool]) -> bool:
    """Train a trunk and make all updates at its checkpoints, from where it was left; False if stopped."""
    grid, path = read_grid(folder / GRID), rows_path(folder, env_id, seed)
    path.parent.mkdir(exist_ok=True)
    kept, rows, settings = path.with_suffix(".state"), read_rows(path), settings_of(grid, env_id)
    done = {(row.checkpoint, row.batch, row.variant) for row in rows}
    prepare(settings)
    agent = make_agent(settings, make_env(settings, env_id, settings.n_envs, seed), seed)
    stepper = Stepper(agent, settings.steps)
    for number in grid.checkpoints:
        todo = [(b, v) for b in grid.batches for v in grid.variants if (number, b, v) not in done]
        if not todo:
            continue
        train_trunk(stepper, number * agent.n_envs * agent.n_steps, kept, stop)
        if stop():
            return False
        set_state(agent, read(kept))
        checkpoint = Checkpoint(grid, stepper, number, 1000 * seed + number)
        for batch, name in todo:
            rows += checkpoint.rows(name, grid.variants[name], batch)
            write_rows(path, rows)
            if stop():
                return False
    kept.unlink(missing_ok=True)
    return True


def main(argv: Sequence[str] | None = None) -> int:
    """Grow one trunk in a process of its own."""
    return as_process_of_its_own(grow, argv)


if __name__ == "__main__":
    sys.exit(main())

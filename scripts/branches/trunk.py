"""One trunk of `geonpg branch`: a training run, and from its checkpoints every rule for a few updates.

The same random numbers for every rule. Rows go into ENV/SEED.csv as they come; the trunk's state lies beside them until
it has ended.
"""

import csv
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from geonpg.agents import ACKTR
from geonpg.agents.checkpoint import read, write
from geonpg.agents.state import get_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.configs import Settings, load
from geonpg.errors import Refused
from geonpg.files import write_text
from geonpg.scripts.branches.design import Design, design_of
from geonpg.scripts.branches.held_out import HeldOut, held_out
from geonpg.scripts.common.artifacts import Table
from geonpg.scripts.common.parser import Parser, count
from geonpg.scripts.common.stopping import listening
from geonpg.scripts.runs.building import make_agent, make_env, normalization_of
from geonpg.scripts.runs.evaluation import evaluate_policy
from geonpg.scripts.runs.process import prepare

TRUNK = "ng"  # the rule that all checkpoints come from
RULES: Mapping[str, Mapping[str, Any]] = {
    "ng": {"method": "ng"},
    "mid": {"method": "mid"},
    "geo": {"method": "geo"},
    "geof": {"method": "geof"},
    "geo-published": {"method": "geo", "calibrate": False},
}
SAVE_SECONDS = 5.0


@dataclass(frozen=True)
class Branch:
    """What one rule made of one checkpoint."""

    steps: int
    rule: str
    score: float  # mean return of deterministic episodes after the last update
    surrogate: float  # held out, of all updates together
    first_surrogate: float  # of the first one
    kl_ratio: float  # actual over predicted, mean over updates
    kl_miss: float  # its distance from 1, mean over updates
    entropy: float  # change


COLUMNS = tuple(field.name for field in fields(Branch))


def rows_path(folder: Path, env_id: str, seed: int) -> Path:
    return folder / env_id / f"{seed}.csv"


def read_rows(path: Path) -> list[Branch]:
    """Of a trunk; none before its first branch has ended."""
    if not path.exists():
        return []
    numbers = COLUMNS[2:]
    found = csv.DictReader(path.read_text(encoding="utf-8").splitlines())
    try:
        return [Branch(int(row["steps"]), row["rule"], **{name: float(row[name]) for name in numbers}) for row in found]
    except (KeyError, TypeError, ValueError) as error:
        raise Refused(f"{path} is no table of branches: {error!r}") from None


def write_rows(path: Path, rows: Sequence[Branch]) -> None:
    write_text(path, Table(path.stem, path.stem, COLUMNS, [list(asdict(row).values()) for row in rows]).csv())


class Bench:
    """An agent per rule, each with its own environments, to be set to any state of the trunk."""

    def __init__(self, design: Design, env_id: str, seed: int) -> None:
        self.design, self.env_id, self.seed = design, env_id, seed
        self.settings: dict[str, Settings] = {
            rule: load(design.preset, env_id, {**chosen, "env_threads": 1}) for rule, chosen in RULES.items()
        }
        prepare(self.settings[TRUNK])
        self.agents: dict[str, ACKTR] = {rule: self.agent(rule) for rule in RULES}
        self.steppers = {rule: Stepper(agent, self.settings[rule].steps) for rule, agent in self.agents.items()}

    def agent(self, rule: str) -> ACKTR:
        settings = self.settings[rule]
        return make_agent(settings, make_env(settings, self.env_id, settings.n_envs, self.seed), self.seed)

    def seed_of(self, number: int) -> int:
        """Of the random numbers that a checkpoint's branches share beside the trunk's own."""
        return 1000 * self.seed + number

    def unseen(self, checkpoint: Path, number: int) -> HeldOut:
        """Data of the policy at a checkpoint that no branch will see."""
        set_state(self.agents[TRUNK], read(checkpoint))
        return held_out(self.steppers[TRUNK], self.design.held_out, self.seed_of(number))

    def branch(self, rule: str, checkpoint: Path, unseen: HeldOut, number: int) -> Branch:
        agent, ratios, gains = self.agents[rule], [], []
        set_state(agent, read(checkpoint))  # anew, since what is learnt may be changed in place
        steps, before = int(agent.num_timesteps), unseen.entropy(agent)
        for _ in range(self.design.updates):
            report = self.steppers[rule].step().report
            ratios.append(report.actual_kl / report.predicted_kl if report.predicted_kl > 0 else np.nan)
            gains.append(unseen.gain(agent))
        assert agent.env is not None
        like, episodes = normalization_of(agent.env), self.design.episodes
        returns, _ = evaluate_policy(agent, self.settings[rule], self.env_id, episodes, like, self.seed_of(number))
        return Branch(
            steps=steps,
            rule=rule,
            score=float(returns.mean()),
            surrogate=gains[-1],
            first_surrogate=gains[0],
            kl_ratio=float(np.nanmean(ratios)),
            kl_miss=float(np.nanmean(np.abs(np.array(ratios) - 1))),
            entropy=unseen.entropy(agent) - before,
        )


def grow(folder: Path, env_id: str, seed: int, stop: Callable[[], bool]) -> bool:
    """The trunk with all its branches, from where it was left; False if stopped."""
    design = design_of(folder)
    path = rows_path(folder, env_id, seed)
    path.parent.mkdir(exist_ok=True)
    kept, rows = path.with_suffix(".state"), read_rows(path)
    bench = Bench(design, env_id, seed)
    for number in range(1, design.checkpoints + 1):
        done = len(rows) - (number - 1) * len(RULES)
        if done >= len(RULES):
            continue
        train(bench, number * design.every, kept, stop)
        if stop():
            return False
        unseen = bench.unseen(kept, number)
        for rule in list(RULES)[done:]:
            rows.append(bench.branch(rule, kept, unseen, number))
            write_rows(path, rows)
            if stop():
                return False
    kept.unlink(missing_ok=True)
    return True


def train(bench: Bench, steps: int, kept: Path, stop: Callable[[], bool]) -> None:
    """Bring the trunk to so many steps, and its state into the file `kept`, also on the way and if stopped."""
    agent, saved = bench.agents[TRUNK], time.perf_counter()
    if kept.exists():
        set_state(agent, read(kept))
    while agent.num_timesteps < steps and not stop():
        bench.steppers[TRUNK].step()
        if time.perf_counter() - saved > SAVE_SECONDS:
            write(kept, get_state(agent))
            saved = time.perf_counter()
    write(kept, get_state(agent))


def parse(argv: Sequence[str] | None) -> Namespace:
    parser = Parser("geonpg.scripts.branches.trunk", description=__doc__)
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--seed", type=count, required=True)
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parse(argv)
    with listening() as signals:
        done = grow(arguments.results, arguments.env, arguments.seed, signals)
    return 0 if done else 128 + signals.received


if __name__ == "__main__":
    sys.exit(main())

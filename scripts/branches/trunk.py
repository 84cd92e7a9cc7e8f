"""One trunk of `geonpg branch`: a training run, and from its checkpoints a few updates by every rule.

All rules have the same random numbers. Rows go into <task>/<seed>.csv as they come; the trunk's state stays beside them
until it has ended.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from geonpg.agents import ACKTR
from geonpg.agents.checkpoint import read, write
from geonpg.agents.state import get_state, set_state
from geonpg.agents.stepping import Stepper
from geonpg.configs import Settings, load
from geonpg.scripts.branches.design import Design, design_of
from geonpg.scripts.branches.held_out import HeldOut, held_out
from geonpg.scripts.branches.rows import BRANCH_RULES, Branch, read_rows, rows_path, write_rows
from geonpg.scripts.common.parser import Parser, count
from geonpg.scripts.common.stopping import listening
from geonpg.scripts.common.timer import Timer
from geonpg.scripts.runs.building import make_agent, make_env, normalization_of
from geonpg.scripts.runs.evaluation import evaluate_policy
from geonpg.scripts.runs.process import prepare

TRUNK = "ng"  # the rule that all checkpoints come from
SAVE_SECONDS = 5.0


class RuleAgents:
    """An agent for each rule, with environments of its own; each can be set to any state of the trunk."""

    def __init__(self, design: Design, env_id: str, seed: int) -> None:
        self.design, self.env_id, self.seed = design, env_id, seed
        self.settings: dict[str, Settings] = {
            rule: load(design.preset, env_id, {**chosen, "env_threads": 1}) for rule, chosen in BRANCH_RULES.items()
        }
        prepare(self.settings[TRUNK])
        self.agents: dict[str, ACKTR] = {rule: self.agent(rule) for rule in BRANCH_RULES}
        self.steppers = {rule: Stepper(agent, self.settings[rule].steps) for rule, agent in self.agents.items()}

    def agent(self, rule: str) -> ACKTR:
        """Make the agent of a rule."""
        settings = self.settings[rule]
        return make_agent(settings, make_env(settings, self.env_id, settings.n_envs, self.seed), self.seed)

    def seed_of(self, number: int) -> int:
        """Seed of the random numbers that the branches of a checkpoint share, beside the trunk's own."""
        return 1000 * self.seed + number

    def unseen(self, checkpoint: Path, number: int) -> HeldOut:
        """Draw data from the policy at a checkpoint that no branch will learn from."""
        set_state(self.agents[TRUNK], read(checkpoint))
        return held_out(self.steppers[TRUNK], self.design.held_out, self.seed_of(number))

    def branch(self, rule: str, checkpoint: Path, unseen: HeldOut, number: int) -> Branch:
        """Make updates by a rule from a checkpoint, and measure them."""
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
    """Train a trunk and make all its branches, from where it was left; False if stopped."""
    design = design_of(folder)
    path = rows_path(folder, env_id, seed)
    path.parent.mkdir(exist_ok=True)
    kept, rows = path.with_suffix(".state"), read_rows(path)
    agents = RuleAgents(design, env_id, seed)
    for number in range(1, design.checkpoints + 1):
        done = len(rows) - (number - 1) * len(BRANCH_RULES)
        if done >= len(BRANCH_RULES):
            continue
        train_trunk(agents.steppers[TRUNK], number * design.every, kept, stop)
        if stop():
            return False
        unseen = agents.unseen(kept, number)
        for rule in list(BRANCH_RULES)[done:]:
            rows.append(agents.branch(rule, kept, unseen, number))
            write_rows(path, rows)
            if stop():
                return False
    kept.unlink(missing_ok=True)
    return True


def train_trunk(trunk: Stepper, steps: int, kept: Path, stop: Callable[[], bool]) -> None:
    """Train a trunk up to so many steps; its state goes into the file `kept`, now and then and at the end."""
    agent, saved = trunk.agent, Timer()
    if kept.exists():
        set_state(agent, read(kept))
    while agent.num_timesteps < steps and not stop():
        trunk.step()
        if saved.is_due(SAVE_SECONDS):
            write(kept, get_state(agent))
            saved.restart()
    write(kept, get_state(agent))


Grow = Callable[[Path, str, int, Callable[[], bool]], bool]


def as_process_of_its_own(grow: Grow, argv: Sequence[str] | None) -> int:
    """Grow one trunk by the arguments that `geonpg branch` gives to its process; returns the exit code."""
    parser = Parser("geonpg branch: one trunk")
    parser.add_argument("--results", type=Path, required=True)
    parser.add_argument("--env", required=True)
    parser.add_argument("--seed", type=count, required=True)
    arguments = parser.parse_args(argv)
    with listening() as signals:
        done = grow(arguments.results, arguments.env, arguments.seed, signals)
    return 0 if done else 128 + signals.received


def main(argv: Sequence[str] | None = None) -> int:
    """Grow one trunk in a process of its own."""
    return as_process_of_its_own(grow, argv)


if __name__ == "__main__":
    sys.exit(main())

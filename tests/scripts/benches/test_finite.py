"""Whatever the step size, only finite numbers reach the policy: `geonpg bench finite`, shorter."""

import math
from collections.abc import Callable

import pytest

from geonpg.agents import ACKTR
from geonpg.configs import METHODS
from geonpg.scripts.benches import finite as bench_finite
from geonpg.scripts.benches.findings import flat
from geonpg.scripts.benches.finite import ENV_IDS, RATES, WIDE, Case, cases, train_case
from geonpg.scripts.runs.building import normalization_of

STEPS = 4096


@pytest.mark.parametrize("target_kl", [None, WIDE], ids=["default", "wide"])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("env_id", ["Hopper-v4", "InvertedDoublePendulum-v4"])
def test_the_longest_steps_leave_everything_finite(env_id: str, method: str, target_kl: float | None) -> None:
    watch, agent = train_case(Case(env_id, method, max(RATES), target_kl), STEPS, n_steps=16)
    assert watch.wrong == ""
    assert watch.updates == agent.optimizer.steps == STEPS // (agent.n_envs * agent.n_steps)
    assert watch.largest_kl > 0.5 * agent.target_kl if target_kl is None else watch.largest_kl > 0.01


def test_in_a_wide_trust_region_the_learning_rate_limits_the_step() -> None:
    short, long = (train_case(Case("Hopper-v4", "geo", rate, WIDE), 1024)[0].largest_kl for rate in (0.003, 0.3))
    assert 0 < 100 * short < long


def spoil_actor(agent: ACKTR) -> None:
    agent.networks.actor_parameters[0].data[0] = math.nan


def spoil_critic(agent: ACKTR) -> None:
    agent.networks.critic_parameters[-1].data[0] = math.inf


def spoil_statistics(agent: ACKTR) -> None:
    assert agent.env is not None
    normalization = normalization_of(agent.env)
    assert normalization is not None
    normalization.return_moments.squares[0] = math.nan


def jump(agent: ACKTR) -> None:
    agent.networks.actor_parameters[-1].data += 1.0


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (spoil_actor, "mlp_extractor.policy_net.0.weight is not finite"),
        (spoil_critic, "value_net.bias is not finite"),
        (spoil_statistics, "the variance of returns is not finite"),
        (jump, "the policy moved by a KL of "),
    ],
)
def test_the_watch_sees_what_went_wrong(
    spoil: Callable[[ACKTR], None], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = ACKTR.train

    def train(agent: ACKTR) -> None:
        honest(agent)
        spoil(agent)

    monkeypatch.setattr(ACKTR, "train", train)
    watch = train_case(Case("InvertedPendulum-v4", "ng", 1.0), 1024)[0]
    assert said in watch.wrong


def test_the_bench_covers_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    todo = list(cases())
    assert {(case.env_id, case.method, case.learning_rate) for case in todo} == {
        (env_id, method, rate) for env_id in ENV_IDS for method in METHODS for rate in RATES
    }
    assert len(todo) == 96
    assert sum(case.target_kl == WIDE for case in todo) == 48
    monkeypatch.setattr(bench_finite, "STEPS", 1)
    monkeypatch.setattr(bench_finite, "cases", lambda: todo[:2])
    findings = bench_finite.measure()
    results = flat(findings.numbers())
    assert results["finite/runs"] == results["finite/updates"] == 2
    assert results["finite/violations"] == results["finite/rejected"] == 0
    assert "2 runs" in findings.table()

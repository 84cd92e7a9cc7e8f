"""`geonpg bench critic`, small and short."""

from dataclasses import replace

import pytest
import torch
from tqdm import tqdm

from geonpg.agents.batches import whole_batch
from geonpg.agents.stepping import Stepper
from geonpg.configs import load
from geonpg.scripts.benches import critic as bench_critic
from geonpg.scripts.benches.critic import CriticFindings, Fit, Fitter, Plan, Variant, error, walk
from geonpg.scripts.benches.findings import flat
from geonpg.scripts.runs.building import make_agent, make_env
from geonpg.scripts.runs.process import prepare

VARIANTS = {
    "preset": Variant(1, 0.03),
    "heavy": Variant(1, 100.0),
    "twice": Variant(2, 0.03),
    "LM geo": Variant(2, 0.03, bench_critic.MARQUARDT, "geo"),
}


@pytest.fixture
def stepper() -> Stepper:
    settings = load("default", "Reacher-v4")
    prepare(settings)
    return Stepper(make_agent(settings, make_env(settings, "Reacher-v4", settings.n_envs, 1), 1), 100_000)


def test_the_preset_s_variant_is_the_agent_s_own_critic(stepper: Stepper) -> None:
    stepper.step()
    agent = stepper.agent
    fitters = {name: Fitter(agent, variant) for name, variant in VARIANTS.items()}
    for _ in range(2):
        stepper.roll()
        batch = whole_batch(agent.networks, agent.rollout_buffer)
        for fitter in fitters.values():
            fitter.fit(batch, batch.returns, replace(agent.input_follower).due())
        stepper.update()
    ours = {name: torch.cat([p.flatten() for p in each.networks.critic_parameters]) for name, each in fitters.items()}
    trunk = torch.cat([p.flatten() for p in agent.networks.critic_parameters])
    assert torch.equal(ours["preset"], trunk)
    assert not torch.equal(ours["heavy"], trunk)


def test_a_run_that_is_looked_at_goes_on_as_it_would(stepper: Stepper) -> None:
    plan = Plan((1,), (0,), 2, VARIANTS)
    walk(stepper, plan, tqdm(disable=True))
    settings = load("default", "Reacher-v4")
    alone = Stepper(make_agent(settings, make_env(settings, "Reacher-v4", settings.n_envs, 1), 1), 100_000)
    for _ in range(3):
        alone.step()
    for ours, theirs in zip(stepper.agent.policy.parameters(), alone.agent.policy.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_error_is_one_for_the_mean_and_zero_for_the_truth() -> None:
    targets = torch.tensor([1.0, 2.0, 6.0])
    assert error(targets.unsqueeze(1), targets) == 0
    assert error(torch.full((3, 1), 3.0), targets) == pytest.approx(1)


def findings_of(errors: dict[str, list[float]]) -> CriticFindings:
    fits = {name: {"Reacher-v4": [Fit(x, x, x, 1.0, 0.03) for x in unseen]} for name, unseen in errors.items()}
    return CriticFindings({"default": Plan((1,), (0,), 2, VARIANTS)}, {"default": fits})


def test_ratios_are_paired() -> None:
    """A variant that is half as good everywhere has no spread, however much places differ."""
    findings = findings_of({"preset": [0.1, 0.5, 0.02], "heavy": [0.2, 1.0, 0.04]})
    ratio = findings.ratio("default", "heavy", "preset", "unseen")
    assert [float(x) for x in (ratio.low, ratio.value, ratio.high)] == pytest.approx([2, 2, 2])
    assert findings.mean("default", "preset", "own") == pytest.approx(0.1)


def test_the_rival_is_the_best_constant_damping_that_costs_no_more() -> None:
    findings = findings_of({"preset": [0.3, 0.3], "heavy": [0.2, 0.2], "twice": [0.1, 0.1], "LM geo": [0.01, 0.01]})
    assert findings.rival("default", "LM geo") == "twice"
    assert findings.rival("default", "preset") == "heavy"


def test_every_variant_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_critic, "ENV_IDS", ("Reacher-v4",))
    monkeypatch.setattr(bench_critic, "PLANS", {"default": Plan((1, 2), (1, 5), 2, VARIANTS)})
    findings = bench_critic.measure()
    results = flat(findings.numbers())
    assert {len(fits["Reacher-v4"]) for fits in findings.fits["default"].values()} == {4}
    assert results["critic/default/heavy/unseen/Reacher-v4"] == results["critic/default/heavy/unseen/ratio"]
    assert results["critic/default/preset/unseen/ratio"] == 1
    assert results["critic/default/heavy/own/ratio/low"] > 1  # it hardly learns
    assert results["critic/default/heavy/unseen/rival"] > 1
    assert results["critic/default/LM-geo/own/ratio/high"] < 1  # and this one does, more than is good for it
    assert results["critic/default/LM-geo/damping"] < 0.03 == pytest.approx(results["critic/default/preset/damping"])
    assert len(findings.table().splitlines()) == 2 + 2 + len(VARIANTS)

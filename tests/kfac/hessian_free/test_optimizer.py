"""How a Hessian-free update behaves: what it accepts, how its damping follows, what it reports and saves."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from small_flows import autoencoder, problem

from geonpg.kfac import RULES, Bernoulli, HessianFree, HessianFreeSettings, LineSearch, Problem

FINITE = [name for name, rule in RULES.items() if math.isfinite(rule.order)]


def run(p: Problem, rule: str, updates: int, **settings: Any) -> tuple[HessianFree, list[Any]]:
    optimizer = HessianFree(p, p.layout.read(), rule, HessianFreeSettings(**{"damping": 1.0, **settings}))
    return optimizer, [optimizer.step() for _ in range(updates)]


@pytest.mark.parametrize("damp", ["identity", "diagonal"])
@pytest.mark.parametrize("rule", FINITE)
def test_every_rule_trains(rule: str, damp: str) -> None:
    p = autoencoder()
    start = p.evaluate(p.layout.read())
    optimizer, reports = run(p, rule, 15, damp=damp)
    losses = [report.loss for report in reports]
    assert losses == sorted(losses, reverse=True), "the line search accepts only what lowers the loss"
    assert reports[-1].error < 0.5 * start.error
    assert reports[-1].loss == p.evaluate(optimizer.y).loss


def test_levenberg_marquardt_follows_the_ratio() -> None:
    _, reports = run(autoencoder(), "ng", 25, damping=0.01)
    factors = [b.damping / a.damping for a, b in pairwise(reports)]
    expected = [2 / 3 if r.ratio > 0.75 else 1 if r.ratio >= 0.25 else 3 / 2 for r in reports[:-1]]
    assert factors == pytest.approx(expected)
    assert len(set(expected)) > 1


@pytest.mark.parametrize("rule", FINITE)
def test_above_the_threshold_every_rule_is_ng(rule: str) -> None:
    plain, reports = run(autoencoder(), "ng", 3, damping=5.0, threshold=3.0, guard=False)
    ours, ours_reports = run(autoencoder(), rule, 3, damping=5.0, threshold=3.0, guard=False)
    off = next(k for k, report in enumerate(reports) if report.damping < 3.0)
    assert off >= 1
    assert [r.loss for r in ours_reports[:off]] == [r.loss for r in reports[:off]]
    assert torch.equal(plain.y, ours.y) == (rule == "ng")


@pytest.mark.parametrize("rule", FINITE)
def test_a_report_says_whether_the_step_was_corrected(rule: str) -> None:
    """Never for `ng`, above the threshold or where no step was taken; else where the correction was not dropped."""
    _, reports = run(autoencoder(), rule, 6, damping=1.0, threshold=0.7)
    _, unguarded = run(autoencoder(), rule, 6, damping=1.0, guard=False)
    on = [report.damping < 0.7 and RULES[rule].order > 1 for report in reports]
    assert all(is_on or not report.corrected for is_on, report in zip(on, reports, strict=True))
    assert any(report.corrected for report in reports) == (rule != "ng")
    assert {report.corrected for report in unguarded} == {rule != "ng"}
    _, (refused,) = run(autoencoder(), rule, 1, control=LineSearch(lr=1e30, max_steps=1))
    assert not refused.corrected
    p = autoencoder()
    assert not HessianFree(p, p.layout.read() * math.nan, rule).step().corrected


@pytest.mark.parametrize("rule", FINITE)
def test_resuming_is_bit_exact(rule: str) -> None:
    straight, reports = run(autoencoder(), rule, 8, damp="diagonal")
    first, _ = run(autoencoder(), rule, 5, damp="diagonal")
    second = HessianFree(autoencoder(), first.y, rule, first.settings, seed=99)
    second.load_state_dict(first.state_dict())
    rest = [second.step() for _ in range(3)]
    assert rest == reports[5:]
    assert torch.equal(second.y, straight.y)


def test_a_state_of_another_network_is_refused() -> None:
    ours, theirs = run(autoencoder(), "ng", 1)[0], HessianFree(problem(Bernoulli()), torch.zeros(31), "ng")
    with pytest.raises(ValueError, match="the network"):
        ours.load_state_dict(theirs.state_dict())


def test_a_failed_update_stays_and_raises_the_damping() -> None:
    p = autoencoder()
    start = p.layout.read()
    optimizer = HessianFree(p, start, "geo", HessianFreeSettings(damping=1.0, control=LineSearch(lr=1e30, max_steps=1)))
    report = optimizer.step()
    assert torch.equal(optimizer.y, start)
    assert (optimizer.damping, report.h, optimizer.warm) == (1.5, 0.0, {})
    broken = HessianFree(p, start * math.nan, "geo")
    broken.step()
    assert broken.damping == pytest.approx(45 * 1.5)


def test_wrong_values_are_named() -> None:
    with pytest.raises(ValueError, match="choose one of ng, mid, geo, geof"):
        HessianFree(autoencoder(), torch.zeros(1), "ng_exact")
    for wrong in ({"damping": 0.0}, {"damp": "none"}, {"correction": "x"}, {"alpha": 2.0}, {"warm": -1.0}):
        with pytest.raises(ValueError, match=next(iter(wrong)) if "damp" not in wrong else "damping"):
            HessianFreeSettings(**wrong)

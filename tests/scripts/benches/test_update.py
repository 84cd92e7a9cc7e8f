"""`geonpg bench update`: every rule and solver is timed; how fast they are is not tested."""

import pytest

from geonpg.configs import METHODS
from geonpg.scripts.benches import update as bench_update
from geonpg.scripts.benches.findings import flat


def test_every_rule_and_solver_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_update, "REPEATS", 1)
    monkeypatch.setattr(bench_update, "WARM_UP", 0)
    findings = bench_update.measure()
    results = flat(findings.numbers())
    ratios = {f"update/{s}/{r}_over_{base}" for s in ("kfac", "pcg") for r in METHODS for base in ("ng", "adam")}
    assert set(results) == ratios | {"update/fast_derivatives_speedup", "update/adam_milliseconds"}
    assert all(value > 0 for value in results.values())
    assert results["update/pcg/ng_over_ng"] == 1
    assert "x Adam" in findings.table()


def test_numbers_are_ratios_of_seconds() -> None:
    findings = bench_update.UpdateFindings({"kfac": {"ng": 0.002, "geo": 0.003}}, 0.001, 0.004, 0.010)
    results = flat(findings.numbers())
    assert results["update/kfac/geo_over_ng"] == pytest.approx(1.5)
    assert results["update/kfac/geo_over_adam"] == pytest.approx(3)
    assert results["update/fast_derivatives_speedup"] == pytest.approx(2.5)
    assert results["update/adam_milliseconds"] == pytest.approx(1)
    assert findings.table().splitlines()[3:5] == [
        "kfac    ng          1.00      2.00",
        "kfac    geo         1.50      3.00",
    ]

"""`geonpg bench trust-region`: its numbers are seeded, so what they show can be tested."""

import pytest

from geonpg.scripts.benches import trust_region as bench_trust_region
from geonpg.scripts.benches.findings import flat


def test_where_the_published_correction_overshoots_the_calibrated_one_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_trust_region, "SEEDS", range(1))
    monkeypatch.setattr(bench_trust_region, "STAGES", {"trust": 0, "trust-trained": 15})
    findings = bench_trust_region.measure()
    results = flat(findings.numbers())
    for solver in ("kfac", "pcg"):
        for rule in ("ng", "mid", "geo", "geof", "geo-published"):
            for kl in ("0.01", "0.03", "0.1", "0.3"):
                assert results[f"trust/{solver}/{rule}/{kl}"] > 0
    assert results["trust/kfac/residual_calibrated"] <= 0.9
    assert results["trust/kfac/kappa"] > 0.05
    assert results["trust-trained/kfac/residual_published"] > 1 > results["trust-trained/kfac/residual_calibrated"]
    assert results["trust/pcg/ng/0.1"] > results["trust/pcg/geo/0.1"]
    assert results["trust/pcg/residual_after_10"] < results["trust/pcg/residual_after_1"]
    assert "predicted KL" in findings.table()

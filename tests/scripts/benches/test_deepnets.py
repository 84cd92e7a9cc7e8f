"""`geonpg bench deepnets`, on few cases."""

import pytest

from geonpg.scripts.benches import deepnets as bench_deepnets
from geonpg.scripts.benches.findings import flat


def test_iterations_keep_the_promised_ratios(monkeypatch: pytest.MonkeyPatch) -> None:
    """Conjugate-gradient iterations do not depend on the machine."""
    for name, value in {"CASES": 40, "REPEATS": 2, "WARM_UP": 8}.items():
        monkeypatch.setattr(bench_deepnets, name, value)
    findings = bench_deepnets.measure()
    results = flat(findings.numbers())
    for rule, limit in {"mid": 2.2, "geo": 2.2, "geof": 1.15}.items():
        assert results[f"deepnets/{rule}_over_ng"] > 0
        assert results[f"deepnets/{rule}_iterations"] <= limit * results["deepnets/ng_iterations"]
    assert results["deepnets/ng_seconds"] > 0
    assert "CG iterations" in findings.table()

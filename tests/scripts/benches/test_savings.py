"""`geonpg bench savings`, small and short."""

import pytest

from geonpg.scripts.benches import noise as bench_noise
from geonpg.scripts.benches import savings as bench_savings
from geonpg.scripts.benches.findings import flat


def test_variants_are_paired_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first differs from itself by nothing; a variant that is the same by name only would, too."""
    for name, value in {"ENV_IDS": ("Reacher-v4",), "UPDATES": 4, "WARM_UP": 1, "EVERY": 1}.items():
        monkeypatch.setattr(bench_savings, name, value)
    monkeypatch.setattr(bench_noise, "HELD_OUT", 1)
    findings = bench_savings.measure()
    results = flat(findings.numbers())
    for kind, first in (("critic", "2x3"), ("policy", "whole")):
        assert results[f"savings/Reacher-v4/{kind}/{first}/gap"] == 0
    for variant in ("1x6", "1x6-half", "1x3-half"):
        gap = results[f"savings/Reacher-v4/critic/{variant}/gap"]
        assert gap != 0
        assert results[f"savings/Reacher-v4/critic/{variant}/low"] <= gap
        assert results[f"savings/Reacher-v4/critic/{variant}/mean"] <= 1
    assert results["savings/Reacher-v4/policy/quarter/gap"] != 0
    assert "half, factors every 2" in findings.table()

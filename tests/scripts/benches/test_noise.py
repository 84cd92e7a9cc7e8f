"""`geonpg bench noise`, small and short."""

import pytest

from geonpg.scripts.benches import noise as bench_noise
from geonpg.scripts.benches.findings import flat


def test_every_variant_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gain on one's own batch is one; held out, its interval holds the mean."""
    for name, value in {"ENV_IDS": ("Reacher-v4",), "CHECKPOINTS": 2, "EVERY": 1, "HELD_OUT": 1}.items():
        monkeypatch.setattr(bench_noise, name, value)
    findings = bench_noise.measure()
    results = flat(findings.numbers())
    for variant in bench_noise.VARIANTS:
        assert results[f"noise/Reacher-v4/{variant}/own"] > 0
        low, high = (results[f"noise/Reacher-v4/{variant}/held_out/{end}"] for end in ("low", "high"))
        assert low <= results[f"noise/Reacher-v4/{variant}/held_out"] <= high
    # from the same state and batch, a longer step along the same direction gains more there
    assert results["noise/Reacher-v4/one-batch-kl-0.01/own"] > results["noise/Reacher-v4/one-batch/own"]
    assert "held out" in findings.table()

"""`geonpg bench scaling`: few points, short."""

import pytest

from geonpg.scripts.benches import cores as bench_cores
from geonpg.scripts.benches import scaling as bench_scaling
from geonpg.scripts.benches.findings import flat


def test_every_phase_of_every_point_is_there_and_the_ranks_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    few = {"BATCHES": (64, 128), "WIDTHS": (8,), "ENV_COUNTS": (1, 4), "RANK_BATCHES": (64,), "ENV_BATCH": 64}
    for name, value in {**few, "WIDE_BATCH": 64, "LEAST_SECONDS": 0.01}.items():
        monkeypatch.setattr(bench_scaling, name, value)
    for name, value in {"ENV_IDS": ("HalfCheetah-v4",), "SHAPES": ((4, 8),), "WARM_UP": 1, "UPDATES": 2}.items():
        monkeypatch.setattr(bench_cores, name, value)
    findings = bench_scaling.measure()
    results = flat(findings.numbers())
    points = ["batch/64", "batch/128", "width/8", "envs/1", "envs/4", "ranks-64/1", "ranks-64/2"]
    for point in points:
        whole = results[f"scaling/{point}/update_ms"]
        assert 0 < results[f"scaling/{point}/policy_ms"] < whole
        assert 0 < results[f"scaling/{point}/inverses_ms"] < whole
    assert results["scaling/ranks-64/2/messages"] > 10
    assert "scaling/ranks-64/1/messages" not in results
    assert results["scaling/sum/1_ms"] > 0
    assert results["scaling/cores/HalfCheetah-v4/4x8/serial_us"] > 0
    assert results["scaling/cores/HalfCheetah-v4/4x8/steps_per_second_on_64"] > 0
    assert "ranks-64" in findings.table()
    assert "4x8" in findings.table()
    assert [len(ax.lines) for ax in findings.figure().axes] == [5, 5, 5]

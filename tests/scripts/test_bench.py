"""Benchmarks print what they promise; how fast things are is not tested."""

import json
from pathlib import Path

import pytest

from geonpg.scripts import bench
from geonpg.scripts.benches import deepnets as bench_deepnets
from geonpg.scripts.benches import noise as bench_noise
from geonpg.scripts.benches import scaling as bench_scaling
from geonpg.scripts.benches import trust_region as bench_trust_region
from geonpg.scripts.benches import update as bench_update


def run_json(name: str, capsys: pytest.CaptureFixture[str]) -> dict[str, float]:
    assert bench.main([name, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert all(isinstance(value, float) for value in results.values())
    return results


def test_update(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench_update, "REPEATS", 1)
    results = run_json("update", capsys)
    expected = {f"update/{s}/{r}_over_ng" for s in ("kfac", "pcg") for r in ("ng", "mid", "geo", "geof")}
    expected |= {f"update/kfac/{r}_over_adam" for r in ("ng", "mid", "geo", "geof")}
    assert expected | {"update/fast_derivatives_speedup"} <= set(results)
    assert results["update/pcg/ng_over_ng"] == 1
    assert "x Adam" in bench_update.table(results)


def test_trust_region(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the published correction overshoots, the calibrated one does not."""
    monkeypatch.setattr(bench_trust_region, "SEEDS", range(1))
    results = run_json("trust-region", capsys)
    for solver in ("kfac", "pcg"):
        for rule in ("ng", "mid", "geo", "geof", "geo-published"):
            for kl in ("0.01", "0.03", "0.1", "0.3"):
                assert results[f"trust/{solver}/{rule}/{kl}"] > 0
    assert results["trust/kfac/residual_calibrated"] <= 0.9
    assert results["trust/kfac/kappa"] > 0.05
    assert results["trust-trained/kfac/residual_published"] > 1 > results["trust-trained/kfac/residual_calibrated"]
    assert results["trust/pcg/ng/0.1"] > results["trust/pcg/geo/0.1"]
    assert "predicted KL" in bench_trust_region.table(results)


def test_an_unknown_benchmark_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        bench.main(["speed"])
    assert stopped.value.code == 2
    printed = capsys.readouterr().err
    assert all(name in printed for name in bench.BENCHES)


def test_deepnets(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """On few cases: conjugate-gradient iterations, which do not depend on the machine, keep the promised ratios."""
    for name, value in {"CASES": 40, "REPEATS": 2, "WARM_UP": 8}.items():
        monkeypatch.setattr(bench_deepnets, name, value)
    results = run_json("deepnets", capsys)
    for rule, limit in {"mid": 2.2, "geo": 2.2, "geof": 1.15}.items():
        assert results[f"deepnets/{rule}_over_ng"] > 0
        assert results[f"deepnets/{rule}_iterations"] <= limit * results["deepnets/ng_iterations"]
    assert "CG iterations" in bench_deepnets.table(results)


def test_noise(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Small and short: every variant is measured, and a gain on one's own batch is one."""
    for name, value in {"TASKS": ("Reacher-v4",), "CHECKPOINTS": 2, "EVERY": 1, "HELD_OUT": 1}.items():
        monkeypatch.setattr(bench_noise, name, value)
    results = run_json("noise", capsys)
    for variant in bench_noise.VARIANTS:
        assert results[f"noise/Reacher-v4/{variant}/own"] > 0
        low, high = (results[f"noise/Reacher-v4/{variant}/held_out/{end}"] for end in ("low", "high"))
        assert low <= results[f"noise/Reacher-v4/{variant}/held_out"] <= high
    # from the same state and batch, a longer step along the same direction gains more there
    assert results["noise/Reacher-v4/one-batch-kl-0.01/own"] > results["noise/Reacher-v4/one-batch/own"]
    assert "held out" in bench_noise.table(results)


def test_scaling(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Few points, short: every phase of every point is there, and the ranks meet."""
    few = {"BATCHES": (64, 128), "WIDTHS": (8,), "ENVS": (1, 4), "RANK_BATCHES": (64,), "ENV_BATCH": 64}
    for name, value in {**few, "WIDE_BATCH": 64, "LEAST_SECONDS": 0.01}.items():
        monkeypatch.setattr(bench_scaling, name, value)
    assert bench.main(["scaling", "--json", "--figure", str(tmp_path / "scaling.png")]) == 0
    results = json.loads(capsys.readouterr().out)
    points = ["batch/64", "batch/128", "width/8", "envs/1", "envs/4", "ranks-64/1", "ranks-64/2"]
    for point in points:
        whole = results[f"scaling/{point}/update_ms"]
        assert 0 < results[f"scaling/{point}/policy_ms"] < whole
        assert 0 < results[f"scaling/{point}/inverses_ms"] < whole
    assert results["scaling/ranks-64/2/messages"] > 10
    assert results["scaling/sum/1_ms"] > 0
    assert "ranks-64" in bench_scaling.table(results)
    assert (tmp_path / "scaling.png").stat().st_size > 0
    with pytest.raises(SystemExit):
        bench.main(["update", "--figure", str(tmp_path / "update.png")])
    assert "--figure goes with scaling, not with update" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench.main(["scaling", "--figure", str(tmp_path / "nowhere" / "scaling.png")])
    assert "--figure must be in a folder that exists" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        bench.main(["scaling", "--figure", str(tmp_path / "scaling.pdf")])
    assert "--figure must end in .png or .svg" in capsys.readouterr().err


def test_counts_go_with_their_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in {
        "update --kills 3": "--kills goes with resume, not with update",
        "resume --edits 3": "--edits goes with damage, not with resume",
        "resume --kills 0": "argument --kills: must be from 1 to 1,000,000, not 0",
    }.items():
        with pytest.raises(SystemExit) as stopped:
            bench.main(arguments.split())
        assert stopped.value.code == 2
        assert words in capsys.readouterr().err

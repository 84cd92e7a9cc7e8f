"""The bench that tells a policy's own steps from the normalisation under it."""

import pytest

from geonpg.scripts.benches import drift as bench_drift
from geonpg.scripts.benches.drift import Reading
from geonpg.scripts.benches.findings import flat


@pytest.fixture(scope="module")
def results() -> dict[str, float]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bench_drift, "ENV_IDS", ("InvertedPendulum-v4",))
        patch.setattr(bench_drift, "SOLVED", 3072)
        patch.setattr(bench_drift, "END", 6144)
        found = bench_drift.measure()
        assert len(found.table().splitlines()) == 2 + 3 + len(bench_drift.WAYS)
        return flat(found.numbers())


def test_every_way_is_measured(results: dict[str, float]) -> None:
    keys = ("return", *Reading._fields)
    ways = {f"drift/InvertedPendulum-v4/{way}/{key}" for way in bench_drift.WAYS for key in keys}
    assert set(results) == {*ways, "drift/InvertedPendulum-v4/before/return"}


def test_a_policy_that_stands_still_makes_no_steps(results: dict[str, float]) -> None:
    for way, chosen in bench_drift.WAYS.items():
        kl = results[f"drift/InvertedPendulum-v4/{way}/kl"]
        assert (kl > 1e-6) if chosen.learns else (kl < 1e-9), way


def test_a_direction_is_confirmed_while_the_task_is_learnt(results: dict[str, float]) -> None:
    assert results["drift/InvertedPendulum-v4/as it is/confirmed"] > 0.3

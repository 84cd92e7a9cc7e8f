"""What more cores would give: the formula, and that its parts are measured."""

import pytest

from geonpg.scripts.benches import cores as bench_cores
from geonpg.scripts.benches.breakdown import Segment, Watch
from geonpg.scripts.benches.cores import CORE_COUNTS, Parts, parts_of


def test_only_the_kernel_is_shared() -> None:
    parts = Parts(environments=16, kernel=80.0, beside=0.0, serial=10.0, measured=1.0)
    assert [parts.microseconds(cores) for cores in (1, 2, 16)] == [90, 50, 15]
    assert parts.microseconds(64) == parts.microseconds(16), "no more threads than environments"
    assert parts.update_dominates == 8
    assert parts.microseconds(8) == 2 * parts.serial


def test_what_runs_beside_the_kernel_takes_a_core_and_sets_a_floor() -> None:
    parts = Parts(environments=64, kernel=80.0, beside=20.0, serial=10.0, measured=1.0)
    assert parts.microseconds(2) == 60  # 100 shared by two
    assert parts.microseconds(64) == 30
    assert parts.update_dominates == 2
    assert parts.microseconds(2) <= 2 * 30 < parts.microseconds(1)


def test_with_few_environments_the_kernel_may_dominate_for_ever() -> None:
    parts = Parts(environments=2, kernel=80.0, beside=0.0, serial=10.0, measured=1.0)
    assert parts.update_dominates is None
    assert "update_dominates_from" not in parts.numbers()
    assert parts.line().endswith("never")


def test_the_parts_of_a_segment() -> None:
    """A critic beside the rollout is hidden by it; otherwise it belongs to what only one core does."""
    kernel, phases = Watch(10, 6.0, 5.0), {"rollout": 6.5, "values": 0.5, "policy": 1.0, "critic": 1.5}
    apart = parts_of(Segment(1_000_000, 10, 10.0, phases, kernel), 16, 1.0)
    assert (apart.kernel, apart.beside, apart.serial) == (5, 0, 4)
    overlapping = parts_of(Segment(1_000_000, 10, 8.5, phases, kernel), 16, 1.0)
    assert (overlapping.kernel, overlapping.beside, overlapping.serial) == (5, 1.5, 2.5)


def test_every_point_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ENV_IDS": ("Walker2d-v4",), "SHAPES": ((2, 8), (4, 4)), "WARM_UP": 1, "UPDATES": 2}.items():
        monkeypatch.setattr(bench_cores, name, value)
    found = bench_cores.measure_cores()
    assert [list(shapes) for shapes in found.values()] == [["2x8", "4x4"]]
    for parts in found["Walker2d-v4"].values():
        numbers = parts.numbers()
        names = {"kernel_us", "beside_us", "serial_us", "measured_steps_per_second"}
        assert set(numbers) - {"update_dominates_from"} == names | {f"steps_per_second_on_{n}" for n in CORE_COUNTS}
        assert parts.kernel > 0
        assert parts.serial > 0
        assert parts.measured > 0
    lines = bench_cores.table(found)
    assert bench_cores.FORMULA in lines
    assert lines[-1].split()[0] == "4x4"

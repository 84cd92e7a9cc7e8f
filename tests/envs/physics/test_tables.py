"""Tables: what Python writes is what compiled code reads, and the other way round."""

from typing import Any

import numba
import numpy as np
import pytest
from numba.core.errors import TypingError

from geonpg.envs.physics.calls import address_of, data_of, fused, next_index, set_word, table_at
from geonpg.envs.physics.tables import FLOAT, INT, Kind, Table, TableType, addresses_of

ARRAYS: dict[str, Kind] = {f"{dtype}_{ndim}": (dtype, ndim) for dtype in ("f8", "f4", "i8", "u1") for ndim in (1, 2, 3)}
EVERY = TableType("Every", {"count": INT, **ARRAYS, "share": FLOAT, "last": INT})
every_at = table_at(EVERY)


def filled() -> Table:
    """A table with another array in each entry, none of them of equal sides."""
    table = Table(EVERY, count=-5, share=-0.125, last=2**62)
    for number, (name, kind) in enumerate(ARRAYS.items()):
        shape = (3, 2, 4)[: kind[1]]
        table.fill(**{name: (np.arange(np.prod(shape)) + number).reshape(shape).astype(kind[0])})
    return table


@numba.njit
def numbers_of(address: int) -> tuple[int, float, int]:
    table = every_at(address)
    return table.count, table.share, table.last


@numba.njit
def vectors_of(address: int) -> Any:
    table = every_at(address)
    return table.f8_1.copy(), table.f4_1.copy(), table.i8_1.copy(), table.u1_1.copy()


@numba.njit
def matrices_of(address: int) -> Any:
    table = every_at(address)
    return table.f8_2.copy(), table.f4_2.copy(), table.i8_2.copy(), table.u1_2.copy()


@numba.njit
def cubes_of(address: int) -> Any:
    table = every_at(address)
    return table.f8_3.copy(), table.f4_3.copy(), table.i8_3.copy(), table.u1_3.copy()


def test_entries_of_every_kind_are_read_as_written() -> None:
    table = filled()
    assert numbers_of(table.address) == (-5, -0.125, 2**62)
    for ndim, read in enumerate((vectors_of, matrices_of, cubes_of), 1):
        for dtype, found in zip(("f8", "f4", "i8", "u1"), read(table.address), strict=True):
            written = table.kept[f"{dtype}_{ndim}"]
            assert found.dtype == written.dtype == np.dtype(dtype)
            assert np.array_equal(found, written)


def test_entries_can_be_filled_again() -> None:
    table = filled()
    table.fill(share=3.5, f8_2=np.full((5, 1), 7.0))
    assert numbers_of(table.address)[1] == 3.5
    assert np.array_equal(matrices_of(table.address)[0], np.full((5, 1), 7.0))
    assert np.array_equal(matrices_of(table.address)[1], table.kept["f4_2"]), "its neighbours stay"


def test_a_table_keeps_its_arrays_alive() -> None:
    table = filled()
    for _ in range(20):
        table.fill(f8_3=np.full((50, 20, 10), 0.5))
        np.full((50, 20, 10), np.nan)  # would take the same memory
        assert (cubes_of(table.address)[0] == 0.5).all()


def test_empty_arrays_are_arrays() -> None:
    table = filled()
    table.fill(f8_1=np.empty(0), f8_2=np.empty((4, 0)))
    assert vectors_of(table.address)[0].shape == (0,)
    assert matrices_of(table.address)[0].shape == (4, 0)


@numba.njit
def change(address: int) -> None:
    table = every_at(address)
    table.f4_3[1, 0, 2] = 99.0
    set_word(address_of(table), 0, 77)


def test_what_compiled_code_writes_is_seen_by_python() -> None:
    table = filled()
    change(table.address)
    assert table.kept["f4_3"][1, 0, 2] == 99
    assert table.words[EVERY.words["count"]] == 77


@pytest.mark.parametrize(
    ("entry", "array"),
    [
        ("f8_1", np.zeros(3, np.float32)),
        ("f4_2", np.zeros((3, 3))),
        ("u1_1", np.zeros(3, np.bool_)),
        ("i8_1", np.zeros(3, np.int32)),
        ("f8_2", np.zeros(3)),
        ("f8_2", np.zeros((3, 3, 3))),
        ("f8_2", np.zeros((3, 4)).T),
        ("f8_1", np.zeros(6)[::2]),
    ],
    ids=["single", "double", "flags", "short", "vector", "cube", "Fortran's order", "every other"],
)
def test_wrong_arrays_are_refused(entry: str, array: Any) -> None:
    table = filled()
    before = table.words.copy()
    with pytest.raises(TypeError, match=f"^{entry} must be a C-ordered array"):
        table.fill(**{entry: array})
    assert np.array_equal(table.words, before)


@numba.njit
def misread(address: int) -> int:
    return every_at(address).nothing


def test_unknown_entries_are_refused() -> None:
    with pytest.raises(KeyError, match="nothing"):
        filled().fill(nothing=3)
    with pytest.raises(TypingError, match="nothing"):
        misread(filled().address)


def test_tables_with_other_entries_are_of_another_type() -> None:
    """Compiled code that is kept for one must not be taken for the other."""
    assert TableType("A", {"x": INT}) == TableType("A", {"x": INT})
    for other in (TableType("A", {"x": FLOAT}), TableType("A", {"y": INT}), TableType("A", {"x": INT, "y": INT})):
        assert TableType("A", {"x": INT}) != other


def test_addresses() -> None:
    tables = [filled(), filled()]
    assert addresses_of(tables).tolist() == [table.words.ctypes.data for table in tables]
    assert Table(TableType("None", {})).address != 0


@numba.njit
def count_up(counter: Any, n: int) -> int:
    total = 0
    for _ in range(n):
        total += next_index(data_of(counter))
    return total


def test_a_counter_hands_out_every_number_once() -> None:
    counter = np.array([5])
    assert count_up(counter, 10) == sum(range(5, 15))
    assert counter[0] == 15


@numba.njit
def fused_at(a: float, b: float, c: float) -> float:
    return fused(a, b, c)


def test_a_fused_product_rounds_once() -> None:
    a = 1.0 + 2.0**-30
    assert a * a - (1 + 2.0**-29) == 0.0, "two roundings lose it"
    assert fused_at(a, a, -(1 + 2.0**-29)) == 2.0**-60

"""Tables: how compiled code reads and writes what Python has laid out for it.

A table is a row of 64-bit words that numpy owns and compiled code gets the address of: whole numbers, floating-point
numbers, and arrays by address and shape. Compiled code reads its entries as attributes, `table.qpos[1]`, at no cost.
"""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, lower_getattr_generic, models, register_model
from numba.np import arrayobj
from numpy.typing import NDArray

# What numba and llvmlite hand to code that writes instructions; they have no types for it.
Context = Any  # of compilation
Builder = Any  # of instructions
Value = Any  # that an instruction yields
Anything = Any  # that an entry of a table may be: a number or an array

# The kinds of entries: a number, or an array of a dtype with so many dimensions.
INT, FLOAT = "i8", "f8"
Kind = str | tuple[str, int]
ITEMS: dict[str, types.Type] = {"f8": types.float64, "f4": types.float32, "i8": types.int64, "u1": types.uint8}

# Compiled code is kept on the disk under its types: a change of any file here gives them other names.
SOURCES = sorted(Path(__file__).parent.glob("*.py"))
STAMP = hashlib.sha256(b"".join(path.read_bytes() for path in SOURCES)).hexdigest()[:16]


class TableType(types.Type):
    """The type of a table with these entries, in this order."""

    def __init__(self, title: str, entries: Mapping[str, Kind]) -> None:
        self.entries, self.words = dict(entries), dict[str, int]()
        size = 0
        for name, kind in self.entries.items():
            self.words[name] = size
            size += 1 if isinstance(kind, str) else 1 + kind[1]
        self.size = size
        super().__init__(name=f"{title}{tuple(self.entries.items())}{STAMP}")


@register_model(TableType)
class TableModel(models.PrimitiveModel):
    """A table is its address."""

    def __init__(self, manager: Context, table: TableType) -> None:
        super().__init__(manager, table, ir.IntType(64))


def array_type(kind: tuple[str, int]) -> "types.Array[types.Type]":
    """Return what an array is to compiled code."""
    return types.Array(ITEMS[kind[0]], kind[1], "C")


def entry_type(table: TableType, name: str) -> types.Type | None:
    """Return what an entry is to compiled code; None if there is none of this name."""
    kind = table.entries.get(name)
    if kind is None:
        return None
    return ITEMS[kind] if isinstance(kind, str) else array_type(kind)


@infer_getattr
class TableAttributes(AttributeTemplate):
    """Entries are attributes."""

    key = TableType

    def resolve(self, value: TableType, attr: str) -> types.Type | None:
        """Return the type of an entry; None if there is none of this name."""
        return entry_type(value, attr)


def word_pointer(builder: Builder, table: Value, index: int, kind: ir.Type) -> Value:
    """Point at a word of a table."""
    address = builder.add(table, ir.Constant(ir.IntType(64), 8 * index))
    return builder.inttoptr(address, kind.as_pointer())


@lower_getattr_generic(TableType)
def read_entry(context: Context, builder: Builder, table: TableType, value: Value, name: str) -> Value:
    """Load a number, or make an array of an address and a shape."""
    kind, index = table.entries[name], table.words[name]
    if isinstance(kind, str):
        return builder.load(word_pointer(builder, value, index, context.get_value_type(ITEMS[kind])))
    shape = [builder.load(word_pointer(builder, value, index + 1 + i, ir.IntType(64))) for i in range(kind[1])]
    found = array_type(kind)
    item = context.get_data_type(found.dtype)
    size = context.get_abi_sizeof(item)
    strides = [ir.Constant(ir.IntType(64), size)]
    for length in reversed(shape[1:]):
        strides.insert(0, builder.mul(strides[0], length))
    array = context.make_array(found)(context, builder)
    address = builder.load(word_pointer(builder, value, index, ir.IntType(64)))
    arrayobj.populate_array(
        array,
        data=builder.inttoptr(address, item.as_pointer()),
        shape=cgutils.pack_array(builder, shape),
        strides=cgutils.pack_array(builder, strides),
        itemsize=ir.Constant(ir.IntType(64), size),
        meminfo=None,
    )
    return array._getvalue()


class Table:
    """A table as Python fills it; it keeps its arrays alive."""

    def __init__(self, kind: TableType, **values: Anything) -> None:
        self.kind = kind
        self.words: NDArray[np.int64] = np.zeros(max(kind.size, 1), dtype=np.int64)
        self.kept: dict[str, Anything] = {}
        self.fill(**values)

    @property
    def address(self) -> int:
        """Where compiled code finds it."""
        return int(self.words.ctypes.data)

    def fill(self, **values: Anything) -> None:
        """Set some entries. Arrays must have the dtype and the dimensions of their entry, and lie in C order."""
        for name, value in values.items():
            kind, index = self.kind.entries[name], self.kind.words[name]
            if kind == INT:
                self.words[index] = value
            elif kind == FLOAT:
                self.words.view(np.float64)[index] = value
            else:
                self._point(name, value, kind, index)

    def _point(self, name: str, array: NDArray[Anything], kind: Kind, index: int) -> None:
        wrong = array.dtype != np.dtype(kind[0]) or array.ndim != kind[1] or not array.flags.c_contiguous
        if wrong:
            raise TypeError(f"{name} must be a C-ordered array {kind}, not {array.dtype} {array.shape}")
        self.kept[name] = array
        self.words[index] = array.ctypes.data
        self.words[index + 1 : index + 1 + array.ndim] = array.shape


def addresses_of(tables: Sequence[Table]) -> NDArray[np.int64]:
    """Return where tables lie."""
    return np.array([table.address for table in tables], dtype=np.int64)

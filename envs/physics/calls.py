"""Call functions by their addresses from compiled code, so that compiled code holds no address and can be kept."""

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .tables import Builder, Context, TableType, Value

Typing = Any  # numba's own, without types: the context of inference
Signature = Any
Generated = tuple[Signature, Callable[[Context, Builder, Signature, Value], Value]]
Inlined = Callable[..., Any]  # called by compiled code, which knows the types

WORD, DOUBLE, NOTHING = ir.IntType(64), ir.DoubleType(), ir.VoidType()


def inlined(python: Callable[..., Generated]) -> Inlined:
    """Make an intrinsic: Python that writes instructions into the compiled code that calls it.

    It gets the types of its arguments, after the context, and returns a signature and what writes the instructions.
    """
    return intrinsic(python)


def caller(result: types.Type, returned: ir.Type) -> Inlined:
    """Make an intrinsic `call(address, (a, b))` for functions with this result; arguments are passed as they are."""

    @inlined
    def call(typing: Typing, address: types.Type, arguments: types.Type) -> Generated:
        def codegen(context: Context, builder: Builder, signature: Signature, values: Value) -> Value:
            parts = [builder.extract_value(values[1], i) for i in range(len(signature.args[1]))]
            kind = ir.FunctionType(returned, [part.type for part in parts])
            found = builder.call(builder.inttoptr(values[0], kind.as_pointer()), parts)
            return context.get_dummy_value() if result is types.none else found

        return result(types.int64, arguments), codegen

    return call


call_nothing = caller(types.none, NOTHING)
call_double = caller(types.float64, DOUBLE)
call_word = caller(types.int64, WORD)
call_int = caller(types.int32, ir.IntType(32))


def atomic_add(amount: int, order: str) -> Inlined:
    """Make an intrinsic that adds to the number at an address which threads share, and returns what was there.

    order: LLVM's, of this among other reads and writes.
    """

    @inlined
    def add(typing: Typing, address: types.Type) -> Generated:
        def codegen(context: Context, builder: Builder, signature: Signature, values: Value) -> Value:
            pointer = builder.inttoptr(values[0], WORD.as_pointer())
            return builder.atomic_rmw("add", pointer, ir.Constant(WORD, amount), order)

        return types.int64(types.int64), codegen

    return add


next_index = atomic_add(1, "monotonic")  # takes the next number from a counter
seen_by_all = atomic_add(0, "acquire")  # reads what other threads write, before all that is read after it


@inlined
def tell_all(typing: Typing, address: types.Type, value: types.Type) -> Generated:
    """Write a number that other threads wait for, after all that was written before it."""

    def codegen(context: Context, builder: Builder, signature: Signature, values: Value) -> Value:
        builder.atomic_rmw("xchg", builder.inttoptr(values[0], WORD.as_pointer()), values[1], "release")
        return context.get_dummy_value()

    return types.none(types.int64, types.int64), codegen


@inlined
def set_word(typing: Typing, table: types.Type, index: types.Type, value: types.Type) -> Generated:
    """Write one word of the table at an address."""

    def codegen(context: Context, builder: Builder, signature: Signature, values: Value) -> Value:
        address = builder.add(values[0], builder.mul(values[1], ir.Constant(WORD, 8)))
        builder.store(values[2], builder.inttoptr(address, WORD.as_pointer()))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@inlined
def fused(typing: Typing, a: types.Type, b: types.Type, c: types.Type) -> Generated:
    """Compute a b + c with one rounding."""

    def codegen(context: Context, builder: Builder, signature: Signature, values: Value) -> Value:
        return builder.fma(*values)

    return types.float64(types.float64, types.float64, types.float64), codegen


def table_at(kind: TableType) -> Inlined:
    """Make an intrinsic that takes an address for a table of this kind."""

    @inlined
    def at(typing: Typing, address: types.Type) -> Generated:
        return kind(types.int64), lambda context, builder, signature, values: values[0]

    return at


@inlined
def address_of(typing: Typing, table: types.Type) -> Generated:
    """Return the address of a table."""
    return types.int64(table), lambda context, builder, signature, values: values[0]


@inlined
def data_of(typing: Typing, array: types.Type) -> Generated:
    """Return the address of an array's first entry."""

    def codegen(context: Context, builder: Builder, signature: Signature, values: Value) -> Value:
        found = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.ptrtoint(found.data, WORD)

    return types.int64(array), codegen

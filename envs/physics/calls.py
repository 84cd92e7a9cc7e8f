"""Call functions by their addresses from compiled code, so that compiled code holds no address and can be kept."""

from typing import Any

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from .tables import TableType

WORD, DOUBLE, NOTHING = ir.IntType(64), ir.DoubleType(), ir.VoidType()


def caller(result: types.Type, returned: Any) -> Any:
    """Make an intrinsic `call(address, (a, b))` for functions with this result; arguments are passed as they are."""

    @intrinsic
    def call(typing: Any, address: Any, arguments: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
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


@intrinsic
def next_index(typing: Any, counter: Any) -> Any:
    """Take the next number from a counter that threads share; `counter` is its address."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        pointer = builder.inttoptr(values[0], WORD.as_pointer())
        return builder.atomic_rmw("add", pointer, ir.Constant(WORD, 1), "monotonic")

    return types.int64(types.int64), codegen


@intrinsic
def set_word(typing: Any, table: Any, index: Any, value: Any) -> Any:
    """Write one word of the table at an address."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        address = builder.add(values[0], builder.mul(values[1], ir.Constant(WORD, 8)))
        builder.store(values[2], builder.inttoptr(address, WORD.as_pointer()))
        return context.get_dummy_value()

    return types.none(types.int64, types.int64, types.int64), codegen


@intrinsic
def fused(typing: Any, a: Any, b: Any, c: Any) -> Any:
    """Compute a b + c with one rounding."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        return builder.fma(*values)

    return types.float64(types.float64, types.float64, types.float64), codegen


def table_at(kind: TableType) -> Any:
    """Make an intrinsic that takes an address for a table of this kind."""

    @intrinsic
    def at(typing: Any, address: Any) -> Any:
        return kind(types.int64), lambda context, builder, signature, values: values[0]

    return at


@intrinsic
def address_of(typing: Any, table: Any) -> Any:
    """Return the address of a table."""
    return types.int64(table), lambda context, builder, signature, values: values[0]


@intrinsic
def data_of(typing: Any, array: Any) -> Any:
    """Return the address of an array's first entry."""

    def codegen(context: Any, builder: Any, signature: Any, values: Any) -> Any:
        found = context.make_array(signature.args[0])(context, builder, values[0])
        return builder.ptrtoint(found.data, WORD)

    return types.int64(array), codegen


__all__ = ["address_of", "call_double", "call_int", "call_nothing", "call_word", "data_of", "fused", "next_index", "set_word", "table_at"]

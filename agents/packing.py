"""A state as JSON and bytes, and back: how checkpoint.py says what JSON lacks."""

import math
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array: TypeAlias = NDArray[Any]  # of any dtype
State: TypeAlias = dict[str, Any]  # whatever is STORABLE, at any depth
Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"

STORABLE = "None, bool, int, float, str, list, tuple, dict, and numbers of numpy or torch"
# A dtype that numpy lacks, such as bfloat16, is stored as integers of the same bits.
BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
DTYPES = {str(dtype): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


@dataclass
class Packer:
    """Turns a state into what JSON can say, and puts its arrays aside."""

    arrays: list[Array] = field(default_factory=list)
    size: int = 0

    def pack(self, path: str, value: object) -> Json:
        """Turn `value` into JSON; types must match exactly, because a subclass would come back as its base."""
        if value is None or type(value) is bool or type(value) is str:
            return value
        if type(value) is int:  # beyond 2^53 other readers of JSON lose digits
            return value if abs(value) < 2**53 else {"$int": hex(value)}
        if type(value) is float:  # repr is exact, but JSON has no inf and nan, and nan has many bit patterns
            return value if math.isfinite(value) else {"$float": struct.pack(">d", value).hex()}
        if type(value) is list:
            return self.pack_all(path, enumerate(value))
        if type(value) is tuple:
            return {"$tuple": self.pack_all(path, enumerate(value))}
        if isinstance(value, Mapping):
            return self.pack_mapping(path, value)
        if isinstance(value, np.generic) and value.dtype.kind in "biufc":
            return {"$scalar": [value.dtype.str, value.tobytes().hex()]}
        if type(value) is np.ndarray and value.dtype.kind in "biufc":
            return {"$array": self.put(value)}
        if isinstance(value, Tensor) and is_plain(value):
            return {"$tensor": [str(value.dtype), *self.put(as_array(value))]}
        raise unstorable(path, value)

    def pack_all(self, path: str, items: Iterable[tuple[object, object]]) -> list[Json]:
        """Turn the values of a list or mapping into JSON; their keys only say where they stand."""
        return [self.pack(f"{path}.{key}" if path else str(key), value) for key, value in items]

    def pack_mapping(self, path: str, mapping: Mapping[object, object]) -> Json:
        """Turn a mapping whose keys are words into a JSON object, and any other into a list of pairs."""
        for key in mapping:
            if type(key) not in (str, int):
                raise TypeError(f"a checkpoint cannot hold {path or 'a state'} with the key {key!r}: use str or int")
        values = self.pack_all(path, mapping.items())
        if all(type(key) is str and not key.startswith("$") for key in mapping):
            return {str(key): value for key, value in zip(mapping, values, strict=True)}
        keys = [self.pack(path, key) for key in mapping]
        return {"$dict": [[key, value] for key, value in zip(keys, values, strict=True)]}

    def put(self, array: Array) -> list[Json]:
        """Put an array aside, and say where and how it is stored.

        Its dimensions keep their order in memory, on which the last bit of a product may depend; gaps are not kept.
        """
        order = list(range(array.ndim))
        if not array.flags.c_contiguous:
            order.sort(key=lambda axis: -abs(array.strides[axis]))
        place = self.size
        self.arrays.append(np.ascontiguousarray(array.transpose(order)))
        self.size += array.nbytes
        return [array.dtype.str, list(array.shape), list(order), place]


def unpack(value: Any, store: bytes) -> Any:
    """Turn what `Packer.pack` returned back into what it was given; `store` holds the bytes of all arrays."""
    match value:
        case list():
            return [unpack(item, store) for item in value]
        case {"$int": digits}:
            return int(digits, 16)
        case {"$float": bits}:
            return struct.unpack(">d", bytes.fromhex(bits))[0]
        case {"$tuple": items}:
            return tuple(unpack(item, store) for item in items)
        case {"$dict": items}:
            return {unpack(key, store): unpack(item, store) for key, item in items}
        case {"$scalar": [dtype, bits]}:
            return np.frombuffer(bytes.fromhex(bits), dtype)[0]
        case {"$array": where}:
            return taken(store, *where)
        case {"$tensor": [dtype, *where]}:
            return torch.from_numpy(taken(store, *where)).view(DTYPES[dtype])
        case dict():
            return {key: unpack(item, store) for key, item in value.items()}
    return value


def taken(store: bytes, dtype: str, shape: list[int], order: list[int], place: int) -> Array:
    """Copy an array out of the bytes of all arrays, from where `Packer.put` has put it."""
    end = place + np.dtype(dtype).itemsize * math.prod(shape)
    numbers = np.frombuffer(bytearray(memoryview(store)[place:end]), dtype)  # a copy, which may be written to
    return numbers.reshape([shape[axis] for axis in order]).transpose(np.argsort(order))


def is_plain(tensor: Tensor) -> bool:
    """Whether the tensor is a block of numbers: not sparse, nested, quantised, or without data."""
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized or tensor.is_meta)


def as_array(tensor: Tensor) -> Array:
    """A tensor's numbers, or integers of the same bits where numpy lacks the dtype."""
    numbers = tensor.detach().cpu().resolve_conj().resolve_neg()
    try:
        return numbers.numpy()
    except TypeError:
        return numbers.view(BITS[numbers.itemsize]).numpy()


def unstorable(path: str, value: object) -> TypeError:
    """The error for a value that cannot be stored; it names the value's place, its type, and what is storable."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    dtype = f" of {value.dtype}" if isinstance(value, np.ndarray | Tensor) else ""
    return TypeError(f"a checkpoint cannot hold {path or 'a state'} of type {kind}{dtype}: use {STORABLE}")

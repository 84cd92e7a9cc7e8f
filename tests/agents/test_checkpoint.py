"""A state comes back bit for bit, and what cannot is refused by name."""

import json
import math
import random
import struct
from collections import OrderedDict, namedtuple
from enum import IntEnum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from geonpg.agents.checkpoint import read, write
from geonpg.kfac import Categorical, NaturalGradient


def same(a: Any, b: Any) -> bool:
    """Equal in type and in every bit, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and list(map(type, a)) == list(map(type, b)) and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray | np.generic):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and a.device == b.device and raw(a) == raw(b)
    return bool(a == b)


def raw(tensor: torch.Tensor) -> list[int]:
    numbers = tensor.detach().resolve_conj().flatten()
    return numbers.view(torch.uint8).tolist() if len(numbers) else []


def back(folder: Path, state: Any) -> dict[str, Any]:
    write(folder / "state.ckpt", state)
    return read(folder / "state.ckpt")


RNG = np.random.default_rng(0)
NAN_WITH_PAYLOAD = struct.unpack("d", struct.pack("Q", 0xFFF8000000001234))[0]
PLAIN = {
    "none": None, "bools": [True, False], "ints": [0, 1, -1, 2**53, -(2**53) - 1, 2**127 + 1, -(2**64), 7**9000],
    "floats": [0.0, -0.0, 0.1, 1 / 3, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, NAN_WITH_PAYLOAD],
    "strings": ["", "Γ ∇ 😀", "\0\n\"\\", "\ud83d", "\ud83d\ude00"],
    "empty": [[], (), {}, [[]], ((),), {"a": {}}], "nested": ([1, (2, {"a": (3.0,)})], None),
    "keys": [{0: "int", "0": "str", -5: 1, 2**80: 2}, {"": 1}, {"$tuple": [1]}, {"$int": "1", "b": 2}, {"a.b": 1}],
}  # fmt: skip
NUMPY_DTYPES = [*"?bhilBHILefdgFDG", ">f8", ">i2"]
ARRAYS = [
    RNG.normal(size=(3, 4)), np.array(2.5), np.array([-0.0, np.nan]),
    np.empty(0), np.empty((0, 3)), np.empty((2, 0, 5), np.int8),
    np.asfortranarray(RNG.normal(size=(3, 4))), RNG.normal(size=(6, 4))[::2, ::-1],
    RNG.normal(size=(2, 3, 4)).swapaxes(0, 1),
]  # fmt: skip
TORCH_DTYPES = [
    torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64,
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.float8_e4m3fn, torch.float8_e5m2, torch.bfloat16, torch.float16, torch.float32, torch.float64,
    torch.complex32, torch.complex64, torch.complex128,
]  # fmt: skip


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values(name: str, tmp_path: Path) -> None:
    assert same(back(tmp_path, {name: PLAIN[name]}), {name: PLAIN[name]})


@pytest.mark.parametrize("dtype", NUMPY_DTYPES)
def test_numpy_dtypes(dtype: str, tmp_path: Path) -> None:
    size = np.dtype(dtype).itemsize
    bits = RNG.integers(0, 2 if dtype == "?" else 256, (5, 3 * size), np.uint8)
    array = bits.view(dtype)
    state = {"array": array, "point": np.array(array[0, 0], dtype), "scalar": array[0, 1]}
    assert same(back(tmp_path, state), state)


@pytest.mark.parametrize("array", ARRAYS, ids=lambda a: f"{a.shape}{a.strides}")
def test_arrays_of_any_shape_and_order(array: np.ndarray, tmp_path: Path) -> None:
    state = back(tmp_path, {"array": array, "tensor": torch.from_numpy(array.copy("K"))})
    assert same(state["array"], array)
    assert same(state["tensor"].numpy(), array)
    if array.size:
        assert state["array"].strides == state["tensor"].numpy().strides == array.copy("K").strides
    assert state["array"].flags.writeable


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3, 4)], ids=str)
def test_torch_dtypes(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    bits = torch.randint(2 if dtype == torch.bool else 256, (math.prod(shape) * dtype.itemsize,), dtype=torch.uint8)
    state = {"tensor": bits.view(dtype).reshape(shape)}
    assert same(back(tmp_path, state), state)


def test_tensors_come_back_as_numbers_alone(tmp_path: Path) -> None:
    """No graph, no lazy conjugation, no gaps; but the order of dimensions in memory stays."""
    numbers = torch.randn(4, 3, dtype=torch.complex64)
    image = torch.randn(2, 3, 4, 5, dtype=torch.bfloat16).to(memory_format=torch.channels_last)
    state = back(tmp_path, {
        "parameter": nn.Parameter(numbers.real), "grown": 2 * nn.Parameter(numbers.real), "conjugate": numbers.conj(),
        "expanded": torch.ones(1).expand(3), "image": image,
    })  # fmt: skip
    assert type(state["parameter"]) is torch.Tensor
    assert same(state["parameter"], numbers.real.clone())
    assert not state["grown"].requires_grad
    assert same(state["conjugate"], numbers.conj().resolve_conj())
    assert same(state["expanded"], torch.ones(3))
    assert same(state["image"], image)
    assert state["image"].stride() == image.stride()


def test_mappings_come_back_as_dicts_in_order(tmp_path: Path) -> None:
    assert same(back(tmp_path, OrderedDict(b=1, a=OrderedDict(d=2, c=3))), {"b": 1, "a": {"d": 2, "c": 3}})


@pytest.mark.parametrize(
    "kind", [np.random.PCG64, np.random.PCG64DXSM, np.random.MT19937, np.random.Philox, np.random.SFC64]
)
def test_generators_go_on(kind: type[np.random.BitGenerator], tmp_path: Path) -> None:
    generator, other = np.random.Generator(kind(1)), np.random.Generator(kind(2))
    generator.normal(size=7)
    source, target = torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)
    torch.randn(7, generator=source)
    state = back(
        tmp_path, {"numpy": generator.bit_generator.state, "torch": source.get_state(), "python": random.getstate()}
    )
    other.bit_generator.state = state["numpy"]
    target.set_state(state["torch"])
    assert same(generator.normal(size=100), other.normal(size=100))
    assert same(torch.randn(100, generator=source), torch.randn(100, generator=target))
    assert state["python"] == random.getstate()


@pytest.mark.parametrize("kind", ["adam", "natural"])
def test_training_goes_on_bit_for_bit(kind: str, tmp_path: Path) -> None:
    def make(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        module = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
        if kind == "adam":
            return module, torch.optim.Adam(module.parameters())
        return module, NaturalGradient(module, Categorical(), rule="geof")

    def train(module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        def closure() -> torch.Tensor:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(x), t)
            loss.backward()
            return loss

        for _ in range(3):
            optimizer.step(closure)

    x, t = torch.randn(64, 5), torch.randint(3, (64,))
    (module, optimizer), (other, other_optimizer) = make(1), make(2)
    train(module, optimizer)
    state = back(tmp_path, {"module": module.state_dict(), "optimizer": optimizer.state_dict()})
    other.load_state_dict(state["module"])
    other_optimizer.load_state_dict(state["optimizer"])
    train(module, optimizer)
    train(other, other_optimizer)
    assert same(dict(module.state_dict()), dict(other.state_dict()))


class Colour(IntEnum):
    RED = 1


UNSTORABLE = {
    "set": {1}, "bytes": b"1", "complex": 1j, "object": object(), "function": len, "dtype": torch.float32,
    "enumeration": Colour.RED, "named tuple": namedtuple("Point", "x")(1), "size": torch.Size([1]),
    "objects": np.array([None]), "text": np.array(["a"]), "records": np.zeros(1, "i4,f4"),
    "date": np.datetime64(0, "s"), "masked": np.ma.masked_array([1.0], [True]), "sparse": torch.eye(2).to_sparse(),
    "meta": torch.empty(2, device="meta"),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSTORABLE)
def test_what_cannot_be_stored_is_named(name: str, tmp_path: Path) -> None:
    value = UNSTORABLE[name]
    with pytest.raises(
        TypeError, match=rf"cannot hold optimizer\.last\.1 of type \S*{type(value).__name__}\b.*: use None, bool"
    ):
        write(tmp_path / "a.ckpt", {"fine": 1, "optimizer": {"last": [0, value]}})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("key", [None, True, 1.5, (1, 2), np.int64(1)], ids=repr)
def test_keys_that_cannot_be_stored_are_named(key: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"cannot hold a\.b with the key .*: use str or int"):
        write(tmp_path / "a.ckpt", {"a": {"b": {key: 1}}})


def test_a_state_is_a_mapping(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot hold a state of type list"):
        back(tmp_path, [1])


SMALL = {"step": 3, "weights": np.arange(6.0).reshape(2, 3), "generator": torch.arange(5, dtype=torch.uint8), "lr": 0.1}


def test_numpy_opens_it_without_pickle(tmp_path: Path) -> None:
    write(tmp_path / "a.ckpt", {"policy": SMALL})
    with np.load(tmp_path / "a.ckpt", allow_pickle=False) as file:
        assert file["format"] == b"geonpg checkpoint"
        policy = json.loads(file["state.json"])["policy"]
        dtype, shape, order, first = policy["weights"]["$array"]
        weights = np.frombuffer(file["arrays.bin"], dtype, math.prod(shape), first).reshape(shape)
    assert (policy["step"], policy["lr"], order) == (3, 0.1, [0, 1])
    assert same(weights, SMALL["weights"])


def test_equal_states_give_equal_files(tmp_path: Path) -> None:
    write(tmp_path / "a.ckpt", SMALL)
    write(tmp_path / "b.ckpt", read(tmp_path / "a.ckpt"))
    assert (tmp_path / "a.ckpt").read_bytes() == (tmp_path / "b.ckpt").read_bytes()

"""The mean of a Gaussian policy's actions: a few small layers in single precision, one observation at a time.

Products run along a layer's outputs, so that the compiler makes vector instructions of them without changing the order
of any sum: the result is the same whatever environments and threads surround it.
"""

from typing import cast

import numba
import numpy as np

from .functions import Floats, Integers, Python, helper
from .sources import kept

LINEAR, TANH, RELU = 0, 1, 2

# tanh(x) = x P(x^2) / Q(x^2) for |x| < 8, to 3e-7: a least-squares fit of relative errors, weighted until all are even.
LARGEST = 8.0
TOP = (1.0, 0.13444535434246063, 0.0035716432612389326, 2.189541373809334e-05, 1.523148007720465e-08)
BOTTOM = (1.0, 0.46777862310409546, 0.026164615526795387, 0.0003411366487853229, 8.522876555616676e-07)


def fused(python: Python) -> Python:
    """Compile a function whose products and sums may be rounded once, together."""
    return cast(Python, kept(numba.njit, python, error_model="numpy", fastmath={"contract"}))


@fused
def activate(x: Floats, size: int, kind: int) -> None:
    """Apply an activation in place to the first numbers."""
    one = numba.float32
    if kind == RELU:
        for j in range(size):
            x[j] = max(x[j], one(0))
    elif kind == TANH:
        for j in range(size):
            y = min(max(x[j], one(-LARGEST)), one(LARGEST))
            u = y * y
            top = (((one(TOP[4]) * u + one(TOP[3])) * u + one(TOP[2])) * u + one(TOP[1])) * u + one(1)
            low = (((one(BOTTOM[4]) * u + one(BOTTOM[3])) * u + one(BOTTOM[2])) * u + one(BOTTOM[1])) * u + one(1)
            x[j] = y * top / low


@fused
def forward(weights: Floats, widths: Integers, kinds: Integers, x: Floats, y: Floats) -> Floats:
    """Compute the layers' output for the inputs in x; x and y are both used as room, one of them holds the output.

    weights: for each layer the bias [out], then the transposed weight [in, out], end to end.
    widths: of the inputs and of every layer.
    kinds: each layer's activation.
    """
    at = 0
    for layer in range(len(kinds)):
        rows, columns = widths[layer], widths[layer + 1]
        for j in range(columns):
            y[j] = weights[at + j]
        at += columns
        for i in range(rows):
            factor, row = x[i], weights[at : at + columns]
            for j in range(columns):
                y[j] += factor * row[j]
            at += columns
        activate(y, columns, kinds[layer])
        x, y = y, x
    return x


@helper
def means(weights: Floats, widths: Integers, kinds: Integers, inputs: Floats) -> Floats:
    """Compute the layers' outputs for a batch: [n, in] -> [n, out]."""
    room = np.empty((2, widths.max()), np.float32)
    found = np.empty((len(inputs), widths[-1]), np.float32)
    for n in range(len(inputs)):
        room[0, : widths[0]] = inputs[n]
        found[n] = forward(weights, widths, kinds, room[0], room[1])[: widths[-1]]
    return found

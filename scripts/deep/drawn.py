"""Images that we draw ourselves: CURVES, and small stand-ins for MNIST and FACES; rows of pixels, float32."""

import numpy as np
from numpy.typing import NDArray

Images = NDArray[np.float32]
Labels = NDArray[np.int64]
SIDE = 28
PEN = 0.85  # standard deviation of the ink around a stroke, in pixels
FACE_SIDE = 25

# The ends of a seven-segment display's segments, and which of them are lit for 0 to 9.
CORNERS = np.array([[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]], float)
SEGMENTS = np.array([[0, 1], [0, 2], [1, 3], [2, 3], [2, 4], [3, 5], [4, 5]])
LIT = (0b1110111, 0b0100100, 0b1011101, 0b1101101, 0b0101110, 0b1101011, 0b1111011, 0b0100101, 0b1111111, 0b1101111)


def ink(strokes: NDArray[np.float64], block: int = 64) -> Images:
    """Draw points along strokes [cases, points, 2]: a pixel is as dark as its nearest point is near."""
    centres = np.arange(SIDE, dtype=np.float32) + 0.5
    images = np.empty((len(strokes), SIDE * SIDE), np.float32)
    for start in range(0, len(strokes), block):
        points = strokes[start : start + block].astype(np.float32)
        across, down = ((centres - points[..., k, None]) ** 2 for k in (0, 1))
        nearest = (across[:, :, None, :] + down[:, :, :, None]).min(1)
        images[start : start + block] = np.exp(-nearest / (2 * PEN**2)).reshape(len(points), -1)
    images[images < 0.02] = 0
    return images


def curves(cases: int, seed: int, points: int = 60) -> Images:
    """Draw smooth curves through three random points: x at least 2 apart, coordinates in [2, 26].

    The curve is the parabola through them in a parameter that grows by the square root of their distances, which
    bends gently; where it would leave the image it is held at the edge.
    """
    generator = np.random.default_rng(seed)
    x = np.sort(generator.uniform(2, 22, (cases, 3)), 1) + np.array([0, 2, 4])
    through = np.stack([x, generator.uniform(2, 26, (cases, 3))], -1)
    steps = np.sqrt(np.linalg.norm(np.diff(through, axis=1), axis=-1))
    middle = (steps[:, :1] / steps.sum(1, keepdims=True))[..., None]  # the second point's parameter
    s = np.linspace(0, 1, points)[None, :, None]
    first = (s - middle) * (s - 1) / middle
    second = s * (s - 1) / (middle * (middle - 1))
    third = s * (s - middle) / (1 - middle)
    drawn = first * through[:, :1] + second * through[:, 1:2] + third * through[:, 2:]
    return ink(drawn.clip(0.5, SIDE - 0.5))


def digits(cases: int, seed: int, points: int = 8) -> tuple[Images, Labels]:
    """Draw seven-segment digits, each stretched, sheared, moved and bent a little: a stand-in for MNIST."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 10, cases)
    lit = np.array([[bit == "1" for bit in f"{code:07b}"[::-1]] for code in LIT])
    corners = CORNERS - CORNERS.mean(0) + 0.06 * generator.standard_normal((cases, *CORNERS.shape))
    shape = np.array([[9.0, 0.0], [0.0, 8.0]]) + 0.7 * generator.standard_normal((cases, 2, 2))
    corners = corners @ shape + SIDE / 2 + generator.uniform(-1.5, 1.5, (cases, 1, 2))
    ends = corners[:, SEGMENTS]  # [cases, segments, 2 ends, 2]
    s = np.linspace(0, 1, points)[:, None]
    strokes = ends[:, :, :1] * (1 - s) + ends[:, :, 1:] * s
    strokes[~lit[labels]] = -99.0  # off the page
    return ink(strokes.reshape(cases, -1, 2)), labels


def blobs(cases: int, seed: int) -> Images:
    """Draw patches of a few soft light and dark spots: a stand-in for FACES."""
    generator = np.random.default_rng(seed)
    centres, widths = generator.uniform(0, FACE_SIDE, (cases, 5, 2)), generator.uniform(3, 7, (cases, 5, 1))
    pixels = np.arange(FACE_SIDE) + 0.5
    across, down = (np.exp(-((pixels - centres[..., k, None]) ** 2) / (2 * widths**2)) for k in (0, 1))
    weights = generator.standard_normal((cases, 5))
    return np.einsum("cs,csi,csj->cij", weights, down, across).reshape(cases, -1).astype(np.float32)

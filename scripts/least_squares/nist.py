"""The nonlinear regressions of NIST's Statistical Reference Datasets, with starts and certified values.

The data are public (https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml): the files in nist-data/ hold, for each of
27 problems, the observations, two starts, and parameters and residual sum of squares as NIST certifies them to eleven
digits. The models are written here; each file names its own as NIST does.
"""

import math
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

import torch
from torch import Tensor

from geonpg.kfac import Term
from geonpg.scripts.least_squares.fits import Formula
from geonpg.scripts.least_squares.pinns import difference
from geonpg.scripts.least_squares.problem import LeastSquares

FOLDER = files("geonpg.scripts.least_squares") / "nist-data"


def gauss(b: Tensor, x: Tensor) -> Tensor:
    """A decay and two peaks."""
    peaks = b[2] * torch.exp(-(((x - b[3]) / b[4]) ** 2)) + b[5] * torch.exp(-(((x - b[6]) / b[7]) ** 2))
    return b[0] * torch.exp(-b[1] * x) + peaks


def lanczos(b: Tensor, x: Tensor) -> Tensor:
    """Three exponentials."""
    return b[0] * torch.exp(-b[1] * x) + b[2] * torch.exp(-b[3] * x) + b[4] * torch.exp(-b[5] * x)


def cubic_ratio(b: Tensor, x: Tensor) -> Tensor:
    """A quotient of cubic polynomials."""
    return (b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3) / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def chwirut(b: Tensor, x: Tensor) -> Tensor:
    """A decay over a line."""
    return torch.exp(-b[0] * x) / (b[1] + b[2] * x)


def saturation(b: Tensor, x: Tensor) -> Tensor:
    """An approach to a limit."""
    return b[0] * (1 - torch.exp(-b[1] * x))


def enso(b: Tensor, x: Tensor) -> Tensor:
    """Three cycles, of which one lasts twelve months."""
    cycles = ((b[1], b[2], 12.0), (b[4], b[5], b[3]), (b[7], b[8], b[6]))
    angles = [2 * math.pi * x / period for _, _, period in cycles]
    waves = [c * torch.cos(a) + s * torch.sin(a) for (c, s, _), a in zip(cycles, angles, strict=True)]
    return b[0] + waves[0] + waves[1] + waves[2]


Model = Callable[..., Tensor]  # of the parameters [p] and every predictor [], the response []
MODELS: dict[str, Model] = {
    "Misra1a": saturation,
    "Chwirut2": chwirut,
    "Chwirut1": chwirut,
    "Lanczos3": lanczos,
    "Gauss1": gauss,
    "Gauss2": gauss,
    "DanWood": lambda b, x: b[0] * x ** b[1],
    "Misra1b": lambda b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Kirby2": lambda b, x: (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2),
    "Hahn1": cubic_ratio,
    "Nelson": lambda b, x1, x2: b[0] - b[1] * x1 * torch.exp(-b[2] * x2),
    "MGH17": lambda b, x: b[0] + b[1] * torch.exp(-x * b[3]) + b[2] * torch.exp(-x * b[4]),
    "Lanczos1": lanczos,
    "Lanczos2": lanczos,
    "Gauss3": gauss,
    "Misra1c": lambda b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Roszman1": lambda b, x: b[0] - b[1] * x - torch.atan(b[2] / (x - b[3])) / math.pi,
    "ENSO": enso,
    "MGH09": lambda b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "Thurber": cubic_ratio,
    "BoxBOD": saturation,
    "Rat42": lambda b, x: b[0] / (1 + torch.exp(b[1] - b[2] * x)),
    "MGH10": lambda b, x: b[0] * torch.exp(b[1] / (x + b[2])),
    "Eckerle4": lambda b, x: b[0] / b[1] * torch.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Rat43": lambda b, x: b[0] / (1 + torch.exp(b[1] - b[2] * x)) ** (1 / b[3]),
    "Bennett5": lambda b, x: b[0] * (b[1] + x) ** (-1 / b[2]),
}  # in NIST's order, which is that of difficulty
STARTS = 2


@dataclass(frozen=True)
class Dataset:
    """One problem: predictors x [n, d], responses y [n, 1], and what is certified of the solution."""

    model: Model
    x: Tensor
    y: Tensor
    starts: tuple[Tensor, ...]
    certified: Tensor
    rss: float

    def predict(self, b: Tensor, x: Tensor) -> Tensor:
        """Compute the model at one input [d], as [1]."""
        return self.model(b, *x.unbind(-1)).unsqueeze(-1)


@cache
def read_dataset(name: str) -> Dataset:
    """Read a problem's file."""
    table = tomllib.loads((FOLDER / f"{name}.toml").read_text(encoding="utf-8"))

    def numbers(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float64)

    x = torch.stack([numbers(values) for key, values in table.items() if key.startswith("x")], 1)
    y = numbers(table["y"]).unsqueeze(1)
    response = y.log() if table["model"].startswith("log[y]") else y
    starts = tuple(numbers(start) for start in table["starts"])
    return Dataset(MODELS[name], x, response, starts, numbers(table["certified"]), table["rss"])


def make_regression(name: str, start: int) -> LeastSquares:
    """Make the problem at one of its starts; the error is the largest relative one of all parameters."""
    data = read_dataset(name)
    module = Formula(data.predict, data.starts[start])

    def error() -> float:
        return float(((module.b.detach() - data.certified) / data.certified).abs().max())

    return LeastSquares(module, (Term(difference, (data.x, data.y)),), error)

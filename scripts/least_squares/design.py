"""What a study consists of, apart from its seeds and methods; written into its folder, and the same ever after."""

from dataclasses import dataclass

from geonpg.scripts.least_squares.fits import FITS
from geonpg.scripts.least_squares.nist import MODELS
from geonpg.scripts.least_squares.pinns import BOUNDARY, INTERIOR, PINNS

DESIGN = "design.json"
NIST, VARIATIONAL = "nist", "variational"
ALL_PROBLEMS = (*PINNS, *FITS, NIST, VARIATIONAL)
SOLVED = 1e-12  # the loss at which a fit, whose loss can be zero, counts as solved
DIGITS = 1e-6  # the relative error of all parameters at which a regression does


@dataclass(frozen=True)
class Design:
    """How much of everything.

    width: of the networks' two hidden layers (8 to 64).
    jacobians: at which the networks are compared.
    starts: random starts of every fit, per seed.
    most: Jacobians after which a fit or a regression counts as not solved.
    regressions: how many of NIST's problems, in its order.
    """

    width: int = 16
    jacobians: int = 60
    starts: int = 5
    most: int = 500
    regressions: int = len(MODELS)

    @property
    def parameters(self) -> int:
        """How many parameters a network has."""
        return self.width**2 + 5 * self.width + 1

    @property
    def residuals(self) -> int:
        """How many residuals it has."""
        return INTERIOR + BOUNDARY


QUICK = Design(width=8, jacobians=12, starts=2, most=60, regressions=4)

"""Natural gradients with higher-order invariance, for any torch model.

The main path: `NaturalGradient(module, family, rule=..., solver=...)` in `optimizer.py`; what it
integrates is in `network_flow.py`, the update rules in `rules.py`.
"""

from .cases import Cases, Problem, sparse_initialisation
from .composite import Generic, Product
from .control import Constant, Controller, LineSearch, TrustRegion
from .discrete import Bernoulli, BernoulliMean, Categorical, CategoricalMean
from .families import Family, FixedGaussian, FreeLogStd, Gaussian
from .fisher import FactorSettings, KroneckerFisher
from .flow import DenseFlow, Flow
from .hessian_free import HessianFree
from .hessian_free_flow import HessianFreeSettings
from .metric import Metric
from .optimizer import NaturalGradient, Report
from .ranks import ProcessGroup, Ranks
from .rules import RULES, Rule
from .solvers import SOLVERS, CgSolver, Solver

__all__ = [
    "RULES", "SOLVERS", "Bernoulli", "BernoulliMean", "Cases", "Categorical", "CategoricalMean", "CgSolver",
    "Constant", "Controller", "DenseFlow", "FactorSettings", "Family", "FixedGaussian", "Flow", "FreeLogStd",
    "Gaussian", "Generic", "HessianFree", "HessianFreeSettings", "KroneckerFisher", "LineSearch", "Metric",
    "NaturalGradient", "Problem", "ProcessGroup", "Product", "Ranks", "Report", "Rule", "Solver", "TrustRegion",
    "sparse_initialisation",
]  # fmt: skip

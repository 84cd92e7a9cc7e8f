"""Natural gradients with higher-order invariance, for any torch model.

The main path: `NaturalGradient(module, family, rule=..., solver=...)` in `optimizer.py`. What it integrates is in
`network_flow.py`; the update rules, and with them the paper, are in `rules.py`: the file to read first.
Other rooms import from here, never from the files.
"""

from .batch import Batch, Forward
from .composite import Generic, Product
from .control import Constant, Controller, Curve, KlSearch, LineSearch, Move, TrustRegion
from .discrete import Bernoulli, BernoulliMean, Categorical, CategoricalMean
from .families import Family, FixedGaussian, FreeLogStd, Gaussian
from .fisher import FactorSettings, KroneckerFisher
from .flow import DenseFlow, Flow, StepFailure
from .hessian_free import Cases, HessianFree, HessianFreeSettings, Problem, Truncation, sparse_initialisation
from .metric import Metric
from .network import Call, Network
from .network_flow import FlowMemory, Geometry, NetworkFlow
from .optimizer import NaturalGradient
from .ranks import ALONE, ProcessGroup, Ranks
from .report import Report
from .rules import RULES, FasterGeodesic, Rule
from .solvers import SOLVERS, CgSolver, Solver

__all__ = [
    "ALONE", "RULES", "SOLVERS", "Batch", "Bernoulli", "BernoulliMean", "Call", "Cases", "Categorical",
    "CategoricalMean", "CgSolver", "Constant", "Controller", "Curve", "DenseFlow", "FactorSettings", "Family",
    "FasterGeodesic", "FixedGaussian", "Flow", "FlowMemory", "Forward", "FreeLogStd", "Gaussian", "Generic", "Geometry",
    "HessianFree", "HessianFreeSettings", "KlSearch", "KroneckerFisher", "LineSearch", "Metric", "Move",
    "NaturalGradient", "Network", "NetworkFlow", "Problem", "ProcessGroup", "Product", "Ranks", "Report", "Rule",
    "Solver", "StepFailure", "Truncation", "TrustRegion", "sparse_initialisation",
]  # fmt: skip

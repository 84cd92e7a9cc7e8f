"""Natural gradients with higher-order invariance, for any torch model.

The main path: `NaturalGradient(module, family, rule=..., solver=...)` in `optimizer.py`. What it integrates is in
`network_flow.py`; the update rules, and with them the paper, are in `rules.py`: the file to read first.
Other rooms import from here, never from the files.
"""

from .batch import Batch, CallsBatch, Forward
from .composite import Generic, Product
from .control import Constant, Controller, Curve, KlSearch, LineSearch, Move, SolverRegion, TrustRegion
from .damping import Damping
from .discrete import Bernoulli, BernoulliMean, Categorical, CategoricalMean
from .families import Family, FixedGaussian, FreeLogStd, Gaussian
from .fisher import FactorSettings, KroneckerFisher
from .flow import DenseFlow, Flow, StepFailure
from .hessian_free import Cases, HessianFree, HessianFreeSettings, Problem, Truncation, sparse_initialisation
from .levenberg_marquardt import LevenbergMarquardt, Nielsen, Quarters, Schedule
from .metric import Metric
from .network import Call, Network
from .network_flow import NetworkFlow
from .optimizer import NaturalGradient
from .point import FlowMemory, Geometry
from .ranks import ALONE, ProcessGroup, Ranks
from .report import Report
from .residuals import Term
from .rules import RULES, FasterGeodesic, Rule
from .solvers import SOLVERS, CgSolver, JacobianSolver, Solver

__all__ = [
    "ALONE", "RULES", "SOLVERS", "Batch", "Bernoulli", "BernoulliMean", "Call", "CallsBatch", "Cases", "Categorical",
    "CategoricalMean", "CgSolver", "Constant", "Controller", "Curve", "Damping", "DenseFlow", "FactorSettings",
    "Family", "FasterGeodesic", "FixedGaussian", "Flow", "FlowMemory", "Forward", "FreeLogStd", "Gaussian", "Generic",
    "Geometry", "HessianFree", "HessianFreeSettings", "JacobianSolver", "KlSearch", "KroneckerFisher",
    "LevenbergMarquardt", "LineSearch", "Metric", "Move", "NaturalGradient", "Network", "NetworkFlow", "Nielsen",
    "Problem", "ProcessGroup", "Product", "Quarters", "Ranks", "Report", "Rule", "Schedule", "Solver", "SolverRegion",
    "StepFailure", "Term", "Truncation", "TrustRegion", "sparse_initialisation",
]  # fmt: skip

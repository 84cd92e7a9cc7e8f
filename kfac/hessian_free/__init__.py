"""Hessian-free natural gradient (Martens, 2010; paper, experiments): all training cases, any update rule.

The main path: `HessianFree` in `optimizer.py`; what an update integrates is in `flow.py`.
"""

from .cases import Cases, Evaluation, Problem, sparse_initialisation
from .chunk import HessianFreeSettings
from .flow import HessianFreeFlow
from .optimizer import HessianFree, HessianFreeReport
from .truncated import Truncation

__all__ = [
    "Cases", "Evaluation", "HessianFree", "HessianFreeFlow", "HessianFreeReport", "HessianFreeSettings", "Problem",
    "Truncation", "sparse_initialisation",
]  # fmt: skip

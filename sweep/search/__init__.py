"""Optuna's search of a study: the best design, and a front, from a few thousand trials."""

from kvwall.sweep.search.optimize import optimize
from kvwall.sweep.search.result import OptimizeResult

__all__ = ["OptimizeResult", "optimize"]

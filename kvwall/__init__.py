"""kvwall: where the memory wall stands for LLM serving, and which deployment clears it.

The public API, each name imported when it is first used:

    import kvwall as kv

    kv.evaluate(model="meta-llama/Llama-3.3-70B-Instruct", hardware="h100-sxm", context=131072, tensor_parallel=8)
    kv.crossover(model="paper/llama-3-70b", hardware="paper/h100", batch=[1, 32])
    kv.remedies(model="paper/llama-3-70b", hardware="paper/h100", context=131072, quality_budget=0.02)
    study = kv.Study.load("memory-wall")
    kv.sweep(study); kv.open("outputs/memory-wall"); kv.pareto("outputs/memory-wall"); kv.optimize(study)
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import kvwall.sweep as _folder

if TYPE_CHECKING:
    from pathlib import Path

    import xarray as xr

    from kvwall.spaces.errors import InputError
    from kvwall.sweep.crossover import CrossoverRow, crossover
    from kvwall.sweep.evaluate import DesignReport, evaluate
    from kvwall.sweep.pareto import pareto
    from kvwall.sweep.remedies import RemediesReport, remedies
    from kvwall.sweep.search import optimize
    from kvwall.sweep.study import Study

    def open(path: str | Path) -> xr.Dataset:
        """The results folder of a sweep: the stored grid, lazily."""

    def sweep(study: Study, out: str | Path | None = None) -> xr.Dataset:
        """Run a study, or finish it, into its results folder; the answer is the folder, opened."""


_WHERE = {
    "CrossoverRow": ("kvwall.sweep.crossover", "CrossoverRow"),
    "DesignReport": ("kvwall.sweep.evaluate", "DesignReport"),
    "InputError": ("kvwall.spaces.errors", "InputError"),
    "RemediesReport": ("kvwall.sweep.remedies", "RemediesReport"),
    "Study": ("kvwall.sweep.study", "Study"),
    "crossover": ("kvwall.sweep.crossover", "crossover"),
    "evaluate": ("kvwall.sweep.evaluate", "evaluate"),
    "open": ("kvwall.sweep.store", "open_results"),
    "optimize": ("kvwall.sweep.search", "optimize"),
    "pareto": ("kvwall.sweep.pareto", "pareto"),
    "remedies": ("kvwall.sweep.remedies", "remedies"),
}

__all__ = [
    "CrossoverRow",
    "DesignReport",
    "InputError",
    "RemediesReport",
    "Study",
    "crossover",
    "evaluate",
    "open",
    "optimize",
    "pareto",
    "remedies",
    "sweep",
]


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _imported(*_WHERE[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def _imported(module: str, name: str) -> Any:
    return getattr(importlib.import_module(module), name)


class _CallableFolder(ModuleType):
    """`kvwall.sweep` is a folder of modules and, as `kv.sweep(study)`, the function that runs a study.

    Python binds the folder to that name as soon as one of its modules is imported, so a function there would vanish.
    """

    def __call__(self, study: Study, out: str | Path | None = None) -> xr.Dataset:
        """Run a study, or finish it, into its results folder; the answer is what it stores of the grid, opened.

        A study that stores no points (`store` is not `full`) answers with its front.
        """
        from pathlib import Path

        from kvwall.sweep.keeping import STORES
        from kvwall.sweep.run import run_sweep
        from kvwall.sweep.store import open_front, open_results

        opened = open_results if STORES[study.store].points else open_front
        return opened(run_sweep(study, None if out is None else Path(out)).out)


sys.modules[_folder.__name__].__class__ = _CallableFolder

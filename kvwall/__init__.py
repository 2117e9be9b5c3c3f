"""kvwall: where the memory wall stands for LLM serving, and which deployment clears it.

The public API, each name imported when it is first used:

    import kvwall as kv

    kv.evaluate(model="meta-llama/Llama-3.3-70B-Instruct", hardware="h100-sxm", context=131072, tensor_parallel=8)
    kv.crossover(model="paper/llama-3-70b", hardware="paper/h100", batch=[1, 32])
    study = kv.Study.load("memory-wall")
    kv.sweep(study); kv.open("outputs/memory-wall"); kv.pareto(dataset); kv.optimize(study)
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

import kvwall.sweep as _folder

if TYPE_CHECKING:
    from kvwall.sweep.crossover import CrossoverRow as CrossoverRow
    from kvwall.sweep.crossover import crossover as crossover
    from kvwall.sweep.evaluate import DesignReport as DesignReport
    from kvwall.sweep.evaluate import evaluate as evaluate
    from kvwall.sweep.study import Study as Study

_WHERE = {
    "CrossoverRow": ("kvwall.sweep.crossover", "CrossoverRow"),
    "DesignReport": ("kvwall.sweep.evaluate", "DesignReport"),
    "InputError": ("kvwall.spaces.errors", "InputError"),
    "Study": ("kvwall.sweep.study", "Study"),
    "crossover": ("kvwall.sweep.crossover", "crossover"),
    "evaluate": ("kvwall.sweep.evaluate", "evaluate"),
    "open": ("kvwall.sweep.store", "open_results"),
    "optimize": ("kvwall.sweep.search", "optimize"),
    "pareto": ("kvwall.sweep.front", "pareto"),
}
_SWEEP = ("kvwall.sweep.engine", "sweep")

__all__ = [*sorted(_WHERE), "sweep"]


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

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        """Run a study: see `kvwall.sweep.engine.sweep`."""
        return _imported(*_SWEEP)(*arguments, **named)


sys.modules[_folder.__name__].__class__ = _CallableFolder

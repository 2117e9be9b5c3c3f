"""Run in every worker of a test's cluster before anything else (Dask's `preload`): small pieces, and traps.

A file in the folder that KVWALL_TRAPS names is a trap: `once-kill-shard-3` kills the worker that takes shard 3, once;
`kill-shard-3` kills every worker that does; `fail-shard-3` makes it raise.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import signal
from pathlib import Path

import kvwall.sweep.layout as layout
import kvwall.sweep.run as run
import kvwall.sweep.store.shards as shards
import kvwall.sweep.tasks as tasks

SIZES = {
    (shards, "MOST_POINTS"): 30,
    (shards, "MOST_CHUNK_POINTS"): 12,
    (layout, "MOST_COLUMNS"): 6,
    (tasks, "Stream"): functools.partial(tasks.Stream, points_per_call=6),
    (run, "Stream"): functools.partial(run.Stream, points_per_call=6),
}
"""What tests set in their own process as well: both sides must cut the grid alike."""


def dask_setup(worker: object) -> None:
    """Called by Dask in each worker."""
    for (module, name), value in SIZES.items():
        setattr(module, name, value)
    tasks.TASKS = {name: _trapped(name, kind) for name, kind in tasks.TASKS.items()}


def _trapped(name: str, kind: tasks.Kind) -> tasks.Kind:
    def work(place: tasks.Workplace, item: object) -> object:
        _spring(f"{name}-{getattr(item, 'start', item)}")
        return kind.work(place, item)

    return dataclasses.replace(kind, work=work)


def _spring(task: str) -> None:
    folder = Path(os.environ["KVWALL_TRAPS"])
    if (folder / f"once-kill-{task}").exists():
        (folder / f"once-kill-{task}").unlink()
        os.kill(os.getpid(), signal.SIGKILL)
    if (folder / f"kill-{task}").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if (folder / f"fail-{task}").exists():
        raise RuntimeError("a trap")

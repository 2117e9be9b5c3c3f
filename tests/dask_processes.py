"""Schedulers and workers as users start them, by Dask's own command."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path


@contextlib.contextmanager
def dask_process(*words, **environment):
    """A scheduler or a worker, by Dask's own command."""
    command = [sys.executable, "-m", "dask", *words, "--no-dashboard"]
    paths = {"PYTHONPATH": str(Path(__file__).parent.parent)}
    with subprocess.Popen(command, env=os.environ | paths | environment, cwd="/", stderr=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def wait_until(true):
    until = time.monotonic() + 60
    while not true():
        assert time.monotonic() < until
        time.sleep(0.1)


@contextlib.contextmanager
def scheduler(where):
    with dask_process("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(where)) as process:
        wait_until(where.exists)
        yield process

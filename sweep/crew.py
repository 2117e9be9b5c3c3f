"""The same work on many things by a few threads: results in order, so much in flight and no more."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

_MOST: Final = 8
"""Threads: what is in flight stays in memory, and a disk is no quicker for more."""

_Thing = TypeVar("_Thing")
_Result = TypeVar("_Result")


def in_order(work: Callable[[_Thing], _Result], things: Iterable[_Thing]) -> Iterator[_Result]:
    """`work` of each thing, in their order, by one thread per core and one more that may wait for the disk.

    What has begun is finished before this ends, however it ends; what has not begun is dropped.
    """
    threads = min(os.cpu_count() or 1, _MOST) + 1
    pool = ThreadPoolExecutor(threads)
    try:
        flying: deque[Future[_Result]] = deque()
        for thing in things:
            if len(flying) == threads:
                yield flying.popleft().result()
            flying.append(pool.submit(work, thing))
        while flying:
            yield flying.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)

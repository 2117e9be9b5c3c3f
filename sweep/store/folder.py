"""The results folder of a study: created or resumed, locked, filled shard by shard."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from kvwall.spaces.errors import InputError
from kvwall.sweep.crew import in_order
from kvwall.sweep.keeping import PROFILES, STORES
from kvwall.sweep.store import spec_file
from kvwall.sweep.store.atomic import free_bytes, refused, remove_parts, write_atomically
from kvwall.sweep.store.front_file import front_image
from kvwall.sweep.store.lock import FolderLock
from kvwall.sweep.store.packing import check_filters
from kvwall.sweep.store.shard_check import shard_fault
from kvwall.sweep.store.shard_file import ShardFiles
from kvwall.sweep.store.shards import Shard, ShardPlan, shard_plan
from kvwall.sweep.store.summary_file import summary_image
from kvwall.sweep.store.view import view_image

if TYPE_CHECKING:
    from kvwall.sweep.results import FrontTable, Summary
    from kvwall.sweep.study import Study

SHARDS = "shards"
_OURS = {SHARDS, spec_file.NAME, "study.toml", "log.jsonl", "view.nc", "front.nc", "summary.nc", "report.html"}


class ResultsFolder:
    """`outputs/<name>/`, held by one writer. Use it as a context manager, or call `close`."""

    def __init__(self, path: Path, study: Study, plan: ShardPlan, lock: FolderLock) -> None:
        self.path = path
        self.study = study
        self.notices: list[str] = []
        """Sentences for the user: damaged shards that are computed again, leftovers removed."""
        self.plan = plan
        self._files = ShardFiles(study, plan)
        self._lock = lock

    @classmethod
    def create_or_resume(cls, path: Path, study: Study) -> ResultsFolder:
        """Open the folder for writing, made where there is none.

        Raises InputError where it holds another study (naming what changed) or other files, where another process is
        writing, where it cannot be written to, and where the shards still to come would not fit on the disk.
        """
        plan = shard_plan(study)
        if STORES[study.store].points:
            check_filters(PROFILES[study.profile], f"{path} is to be written with")
            refuse_too_big(path, plan)
        _make(path)
        _refuse_foreign(path)
        lock = FolderLock(path)
        try:
            spec_file.settle_spec(path, study.spec())
            if STORES[study.store].points:
                _make(path / SHARDS)
            if not (path / "study.toml").exists():
                write_atomically(path / "study.toml", study.resolved().encode())
        except BaseException:
            lock.release()
            raise
        return cls(path, study, plan, lock)

    def close(self) -> None:
        """Let the next writer in."""
        self._lock.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def missing_shards(self, follow: Callable[[int, int], None] = lambda done, files: None) -> list[Shard]:
        """Shards still to be written, in grid order.

        A final name that carries this study's hash, its own place and the checksum of its own bytes is done. What a
        killed writer left is removed; a damaged or foreign shard is reported in `notices` and in the log, and counts
        as missing. Every byte of the finished shards is read: `follow` is told how many of how many files are.
        """
        removed = remove_parts(self.path) + remove_parts(self.path / SHARDS)
        if removed:
            self._notice("leftovers_removed", f"{removed} unfinished files of an interrupted run were removed")
        there = [shard for shard in self.plan.shards if os.path.lexists(self._path(shard))]
        missing = set(self.plan.shards) - set(there)
        if there:
            follow(0, len(there))
        for done, (shard, fault) in enumerate(zip(there, self._faults(there), strict=True), 1):
            if fault is not None:
                self._notice("shard_rejected", f"{self._path(shard)} is computed again: {fault}")
                missing.add(shard)
            follow(done, len(there))
        return sorted(missing, key=lambda shard: shard.index)

    def _faults(self, shards: Sequence[Shard]) -> Iterator[str | None]:
        """What is wrong with each of these files, if anything; read by one thread per core."""
        yield from in_order(lambda shard: shard_fault(self._path(shard), self.study, self.plan, shard), shards)

    def _path(self, shard: Shard) -> Path:
        return self.path / SHARDS / shard.name

    def write_shard(self, shard: Shard, values: Mapping[str, NDArray[Any]], status: NDArray[np.int8]) -> None:
        """Store one block: every name the study keeps, and the status. Safe to call from several threads.

        Arrays broadcast to `shard.shape`; NaN stands for a metric without a source. Metrics are stored as they are:
        `BlockEvaluator` has rounded them as the study's profile says. The final name appears only when the file is
        whole and on the disk. Raises InputError where the disk is full, ValueError on a wrong block.
        """
        write_atomically(self._path(shard), self._files.image(shard, values, status))

    def settle_shards(self, shards: Sequence[Shard], seconds: float = 60.0) -> None:
        """See that shards which other processes have written are here, and remove what those that died have left.

        Raises InputError where one is missing after so many seconds: a network file system may lag, but not so much.
        """
        until = time.monotonic() + seconds
        while absent := {shard.name for shard in shards} - {entry.name for entry in (self.path / SHARDS).iterdir()}:
            if time.monotonic() > until:
                raise InputError(
                    f"{self.path / SHARDS} lacks {len(absent)} files that workers have written ({min(absent)}, ...): "
                    "all of them must share this folder; the same command writes what is missing"
                )
            time.sleep(0.5)
        remove_parts(self.path / SHARDS)

    def write_view(self) -> None:
        """Write `view.nc`: the whole slice as one file that points at the shards there are."""
        write_atomically(self.path / "view.nc", view_image(self.study, self.plan, self.path / SHARDS))

    def write_front(self, table: FrontTable, about_search: Mapping[str, str] | None = None) -> None:
        """Write `front.nc`, with attributes of how it was found."""
        write_atomically(self.path / "front.nc", front_image(self.study, table, about_search))

    def write_summary(self, summary: Summary) -> None:
        """Write `summary.nc`."""
        write_atomically(self.path / "summary.nc", summary_image(self.study, summary))

    def log(self, event: str, **facts: object) -> None:
        """Append one JSON object to `log.jsonl`: the time, the event and its facts."""
        line = json.dumps(_plain({"time": datetime.now(UTC).isoformat(), "event": event, **facts}), allow_nan=False)
        path = self.path / "log.jsonl"
        try:
            with path.open("ab+") as file:
                torn = file.tell() > 0 and not _ends_line(path)
                file.write(b"\n" * torn + line.encode() + b"\n")
        except OSError as fault:
            raise refused(path, fault) from fault

    def _notice(self, event: str, sentence: str) -> None:
        self.notices.append(sentence)
        self.log(event, message=sentence)


def refuse_too_big(path: Path, plan: ShardPlan) -> None:
    """Raise InputError where the disk of this folder cannot hold the shards that are still to come."""
    absent = tuple(shard for shard in plan.shards if not os.path.lexists(path / SHARDS / shard.name))
    needed, free = plan.required_bytes(absent), free_bytes(path)
    if needed > free:
        raise InputError(
            f"{path} would take up to {needed / 1e9:.3g} GB for {plan.size:,} stored points, and {free / 1e9:.3g} GB "
            "are free: keep fewer metrics, narrow [sweep.slice], or choose another disk with --out"
        )


def _make(path: Path) -> None:
    try:
        str(path).encode()
    except UnicodeEncodeError as fault:
        raise InputError(f"{ascii(str(path))} is no text in UTF-8: choose another folder with --out") from fault
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as fault:
        raise InputError(f"{path} is a file: choose another folder with --out") from fault
    except NotADirectoryError as fault:
        raise InputError(f"{path} lies below a file: choose another folder with --out") from fault
    except OSError as fault:
        raise refused(path, fault) from fault


def _refuse_foreign(path: Path) -> None:
    if (path / spec_file.NAME).exists():
        return
    others = sorted(entry.name for entry in path.iterdir() if not _is_ours(entry.name))
    if others:
        shown = ", ".join(others[:5]) + (" ..." if len(others) > 5 else "")
        raise InputError(f"{path} holds other files ({shown}) and no results: choose an empty or new folder with --out")


def _is_ours(name: str) -> bool:
    return name.startswith((".", "trials.db")) or name in _OURS


def _ends_line(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, 2)
        return file.read(1) == b"\n"


def _plain(value: object) -> object:
    """The value in types that strict JSON has: a number that is not finite becomes null, what JSON lacks text."""
    if isinstance(value, np.ndarray | np.generic):
        return _plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value if isinstance(value, str | int | None) else str(value)

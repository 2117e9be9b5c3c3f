"""How fast a sweep stores points, against a plain sequential write of the same bytes. Prints one JSON object.

Every point of a slice of `memory-wall` is evaluated, packed as a profile says and flushed to the disk, shard by shard.
Before and after each run as many bytes as the points have uncompressed are written to one file of the same folder and
flushed: a disk's speed drifts, so a run is compared with the mean of its two neighbours. Compiling is not counted.

    python tests/benchmarks/storing.py [FOLDER] [--repeats N] [--profiles NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from kvwall.sweep.keeping import PROFILES
from kvwall.sweep.run import problem_of
from kvwall.sweep.store import ResultsFolder, open_results, shard_plan
from kvwall.sweep.store.shard_file import stored_dtype, stored_names
from kvwall.sweep.storing import store_slice
from kvwall.sweep.study import Study

PIECE = 1 << 24  # bytes of one plain write


def study_of(profile: str) -> Study:
    """64e6 points: `memory-wall` at every batch and context, and fewer values elsewhere."""
    whole = Study.load("memory-wall")
    narrowed = {name: whole.slice[name] for name in ("weight_bits", "retention", "placement_host")}
    return replace(whole, slice=narrowed, profile=profile)


class FromStoring:
    """A watch that notes when storing begins."""

    def stage(self, name: str, total: int, unit: str, done: int = 0) -> None:
        self.name, self.began, self.busy = name, time.perf_counter(), time.process_time()

    def update(self, done: int) -> None:
        """Ignored."""


def plain_write(folder: Path, size: int) -> float:
    """Seconds of a sequential write and flush of so many bytes."""
    piece, path = os.urandom(PIECE), folder / "plain.bin"
    began = time.perf_counter()
    with path.open("wb", buffering=0) as file:
        for start in range(0, size, PIECE):
            file.write(piece[: size - start])
        os.fsync(file.fileno())
    seconds = time.perf_counter() - began
    path.unlink()
    return seconds


def storing(folder: Path, study: Study) -> dict[str, float]:
    """Seconds of one run, processor seconds in it, and the bytes it left."""
    watch = FromStoring()
    with ResultsFolder.create_or_resume(folder / "results", study) as results:
        store_slice(study, problem_of(study), results, watch)
        assert watch.name == "storing"
        seconds, busy = time.perf_counter() - watch.began, time.process_time() - watch.busy
    shards = list((folder / "results" / "shards").iterdir())
    return {"seconds": seconds, "processor_seconds": busy, "bytes": sum(path.stat().st_size for path in shards)}


def checking(folder: Path, study: Study) -> float:
    """Seconds of checking what is stored, as a resumed run does; the files are in the system's cache."""
    with ResultsFolder.create_or_resume(folder / "results", study) as results:
        began = time.perf_counter()
        assert results.missing_shards() == []
        return time.perf_counter() - began


def reading(folder: Path) -> float:
    """Seconds of reading every stored variable through the view, from the system's cache."""
    with open_results(folder / "results") as stored:
        began = time.perf_counter()
        for name in list(stored.data_vars):
            stored[name].load()
            del stored[name]
        return time.perf_counter() - began


def measured(folder: Path, profile: str, repeats: int, raw: int) -> dict[str, float]:
    """Medians over the runs of a profile."""
    study = study_of(profile)
    found: list[dict[str, float]] = []
    around = [plain_write(folder, raw)]
    for turn in range(repeats):
        run = storing(folder, study)
        if turn == repeats - 1:
            run |= {"checking": checking(folder, study), "reading": reading(folder)}
        shutil.rmtree(folder / "results")
        around.append(plain_write(folder, raw))
        run["of_plain_write"] = statistics.mean(around[-2:]) / run["seconds"]
        found.append(run)
    last = found[-1]
    median = {name: statistics.median(run[name] for run in found) for name in found[0]}
    return {
        "raw_bytes_per_second": raw / median["seconds"],
        "of_plain_write": median["of_plain_write"],
        "of_plain_write_each": [round(run["of_plain_write"], 3) for run in found],
        "plain_write_bytes_per_second": raw / statistics.median(around),
        "processor_seconds": median["processor_seconds"],
        "seconds": median["seconds"],
        "stored_bytes": median["bytes"],
        "compression": raw / median["bytes"],
        "checked_raw_bytes_per_second": raw / last["checking"],
        "read_raw_bytes_per_second": raw / last["reading"],
    }


def profiles(stated: list[str]) -> Iterator[str]:
    """Names of profiles, all of them unless some are stated."""
    yield from stated or PROFILES


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("folder", nargs="?", default=None, help="on the disk to measure; default: the temporary one")
    options.add_argument("--repeats", type=int, default=3)
    options.add_argument("--profiles", nargs="*", default=[])
    asked = options.parse_args()
    study = study_of("plain")
    plan = shard_plan(study)
    raw = plan.size * sum(stored_dtype(name).itemsize for name in stored_names(study))
    found = {}
    with tempfile.TemporaryDirectory(dir=asked.folder) as folder:
        plain_write(Path(folder), raw)  # a cold disk is slow at first
        for profile in profiles(asked.profiles):
            found[profile] = measured(Path(folder), profile, asked.repeats, raw)
            print(profile, found[profile], file=sys.stderr)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    facts = {"points": plan.size, "raw_bytes": raw, "shards": len(plan.shards), "cores": os.cpu_count()}
    print(json.dumps({**facts, "peak_memory_bytes": memory, "profiles": found}))


if __name__ == "__main__":
    main()

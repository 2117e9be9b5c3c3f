"""Kill -9 of a storing sweep at random instants, and what is left of it. Prints one JSON object.

Each round starts the command in a fresh folder, kills it, notes the finished shards, and runs the same command to its
end. No finished shard may be written again, and every netCDF file must equal that of a run nobody disturbed, byte for
byte. Seven kills of eight wait for a random number of shards first, so that most leave some but not all.

    python tests/benchmarks/kills.py [--rounds N] [--seed S]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

POINTS_PER_SHARD = 30_000
STUDY = """
[study]
name = "kills"
mode = "ceiling"
[space]
model = "meta-llama/Meta-Llama-3-8B"
hardware = ["h100-sxm", "mi300x"]
batch = { range = [1, 125, 1] }
context = { range = [1000, 250000, 1000] }
key_bits = [16, 8, 4]
value_bits = "key_bits"
retention = [1.0, 0.5]
tensor_parallel = [1, 2]
[objectives]
maximize = ["tokens_per_second_per_device"]
minimize = ["quality_loss_upper"]
[sweep]
keep = ["tokens_per_second_per_device", "quality_loss_upper", "regime"]
"""
COMMAND = f"""
from kvwall.sweep.store import shards
shards.MOST_POINTS = {POINTS_PER_SHARD}
from kvwall.sweep.cli import main
main()
"""
ROOT = Path(__file__).resolve().parents[2]


def start(folder: Path) -> subprocess.Popen[bytes]:
    """The command, writing to `folder/out`; equal commands on equal folders write equal bytes."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "SOURCE_DATE_EPOCH": "1700000000",
        "JAX_COMPILATION_CACHE_DIR": str(folder.parent / "kernels"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    command = [sys.executable, "-c", COMMAND, "sweep", "../kills.toml", "--out", "out"]
    return subprocess.Popen(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)


def finish(folder: Path) -> None:
    """Run the command to its end. Raises RuntimeError where it does not get there."""
    process = start(folder)
    said = process.communicate()[1]
    if process.returncode:
        raise RuntimeError(f"the resumed run ended with {process.returncode}: {said.decode()[-500:]}")


def marks(folder: Path) -> dict[str, tuple[int, int]]:
    """Shard -> what shows that it was not written again."""
    return {path.name: (path.stat().st_mtime_ns, path.stat().st_ino) for path in folder.glob("out/shards/[0-9]*.nc")}


def kill(folder: Path, chosen: random.Random, shards: int, seconds: float) -> None:
    """Start the command, and kill it at a random instant: of its whole life, or soon after a random shard."""
    process = start(folder)
    if chosen.random() < 1 / 8:
        time.sleep(chosen.uniform(0, seconds))
    else:
        wanted = chosen.randrange(shards)
        while process.poll() is None and len(marks(folder)) < wanted:
            time.sleep(0.001)
        time.sleep(chosen.uniform(0, 0.02))
    process.kill()
    process.communicate()


def contents(folder: Path) -> dict[str, bytes]:
    """Every netCDF file."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.nc")}


def main() -> None:
    """Measure and print."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=100)
    options.add_argument("--seed", type=int, default=0)
    asked = options.parse_args()
    chosen = random.Random(asked.seed)
    with tempfile.TemporaryDirectory() as place:
        home = Path(place)
        (home / "kills.toml").write_text(STUDY)
        whole, killed = home / "whole", home / "killed"
        whole.mkdir()
        finish(whole)  # compiles
        shutil.rmtree(whole / "out")
        began = time.monotonic()
        finish(whole)
        seconds, expected, shards = time.monotonic() - began, contents(whole), len(marks(whole))
        found: list[int] = []
        rewritten = unequal = parts = 0
        began = time.monotonic()
        for _ in range(asked.rounds):
            killed.mkdir()
            kill(killed, chosen, shards, seconds)
            kept = marks(killed)
            parts += len(list(killed.rglob("*.part")))
            finish(killed)
            after = marks(killed)
            rewritten += sum(after.get(name) != mark for name, mark in kept.items())
            unequal += contents(killed) != expected
            found.append(len(kept))
            shutil.rmtree(killed)
        elapsed = time.monotonic() - began
    facts = {
        "rounds": asked.rounds,
        "shards": shards,
        "rounds_with_some_but_not_all_shards": sum(0 < count < shards for count in found),
        "rounds_with_all_shards": sum(count == shards for count in found),
        "median_shards_when_killed": statistics.median(found),
        "unfinished_files_left_by_kills": parts,
        "finished_shards": sum(found),
        "finished_shards_written_again": rewritten,
        "resumed_results_that_differ": unequal,
        "rounds_per_minute": 60 * asked.rounds / elapsed,
    }
    print(json.dumps(facts))
    assert (rewritten, unequal) == (0, 0), "a killed run was not resumed as it should be"


if __name__ == "__main__":
    main()

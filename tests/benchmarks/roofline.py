"""What bounds the engine: instructions, cycles and bytes per point of each pass. Prints one JSON object.

The instructions are those of the inner loop in the machine code that the compiler made (`objdump`), the cycles follow
from CPU time and the clock, which a chain of dependent multiplications measures (`cc`).

    python tests/benchmarks/roofline.py [STUDY]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

LANES = 16
"""Points of one vector."""
FLOP_PER_CYCLE = 64
"""Of a core with two 512-bit units for fused multiply-adds."""
CLOCK = r"""
#include <stdio.h>
#include <time.h>
int main(void) {
  struct timespec a, b; unsigned long x = 1; const long n = 200000000;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &a);
  for (long i = 0; i < n; i++) __asm__ volatile("imul %0,%0" : "+r"(x));
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &b);
  printf("%.4g\n", 3.0 * n / ((b.tv_sec - a.tv_sec) + (b.tv_nsec - a.tv_nsec) * 1e-9));
}
"""
ARITHMETIC = {"vaddps", "vsubps", "vmulps", "vdivps", "vmaxps", "vminps", "vrndscaleps"}
EXTREMES = {"vpminsd", "vpmaxsd", "vpminud"}
CALLS = 8


def clock() -> float:
    """Cycles per second: a multiplication of integers takes three."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "clock.c")
        source.write_text(CLOCK)
        subprocess.run(["cc", "-O2", source, "-o", Path(folder, "clock")], check=True)
        return float(subprocess.run([Path(folder, "clock")], capture_output=True, text=True, check=True).stdout)


def inner_loop(machine_code: Path) -> Counter[str]:
    """Instructions of the loop over columns: of those that take extremes the longest on the widest vectors."""
    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", machine_code], capture_output=True, text=True, check=True
    ).stdout
    lines = [match for match in map(re.compile(r"\s*([0-9a-f]+):\s+(\S+)\s*(.*)").match, text.splitlines()) if match]
    code = [(int(line[1], 16), line[2], line[3]) for line in lines]
    places = {address: place for place, (address, _, _) in enumerate(code)}
    jumps = [
        (places[int(target[0], 16)], place)
        for place, (_, name, operands) in enumerate(code)
        if name.startswith("j") and (target := re.match(r"[0-9a-f]+", operands)) and int(target[0], 16) in places
    ]
    loops = [(first, last) for first, last in jumps if first < last]
    # a loop over rows takes accumulators apart at its end, one over columns does not
    over_columns = [(a, b) for a, b in loops if not any(name.startswith("vextract") for _, name, _ in code[a:b])]

    def merit(loop: tuple[int, int]) -> tuple[int, int]:
        inside = code[loop[0] : loop[1]]
        return sum(name in EXTREMES for _, name, _ in inside), sum("zmm" in each for _, _, each in inside)

    first, last = max(over_columns, key=merit)
    counts = Counter(name for _, name, _ in code[first : last + 1])
    counts["loads and stores"] = sum("(" in operands for _, _, operands in code[first : last + 1])
    return counts


def reductions(reducer) -> Counter[str]:
    """How many reductions of each kind a pass does over its points."""
    import jax
    import numpy as np

    program = jax.make_jaxpr(reducer.reduce)(np.int32(0), reducer.edges)
    (fused,) = (one for one in program.jaxpr.eqns if one.primitive.name == "reduce")
    return Counter(one.primitive.name for one in fused.params["jaxpr"].jaxpr.eqns)


def flop_of(instruction: str) -> int:
    """Floating-point operations per number."""
    return 2 if re.match("vfn?m(add|sub)", instruction) else int(instruction in ARITHMETIC)


def of_pass(reducer, dumped: Path, cycles_per_second: float) -> dict[str, object]:
    before = set(dumped.glob("*reduce_fusion*.o"))
    reducer.compile()
    made = max(set(dumped.glob("*reduce_fusion*.o")) - before, key=lambda path: path.stat().st_size)
    loop, kinds = inner_loop(made), reductions(reducer)
    vectors = max(1, (loop["vpminsd"] + loop["vpminud"]) // max(1, kinds["min"]))  # the loop may be unrolled
    spent = []
    for call in range(CALLS):
        began = time.process_time()
        found = reducer((call * reducer.rows_per_call) % reducer.layout.row_count)
        spent.append(time.process_time() - began)
    points = len(found.low) * reducer.layout.column_count
    cycles = min(spent) * cycles_per_second / points * LANES
    instructions = (sum(loop.values()) - loop["loads and stores"]) / vectors
    flop = sum(count * flop_of(name) for name, count in loop.items()) / vectors
    returned = sum(getattr(found, name).nbytes for name in ("low", "high", "counts", "admissible", "best", "above"))
    return {
        "columns": list(reducer.layout.columns),
        "reductions": dict(kinds),
        "flop_per_point": flop,
        "instructions_per_vector": instructions,
        "loads_and_stores_per_vector": loop["loads and stores"] / vectors,
        "divisions_per_vector": loop["vdivps"] / vectors,
        "cycles_per_vector": cycles,
        "instructions_per_cycle": instructions / cycles,
        "share_of_peak_flop": flop * LANES / cycles / FLOP_PER_CYCLE,
        "bytes_written_per_point": returned / points,
        "points_per_core_second": points / min(spent),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="?", default="memory-wall")
    study = parser.parse_args().study
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder}"
        os.environ["NPROC"] = "1"  # of one core
        from kvwall.sweep.run import problem_of
        from kvwall.sweep.stream import Stream
        from kvwall.sweep.study import Study

        cycles_per_second = clock()
        reducers = Stream(problem_of(Study.load(study))).reducers()
        passes = [of_pass(reducer, Path(folder), cycles_per_second) for reducer in reducers]
    rate = 1 / sum(1 / one["points_per_core_second"] for one in passes)
    print(json.dumps({"cycles_per_second": cycles_per_second, "passes": passes, "points_per_core_second": rate}))


if __name__ == "__main__":
    sys.exit(main())

"""How fast the engine streams a grid, against the very same laws in NumPy. Prints one JSON object.

Every metric, label and status of every point is computed and reduced, the exact front is found, nothing is stored.
NumPy runs the same traced program, operation by operation, on blocks of the size that suits it best.

    python tests/benchmarks/engine.py [STUDY] [--repeats N]
    python tests/benchmarks/engine.py --scaling              # 1e6 to 1e10 points, each in its own process

For the shipped study memory-wall, the two passes are also timed beside the same two passes written by hand in C
(engine_kernel.c), in turns: the machine's other work then hits both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import engine_c
import engine_c_check
import jax
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr

from kvwall.sweep.kernel import Problem
from kvwall.sweep.run import problem_of
from kvwall.sweep.stream import Stream, rows_in_order
from kvwall.sweep.study import Study

NUMPY_POINTS_PER_BLOCK = 2**17
NUMPY_BLOCKS = 40

UFUNCS = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "max": np.maximum, "min": np.minimum,
    "neg": np.negative, "floor": np.floor, "ceil": np.ceil, "log": np.log, "exp": np.exp, "log1p": np.log1p,
    "expm1": np.expm1, "pow": np.power, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
    "gt": np.greater, "ge": np.greater_equal, "and": np.bitwise_and, "or": np.bitwise_or, "not": np.invert,
    "abs": np.abs, "sign": np.sign, "square": np.square, "xor": np.bitwise_xor,
    "shift_right_arithmetic": np.right_shift,
}  # fmt: skip


def run_in_numpy(program, arguments):
    """Evaluate a traced program with NumPy; broadcasts stay views."""
    jaxpr = program.jaxpr
    found = dict(zip(jaxpr.constvars, map(np.asarray, program.consts), strict=True))
    found.update(zip(jaxpr.invars, arguments, strict=True))

    def read(variable):
        return np.asarray(variable.val, variable.aval.dtype) if hasattr(variable, "val") else found[variable]

    for equation in jaxpr.eqns:
        results = operation(equation, [read(variable) for variable in equation.invars])
        found.update(zip(equation.outvars, results, strict=True))
    return [read(variable) for variable in jaxpr.outvars]


def operation(equation, values):
    name, params = equation.primitive.name, equation.params
    if name == "div" and np.issubdtype(np.asarray(values[0]).dtype, np.integer):
        return [np.floor_divide(*values)]  # of positions, which are not negative
    if name in UFUNCS:
        return [UFUNCS[name](*values)]
    match name:
        case "pjit" | "jit":
            return run_in_numpy(params["jaxpr"], values)
        case "select_n":
            return [np.where(values[0], values[2], values[1])]
        case "shift_right_logical":
            return [np.right_shift(np.asarray(values[0]).view(np.uint32), np.uint32(values[1])).view(np.int32)]
        case "rem":
            return [np.fmod(*values)]
        case "integer_pow":
            return [values[0] ** params["y"]]
        case "convert_element_type":
            return [np.asarray(values[0]).astype(params["new_dtype"])]
        case "broadcast_in_dim":
            shape = [1] * len(params["shape"])
            for place, size in zip(params["broadcast_dimensions"], np.shape(values[0]), strict=True):
                shape[place] = size
            return [np.broadcast_to(np.reshape(values[0], shape), params["shape"])]
        case "reshape":
            return [np.reshape(values[0], params["new_sizes"])]
        case "squeeze":
            return [np.squeeze(values[0], params["dimensions"])]
        case "slice":
            cuts = zip(params["start_indices"], params["limit_indices"], strict=True)
            return [values[0][tuple(slice(start, stop) for start, stop in cuts)]]
        case "iota":
            shape = [n if d == params["dimension"] else 1 for d, n in enumerate(params["shape"])]
            return [np.broadcast_to(np.arange(max(shape), dtype=params["dtype"]).reshape(shape), params["shape"])]
        case "bitcast_convert_type":
            return [np.ascontiguousarray(values[0]).view(params["new_dtype"])]
        case "optimization_barrier" | "copy" | "stop_gradient":
            return list(values)
        case "gather":
            return [np.asarray(gather(*map(np.asarray, values), **params))]
        case "stack":
            return [np.stack(values, params["axis"])]
        case "concatenate":
            return [np.concatenate(values, params["dimension"])]
        case "reduce_sum" | "reduce_max" | "reduce_min" | "reduce_and" | "reduce_or":
            reducer = {"sum": np.sum, "max": np.max, "min": np.min, "and": np.all, "or": np.any}[name[7:]]
            return [reducer(values[0], params["axes"])]
        case "reduce":
            kinds = [one.primitive.name for one in params["jaxpr"].jaxpr.eqns]
            reducer = {"add": np.sum, "max": np.max, "min": np.min}
            count = len(kinds)
            return [reducer[kind](value, 1) for kind, value in zip(kinds, values[:count], strict=True)]
    raise NotImplementedError(f"no NumPy counterpart for {name}")


def needed(program):
    """The program without operations that no result asks for."""
    jaxpr, _ = dce_jaxpr(program.jaxpr, [True] * len(program.jaxpr.outvars), instantiate=True)
    return program.replace(jaxpr=jaxpr)


def gather(operand, where, **params):
    """Table look-ups: small, so JAX does them here too."""
    return jax.lax.gather_p.bind(operand, where, **params)


def numpy_rate(problem: Problem) -> float:
    """Points per second of both passes in NumPy."""
    seconds_per_point = 0.0
    for reducer in Stream(problem, NUMPY_POINTS_PER_BLOCK).reducers():
        program = needed(jax.make_jaxpr(reducer.reduce)(np.int32(0), reducer.edges))
        layout = reducer.layout
        starts = range(0, layout.row_count - reducer.rows_per_call, reducer.rows_per_call)[:NUMPY_BLOCKS] or [0]
        run_in_numpy(program, [np.int32(0), reducer.edges])
        began = time.perf_counter()
        for start in starts:
            run_in_numpy(program, [np.int32(start), reducer.edges])
        points = len(starts) * reducer.rows_per_call * layout.column_count
        seconds_per_point += (time.perf_counter() - began) / points
    return 1 / seconds_per_point


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """(seconds, seconds of all its threads' processor time)."""
    began, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - began, time.process_time() - used


def beside_c(stream: Stream, repeats: int) -> dict[str, object]:
    """The two passes alone, by the engine and in C, in turns; medians. Compiling is apart."""
    kernels = stream.compile()[:2]
    points, threads = stream.space.size, os.cpu_count() or 1
    try:
        passes = engine_c.passes(engine_c.reducers(stream))
    except engine_c.CannotMeasure as reason:
        return {"c_points_per_second": None, "c_not_measured": str(reason)}
    passes[1].reducer.edges = kernels[1].edges
    seconds: dict[str, list[float]] = {"passes": [], "passes_cpu": [], "c": [], "c_cpu": []}
    for _ in range(repeats):
        wall, cpu = timed(lambda: [deque(rows_in_order(kernel), maxlen=0) for kernel in kernels])
        c_wall, c_cpu = timed(lambda: [one.run(threads) for one in passes])
        for name, found in zip(seconds, (wall, cpu, c_wall, c_cpu), strict=True):
            seconds[name].append(found)
    middle = {name: statistics.median(found) for name, found in seconds.items()}
    return {
        "passes_points_per_second": points / middle["passes"],
        "c_points_per_second": points / middle["c"],
        "c_points_per_second_runs": sorted(points / found for found in seconds["c"]),
        "passes_over_c": middle["c"] / middle["passes"],
        "passes_points_per_cpu_second": points / middle["passes_cpu"],
        "c_points_per_cpu_second": points / middle["c_cpu"],
        "passes_over_c_by_cpu": middle["c_cpu"] / middle["passes_cpu"],
        "c_agrees": engine_c_check.agree(engine_c_check.compared(every=20)),
    }


def part_of(study: Study, share: float, axis: str = "retention") -> Study:
    """The study with the first values of one axis only."""
    values = study.space.values(axis)
    return with_values(study, {axis: values[: max(1, round(share * len(values)))]})


def with_values(study: Study, values: Mapping[str, Sequence[float]]) -> Study:
    """The study with other values on some axes."""
    axes = [
        replace(entry, values=tuple(values[entry.axis.name])) if entry.axis.name in values else entry
        for entry in study.space.axes
    ]
    return replace(study, space=replace(study.space, axes=tuple(axes)), slice={})


def sized(study: Study, batches: int, finer: int) -> Study:
    """memory-wall with fewer batches, and with `finer` values each of retention and of what is placed on the host."""
    retention, placed = (np.linspace(low, high, finer).tolist() for low, high in ((1.0, 0.05), (0.0, 0.95)))
    batch = study.space.values("batch")[:batches]
    return with_values(study, {"batch": batch, "retention": retention, "placement_host": placed})


DECADES = ((13, 1), (36, 2), (36, 6), (36, 19), (36, 60))
"""Batches, and values of retention and of placement, of grids of 1e6 to 1e10 points."""


def scaling(name: str) -> list[dict[str, float]]:
    """Points, seconds and memory of growing grids; memory is a whole process's."""
    found = []
    for batches, finer in DECADES:
        command = [sys.executable, __file__, name, "--repeats", "1", "--no-numpy"]
        command += ["--batches", str(batches), "--finer", str(finer)]
        answer = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        kept = ("points", "seconds", "cpu_seconds", "points_per_second", "peak_rss_bytes", "front_size")
        found.append({key: answer[key] for key in kept})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="?", default="memory-wall")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--batches", type=int, default=0)
    parser.add_argument("--finer", type=int, default=0)
    parser.add_argument("--no-numpy", action="store_true")
    parser.add_argument("--scaling", action="store_true")
    arguments = parser.parse_args()
    if arguments.scaling:
        print(json.dumps({"scaling": scaling(arguments.study)}))
        return
    study = Study.load(arguments.study)
    finer = arguments.finer
    stream = Stream(problem_of(sized(study, arguments.batches, finer) if finer else part_of(study, arguments.share)))
    stream.compile()
    began = time.process_time()
    runs = [stream.run() for _ in range(arguments.repeats)]
    cpu_seconds = (time.process_time() - began) / arguments.repeats
    points = stream.space.size
    rates = sorted(points / run.seconds for run in runs)
    rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    whole = arguments.study == "memory-wall" and arguments.share == 1 and not finer  # the grid that C knows
    in_c = beside_c(stream, arguments.repeats) if whole else {}
    in_numpy = None if arguments.no_numpy else numpy_rate(stream.problem)
    print(
        json.dumps(
            {
                "points": points,
                "points_per_second": statistics.median(rates),
                "points_per_second_runs": rates,
                "seconds": points / statistics.median(rates),
                "cpu_seconds": cpu_seconds,
                "points_per_two_cpu_seconds": 2 * points / cpu_seconds,
                **in_c,
                "numpy_points_per_second": in_numpy,
                "speedup_over_numpy": statistics.median(rates) / in_numpy if in_numpy else None,
                "compile_seconds": runs[0].compile_seconds,
                "peak_rss_bytes": rss,
                "front_size": len(runs[0].front),
                "rows": runs[0].rows,
                "rows_searched": runs[0].rows_searched,
            }
        )
    )


if __name__ == "__main__":
    main()

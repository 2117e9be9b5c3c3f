"""Whether the passes in C find what the engine's find, row by row: exit code 1 where not.

Extremes within 1e-5 of each other beyond a metric's own rounding, in rows with as many feasible points; counts equal
but for a few points of the grid that lie within float32's rounding of a bound.

python tests/benchmarks/engine_c_check.py
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator

import engine_c
import numpy as np
from engine_c import ADMISSIBLE, COMPUTE, EXTREMES, FEASIBLE, LINKS, PHASE_KV, REGIME_KV, TIER, Pass

from kvwall.objectives.register import LABELS, metric_register
from kvwall.sweep.kernel import COUNTED_LABELS, RowStatistics
from kvwall.sweep.run import problem_of
from kvwall.sweep.stream import Stream
from kvwall.sweep.study import Study

STATUS_OK_PLACE = sum(len(LABELS[label].meanings) - 1 for label in COUNTED_LABELS[:-1])
"""Where a row's feasible points are counted: the first category but one of the last label."""
MOST_POINTS = 20
"""Points of the grid that may fall on either side of a bound in float32."""


def extremes(done: Pass, start: int, stop: int) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """(metric, lowest, highest) of rows, from what C found of the quantities that metrics follow from."""
    terms = done.terms

    def row(values) -> np.ndarray:
        values = np.reshape(values, np.shape(values)[-2:])
        return np.broadcast_to(values, (len(done.rows), 1))[start:stop, 0]

    low, high = done.extremes[start:stop, :EXTREMES].T, done.extremes[start:stop, EXTREMES:].T
    names = ("intensity", "cost", "energy", "kv", "sequence", "room", "margin", "distance", "time", "last")
    low, high = dict(zip(names, low, strict=True)), dict(zip(names, high, strict=True))

    def scaled(name: str, by) -> tuple[np.ndarray, np.ndarray]:
        return low[name] * row(by), high[name] * row(by)

    with np.errstate(all="ignore"):
        yield "arithmetic_intensity", low["intensity"], high["intensity"]
        yield "regime_distance", np.log(low["distance"]), np.log(high["distance"])
        yield "time_per_output_token", low["time"], high["time"]
        yield "tokens_per_second_per_user", 1 / high["time"], 1 / low["time"]
        if done.reducer.histogram is None:
            batch, devices, token = terms.batch, terms.devices, terms.per_bit * (terms.key + terms.value)
            yield "cost_per_million_tokens", *scaled("cost", 1e6 * devices / batch)
            yield "energy_per_token", *scaled("energy", devices / batch)
            yield "kv_bytes_read", *scaled("kv", batch * devices * terms.kept * token)
            yield "max_batch", np.floor(low["sequence"]), np.floor(high["sequence"])
            found = scaled("room", 1 / (token * terms.kept))
            yield "max_context", np.floor(found[0]), np.floor(found[1])
            yield "memory_margin", low["margin"], high["margin"]
            yield "time_to_first_token", low["last"], high["last"]
            yield "tokens_per_second", row(batch) / high["time"], row(batch) / low["time"]
            by = batch / devices
            yield "tokens_per_second_per_device", row(by) / high["time"], row(by) / low["time"]
        else:
            room = done.rows[start:stop, 3]
            yield "cost_per_million_tokens", *scaled("cost", 1e6 * terms.devices * terms.price)
            yield "energy_per_token", *scaled("energy", terms.devices)
            yield "kv_bytes_read", *scaled("kv", terms.devices * terms.per_bit * terms.context)
            yield "max_batch", np.floor(room / high["sequence"]), np.floor(room / low["sequence"])
            found = scaled("room", 1 / ((1 - terms.share) * terms.per_bit))
            yield "max_context", np.floor(found[0]), np.floor(found[1])
            yield "memory_margin", room - high["margin"], room - low["margin"]
            yield "tokens_per_second", 1 / high["cost"], 1 / low["cost"]
            by = 1 / terms.devices
            yield "tokens_per_second_per_device", row(by) / high["cost"], row(by) / low["cost"]


def counts(done: Pass, start: int, stop: int) -> dict[str, np.ndarray]:
    """Counts of rows by the category they are of."""
    found = done.counts[start:stop].T
    points = done.reducer.layout.column_count
    return {
        "phase kv": found[PHASE_KV], "phase capacity": points - found[FEASIBLE], "regime kv": found[REGIME_KV],
        "regime compute": found[COMPUTE], "regime scale_up": found[LINKS] - found[TIER],
        "regime tier_link": found[TIER], "status ok": found[FEASIBLE], "status memory": points - found[FEASIBLE],
    }  # fmt: skip


def differences(done: Pass, start: int, wanted: RowStatistics, seen: dict[str, float]) -> None:
    """Largest differences so far: of extremes relative, of counts in points."""
    stop = start + len(wanted.low)
    feasible = done.counts[start:stop, FEASIBLE] > 0
    feasible &= done.counts[start:stop, FEASIBLE] == wanted.counts[:, STATUS_OK_PLACE]
    rounding = {name: one.rounding for name, one in metric_register("aggregate", "ceiling").items()}
    for name, low, high in extremes(done, start, stop):
        place = done.reducer.metrics.index(name)
        for ours, theirs in ((low, wanted.low[:, place]), (high, wanted.high[:, place])):
            ours, theirs = ours[feasible].astype(np.float64), theirs[feasible].astype(np.float64)
            gap = np.where(ours == theirs, 0, np.abs(ours - theirs) - rounding.get(name, 0))
            apart = np.maximum(gap, 0) / np.maximum(np.abs(theirs), 1e-30)
            seen[name] = max(seen.get(name, 0), float(np.max(apart, initial=0)))
    ours, place = counts(done, start, stop), 0
    for label in COUNTED_LABELS:
        for category in LABELS[label].meanings[1:]:
            mine = ours.get(f"{label} {category}", np.zeros(stop - start, int))
            gap = np.abs(mine.astype(np.int64) - wanted.counts[:, place])
            key = f"{label} {category}"
            seen[key] = seen.get(key, 0) + int(gap.sum())
            place += 1
    if done.reducer.histogram is None:
        in_time = done.counts[start:stop, ADMISSIBLE].astype(np.int64)
        good = wanted.rejected[:, 0] == 0  # the quality of a row is one number
        apart = np.abs(np.where(good, in_time, 0) - wanted.admissible[:, 0])
        apart += np.abs(done.counts[start:stop, FEASIBLE] - in_time - wanted.rejected[:, 1])
        seen["admissible and rejected"] = seen.get("admissible and rejected", 0) + int(apart.sum())
        best, there = done.extremes[start:stop, 8], feasible & good & (in_time > 0)
        off = np.abs(best[there] / wanted.best[there, 2] - 1)
        seen["best time"] = max(seen.get("best time", 0), float(np.max(off, initial=0)))
    else:
        above = np.cumsum(done.counts[start:stop, : engine_c.COUNTS - 1 : -1], axis=1)[:, ::-1]
        seen["above"] = seen.get("above", 0) + int(np.abs(above.astype(np.int64) - wanted.above).sum())


def compared(every: int) -> dict[str, dict[str, float]]:
    """Pass -> what is compared -> largest relative difference, or points that are counted elsewhere."""
    stream = Stream(problem_of(Study.load("memory-wall")))
    reducers = engine_c.reducers(stream)
    reducers[1].edges = np.r_[-np.inf, np.geomspace(2e-3, 2e4, 15)].astype(np.float32)
    answer = {}
    for done in engine_c.passes(reducers):
        done.run(2)
        seen: dict[str, float] = {}
        reducer = done.reducer
        for start in range(0, reducer.layout.row_count, reducer.rows_per_call * every):
            differences(done, start, reducer(start), seen)
        answer["first" if reducer.histogram is None else "second"] = seen
    return answer


def agree(answer: dict[str, dict[str, float]]) -> bool:
    """Whether the differences are those of rounding."""
    return not any(
        apart > (MOST_POINTS if isinstance(apart, int) else 1e-5) for seen in answer.values() for apart in seen.values()
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, help="compare one block of rows in so many")
    answer = compared(parser.parse_args().every)
    print(json.dumps(answer, indent=1))
    if not agree(answer):
        raise SystemExit("they disagree by more than rounding")


if __name__ == "__main__":
    main()

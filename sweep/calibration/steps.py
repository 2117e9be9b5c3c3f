"""Measured rows as steps whose time can be predicted: their designs' work, and what else their metric counts.

What fits of a batch: memory is that of the ideal engine at `UTILISATION`; more sequences wait their turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives import kv, memory, prefill, status
from kvwall.objectives.estimate import OperatorTimes, Served, operator_times
from kvwall.objectives.load import load_of
from kvwall.objectives.operators import Operators
from kvwall.objectives.step import decoding_work, evaluate_step
from kvwall.spaces.achieved import Achieved
from kvwall.spaces.axes import Value
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.design import Design, HardwareColumns
from kvwall.spaces.generations import generation_of, load_generations
from kvwall.spaces.hardware import Hardware, load_hardware
from kvwall.spaces.kernel_shares import KernelShares, kernel_shares
from kvwall.spaces.units import Real
from kvwall.sweep.measured import UsableRow
from kvwall.sweep.spanning import spanning_space, stated_values

UTILISATION: Final = 0.95
"""Share of the memory that servers use unless told otherwise."""
STATIC: Final = ("static_batch", "num_requests_offline")
"""Kinds of batch of which no prompt arrives while others decode."""
FASTER: Final = 1.25
"""Times the ceiling's speed beyond which a row cannot be what it says."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class MeasuredSteps:
    """Rows with the work of their steps; arrays have one entry per row."""

    rows: tuple[UsableRow, ...]
    work: Operators
    served: Served
    chips: HardwareColumns
    routed: NDArray[np.bool_]
    """Whether the model has routed experts."""
    cells: tuple[tuple[str, Hardware], ...]
    """Distinct (generation of the engine, chip)."""
    cell: NDArray[np.int64]
    """Of each row."""
    kernels: KernelShares
    """Of each cell."""
    seconds: Floats
    """Measured: between tokens, of a step by its throughput, or of the whole request, as `_KINDS` says."""
    kind: NDArray[np.int64]
    tokens: Floats
    """Written per request."""
    waves: Floats
    """Stated batch over the one that fits; 1 where all fit."""
    too_fast: NDArray[np.bool_]
    """Faster than the ceiling by more than FASTER."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def fitting(self) -> NDArray[np.bool_]:
        """Those that terms are fitted to: no faster than can be, and with all sequences at once."""
        return np.logical_and(~self.too_fast, self.waves <= 1)

    def chosen(self, keep: NDArray[Any]) -> MeasuredSteps:
        """These of the rows, by mask or by places."""
        places = np.flatnonzero(keep) if keep.dtype == bool else keep

        def of(tree: Any) -> Any:
            return jax.tree.map(lambda leaf: np.broadcast_to(leaf, (len(self),))[places], tree)

        each = ("transfer", "link_overlap", "arriving", "active", "ceiling")
        served = replace(self.served, **{name: of(getattr(self.served, name)) for name in each})
        return replace(
            self,
            rows=tuple(self.rows[place] for place in places),
            work=of(self.work),
            served=served,
            chips=of(self.chips),
            **{name: getattr(self, name)[places] for name in _ROWWISE},
        )

    def achieved_of(self, cells: Achieved) -> Achieved:
        """One record per row from one per cell."""
        found: Achieved = jax.tree.map(lambda leaf: jnp.asarray(leaf)[self.cell], cells)
        return found

    def predicted(self, achieved: Achieved) -> Real:
        """Seconds of every row, in the sense of `seconds`; `achieved` has one record per row."""
        return self.in_kind(operator_times(self.work, achieved, self.chips))

    def in_kind(self, times: OperatorTimes) -> Real:
        """Seconds of every row whose operators take these times."""
        token, iteration, prompts = self.served.token(times), self.served.iteration(times), self._prompts(times)
        whole = prompts + times.decode * self.tokens
        of_prompts = prompts / jnp.where(self.tokens > 0, self.tokens, jnp.inf)  # none where a row states no output
        of_static = of_prompts + times.decode
        rate = jnp.where(self.served.arriving > 0, iteration, of_static)
        by_kind = [token, whole * self.waves, rate * self.waves]
        return jnp.select([self.kind == place for place in range(len(by_kind))], by_kind)

    def _prompts(self, times: OperatorTimes) -> Real:
        """Seconds of the prefill of all prompts at once."""
        return times.prompt_work * self.served.active + times.prompt_fixed


_ROWWISE: Final = ("routed", "cell", "seconds", "kind", "tokens", "waves", "too_fast")
_KINDS: Final[Mapping[str, int]] = {
    "tpot_ms": 0,
    "itl_ms": 0,
    "decode_tokens_per_s_per_user": 0,
    "e2e_latency_ms": 1,
    "output_tokens_per_s_total": 2,
    "output_tokens_per_s_per_gpu": 2,
}
"""Metric -> 0: between the tokens of a sequence, 1: a whole request, 2: a step, by throughput."""


def measured_steps(usable: Sequence[UsableRow]) -> tuple[MeasuredSteps | None, dict[str, tuple[str, ...]]]:
    """The rows whose step can be predicted, None where there is none, and row id -> why the others cannot."""
    if not usable:
        return None, {}
    design = _design(usable)
    with jax.enable_x64(True):
        most = np.maximum(np.floor(np.broadcast_to(_most(design, UTILISATION), len(usable))), 1.0)
        at_all = np.broadcast_to(_most(design, 1.0), len(usable)) >= 1
        possible = np.broadcast_to(status.layout_possible(design), len(usable))
        sourced = np.broadcast_to(status.step_sourced(design), len(usable))
    refused: dict[str, tuple[str, ...]] = {}
    for place, row in enumerate(usable):
        reason = _reason(bool(possible[place]), bool(sourced[place]), bool(at_all[place]))
        if reason:
            refused[row.row.id] = (reason,)
    kept = [place for place, row in enumerate(usable) if row.row.id not in refused]
    if not kept:
        return None, refused
    return _steps([usable[place] for place in kept], most[kept]), refused


def _reason(possible: bool, sourced: bool, fits: bool) -> str:
    if not possible:
        return "the model's layers cannot be split over so many devices"
    if not sourced:
        return "the catalogue has no source for a figure that the time needs"
    return "" if fits else "not one sequence fits the memory of so many devices"


def _steps(rows: Sequence[UsableRow], most: Floats) -> MeasuredSteps:
    stated = np.array([float(int(row.axes["batch"])) for row in rows])
    batch = np.minimum(stated, most)
    with jax.enable_x64(True):
        design = _design(rows)
        design = replace(design, workload=replace(design.workload, batch=batch))
        load = load_of(design)
        cache = kv.cache_of(design, load.resident, load.rank_sequences)
        prompt = prefill.prompt_of(design, cache, design.prefix.hit_rate)
        work = decoding_work(design, load, cache, prompt)
        ceiling = np.broadcast_to(evaluate_step(_static(design)).time, len(rows))
        served = Served(0.0, 1.0, load.arriving, load.active, jnp.asarray(ceiling))
    cells = [(generation_of(row.framework, row.row.framework_version), str(row.axes["hardware"])) for row in rows]
    distinct = sorted(set(cells))
    chips = {name: load_hardware(name) for name in {chip for _, chip in distinct}}
    known = load_generations()
    shares = [kernel_shares(chips[chip], known[name].kernels if name in known else "") for name, chip in distinct]
    seconds = np.array([seconds_of(row) for row in rows])
    return MeasuredSteps(
        rows=tuple(rows),
        work=work,
        served=served,
        chips=design.hardware,
        routed=np.broadcast_to(np.asarray(design.model.experts.layers > 0), len(rows)),
        cells=tuple((name, chips[chip]) for name, chip in distinct),
        cell=np.array([distinct.index(cell) for cell in cells]),
        kernels=jax.tree.map(lambda *leaves: np.stack(leaves), *shares),
        seconds=seconds,
        kind=np.array([_KINDS[row.row.metric] for row in rows]),
        tokens=np.array([float(row.row.output_tokens or 0) for row in rows]),
        waves=stated / batch,
        too_fast=_too_fast(rows, seconds, ceiling),
    )


def _too_fast(rows: Sequence[UsableRow], seconds: Floats, ceiling: Floats) -> NDArray[np.bool_]:
    whole = np.array([row.row.metric == "e2e_latency_ms" for row in rows])
    tokens = np.array(
        [max((row.row.output_tokens or 0) - 1, 0) if one else 1 for row, one in zip(rows, whole, strict=True)]
    )
    return np.asarray(seconds * FASTER < ceiling * tokens)


def _most(design: Design, utilisation: float) -> Any:
    """Sequences that fit this share of the memory."""
    load = load_of(design)
    cache = kv.cache_of(design, load.resident, load.rank_sequences)
    return memory.memory_of(replace(design, utilisation=np.float64(utilisation)), cache, load.resident).max_batch


def _static(design: Design) -> Design:
    return replace(design, workload=replace(design.workload, continuous=False))


def _design(rows: Sequence[UsableRow]) -> Design:
    """One design per row; the smallest grid that holds all of them gives the columns."""
    designs = [_stated(row) for row in rows]
    space = spanning_space(designs)
    at = np.unravel_index([space.index(design) for design in designs], space.shape) if space.dims else ()
    where = {name: np.asarray(place) for name, place in zip(space.dims, at, strict=True)}
    where = where or {"row": np.zeros(len(rows), np.int64)}  # rows all alike still have a dimension of their own
    with jax.enable_x64(True):
        return Columns(space, load_catalogue(space)).design(where)


def _stated(row: UsableRow) -> dict[str, Value]:
    """The row's axes as their axes hold them, with how it was served."""
    continuous = row.row.batch_kind not in STATIC and bool(row.row.output_tokens)
    mode: dict[str, Value] = {"serving_mode": "continuous"} if continuous else {}
    return stated_values({**row.axes, **mode})


def seconds_of(usable: UsableRow) -> float:
    """What a row measured, as seconds in the sense of its kind."""
    return converted(usable, usable.row.value)


def converted(usable: UsableRow, number: float) -> float:
    """A row's unit as seconds of its kind, and back: its own inverse but for milliseconds, see `in_unit`."""
    match usable.row.metric:
        case "decode_tokens_per_s_per_user":
            return 1 / number
        case "output_tokens_per_s_total":
            return int(usable.axes["batch"]) * usable.replicas / number
        case "output_tokens_per_s_per_gpu":
            return int(usable.axes["batch"]) / (number * usable.replica_devices)
        case _:
            return number / 1e3


def in_unit(usable: UsableRow, seconds: float) -> float:
    """Seconds of a row's kind in its own unit."""
    return seconds * 1e3 if usable.row.unit == "ms" else converted(usable, seconds)

"""Whether a measured row is outside of what the calibration was fitted to, and in which respects."""

from __future__ import annotations

from collections.abc import Iterator

from kvwall.spaces.calibration import TYPICAL, Calibration
from kvwall.spaces.generations import load_generations
from kvwall.sweep.measured import UsableRow
from kvwall.sweep.speed_groups import ENGINE_UNSTATED, evaluated_context

_ALIKE = 0.6
"""Bits by which two KV formats differ that are one: 8 and, scales included, 8.5."""


def extrapolated_because(usable: UsableRow, engine: str, chip: str, batch: float, record: Calibration) -> list[str]:
    """In what respects a row is outside; `batch` is what runs at once. Empty where it is inside."""
    found = (
        _of_engine(engine, chip, record),
        _of_cache(usable, engine, record),
        _of_size(usable, engine, chip, batch, record),
        _of_memory(usable, batch),
    )
    return [reason for each in found for reason in each]


def _of_engine(engine: str, chip: str, record: Calibration) -> Iterator[str]:
    measured = {pair.partition("/")[0] for pair in record.reach.pairs}
    chips = {pair.partition("/")[2] for pair in record.reach.pairs}
    if engine not in load_generations() or engine not in measured:
        yield f"engine {engine or ENGINE_UNSTATED}: no row of the fit; the mean of {', '.join(TYPICAL)} stands for it"
    if chip not in chips:
        yield f"chip {chip}: no row of the fit"
    elif engine in measured and f"{engine}/{chip}" not in record.reach.pairs:
        yield f"engine {engine} on {chip}: no row of the fit, only each of the two apart"


def _of_cache(usable: UsableRow, engine: str, record: Calibration) -> Iterator[str]:
    bits, known = float(usable.axes["key_bits"]), record.reach.cache_bits.get(engine, ())
    if known and not any(abs(bits - each) < _ALIKE for each in known):
        listed = ", ".join(f"{each:g}" for each in sorted(known, reverse=True))
        yield f"KV of {bits:g} bits: {engine} was measured with {listed}"


def _of_size(usable: UsableRow, engine: str, chip: str, batch: float, record: Calibration) -> Iterator[str]:
    context, reach = evaluated_context(usable), record.reach
    longest, largest = reach.longest((engine,), chip), reach.largest((engine,), chip)
    if context > longest:
        yield f"context {context:,.0f} is beyond the longest measured, {longest:,}"
    if batch > largest:
        yield f"batch {batch:,.0f} is beyond the largest measured, {largest:,}"


def _of_memory(usable: UsableRow, batch: float) -> Iterator[str]:
    """Rows whose sequences took turns, which the fit leaves out."""
    stated, at_once = int(usable.axes["batch"]), round(batch)
    if at_once < stated:
        yield f"only {at_once:,} of {stated:,} sequences fit at once"

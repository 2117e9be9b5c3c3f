"""What a reader of one design's losses must know: where they leave the evidence, and what is borrowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kvwall.objectives.kv import FULL_BITS
from kvwall.spaces.quality import LONGEST_CONTEXT
from kvwall.spaces.quality_record_columns import dropper_of
from kvwall.sweep.curve_evidence import curves_used
from kvwall.sweep.single import SingleDesign

_ONLY_BYTES: Final = ("residual_window", "outlier_fraction")
_FEWEST_ACTIVATION_BITS: Final = 4.0
"""Of published rows."""


def quality_flags(single: SingleDesign) -> Iterator[str]:
    """Flags of a design that loses quality; none where nothing is compressed."""
    used = list(curves_used(single))
    narrow = [name for name in ("key_bits", "value_bits") if single.number(name) < FULL_BITS]
    if narrow and single.number("kv_group_size") == 0:
        yield "low-bit KV without scale overhead: kv_group_size = 0 stores no scales"
    if narrow and any(single.number(name) for name in _ONLY_BYTES):
        yield f"quality: losses are by payload bits; {', '.join(_ONLY_BYTES)} change bytes only"
    evictor = str(single.inputs["evictor"])
    if float(single.step.ledger.kept_fraction) < 1 and dropper_of(evictor) != evictor:
        yield f"quality: {evictor} drops nothing; what retention drops is counted as dropped blind to the question"
    yield from _beyond(single, narrow)
    if used:
        yield from _unmeasured(single)
    for curve in used:
        if curve.remark and (curve.points or curve.evidence.borrowed_from is not None):
            yield f"quality: {curve.text}, task {curve.task}: {curve.remark}"


def _beyond(single: SingleDesign, narrow: list[str]) -> Iterator[str]:
    """Settings that no published result reaches."""
    curves = single.catalogue.curves
    fewest, least = curves.smallest_bits, curves.smallest_retention
    for name in narrow:
        if single.number(name) < fewest:
            yield f"quality: {name} below {fewest:g} extrapolates the curves"
    if 0 < float(single.design.precision.weight_bits) < fewest:
        yield f"quality: weight_bits below {fewest:g} extrapolates the curves"
    if single.number("activation_bits") < _FEWEST_ACTIVATION_BITS:
        yield f"quality: activation_bits below {_FEWEST_ACTIVATION_BITS:g} extrapolates the curves"
    if single.model.weight_payload_bits <= float(single.design.precision.weight_bits) < FULL_BITS:
        published = f"{single.model.weight_payload_bits:g}-bit weights"
        yield f"quality: the checkpoint has {published}, native ones lose nothing; these are rounded again"
    kept, read = float(single.step.ledger.kept_fraction), single.number("read_fraction")
    for share, what in ((kept, "kept"), (read, "read")):
        if share < least:
            yield f"quality: {share:.3g} of the tokens {what}, below {least:g}, extrapolates the curves"


def _unmeasured(single: SingleDesign) -> Iterator[str]:
    """What published results hardly are of, where a design compresses."""
    if single.number("context") > LONGEST_CONTEXT:
        yield "quality: context beyond 128k tokens extrapolates the curves"
    kinds = {str(group.kind) for group in single.model.groups if group.layers}
    if kinds - {"full"}:
        yield f"quality: published results are of full attention in every layer; this model has {_listed(kinds)} layers"


def _listed(kinds: set[str]) -> str:
    return " and ".join(sorted(kinds))

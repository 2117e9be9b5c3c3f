"""The boundaries of the regimes: how far, and on which side, a design is of each."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import jax
import jax.numpy as jnp

from kvwall.objectives import engine_memory, memory, tiers, wall
from kvwall.objectives.estimate import BOUNDS
from kvwall.objectives.memory import Place
from kvwall.objectives.register import LABELS
from kvwall.objectives.status import computed
from kvwall.objectives.tiers import TIERS
from kvwall.objectives.time import RESOURCES
from kvwall.sweep.single import SingleDesign

MIDDLE: Final = "middle_stage"
BOUNDARIES: Final = ("kv", *RESOURCES, "capacity")
BOUNDARIES_OF_ESTIMATES: Final = ("kv", *BOUNDS, "capacity")
"""In the order of a report: KV against weights, each resource against the others, bytes needed against usable."""


@dataclass(frozen=True)
class HeldPlace:
    """A place that holds KV: device memory (of the only stage, the one with an end, one in the middle), a tier."""

    name: str
    place: Place
    size: Any
    """Bytes of it that may be used."""
    margin: Any

    @property
    def on_device(self) -> bool:
        """Whether it is device memory."""
        return self.name not in TIERS

    @property
    def distance(self) -> float:
        """ln(bytes needed / bytes usable)."""
        return float(wall.capacity_distance(self.margin, self.size))


def held_places(single: SingleDesign) -> Iterator[HeldPlace]:
    """Every place of known size that holds KV of this design, on the fullest device."""
    design, held, chip = single.design, single.step.memory, single.design.hardware
    each = held.activations * tiers.active_share(design.placement)
    found = memory.places(design, jnp.where(engine_memory.starts_up(design), 0.0, each))
    end = "end_stage" if single.number("pipeline_parallel") > 1 else "hbm"
    usable = engine_memory.utilisation_of(design) * engine_memory.memory_seen(design)
    names = (end, MIDDLE, *TIERS)
    sizes = (usable, usable, *(getattr(chip, tier).capacity for tier in TIERS))
    for name, size, (holds, place) in zip(names, sizes, found, strict=True):
        if bool(holds):
            yield HeldPlace(name, place, size, memory.memory_margin(place, single.step.load.resident, held.reserved))


def resource_times(single: SingleDesign) -> tuple[tuple[str, ...], tuple[Any, ...]]:
    """Names and seconds of what can take most of a step: of an estimate the parts that it adds up."""
    estimate = single.step.estimate
    return (RESOURCES, single.step.times.ordered()) if estimate is None else (BOUNDS, estimate.ordered)


def boundaries_of(single: SingleDesign) -> Mapping[str, float | None]:
    """Signed distance to each boundary: above 0 the KV is larger, the resource binds, or the design does not fit.

    Null where a resource is not used, or where the step cannot be computed: those of times where a figure has no
    source, all where the layout is impossible.
    """
    status, ledger = int(single.evaluation.labels["status"]), single.step.ledger
    if LABELS["status"].meanings[status] == "layout":
        return dict.fromkeys(BOUNDARIES if single.step.estimate is None else BOUNDARIES_OF_ESTIMATES)
    timed = bool(computed(status))
    with jax.enable_x64(True):
        names, times = resource_times(single)
        distances = wall.resource_distances(times)
        of_kv = wall.distance(ledger.kv_read, ledger.weights_read)
        of_capacity = max(place.distance for place in held_places(single))
    of_times = {
        name: float(distance) if timed and float(own) > 0 else None
        for name, own, distance in zip(names, times, distances, strict=True)
    }
    found: dict[str, float | None] = {
        "kv": float(of_kv),
        **of_times,
        "capacity": of_capacity,
    }
    return {name: value if value is not None and math.isfinite(value) else None for name, value in found.items()}

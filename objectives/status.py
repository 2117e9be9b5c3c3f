"""Status of a design: ok, or the reason it cannot be deployed or computed. And which figures a metric needs."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp

from kvwall.objectives import compute, paging, parallel, tiers, wall
from kvwall.spaces.design import Design
from kvwall.spaces.units import Bits, Bytes, Code, Flag

STATUSES = ("not_computed", "ok", "memory", "layout", "unsourced_input", "veto")
"""Status codes; of several reasons the one that no tuning can lift comes first: layout, unsourced_input, memory, veto.

`veto`: a remedy is set so that it is known to collapse; which one, the label of that name says.
"""
_ROUNDING = 1e-6
"""Of a sum of fractions in float32."""


def layout_possible(design: Design) -> Flag:
    """Whether the design can be: devices split the model, fractions add up, lengths and modes agree."""
    placement, work = design.placement, design.workload
    placed = tiers.placed_fraction(placement)
    most = jnp.where(placement.parked, 1 - _ROUNDING, 1 + _ROUNDING)  # all parked: nothing would decode
    end = work.context + work.output_tokens
    return _all(
        parallel.divides(design.model.layers, design.model.groups, design.model.experts, design.parallel),
        placed <= most,
        paging.long_enough(design.paging, end),
        jnp.logical_or(jnp.logical_not(work.continuous), work.output_tokens >= 1),
    )


def step_sourced(design: Design) -> Flag:
    """Whether every figure that the step's time needs has a source: links and peaks only where they are used."""
    chip, bits = design.hardware, design.precision
    kv_bits = compute.attention_operand_bits(design.kv_format.key_bits, design.kv_format.value_bits)
    no_attention = compute.attention_flop(design.model.groups, 1.0, 1.0) == 0
    peaks = [jnp.logical_or(no_attention, _peak_known(design, kv_bits))]
    for elements, operand_bits in compute.multiplied_weights(design.model, bits.weight_bits):
        peaks.append(jnp.logical_or(elements == 0, _peak_known(design, operand_bits)))
    one_die = jnp.logical_or(chip.memory_domains.known, jnp.logical_not(design.placement.pinned))
    return _all(_links_known(design), one_die, *peaks)


def _links_known(design: Design) -> Flag:
    chip, devices = design.hardware, parallel.replica_devices(design.parallel)
    stage, domain = parallel.stage_devices(design.parallel), chip.scale_up_domain
    inside = jnp.logical_or(stage > 1, jnp.logical_and(devices > 1, devices <= domain))
    across = devices > domain
    used = [
        jnp.logical_or(chip.scale_up_bandwidth.known, jnp.logical_not(inside)),
        jnp.logical_or(chip.scale_out_bandwidth.known, jnp.logical_not(across)),
    ]
    return _all(*used, tiers.links_known(design.placement, chip))


def _peak_known(design: Design, operand_bits: Bits) -> Flag:
    chip, activation_bits = design.hardware, design.precision.activation_bits
    four = compute.uses_4_bit(operand_bits, activation_bits)
    narrow = jnp.where(four, chip.fp4_flops.known, chip.fp8_flops.known)
    return jnp.where(compute.uses_16_bit(operand_bits, activation_bits), chip.bf16_flops.known, narrow)


def energy_sourced(design: Design) -> Flag:
    """Whether energy per token can be stated: energies of memory, arithmetic and used links; no time is needed."""
    chip = design.hardware
    loads = jnp.logical_and(design.workload.continuous, design.prefix.hit_rate > 0)
    still = jnp.logical_and(design.placement.parked, jnp.logical_not(loads))
    links = [
        jnp.logical_or(tier.energy.known, jnp.logical_or(placed <= 0, still))
        for placed, tier in tiers.placed_tiers(design.placement, chip)
    ]
    return _all(chip.memory_energy.known, chip.flop_energy.known, *links)


def cost_sourced(design: Design) -> Flag:
    """Whether cost can be stated."""
    return jnp.logical_and(step_sourced(design), design.usd_per_second.known)


def ridge_sourced(design: Design) -> Flag:
    """Whether the peak of the format that does most of the weights' arithmetic has a source."""
    return _peak_known(design, compute.ffn_format_bits(design.model, design.precision.weight_bits))


def always(design: Design) -> Flag:
    """For metrics that need only bytes and capacities, which every catalogue entry has."""
    return jnp.asarray(True)


def reload_sourced(design: Design) -> Flag:
    """Whether reloading can be timed: as the step, and the link of the placed tiers, or of the host's where none is."""
    link = jnp.logical_or(design.hardware.host.bandwidth.known, tiers.placed_fraction(design.placement) > 0)
    return jnp.logical_and(step_sourced(design), link)


def _all(*flags: Flag) -> Flag:
    return reduce(jnp.logical_and, flags)


def computed(status_code: Code) -> Flag:
    """Whether phase, regime and bound_by mean anything: the layout is possible and every figure has a source."""
    known = [status_code == STATUSES.index(name) for name in ("ok", "memory", "veto")]
    return reduce(jnp.logical_or, known)


def status(layout: Flag, sourced: Flag, margin: Bytes, vetoed: Flag) -> Code:
    """Index into STATUSES."""
    fitting = jnp.where(vetoed, 5, 1)
    return jnp.where(layout, jnp.where(sourced, jnp.where(wall.fits(margin), fitting, 2), 4), 3)

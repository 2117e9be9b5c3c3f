"""Status of a design: ok, or the reason it cannot be deployed or computed. And which figures a metric needs."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp

from kvwall.objectives import compute, wall
from kvwall.spaces.design import Design, Groups
from kvwall.spaces.units import Bits, Bytes, Code, Count, Flag

STATUSES = ("not_computed", "ok", "memory", "layout", "unsourced_input", "veto")
"""Status codes; of several reasons the one that no tuning can lift comes first: layout, unsourced_input, memory.

`veto` is reserved for remedies that are known to collapse: no law gives it yet.
"""


def layout_possible(groups: Groups, devices: Count, scale_up_domain: Count) -> Flag:
    """Whether this many devices can split every layer: heads divide or replicate evenly, one domain holds all."""
    heads = groups.query_heads % devices == 0
    some = jnp.maximum(groups.kv_heads, 1)  # a store without heads splits like one with a single head
    kv_heads = jnp.logical_or(some % devices == 0, devices % some == 0)
    padding = groups.layers == 0
    every_group = jnp.all(jnp.logical_or(padding, jnp.logical_and(heads, kv_heads)), axis=0)
    return jnp.logical_and(every_group, devices <= scale_up_domain)


def step_sourced(design: Design) -> Flag:
    """Whether every figure that the step's time needs has a source: links and peaks only where they are used."""
    chip, bits = design.hardware, design.precision
    links = jnp.logical_and(
        jnp.logical_or(chip.scale_up_bandwidth.known, design.parallel.tensor <= 1),
        jnp.logical_or(chip.host_link_bandwidth.known, design.placement.host <= 0),
    )
    kv_bits = compute.attention_operand_bits(design.kv_format.key_bits, design.kv_format.value_bits)
    no_attention = compute.attention_flop(design.model.groups, 1.0, 1.0) == 0
    peaks = [jnp.logical_or(no_attention, _peak_known(design, kv_bits))]
    for elements, operand_bits in compute.multiplied_weights(design.model, bits.weight_bits):
        peaks.append(jnp.logical_or(elements == 0, _peak_known(design, operand_bits)))
    return reduce(jnp.logical_and, peaks, links)


def _peak_known(design: Design, operand_bits: Bits) -> Flag:
    chip, activation_bits = design.hardware, design.precision.activation_bits
    four = compute.uses_4_bit(operand_bits, activation_bits)
    narrow = jnp.where(four, chip.fp4_flops.known, chip.fp8_flops.known)
    return jnp.where(compute.uses_16_bit(operand_bits, activation_bits), chip.bf16_flops.known, narrow)


def energy_sourced(design: Design) -> Flag:
    """Whether energy per token can be stated: energies of memory, arithmetic and used links; no time is needed."""
    chip = design.hardware
    link = jnp.logical_or(chip.link_energy.known, design.placement.host <= 0)
    return jnp.logical_and(jnp.logical_and(chip.memory_energy.known, chip.flop_energy.known), link)


def cost_sourced(design: Design) -> Flag:
    """Whether cost can be stated."""
    return jnp.logical_and(step_sourced(design), design.usd_per_second.known)


def ridge_sourced(design: Design) -> Flag:
    """Whether the peak of the format that does most of the weights' arithmetic has a source."""
    return _peak_known(design, compute.ffn_format_bits(design.model, design.precision.weight_bits))


def always(design: Design) -> Flag:
    """For metrics that need only bytes and capacities, which every catalogue entry has."""
    return jnp.asarray(True)


def computed(status_code: Code) -> Flag:
    """Whether phase, regime and bound_by mean anything: the layout is possible and every figure has a source."""
    return jnp.logical_or(status_code == STATUSES.index("ok"), status_code == STATUSES.index("memory"))


def status(layout: Flag, sourced: Flag, margin: Bytes) -> Code:
    """Index into STATUSES."""
    return jnp.where(layout, jnp.where(sourced, jnp.where(wall.fits(margin), 1, 2), 4), 3)

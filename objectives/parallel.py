"""How a replica's devices divide a model: ranks, stages of a pipeline, micro-batches, and what is impossible."""

from __future__ import annotations

from functools import reduce

import jax.numpy as jnp

from kvwall.objectives.whole import parts_down, parts_up
from kvwall.spaces.design import Experts, Groups, Parallel
from kvwall.spaces.units import Count, Flag, Ratio, Real


def attention_devices(parallel: Parallel) -> Count:
    """Devices that attend to one sequence."""
    return parallel.tensor * parallel.context


def stage_devices(parallel: Parallel) -> Count:
    """Devices of one pipeline stage."""
    return parallel.tensor * parallel.context * parallel.attention_data


def replica_devices(parallel: Parallel) -> Count:
    """All devices."""
    return stage_devices(parallel) * parallel.pipeline


def sequences_of_rank(sequences: Count, parallel: Parallel) -> Count:
    """Sequences of the attention rank that has most of them.

    >>> float(sequences_of_rank(9.0, Parallel(1.0, 1.0, 1.0, 4.0, 1.0)))
    3.0
    """
    several = parallel.attention_data > 1
    return jnp.where(several, parts_up(sequences, parallel.attention_data), sequences)


def micro_batches(sequences: Count, parallel: Parallel) -> Count:
    """Micro-batches in flight in a pipeline: one per stage, as long as each has a sequence."""
    several = parallel.pipeline > 1
    return jnp.where(several, jnp.minimum(parallel.pipeline, jnp.maximum(sequences, 1.0)), 1.0)


def pipelined(worst: Real, whole: Real, micro: Count, stages: Count) -> Real:
    """Work that a step waits for: the worst stage's for all micro-batches, or all stages' for one of them.

    A micro-batch comes round again when the stages have all passed it on; with one for each stage that is never longer.

    >>> float(pipelined(30.0, 100.0, 4.0, 4.0)), float(pipelined(30.0, 100.0, 1.0, 4.0))
    (30.0, 100.0)
    """
    return jnp.where(stages > 1, jnp.maximum(worst, whole / micro), worst)


def stage_shares(layers: Count, stages: Count) -> tuple[Ratio, Ratio]:
    """Shares of the layers that a stage has: (the most, the fewest).

    >>> most, fewest = stage_shares(10.0, 4.0)
    >>> round(float(most), 6), round(float(fewest), 6)
    (0.3, 0.2)
    """
    return parts_up(layers, stages) / layers, parts_down(layers, stages) / layers


def worst_stage(body: Real, end: Real, beside: Real, layers: Count, stages: Count) -> Real:
    """What the most loaded stage has: of the layers one more where they do not divide, or the end's part as well.

    The stage with the end is given the fewer layers. One stage has everything.

    Args:
        body: of all layers, their weights.
        end: of the end of the model.
        beside: of all layers, besides.
        layers: how many there are.
        stages: that they are divided into.

    >>> float(worst_stage(61.0, 10.0, 20.0, 81.0, 4.0)), float(worst_stage(60.0, 10.0, 20.0, 80.0, 4.0))
    (30.0, 30.0)
    """
    most, fewest = stage_shares(layers, stages)
    of_layers = body + beside
    several = jnp.maximum(most * of_layers, fewest * of_layers + end)
    return jnp.where(stages > 1, several, body + end + beside)


def layers_of_stage(layers: Count, stages: Count) -> Ratio:
    """Largest share of the layers that one stage has.

    >>> round(float(layers_of_stage(10.0, 3.0)), 6), float(layers_of_stage(8.0, 4.0))
    (0.4, 0.25)
    """
    most, _ = stage_shares(layers, stages)
    return jnp.where(stages > 1, most, 1.0)


def expert_tensor(parallel: Parallel) -> Count:
    """Devices that split each expert."""
    return stage_devices(parallel) / parallel.expert


def hot_rank(experts: Experts, skew: Ratio, ranks: Count) -> Ratio:
    """Load of the busiest expert rank over the mean: the largest of so many sums of popularities, 1 where uniform.

    1 + sqrt(2 ln(ranks) * variance of a rank's share), at most all.
    """
    uneven = jnp.logical_and(ranks > 1, skew > 0)
    variance = jnp.where(uneven, 2 * jnp.log(ranks) * skew * ranks / experts.routed, 1.0)
    return jnp.where(uneven, jnp.minimum(1 + jnp.sqrt(variance), ranks), 1.0)


def divides(layers: Count, groups: Groups, experts: Experts, parallel: Parallel) -> Flag:
    """Whether this many devices can split the model: heads, layers and experts."""
    return reduce(
        jnp.logical_and,
        (heads_divide(groups, parallel), parallel.pipeline <= layers, experts_divide(experts, parallel)),
    )


def heads_divide(groups: Groups, parallel: Parallel) -> Flag:
    """Whether query heads divide, and KV heads divide or replicate evenly, in every layer."""
    queries = groups.query_heads % attention_devices(parallel) == 0
    some = jnp.maximum(groups.kv_heads, 1)  # a store without heads splits like one with a single head
    kv_heads = jnp.logical_or(some % parallel.tensor == 0, parallel.tensor % some == 0)
    padding = groups.layers == 0
    return jnp.all(jnp.logical_or(padding, jnp.logical_and(queries, kv_heads)), axis=0)


def experts_divide(experts: Experts, parallel: Parallel) -> Flag:
    """Whether there are experts to spread, at least one for each rank, over ranks that divide the devices."""
    spread = jnp.logical_and(experts.layers > 0, experts.routed >= parallel.expert)
    even = stage_devices(parallel) % parallel.expert == 0
    return jnp.logical_or(parallel.expert <= 1, jnp.logical_and(spread, even))

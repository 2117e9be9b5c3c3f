"""The laws of `objectives` at one start-up: what an engine would print for a row's settings."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives import pages, pool, startup, weights
from kvwall.spaces.design import ModelColumns, Parallel
from kvwall.spaces.engine_columns import CacheBits, EngineColumns, Startup, StateColumns
from kvwall.spaces.record_columns import model_numbers
from kvwall.sweep.capacity_rows import CapacityRow

_PADDED_GROUPS: Final = 4
"""Most models have no more; of one length, they share a compiled law."""
_WITHOUT_WORKSPACES: Final = frozenset({"gpt_oss"})
"""Families whose expert kernels keep no buffers: the peak of gpt-oss-120b is explained without."""
_LENGTH_WITHOUT_LIMIT: Final = 2048.0
"""Tokens of a model that states no limit, as engines take it."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Prediction:
    """What the laws say of a start-up: of its pages per byte of pool, and of all that the pool must leave."""

    bytes_per_token: Any
    block_bytes: Any
    request_blocks: Any
    weights: Any
    padded_copy: Any
    activations: Any
    non_torch: Any
    graphs: Any

    def concurrency(self, pool_bytes: float) -> float:
        """Requests of max_model_len that a pool of so many bytes holds."""
        with jax.enable_x64(True):
            blocks = max(np.floor(pool_bytes / self.block_bytes), 0.0)
        return float(blocks / self.request_blocks)


def predict(row: CapacityRow) -> Prediction:
    """The laws at a row's settings; what the row leaves open is the engine's default."""
    with jax.enable_x64(True):
        model = model_numbers(row.model, _PADDED_GROUPS)
        states = model.states
        if row.asked.state_bits:
            states = replace(states, bits=states.bits * 0.0 + row.asked.state_bits)
        start, engine = startup_of(row), engine_columns(row)
        bits = CacheBits(*map(np.float64, (row.asked.key_bits, row.asked.key_bits, row.asked.model_bits)))
        stages = np.float64(row.asked.pipeline)
        shards, memory = np.float64(row.asked.data), np.float64(device_memory(row) or engine.large_memory)
        answer: Prediction = _predicted()(engine, model, states, bits, start, stages, shards, memory)
        return Prediction(*map(float, jax.tree.leaves(answer)))


def device_memory(row: CapacityRow) -> float | None:
    """Bytes of the row's device as its driver reports them: of the alias table, else as logged."""
    return row.device.memory if row.device else row.logged.total


def engine_columns(row: CapacityRow) -> EngineColumns:
    """The engine's figures, with what the row's device and its options change."""
    columns = row.engine.columns
    if row.asked.eager:
        columns = replace(columns, covers_graphs=np.float64(0.0))
    if row.device is not None and row.device.plain_sparse_rows:
        columns = replace(columns, sparse_row_bytes=np.float64(0.0))
    if row.model.model_type in _WITHOUT_WORKSPACES:
        columns = replace(columns, expert_workspaces=np.float64(0.0))
    return columns


def startup_of(row: CapacityRow) -> Startup:
    """The start-up's numbers, open ones from the engine; a small device has smaller defaults."""
    asked, figures = row.asked, row.engine.columns
    small = row.device is not None and row.device.small
    memory = 0.0 if small else device_memory(row) or figures.large_memory
    has_state = any(group.kind == "recurrent" for group in row.model.groups)
    block = None if has_state else asked.block_size  # what is logged there is the raised block, a result
    numbers = (
        asked.max_model_length or _LENGTH_WITHOUT_LIMIT,
        block or figures.block_size,
        asked.batched_tokens or startup.default_batched_tokens(figures, memory),
        asked.sequences or startup.default_sequences(figures, memory),
        asked.prefix_caching,
        asked.draft_tokens,
        asked.draft_layers,
        asked.tensor,
        asked.context_parallel,
    )
    return Startup(*map(np.float64, numbers))


@cache
def _predicted() -> Any:
    return jax.jit(_predict)


def _predict(
    engine: EngineColumns,
    model: ModelColumns,
    states: StateColumns,
    bits: CacheBits,
    start: Startup,
    stages: Any,
    shards: Any,
    memory: Any,
) -> Prediction:
    stage = replace(model.groups, layers=jnp.ceil(model.groups.layers / stages))
    layout = pages.layout(engine, stage, states, bits, start)
    return Prediction(
        bytes_per_token=pool.bytes_per_token(engine, layout, start.max_model_length),
        block_bytes=layout.block_bytes,
        request_blocks=layout.request_blocks,
        weights=device_weights(model, start, stages, shards),
        padded_copy=startup.padded_expert_copy(model, start.tensor_parallel),
        activations=startup.activation_peak(engine, model, start, bits.model),
        non_torch=startup.non_torch(engine, start.tensor_parallel, memory),
        graphs=startup.graph_estimate(engine, start.sequences),
    )


def device_weights(model: ModelColumns, start: Startup, stages: Any, shards: Any) -> Any:
    """Bytes of the weights on the fullest device: its stage's layers, and the head or the input table at an end."""
    devices = start.tensor_parallel
    layout = Parallel(tensor=devices, pipeline=1.0, context=1.0, attention_data=1.0, expert=1.0)
    head, table = weights.head_bytes(model, 0.0, devices), weights.embedding_table_bytes(model, devices)
    experts = weights.expert_bytes(model.experts, 0.0, model.experts.routed, devices) / shards
    layers = weights.layer_bytes(model, 0.0, layout) + experts
    whole = jnp.where(model.layers > 0, jnp.ceil(model.layers / stages) / jnp.maximum(model.layers, 1.0), 1.0)
    whole = whole + start.draft_layers / jnp.maximum(model.layers, 1.0)
    ends = jnp.where(stages > 1, jnp.maximum(head, table), head + table)
    return layers * whole + ends

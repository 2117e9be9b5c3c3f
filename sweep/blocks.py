"""Evaluating rectangular blocks of a grid, as they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives.register import LABELS
from kvwall.sweep.bitround import MANTISSA_BITS, round_bits
from kvwall.sweep.kernel import Problem, compile_options, counted
from kvwall.sweep.store.attributes import NOT_COMPUTED

_NAN = np.float32("nan").view(np.uint32)


class BlockEvaluator:
    """Metrics and labels of rectangular blocks of the grid, all of one shape so that it compiles once.

    Metrics are rounded to `keep_bits` explicit mantissa bits in the same pass. Safe to call from several threads.
    """

    def __init__(
        self, problem: Problem, shape: Mapping[str, int], names: Sequence[str], keep_bits: int = MANTISSA_BITS
    ) -> None:
        self._problem = problem
        self._shape = dict(shape)
        self._names = tuple(names)
        self._keep_bits = keep_bits

    def __call__(self, positions: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """Name -> array of the block; NaN where figures have no source, NOT_COMPUTED where a label has no sense.

        `positions`: dimension -> grid positions, 1-D, at most as many as the shape says.
        """
        padded = {name: np.resize(positions[name], length).astype(np.int32) for name, length in self._shape.items()}
        cut = tuple(slice(0, len(positions[name])) for name in self._shape)
        found = {name: np.asarray(array)[cut] for name, array in self._run(padded).items()}
        return {name: array if name in LABELS else array.view(np.float32) for name, array in found.items()}

    def compile(self) -> None:
        """Compile without running: to be done before threads call it."""
        _ = self._run

    @cached_property
    def _run(self) -> Any:
        positions = {name: jax.ShapeDtypeStruct((length,), jnp.int32) for name, length in self._shape.items()}
        return jax.jit(self._evaluate, compiler_options=compile_options()).lower(positions).compile()

    def _evaluate(self, positions: dict[str, jax.Array]) -> dict[str, jax.Array]:
        """Labels as int8 and metrics as the bits of float32, so that a NaN that belongs there is no fault to JAX."""
        rank = len(self._shape)
        placed = {
            name: positions[name].reshape([-1 if axis == place else 1 for axis in range(rank)])
            for place, name in enumerate(self._shape)
        }
        found = self._problem.evaluation(placed)
        whole = tuple(self._shape.values())
        values = {}
        for name in self._names:
            if name in LABELS:
                value = jnp.where(
                    counted(name, found), jnp.asarray(found.labels[name], jnp.int8), jnp.int8(NOT_COMPUTED)
                )
            else:
                bits = jax.lax.bitcast_convert_type(jnp.asarray(found.metrics[name], jnp.float32), jnp.uint32)
                value = jnp.where(found.sourced[name], round_bits(bits, self._keep_bits), _NAN)
            values[name] = jnp.broadcast_to(value, whole)
        return values

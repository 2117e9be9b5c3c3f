"""Laws as programs that serve arrays of any length, so that the kernels of a study trace them once."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from kvwall.sweep.provenance import Value, identity, is_constant


class Traced:
    """Laws of one argument and options, traced for each number of grid dimensions, set of constants, and options.

    A program is traced at length one along the grid. It serves all lengths, as `compact` gives each value the shape of
    what it is made of; operations that are not elementwise may work on leading dimensions only. Numbers that are the
    same all over the grid stay numbers: laws leave out what is neutral.
    """

    def __init__(self, laws: Callable[..., Any]) -> None:
        self._laws = laws
        self._programs: dict[Hashable, tuple[ClosedJaxpr, Any]] = {}

    def program(self, argument: Any, rank: int, *options: Hashable) -> tuple[ClosedJaxpr, Any, list[Value]]:
        """(program, structure of its results, its arguments); the last `rank` dimensions of arrays are the grid's."""
        leaves, tree = jax.tree.flatten(argument)
        leaves = [_settled(leaf, rank) for leaf in leaves]
        own = [_is_number(leaf, rank) for leaf in leaves]
        given = [leaf for leaf, number in zip(leaves, own, strict=True) if not number]
        shapes = [_shortened(leaf, rank) for leaf in given]
        numbers = tuple(identity(leaf) if number else None for leaf, number in zip(leaves, own, strict=True))
        key = (
            tree,
            numbers,
            tuple((each.shape, each.dtype) for each in shapes),
            jax.config.read("jax_enable_x64"),
            options,
        )

        def laws(*traced: Any) -> Any:
            rest = iter(traced)
            merged = [leaf if number else next(rest) for leaf, number in zip(leaves, own, strict=True)]
            return self._laws(jax.tree.unflatten(tree, merged), *options)

        if key not in self._programs:
            program, results = jax.make_jaxpr(laws, return_shape=True)(*shapes)
            self._programs[key] = program, jax.tree.structure(results)
        return *self._programs[key], given


def _settled(leaf: Value, rank: int) -> Value:
    """Of constants: in the precision in force, at length one where they do not vary along the grid."""
    if not is_constant(leaf):
        return leaf
    leaf = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
    first = leaf[(..., *[slice(0, 1)] * min(rank, np.ndim(leaf)))]
    return first if np.all(leaf == first) else leaf


def _is_number(leaf: Value, rank: int) -> bool:
    return is_constant(leaf) and np.shape(leaf) == _shortened(leaf, rank).shape


def _shortened(leaf: Value, rank: int) -> jax.ShapeDtypeStruct:
    """As traced."""
    shape = np.shape(leaf)
    along = min(rank, len(shape))
    return jax.ShapeDtypeStruct((*shape[: len(shape) - along], *(1,) * along), leaf.dtype)

"""Laws as programs that serve arrays of any length, so that the kernels of a study share their tracing."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

import jax
import numpy as np
from jax.extend.core import ClosedJaxpr

from kvwall.sweep.provenance import Value, identity, is_constant

LENGTHS: Final = tuple(number for number in range(1000, 1500) if all(number % n for n in range(2, 40)))
"""Primes that stand for the lengths of the grid's dimensions while laws are traced: one each, so that a dimension is
known wherever it goes. Layers, tasks and the like are fewer."""


class Traced:
    """Laws of one argument and options, traced for each number of grid dimensions, set of constants, and options.

    A program serves all lengths, as `compact` gives each value the shape of what it is made of; what is not elementwise
    in it may work on leading dimensions only, and add or drop dimensions of length one. Numbers that are the same all
    over the grid stay numbers: laws leave out what is neutral.
    """

    def __init__(self, laws: Callable[..., Any]) -> None:
        self._laws = laws
        self._programs: dict[Hashable, tuple[ClosedJaxpr, Any]] = {}

    def program(self, argument: Any, rank: int, *options: Hashable) -> tuple[ClosedJaxpr, Any, list[Value]]:
        """(program, structure of its results, its arguments); the last `rank` dimensions of arrays are the grid's."""
        leaves, tree = jax.tree.flatten(argument)
        leaves = [_narrowed(leaf, rank) for leaf in leaves]
        fixed = [is_constant(leaf) and set(np.shape(leaf)[-rank:] if rank else ()) <= {1} for leaf in leaves]
        given = [leaf for leaf, number in zip(leaves, fixed, strict=True) if not number]
        shapes = [_of_any_length(leaf, rank) for leaf in given]
        key = (
            tree,
            tuple(identity(leaf) if number else None for leaf, number in zip(leaves, fixed, strict=True)),
            tuple((each.shape, each.dtype) for each in shapes),
            jax.config.read("jax_enable_x64"),
            options,
        )

        if key not in self._programs:
            self._programs[key] = traced(lambda merged: self._laws(merged, *options), tree, leaves, fixed, shapes)
        return *self._programs[key], given


def traced(
    laws: Callable[[Any], Any], tree: Any, leaves: Sequence[Value], fixed: Sequence[bool], shapes: Sequence[Any]
) -> tuple[ClosedJaxpr, Any]:
    """(program, structure of its results) of laws of one argument: leaves that are fixed stay, others have `shapes`."""

    def of_others(*others: Any) -> Any:
        rest = iter(others)
        merged = [leaf if stays else next(rest) for leaf, stays in zip(leaves, fixed, strict=True)]
        return laws(jax.tree.unflatten(tree, merged))

    program, results = jax.make_jaxpr(of_others, return_shape=True)(*shapes)
    return program, jax.tree.structure(results)


def _narrowed(leaf: Value, rank: int) -> Value:
    """Of constants: in the precision in force, at length one where they do not vary along the grid."""
    if not is_constant(leaf):
        return leaf
    leaf = leaf.astype(jax.dtypes.canonicalize_dtype(leaf.dtype))
    first = leaf[(..., *[slice(0, 1)] * min(rank, np.ndim(leaf)))]
    return first if np.all(leaf == first) else leaf


def _of_any_length(leaf: Value, rank: int) -> jax.ShapeDtypeStruct:
    """As traced: as if it varied along every dimension of the grid."""
    leading = np.shape(leaf)[: max(0, np.ndim(leaf) - rank)]
    along = np.ndim(leaf) - len(leading)
    return jax.ShapeDtypeStruct((*leading, *LENGTHS[rank - along : rank]), leaf.dtype)

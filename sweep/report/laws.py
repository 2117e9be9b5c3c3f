"""The study's laws at designs of the page's own choice: curves and maps that the stored results do not hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.register import LABELS, evaluate
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import AXES, Value
from kvwall.spaces.columns import Catalogue, Columns
from kvwall.spaces.design import Design
from kvwall.spaces.quality_record_columns import quality_parameters
from kvwall.spaces.space import Space, make_space
from kvwall.spaces.vetoes import trait_names
from kvwall.sweep.compiling import COMPILED_SOON
from kvwall.sweep.study import Study

REMEDIES = ("weight_bits", "key_bits", "value_bits", "retention", "placement_host")
"""Axes that are neutral in the page's own curves unless a curve is about them."""
CHUNK = 256
"""Designs evaluated together: one shape, so that the laws compile once."""
FLOP_RATE = "flop_per_second"
"""Arithmetic of the step per second and device; not a metric of the contract, but the roofline's height."""

_Arrays: TypeAlias = dict[str, jax.Array]


@dataclass(frozen=True)
class Computed:
    """Metrics (float64, NaN where unsourced) and labels (int8) on a grid of designs."""

    space: Space
    shape: tuple[int, ...]
    arrays: Mapping[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A metric or a label, shape `shape`."""
        return self.arrays[name]

    def words(self, label: str) -> NDArray[Any]:
        """A label in words."""
        words: NDArray[Any] = np.array(LABELS[label].meanings)[self.arrays[label]]
        return words


class Laws:
    """Evaluates designs of a study's models and chips in float64, with its task, confidence and assumptions."""

    def __init__(self, study: Study) -> None:
        self.study = study

    def base(self) -> dict[str, Value]:
        """One value per axis: remedies neutral, everything else as the study has it (its first value)."""
        chosen: dict[str, Value] = {}
        for entry in self.study.space.axes:
            name, neutral = entry.axis.name, entry.axis.neutral
            chosen[name] = neutral if name in REMEDIES and neutral is not None else entry.values[0]
        return chosen

    def grid(self, **axes: Value | Sequence[Value]) -> Computed:
        """The product of these values; axes not named are those of `base`. One array dimension per list given.

        An axis given as another's name moves with it.
        """
        lists = {name: list(values) for name, values in axes.items() if isinstance(values, list | tuple)}
        space = make_space({**axes, **{name: value for name, value in self.base().items() if name not in axes}})
        arrays = self._at(space, np.arange(space.size))
        shape = tuple(len(values) for values in lists.values())
        return Computed(space, shape, {name: array.reshape(shape) for name, array in arrays.items()})

    def points(self, index: NDArray[np.int64]) -> Computed:
        """Designs of the study's own grid, by flat index."""
        return Computed(self.study.space, index.shape, self._at(self.study.space, index))

    def _at(self, space: Space, index: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        columns = Columns(space, self._catalogue(space))
        parts = [self._chunk(space, columns, index[start : start + CHUNK]) for start in range(0, len(index), CHUNK)]
        return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}

    def _chunk(self, space: Space, columns: Columns, index: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        padded = np.resize(index, CHUNK)
        places = np.unravel_index(padded, space.shape) if space.dims else ()
        positions = dict(zip(space.dims, places, strict=True)) or {"": np.zeros(CHUNK, dtype=np.int64)}
        design = columns.design(positions)
        with jax.enable_x64(True):
            numbers, known, codes = _everything(jax.tree.map(_widened, design), self.study.task)
        found = {name: np.where(known[name], number, np.nan) for name, number in numbers.items()}
        found |= {name: np.asarray(code).astype(np.int8) for name, code in codes.items()}
        return {name: array[: len(index)] for name, array in found.items()}

    def _catalogue(self, space: Space) -> Catalogue:
        known, own = self.study.catalogue, self.study.space
        models = dict(zip(own.values("model"), known.models, strict=True))
        chips = dict(zip(own.values("hardware"), known.hardware, strict=True))
        shown = tuple(models[name] for name in space.values("model"))
        return Catalogue(
            shown,
            tuple(chips[name] for name in space.values("hardware")),
            quality_parameters(known.curves, self.study.confidences, [trait_names(model) for model in shown]),
            known.curves,
            known.calibration,
            known.vetoes,
        )


def _widened(leaf: Any) -> Any:
    """A column at full length: a compiled program is for one set of shapes."""
    leaf = np.asarray(leaf)
    shape = (*leaf.shape[:-1], CHUNK) if leaf.ndim else (CHUNK,)
    return np.broadcast_to(leaf, shape)


@partial(jax.jit, static_argnames="task", compiler_options=dict(COMPILED_SOON))
def _everything(design: Design, task: str) -> tuple[_Arrays, _Arrays, _Arrays]:
    """Numbers, the flags that say which of them are known, and label codes."""
    found, step = evaluate(design, task), evaluate_step(design)
    numbers = {**found.metrics, FLOP_RATE: step.ledger.flop / step.time}
    known = {**found.sourced, FLOP_RATE: found.sourced["time_per_output_token"]}
    return _full(numbers), _full(known), _full(found.labels)


def _full(arrays: Mapping[str, Any]) -> _Arrays:
    return {name: jnp.broadcast_to(array, (CHUNK,)) for name, array in arrays.items()}


def study_values(study: Study, axis: str) -> list[Value]:
    """The study's values of an axis, numbers rising."""
    values = list(study.space.values(axis))
    return values if AXES[axis].kind == "name" else sorted(values, key=float)


def spread(values: Sequence[Value], most: int) -> list[Value]:
    """At most so many of them, evenly placed, both ends included.

    >>> spread([1, 2, 3, 4, 5, 6, 7], 3)
    [1, 4, 7]
    """
    if len(values) <= most:
        return list(values)
    return [values[place] for place in dict.fromkeys(np.linspace(0, len(values) - 1, most).round().astype(int))]


def nearest_to(values: Sequence[Value], wanted: float) -> Value:
    """The value closest to a number on a logarithmic scale."""
    return min(values, key=lambda value: abs(np.log(float(value) / wanted)))

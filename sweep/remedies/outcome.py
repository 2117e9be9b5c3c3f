"""What designs come to: the figures that remedies are compared by, of many designs at once and in full precision."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives import parallel, veto
from kvwall.objectives.estimate import BOUNDS
from kvwall.objectives.register import LABELS, STATUS_OK, label_register, metric_register, mode_of
from kvwall.objectives.status import computed
from kvwall.objectives.step import evaluate_step
from kvwall.spaces.axes import Value
from kvwall.spaces.columns import Columns
from kvwall.spaces.design import NO_LIMIT, Design, HardwareColumns
from kvwall.spaces.space import Space, make_space
from kvwall.sweep.compiling import COMPILED_SOON
from kvwall.sweep.quality_budget import Budget
from kvwall.sweep.single import SingleDesign

CHUNK: Final = 4096
"""Designs evaluated together: one shape, so that the laws compile once."""
METRICS: Final = (
    "tokens_per_second", "time_per_output_token", "weight_bytes_read", "kv_bytes_read", "memory_margin", "max_batch",
    "quality_loss", "quality_loss_upper",
)  # fmt: skip
OF_THE_STEP: Final = tuple(f"{name}_time" for name in BOUNDS)
"""Seconds of each resource; of estimates the parts that a step adds up. `overhead` is 0 in ceiling mode."""
SPARE: Final = "device_margin"
"""Memory left on the fullest device, whatever tiers hold."""
DEVICES: Final = "devices"
YIELDED: Final = "tokens_per_step"
"""Of a sequence."""
LOSS: Final = "quality_loss_upper"
"""On the design's task."""
VETOED: Final = "vetoed"
"""Whether a veto that is not allowed applies, also where memory is the status."""
RANKED_BY: Final = ("tokens_per_second", LOSS, SPARE, DEVICES, VETOED, "status")
"""The figures that a search compares, besides the losses that have a budget."""
_FIGURES: Final = (*METRICS, SPARE, DEVICES, YIELDED, VETOED, *OF_THE_STEP)
_VETO: Final = LABELS["status"].meanings.index("veto")
_OF_ONE_CATALOGUE: Final = frozenset({"model", "hardware", "quality", "usd_per_second", "calibrated"})
"""Records of a Design that no remedy changes: they keep their small shape."""


@dataclass(frozen=True)
class Outcome:
    """Figures and labels of one design."""

    figures: Mapping[str, float]
    labels: Mapping[str, str]

    def __getitem__(self, name: str) -> float:
        return self.figures[name]

    @property
    def status(self) -> str:
        """The status label."""
        return self.labels["status"]

    @property
    def fits(self) -> bool:
        """Whether it can be deployed."""
        return self.status == "ok"

    @property
    def known(self) -> bool:
        """Whether the step's time and what binds it are known."""
        return self.status in {"ok", "memory", "veto"}

    @property
    def holds(self) -> bool:
        """Whether memory holds it, deployed or vetoed."""
        return self.status in {"ok", "veto"}

    @property
    def bound_by(self) -> str:
        """The resource that binds."""
        return self.labels["bound_by"]

    @property
    def kv_share(self) -> float:
        """KV's share of the bytes read."""
        kv_read = self["kv_bytes_read"]
        return kv_read / (kv_read + self["weight_bytes_read"])

    def label(self, name: str) -> str | None:
        """A label, or None where it has no meaning."""
        return self.labels[name] if name == "status" or self.known else None


@dataclass(frozen=True)
class Outcomes:
    """Figures and label codes of many designs, an array each."""

    arrays: Mapping[str, NDArray[Any]]

    def __getitem__(self, name: str) -> NDArray[Any]:
        """A figure, or a label's codes."""
        return self.arrays[name]

    def at(self, place: int) -> Outcome:
        """One of them."""
        figures = {name: float(array[place]) for name, array in self.arrays.items() if name not in LABELS}
        codes = {name: int(self.arrays[name][place]) for name in LABELS if name in self.arrays}
        return Outcome(figures, {name: LABELS[name].meanings[code] for name, code in codes.items()})

    def part(self, first: int, end: int) -> Outcomes:
        """Some of them."""
        return Outcomes({name: array[first:end] for name, array in self.arrays.items()})

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Which can be deployed."""
        return np.asarray(self["status"] == STATUS_OK)

    @property
    def holds(self) -> NDArray[np.bool_]:
        """Which memory holds, deployed or vetoed."""
        return np.asarray(self.fits | (self["status"] == _VETO))

    @property
    def known(self) -> NDArray[np.bool_]:
        """Of which the step's time is known."""
        return np.asarray(computed(jnp.asarray(self["status"])))


class Evaluator:
    """Evaluates changes to one design, with the losses that have a budget."""

    def __init__(self, single: SingleDesign, budgets: Sequence[Budget] = ()) -> None:
        self.single = single
        self._losses = tuple(dict.fromkeys(budget.metric for budget in budgets))

    @property
    def ranked_by(self) -> tuple[str, ...]:
        """The figures that a search compares."""
        return (*RANKED_BY, *self._losses)

    def __call__(self, changes: Sequence[Mapping[str, Value]]) -> Outcomes:
        """The design with each of these changes: axis -> value."""
        axes = list(dict.fromkeys(name for change in changes for name in change))
        inputs = self.single.inputs
        values = {axis: list(dict.fromkeys(change.get(axis, inputs[axis]) for change in changes)) for axis in axes}
        positions = {
            axis: np.array([values[axis].index(change.get(axis, inputs[axis])) for change in changes]) for axis in axes
        }
        names = (*_FIGURES, *self._losses, *label_register(self.single.mode))
        return self.at(self.space(values), positions, len(changes), names)

    def space(self, values: Mapping[str, Sequence[Value]]) -> Space:
        """The design's space with these values of some axes."""
        return make_space({**self.single.inputs, **{axis: list(listed) for axis, listed in values.items()}})

    def at(
        self, space: Space, positions: Mapping[str, NDArray[np.int64]], count: int, names: Sequence[str]
    ) -> Outcomes:
        """So many designs of a space, by their positions along its dimensions."""
        columns = Columns(space, self.single.catalogue)
        along = {axis: where for axis, where in positions.items() if axis in space.dims}
        parts = []
        for start in range(0, count, CHUNK):
            cut = {axis: where[start : start + CHUNK] for axis, where in along.items()}
            found = self._chunk(columns, cut)
            parts.append({name: np.asarray(found[name])[: count - start] for name in names})
        return Outcomes({name: np.concatenate([part[name] for part in parts]) for name in names})

    def _chunk(self, columns: Columns, positions: Mapping[str, NDArray[np.int64]]) -> dict[str, jax.Array]:
        padded = {axis: np.resize(where, CHUNK) for axis, where in positions.items()}
        design = columns.design(padded or {"": np.zeros(CHUNK, dtype=np.int64)})
        changing = [field.name for field in fields(design) if field.name not in _OF_ONE_CATALOGUE]
        wide = {name: jax.tree.map(_widened, getattr(design, name)) for name in changing}
        with jax.enable_x64(True):
            found: dict[str, jax.Array] = _run(replace(design, **wide), self.single.task, self._losses)
        return found


def _widened(leaf: Any) -> Any:
    """A column at full length: a compiled program is for one set of shapes."""
    leaf = np.asarray(leaf)
    return np.broadcast_to(leaf, (*leaf.shape[:-1], CHUNK) if leaf.ndim else (CHUNK,))


@partial(jax.jit, static_argnums=(1, 2), compiler_options=dict(COMPILED_SOON))
def _run(design: Design, task: str, losses: tuple[str, ...]) -> dict[str, jax.Array]:
    step, mode = evaluate_step(design), mode_of(design)
    register, labels = metric_register(task, mode), label_register(mode)
    of_device = evaluate_step(replace(design, hardware=_endless_tiers(design.hardware))).memory.margin
    times = (*step.times.ordered(), 0.0) if step.estimate is None else step.estimate.ordered
    found = {
        **{name: register[name].law(design, step) for name in (*METRICS, *losses)},
        SPARE: of_device,
        VETOED: veto.vetoed(design.kv_format, step.ledger.kept_fraction, design.veto.imposed),
        DEVICES: parallel.replica_devices(design.parallel),
        YIELDED: step.load.yielded,
        **dict(zip(OF_THE_STEP, times, strict=True)),
        **{name: label.law(design, step) for name, label in labels.items()},
    }
    return {name: jnp.broadcast_to(value, (CHUNK,)) for name, value in found.items()}


def _endless_tiers(chip: HardwareColumns) -> HardwareColumns:
    """The device with tiers that are never full, so that only its own memory limits it."""
    tiers = {name: getattr(chip, name) for name in ("host", "cxl", "nvme", "remote")}
    endless = {name: replace(tier, capacity=jnp.full_like(tier.capacity, NO_LIMIT)) for name, tier in tiers.items()}
    return replace(chip, **endless)

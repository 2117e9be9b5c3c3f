"""Measured rows beside what the calibration says of them: a value and its band in each row's own metric and unit."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.estimate import DEVIATIONS_OF_BAND
from kvwall.spaces.achieved import Achieved
from kvwall.spaces.aliases import Aliases
from kvwall.spaces.axes import AXES
from kvwall.spaces.calibration import Calibration
from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.calibration.steps import FASTER, MeasuredSteps, in_unit, measured_steps
from kvwall.sweep.extrapolated_row import extrapolated_because
from kvwall.sweep.measured import UsableRow, usable_row
from kvwall.sweep.measured_rows import MeasuredRow
from kvwall.sweep.single import attempt

TOO_FAST: Final = (
    f"faster than the ceiling by more than {FASTER:g} times: batch, precision or lengths cannot be as stated"
)
FARTHEST: Final = 1e6
"""Measured over predicted time, or the reverse, beyond which a row's number is no speed."""
_NO_NUMBER: Final = "no finite time follows from these labels"
_NO_SPEED: Final = f"{FARTHEST:,.0f} times slower than predicted: its value cannot be as stated"
_WHOLE_REQUEST: Final = 1

Floats = NDArray[np.float64]
Refused = dict[str, tuple[str, ...]]


@dataclass(frozen=True)
class Predicted:
    """A row and its prediction; `measured`, `predicted`, `low` and `high` are in the row's own unit."""

    usable: UsableRow
    engine: str
    """Generation of the engine."""
    routed: bool
    """Whether the model has routed experts."""
    measured: float
    predicted: float
    low: float
    high: float
    because: tuple[str, ...]
    """In what respects it is outside of what was measured."""
    repeats: int = 1
    """Rows of this configuration that it stands for."""

    @property
    def id(self) -> str:
        """The row's id."""
        return self.usable.row.id

    @property
    def is_rate(self) -> bool:
        """Whether its number grows with speed."""
        return self.usable.row.unit != "ms"

    @property
    def configuration(self) -> tuple[Hashable, ...]:
        """What rows have in common that repeat one measurement."""
        row = self.usable.row
        served = row.batch_kind, row.n_devices, row.metric
        return self.usable.model, self.engine, *served, *sorted(self.usable.axes.items())


def usable_steps(rows: Iterable[MeasuredRow], aliases: Aliases) -> tuple[MeasuredSteps | None, Refused]:
    """The rows that can be predicted, None where there is none, and row id -> why the others cannot."""
    usable: list[UsableRow] = []
    refused: Refused = {}
    for row in rows:
        try:
            found = usable_row(row, aliases)
            _check_axes(found)
            usable.append(found)
        except InputError as reasons:
            refused[row.id] = reasons.faults
    steps, others = measured_steps(usable)
    refused |= others
    if steps is None:
        return None, refused
    refused |= {steps.rows[place].row.id: (TOO_FAST,) for place in np.flatnonzero(steps.too_fast)}
    return (None if steps.too_fast.all() else steps.chosen(~steps.too_fast)), refused


def _check_axes(usable: UsableRow) -> None:
    """Refuse one row for a number that no axis takes, before all rows become one grid."""
    faults = Faults()
    for name, value in usable.axes.items():
        attempt(faults, lambda name=name, value=value: AXES[name].check(value))  # type: ignore[misc]
    faults.raise_if_any()


def predict(steps: MeasuredSteps, record: Calibration) -> tuple[tuple[Predicted, ...], Refused]:
    """Every row beside its prediction, and row id -> why there is none that can be compared."""
    seconds, spread = log_seconds(steps, record)
    width = DEVIATIONS_OF_BAND * spread
    quickest = np.minimum(np.log(_ceiling(steps)), seconds)
    low, high = np.maximum(seconds - width, quickest), seconds + width
    found: list[Predicted] = []
    refused: Refused = {}
    for place, usable in enumerate(steps.rows):
        numbers = [in_unit(usable, float(np.exp(each[place]))) for each in (seconds, low, high)]
        if not np.isfinite(numbers).all():
            refused[usable.row.id] = (_NO_NUMBER,)
        elif np.log(steps.seconds[place]) - seconds[place] > np.log(FARTHEST):
            refused[usable.row.id] = (_NO_SPEED,)
        else:
            found.append(_predicted(steps, record, place, numbers))
    return tuple(found), refused


def _predicted(steps: MeasuredSteps, record: Calibration, place: int, numbers: Sequence[float]) -> Predicted:
    usable, (engine, chip) = steps.rows[place], steps.cells[steps.cell[place]]
    batch = float(usable.axes["batch"]) / float(steps.waves[place])
    low, high = sorted(numbers[1:])  # the slower bound of a rate is the lower one
    return Predicted(
        usable=usable,
        engine=engine,
        routed=bool(steps.routed[place]),
        measured=usable.row.value,
        predicted=numbers[0],
        low=low,
        high=high,
        because=tuple(extrapolated_because(usable, engine, chip.name, batch, record)),
    )


def log_seconds(steps: MeasuredSteps, record: Calibration) -> tuple[Floats, Floats]:
    """Logarithm of the predicted seconds of every row, as `steps.seconds` counts them, and its standard deviation.

    Each direction in which the calibration may be wrong moves it on its own; so does how much models differ.
    """
    cells = [record.calibrated(engine, chip) for engine, chip in steps.cells]
    with jax.enable_x64(True):
        together = jax.tree.map(lambda *leaves: np.stack(leaves), *cells)

        def of(achieved: Achieved) -> jax.Array:
            return jnp.log(steps.predicted(achieved))

        middle, along = jax.linearize(of, steps.achieved_of(together.achieved))
        ways = len(jax.tree.leaves(together.directions)[0][0])
        turns = [jax.tree.map(lambda leaf, way=way: leaf[:, way], together.directions) for way in range(ways)]
        moves = [np.asarray(along(steps.achieved_of(turn))) for turn in turns]
    own = np.where(steps.routed, record.expert_spread, record.model_spread)
    variance = sum((move**2 for move in moves), own**2)
    return np.asarray(middle), np.sqrt(variance)


def _ceiling(steps: MeasuredSteps) -> Floats:
    """Seconds that no implementation beats, in the sense of `steps.seconds`."""
    whole = np.where(steps.kind == _WHOLE_REQUEST, np.maximum(steps.tokens - 1, 1), 1.0)
    waves = np.where(steps.kind == 0, 1.0, steps.waves)
    found: Floats = np.broadcast_to(steps.served.ceiling, len(steps)) * whole * waves
    return found


def collapsed(predictions: Iterable[Predicted]) -> tuple[Predicted, ...]:
    """One row per configuration, its measured number the median of the repeats."""
    same: dict[Any, list[Predicted]] = {}
    for each in predictions:
        same.setdefault(each.configuration, []).append(each)
    return tuple(
        replace(some[0], measured=median(each.measured for each in some), repeats=len(some)) for some in same.values()
    )


def reason_counts(refused: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Reason -> rows refused for it, most first."""
    counts: dict[str, int] = {}
    for reasons in refused.values():
        for reason in reasons:
            counts[reason] = counts.get(reason, 0) + 1
    return dict(sorted(counts.items(), key=lambda each: (-each[1], each[0])))

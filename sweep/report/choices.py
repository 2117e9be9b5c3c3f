"""What the page's own figures vary: models, chips, batches and contexts, taken from the study where it varies them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kvwall.spaces.axes import Value
from kvwall.sweep.report.best import BestDesigns
from kvwall.sweep.report.data import Results
from kvwall.sweep.report.laws import Laws, nearest_to, spread, study_values
from kvwall.sweep.report.left_out import ChipCounts, chip_counts
from kvwall.sweep.report.parts import Selector
from kvwall.sweep.report.wording import short_name
from kvwall.sweep.study import Study

MOST_CHIPS = 9
_MOST_MODELS = 4
_FEW = 4
_OWN = {"context": (11, 20), "batch": (0, 9)}
"""Powers of two that figures run over where the study has few values."""


@dataclass(frozen=True)
class Choices:
    """Results, the laws, and the values that figures are drawn at."""

    results: Results
    laws: Laws
    best: BestDesigns | None
    """Exact best designs; None where the grid was too large to search again."""

    @property
    def study(self) -> Study:
        """The study."""
        return self.results.study

    @cached_property
    def chip_counts(self) -> tuple[ChipCounts, ...]:
        """Designs of every chip by status; empty where the summary does not tell."""
        return chip_counts(self.results)

    @cached_property
    def chips(self) -> list[Value]:
        """The study's chips, at most MOST_CHIPS."""
        return self._shown("hardware", MOST_CHIPS)

    @cached_property
    def models(self) -> list[Value]:
        """The study's models, at most four."""
        return self._shown("model", _MOST_MODELS)

    def _shown(self, axis: str, most: int) -> list[Value]:
        """Values of an axis in the study's order; of too many those that the best designs of the front have."""
        values = list(self.study.space.values(axis))
        ranked = dict.fromkeys([*self.results.names(axis)[self.results.order], *map(str, values)])
        kept = set(list(ranked)[:most])
        return [value for value in values if str(value) in kept]

    @cached_property
    def cut(self) -> tuple[str, ...]:
        """Sentences about chips and models that figures leave out."""
        space = self.study.space
        counts = [("chips", len(space["hardware"]), MOST_CHIPS), ("models", len(space["model"]), _MOST_MODELS)]
        order = "those of the front's best designs, then the study's first"
        return tuple(f"Figures show {most} of {n} {what}: {order}." for what, n, most in counts if n > most)

    def ladder(self, axis: str, most: int, steps: int = 1) -> list[Value]:
        """Values of batch or context for an axis of a figure: the study's, or so many to an octave where it has few."""
        own = study_values(self.study, axis)
        if len(own) < _FEW:
            first, last = _OWN[axis]
            more = {round(2 ** (power / steps)) for power in range(first * steps, last * steps + 1)}
            own = sorted({*own, *more}, key=float)
        return spread(own, most)

    def own_ladder(self, axis: str) -> bool:
        """Whether `ladder` goes beyond the study's values."""
        return len(self.study.space[axis]) < _FEW

    @cached_property
    def ladder_note(self) -> tuple[str, ...]:
        """A sentence where figures go beyond the study's values."""
        short = [axis for axis in ("context", "batch") if self.own_ladder(axis)]
        return (f"The study has few values of {' and '.join(short)}; these figures also show others.",) if short else ()

    def two_batches(self) -> list[Value]:
        """Batch 1 (or the smallest) and larger ones."""
        batches = self.ladder("batch", 1000)
        return list(dict.fromkeys([batches[0], nearest_to(batches, 32), nearest_to(batches, 256)]))

    @cached_property
    def degrees(self) -> dict[tuple[Value, Value], tuple[int, bool]]:
        """(model, chip) -> the most devices of the study that can be laid out, and whether they hold the model."""
        values = study_values(self.study, "tensor_parallel")
        smallest = {axis: study_values(self.study, axis)[0] for axis in ("batch", "context")}
        found = self.laws.grid(model=self.models, hardware=self.chips, tensor_parallel=values, **smallest)
        status = found.words("status")
        chosen = {}
        for row, model in enumerate(self.models):
            for column, chip in enumerate(self.chips):
                words = list(status[row, column])
                possible = [place for place, word in enumerate(words) if word not in {"layout", "unsourced_input"}]
                place = possible[-1] if possible else 0
                chosen[model, chip] = (int(values[place]), words[place] == "ok")
        return chosen

    def model_selector(self) -> tuple[Selector, ...]:
        """A choice between models, where there are several."""
        if len(self.models) < 2:
            return ()
        options = tuple((str(model), short_name(str(model))) for model in self.models)
        return (Selector("model", "model", options, options[0][0]),)

    def best_index(self, model: Value, chip: Value) -> int | None:
        """Grid index of the best admissible design of a model on a chip, or None.

        Of designs that tie by the first objective the front's is taken; without a search only the front is known.
        """
        front = self._front_rows(model, chip)
        row = next((int(row) for row in self.results.order if front[row]), None)
        on_front = None if row is None else int(self.results.front["grid_index"].values[row])
        if self.best is None:
            return on_front
        exact = self.best.best_of(model, chip)
        if row is None or exact is None:
            return exact
        place = self.best.values["model"].index(model), self.best.values["hardware"].index(chip)
        values = self.best.value[place]
        most = float(np.nanmin(self.best.sign * values)) * self.best.sign
        tied = np.isclose(float(self.results.front[self.results.first].values[row]), most, rtol=1e-6)
        return on_front if tied else exact

    def _front_rows(self, model: Value, chip: Value) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        found: np.ndarray[tuple[int], np.dtype[np.bool_]] = (self.results.names("hardware") == str(chip)) & (
            self.results.names("model") == str(model)
        )
        return found

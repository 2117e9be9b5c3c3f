"""One score as a format finds it, before it is set beside its baseline."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kvwall.sweep.quality_results.cells import Question, Refusal

Label = str | float

WEIGHTS: Final = "weights"
"""The condition that says how weights were quantized; weights that are themselves what was compressed differ in it."""
AS_THEY_ARE: Final = "as they are"


@dataclass(frozen=True)
class Result:
    """A score of one subtask in one run."""

    place: str
    """Where it stands, in words that a user finds it by."""
    benchmark: str
    subtask: str
    score: float
    """As written; not a number where the file has none."""
    higher_is_better: bool
    labels: Mapping[str, Label] = field(default_factory=dict)
    """Column -> value, as far as the file states it."""
    full: bool | None = None
    """Whether the file says that nothing was compressed; None where it does not say."""
    conditions: Mapping[str, str] = field(default_factory=dict)
    """How it was evaluated: equal for a result and its baseline."""
    metric: str = ""
    id: str = ""
    stated_class: str = ""
    question: Question = ""
    baseline: float | None = None
    stated_loss: float | None = None
    given_baseline: bool = False
    """Whether its file is one that the user names as baseline."""
    unique: tuple[str, ...] = ()
    """What sets results apart that are alike in all else, as the words of a published table do."""


@dataclass(frozen=True)
class Sheet:
    """What a file holds."""

    results: tuple[Result, ...] = ()
    refused: tuple[Refusal, ...] = ()


def number(value: object) -> float | None:
    """A JSON number or a CSV cell's text as a number, also infinite or none; None for anything else.

    >>> number("0.5"), number(3), number("a"), number(True)
    (0.5, 3.0, None, None)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
    except OverflowError:
        return math.inf


def shown(value: object) -> str:
    """A value as a fault shows it: short.

    >>> shown("x" * 50), shown([1, 2])
    ('"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx..."', 'a list')
    """
    if isinstance(value, str):
        return f'"{value}"' if len(value) <= 40 else f'"{value[:40]}..."'
    if isinstance(value, float) or (isinstance(value, int) and abs(value) < 10**30):
        return f"{value:g}" if isinstance(value, float) else str(value)
    return "null" if value is None else f"a {type(value).__name__}"

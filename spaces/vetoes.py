"""Vetoes: remedies that are known to collapse, refused before any quality curve is read.

What is known is data (`catalog/quality/model_traits.toml`) and two questions about names, asked in one function each.
The law that reads the columns is `objectives/veto.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from pydantic import TypeAdapter, ValidationError

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.models.layers import Model
from kvwall.spaces.models.load import model_names
from kvwall.spaces.quality_methods import READERS, load_methods
from kvwall.spaces.sourced_file import read_table
from kvwall.spaces.space import Space
from kvwall.spaces.veto_columns import VetoColumns, VetoLimits

TRAITS: Final = Path(__file__).parent / "catalog" / "quality" / "model_traits.toml"
VETO_NAMES: Final = ("k_outliers", "naive_low_bits", "blind_retrieval")
"""In the order in which the label names them."""
HARD_RETRIEVAL: Final = ("retrieval", "retrieval_hard", "ruler")
"""Tasks that ask for something a blind evictor may have dropped."""

_BLIND: Final = ("query_agnostic", "position", "random", *READERS)
"""Families of evictors; readers drop nothing, and what is dropped beside them is dropped blindly."""


def is_naive(quantizer: str) -> bool:
    """Whether a quantizer rounds to the nearest step with no regard to how keys and values are distributed.

    >>> is_naive("int_per_token"), is_naive("structure_aware")
    (True, False)
    """
    return load_methods()["quantizer"].family(quantizer) == "naive"


def scores_blindly(evictor: str, visible: bool) -> bool:
    """Whether an evictor drops tokens without knowing what will be asked; one that reconstructs them never does.

    >>> scores_blindly("streaming_llm", True), scores_blindly("snapkv", True), scores_blindly("snapkv", False)
    (True, False, True)
    """
    return load_methods()["evictor"].family(evictor, question_visible=visible) in _BLIND


@dataclass(frozen=True)
class Shape:
    """The language model by which checkpoints of one origin are known."""

    of: str
    model_type: str
    hidden: int
    layers: int
    kv_heads: int
    smallest_vocab: int = 0

    def fits(self, model: Model) -> bool:
        """Whether a model has this shape."""
        sizes = (model.model_type, model.hidden, model.decoder_layers)
        heads = {group.kv_heads for group in model.groups if group.layers}
        alike = sizes == (self.model_type, self.hidden, self.layers) and heads == {self.kv_heads}
        return alike and model.vocab >= self.smallest_vocab


@dataclass(frozen=True)
class Trait:
    """What a kind of models cannot bear, and how such a model is known."""

    meaning: str
    source: str
    names: tuple[str, ...]
    """Patterns of catalogue ids."""
    shapes: tuple[Shape, ...]
    labels: str
    """Expression found in the labels that published rows give its models, whatever their case."""
    smallest_key_bits: float = 0.0
    smallest_naive_bits: float = 0.0

    def holds(self, model: Model) -> bool:
        """Whether a model has it: by its name in the catalogue, or by its shape."""
        named = model.name in model_names() and any(fnmatchcase(model.name, pattern) for pattern in self.names)
        return named or any(shape.fits(model) for shape in self.shapes)


@cache
def load_traits(path: Path = TRAITS) -> dict[str, Trait]:
    """The traits of the file, by name. Raises InputError with every fault of it."""
    table = read_table(path, str(path), "model traits")
    try:
        return TypeAdapter(dict[str, Trait]).validate_python(table)
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in fault.errors()
        ) from fault


def trait_names(model: Model) -> frozenset[str]:
    """The names of a model's traits."""
    return frozenset(name for name, trait in load_traits().items() if trait.holds(model))


def smallest_key_bits(model: Model) -> float:
    """Bits of keys below which a model collapses; 0 where no bits are too few."""
    return limits_of(trait_names(model), None, False)[0]


def smallest_naive_bits(model: Model, quantizer: str) -> float:
    """Bits of keys and values below which a model collapses under a quantizer; 0 where none are too few."""
    return limits_of(trait_names(model), quantizer, False)[1]


def limits_of(traits: Iterable[str], quantizer: str | None, blind: bool) -> tuple[float, float, bool]:
    """The limits of a model with these traits, by the names of `VETO_NAMES`."""
    known = [load_traits()[name] for name in traits]
    naive = quantizer is not None and is_naive(quantizer)
    return (
        max((trait.smallest_key_bits for trait in known), default=0.0),
        max((trait.smallest_naive_bits for trait in known), default=0.0) if naive else 0.0,
        blind,
    )


def checked_vetoes(names: object) -> tuple[str, ...]:
    """The vetoes that a user allows, in the order of VETO_NAMES. Raises InputError for what is none.

    >>> checked_vetoes(["blind_retrieval", "k_outliers"])
    ('k_outliers', 'blind_retrieval')
    """
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise InputError(f"allow_veto = {names!r}: write a list of names, such as ['{VETO_NAMES[0]}']")
    given, faults = list(names), Faults()
    for name in given:
        if name not in VETO_NAMES:
            close = nearest(str(name), VETO_NAMES)
            faults.add(f'veto "{name}" is unknown{close}: allow {", ".join(VETO_NAMES)}')
    faults.raise_if_any()
    return tuple(name for name in VETO_NAMES if name in given)


@dataclass(frozen=True)
class VetoRules:
    """What decides which vetoes are imposed, besides the designs themselves."""

    allowed: tuple[str, ...] = ()
    """Vetoes that the user overrides; the label still names them."""
    hard_retrieval: bool = False
    """Whether hard retrieval is in the workload."""


NO_RULES: Final = VetoRules()
"""Nothing allowed, no hard retrieval."""


def veto_columns(space: Space, models: Sequence[Model], rules: VetoRules) -> VetoColumns:
    """The columns along the axes of a space: (model,), (model, quantizer) and (evictor, question_visible)."""
    quantizers, evictors = (list(map(str, space.values(axis))) for axis in ("quantizer", "evictor"))
    visible = list(map(bool, space.values("question_visible")))
    key_bits = np.array([smallest_key_bits(model) for model in models], np.float64)
    naive_bits = np.array([[smallest_naive_bits(model, name) for name in quantizers] for model in models], np.float64)
    blind = np.array([[scores_blindly(name, seen) and rules.hard_retrieval for seen in visible] for name in evictors])
    columns = dict(zip(VETO_NAMES, (key_bits, naive_bits, blind), strict=True))
    imposed = {name: np.zeros_like(table) if name in rules.allowed else table for name, table in columns.items()}
    return VetoColumns(_limits(columns), _limits(imposed))


def _limits(columns: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.generic]]]) -> VetoLimits:
    return VetoLimits(*(columns[name] for name in VETO_NAMES))  # type: ignore[arg-type]  # jax.Arrays once gathered

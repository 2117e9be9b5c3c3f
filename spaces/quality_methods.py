"""Names of methods: what the axes quantizer, evictor and weight_quantizer take, their families, and published labels.

The names are data (`catalog/quality/methods.toml`). A family is a kind of method; a method is drawn to its family.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.sourced_file import read_table

METHODS: Final = Path(__file__).parent / "catalog" / "quality" / "methods.toml"
REMEDIES: Final = ("quantizer", "evictor", "weight_quantizer")


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Family:
    """A kind of method."""

    meaning: str
    hidden: str = ""
    """The family that its methods are of where the question is hidden; "" = the same."""


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True)
class Method:
    """A published method."""

    family: str
    labels: str
    """Expression that its labels match as a whole, whatever their case."""
    source: str
    hidden: str = ""
    notes: str = ""
    """Expression that the row's notes must match too; "" = any."""

    def called(self, label: str, notes: str) -> bool:
        """Whether a row of this label and these notes is of it."""
        texts = ((self.labels, label.strip()), (self.notes or ".*", notes))
        return all(re.fullmatch(pattern, text, re.IGNORECASE | re.DOTALL) for pattern, text in texts)


@dataclass(frozen=True)
class Names:
    """The names of one remedy."""

    families: dict[str, Family]
    methods: dict[str, Method]

    @property
    def all(self) -> tuple[str, ...]:
        """Families, then methods."""
        return (*self.families, *self.methods)

    def family(self, name: str, *, question_visible: bool = True) -> str:
        """The family of a name; of an evictor that scores by the question, another one where that is hidden.

        >>> load_methods()["evictor"].family("snapkv"), load_methods()["evictor"].family("h2o", question_visible=False)
        ('query_aware', 'query_agnostic')
        """
        entry: Family | Method = self.families[name] if name in self.families else self.methods[name]
        own = name if name in self.families else self.methods[name].family
        return own if question_visible or not entry.hidden else entry.hidden

    def by_question(self, name: str) -> bool:
        """Whether an evictor scores tokens by the question, so that hiding it makes another method of it.

        >>> load_methods()["evictor"].by_question("snapkv"), load_methods()["evictor"].by_question("knorm")
        (True, False)
        """
        return self.family(name) != self.family(name, question_visible=False)

    def method(self, label: str, notes: str = "") -> str:
        """The name that a published label stands for: a name itself, or the first method so called; "" for none.

        >>> load_methods()["quantizer"].method("KIVI-2 g32 r128"), load_methods()["quantizer"].method("naive")
        ('kivi', 'naive')
        """
        plain = label.strip().lower().replace("-", "_")
        if plain in self.all:
            return plain
        return next((name for name, each in self.methods.items() if each.called(label, notes)), "")


@cache
def load_methods(path: Path = METHODS) -> dict[str, Names]:
    """The names of the file, by remedy. Raises InputError naming every fault of it."""
    table = read_table(path, path.name, "methods")
    faults = Faults()
    for key in sorted(table.keys() - set(REMEDIES)):
        faults.add(f"[{key}] is no remedy{nearest(key, REMEDIES)}: use {', '.join(REMEDIES)}")
    found = {}
    for remedy in REMEDIES:
        try:
            found[remedy] = _names(table.get(remedy, {}))
        except ValidationError as fault:
            for each in fault.errors():
                faults.add(f"{remedy}.{'.'.join(map(str, each['loc']))}: {each['msg']}")
        except InputError as error:
            faults.absorb(error)
    faults.raise_if_any(path.name)
    return found


def _names(table: dict[str, Any]) -> Names:
    stated = table.get("families", {})
    families = {name: {"meaning": each} if isinstance(each, str) else each for name, each in stated.items()}
    whole = {"families": families, "methods": table.get("methods", {})}
    names = TypeAdapter(Names).validate_python(whole)
    faults = Faults()
    asked = [(name, each.hidden) for name, each in names.families.items()]
    asked += [(name, family) for name, each in names.methods.items() for family in (each.family, each.hidden)]
    for name, family in asked:
        if family and family not in names.families:
            faults.add(f'{name}: family "{family}" is none{nearest(family, tuple(names.families))}')
    faults.raise_if_any()
    return names


QUANTIZERS: Final = load_methods()["quantizer"].all
EVICTORS: Final = load_methods()["evictor"].all
WEIGHT_QUANTIZERS: Final = load_methods()["weight_quantizer"].all
READERS: Final = ("read_sparse", "block_retrieval")
"""Families of evictors that drop nothing: what they lose is by what a step does not read."""


def reader_of(evictor: str) -> str:
    """The name whose curve tells what reading a share of the tokens loses: its own of a reader, else the family's.

    >>> reader_of("quest"), reader_of("snapkv")
    ('quest', 'read_sparse')
    """
    return evictor if load_methods()["evictor"].family(evictor) in READERS else READERS[0]

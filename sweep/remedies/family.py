"""What a family of remedies is: the settings worth trying at a design, and the words for what they do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from kvwall.spaces.axes import Value
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.single import SingleDesign

Change: TypeAlias = Mapping[str, Value]
"""Axis -> value, against the design as it is."""


@dataclass(frozen=True)
class Setting:
    """One way to apply a family."""

    change: Change
    combines: bool = True
    """Whether it may be part of the best combination; not where it rests on what the user has not stated."""


class Family(ABC):
    """A family of remedies. A new one is a file with a subclass and a line in `register`."""

    name: ClassVar[str]
    letter: ClassVar[str]
    """In the sketch of the map; a capital of its own."""
    colour: ClassVar[str]
    """In the page's map."""
    lever: ClassVar[bool] = False
    """Whether it stands next to the remedies: it does not change how the KV cache is kept."""

    @abstractmethod
    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """The settings to try at a design, mildest first; none where the family has nothing to change."""

    @abstractmethod
    def nothing(self, single: SingleDesign) -> str:
        """Why there are no settings."""

    @abstractmethod
    def phrase(self, change: Change) -> str:
        """A setting in a few words, to stand in a sentence."""

    @abstractmethod
    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """Why the step gets so much faster or slower, from its numbers, without a full stop."""

    def against(self, single: SingleDesign) -> Change:
        """What the design is changed to before the remedy is applied; nothing but for paging."""
        return {}

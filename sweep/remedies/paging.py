"""Paging, against reserving the longest sequence at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.objectives.paging import waste
from kvwall.spaces.axes import Value
from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.sentences import percent
from kvwall.sweep.single import SingleDesign

_PAGE: Final = 16
"""Tokens of a page where neither the design nor its engine states any.

Source: the default block size of vLLM (W. Kwon et al., SOSP 2023, section 7.2).
"""


def page_of(single: SingleDesign) -> dict[str, Value]:
    """The change that gives a design pages, of its engine's size; nothing where it states their size."""
    engine = int(single.design.engine.block_size)
    return {"block_size": engine if engine > 1 else _PAGE} if single.number("block_size") <= 1 else {}


class Paging(Family):
    """Memory by the page. A design that is paged already is compared with contiguous reservation."""

    name = "paging"
    letter = "P"
    colour = "#969696"

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """One: pages of the design's block size."""
        return [Setting({"reservation": "paged", **page_of(single)}, combines=_contiguous(single))]

    def nothing(self, single: SingleDesign) -> str:
        """There is always something."""
        return ""

    def phrase(self, change: Change) -> str:
        """With the size of a page where it is chosen here."""
        return f"pages of {change['block_size']} tokens" if "block_size" in change else "pages"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """What reservation wastes."""
        longest, needed = longest_reserved(single), _needed(single)
        unused = percent(max(float(waste(needed, longest)), 0.0))
        told = "" if _contiguous(single) else "the design is paged already; "
        if longest <= needed:
            return f"{told}reserving no more than the {needed:,} tokens needed wastes nothing, so pages free nothing"
        return f"{told}paging frees memory but no bandwidth: of {longest:,} reserved tokens {unused} would hold nothing"

    def against(self, single: SingleDesign) -> Change:
        """Contiguous reservation of the longest sequence served; the design itself where it reserves so."""
        longest = longest_reserved(single)
        return {} if _contiguous(single) else {"reservation": "contiguous", "max_model_length": longest}


def longest_reserved(single: SingleDesign) -> int:
    """The longest sequence served, as stated; else what a contiguous design needs, or the model's longest."""
    stated = single.inputs["max_model_length"]
    if not isinstance(stated, str):
        return max(int(stated), _needed(single))
    return _needed(single) if _contiguous(single) else max(single.model.max_positions or 0, _needed(single))


def _needed(single: SingleDesign) -> int:
    return int(single.number("context") + single.number("output_tokens"))


def _contiguous(single: SingleDesign) -> bool:
    return single.inputs["reservation"] == "contiguous"

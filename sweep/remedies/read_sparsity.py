"""Read sparsity: everything is stored, a part is read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kvwall.sweep.remedies.family import Change, Family, Setting
from kvwall.sweep.remedies.outcome import Outcome
from kvwall.sweep.remedies.paging import page_of
from kvwall.sweep.remedies.sentences import percent, traffic_sentence
from kvwall.sweep.single import SingleDesign

_READ: Final = (0.5, 0.25, 0.125, 0.0625)
_WORTH_A_WORD: Final = 0.05


class ReadSparsity(Family):
    """Pages chosen by the smallest and largest keys they hold, which every step reads."""

    name = "read_sparsity"
    letter = "R"
    colour = "#9e9ac8"

    def settings(self, single: SingleDesign) -> Sequence[Setting]:
        """Shares below the design's own, in pages of its block size."""
        if not _chooses(single):
            return []
        page = page_of(single)
        return [Setting({"read_fraction": read, **page}) for read in _READ if read < single.number("read_fraction")]

    def nothing(self, single: SingleDesign) -> str:
        """Windows, sparse layouts, or already few."""
        if not _chooses(single):
            return "the model's own layout decides what is read: windows, states or an index of its own"
        return f"only {single.number('read_fraction'):g} of the tokens is read as it is"

    def phrase(self, change: Change) -> str:
        """Such as "reading 25 % of the tokens"."""
        return f"reading {100 * float(change['read_fraction']):g} % of the tokens"

    def sentence(self, single: SingleDesign, change: Change, before: Outcome, after: Outcome) -> str:
        """KV's part of the traffic decides, and what the page metadata costs."""
        ratio = float(change["read_fraction"]) / single.number("read_fraction")
        extra = max(1 - ratio * before["kv_bytes_read"] / after["kv_bytes_read"], 0.0)
        costs = f"page metadata and what cannot be skipped are {percent(extra)} of the KV still read"
        slower = costs if after["kv_bytes_read"] >= before["kv_bytes_read"] else ""
        found = traffic_sentence(self.phrase(change), "KV", before.kv_share, before, after, slower)
        return found if slower or extra < _WORTH_A_WORD else f"{found}, {costs}"


def _chooses(single: SingleDesign) -> bool:
    return any(group.evictable and group.layers for group in single.model.groups)

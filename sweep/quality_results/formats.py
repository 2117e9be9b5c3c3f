"""The register of formats, and which of them a file is of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kvwall.spaces.errors import InputError
from kvwall.sweep.quality_results.document import Document
from kvwall.sweep.quality_results.format import Format
from kvwall.sweep.quality_results.kvpress import KvPress
from kvwall.sweep.quality_results.lm_eval import LmEval
from kvwall.sweep.quality_results.own_columns import OwnColumns

FORMATS: Final[Mapping[str, Format]] = {
    "quality table": OwnColumns(),
    "lm-evaluation-harness": LmEval(),
    "kvpress": KvPress(),
}


def format_of(document: Document) -> str:
    """The name of the format that a file is of. Raises InputError where it is of none."""
    found = next((name for name, each in FORMATS.items() if each.recognises(document)), "")
    if not found:
        raise InputError(
            f"{document.path}: its format is not known: results_*.json of lm-evaluation-harness, a folder of kvpress "
            "with its metrics.json, and CSV files with the columns of a quality table can be read"
        )
    return found

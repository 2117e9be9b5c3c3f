"""Command-line options for what quality results leave open, one for each of `quality_results.OPTIONS`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kvwall.sweep.commands.run_options import with_text_options

PANEL: Final = "What files of quality results leave open"
HELP: Final[Mapping[str, str]] = {
    "method": "Method of compression, as a publication calls it",
    "family": "Kind of the method, as in the tables of published results",
    "model_size_b": "Billions of parameters of the model",
    "context": "Tokens of context",
    "bits_k": "Bits of keys",
    "bits_v": "Bits of values",
    "bits_effective": "Bits of the weights",
    "group_size": "Numbers that share a scale",
    "residual_tokens": "Recent tokens kept at 16 bits",
    "retention": "Fraction of tokens kept",
    "task_class": "Task whose curve the results are of",
    "table": "What was compressed: kv_quant, kv_evict, kv_combined or weight_quant",
    "source": "Where the results are from; rows of one source are grouped",
    "notes": "Words beside the results",
    "question_visible": "yes or no: whether the question was known when tokens were scored",
    "metric": "Which of a task's metrics to read, as acc",
    "baseline": "File or folder of the run with nothing compressed",
}
"""Without `model`, which measured speeds have too."""


def with_result_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options; it receives what was typed as `results`: name -> text."""
    told = {name: f"{words} (with --quality)" for name, words in HELP.items()}
    return with_text_options(command, "results", told, PANEL)

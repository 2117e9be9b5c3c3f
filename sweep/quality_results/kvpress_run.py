"""What kvpress says of a run: by its `config.yaml`, else by the name of its folder or file.

`compression_ratio` is the fraction of tokens that is removed. Presses with a threshold or with whole heads have no
ratio before they run: it is the mean of the column `compression_ratio` of `predictions.csv`. The folder's name has the
ratio to two places. `query_aware`, at first `compress_questions`, puts the question where tokens are scored.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kvwall.spaces.errors import Faults, InputError
from kvwall.sweep.quality_results.result import AS_THEY_ARE, WEIGHTS, Label, number, shown
from kvwall.sweep.quality_results.stated import Stated
from kvwall.sweep.runs.documents import read_text

_NO_PRESS: Final = "no_press"
_CHANNELS: Final = "key_channel_compression_ratio"
_UNKNOWN_RATIO: Final = ("threshold", "head_compression_ratio")
_BY_ITSELF: Final = re.compile(r"kvzap_(linear|mlp)|duo_attention.*")
"""Presses whose threshold or share of heads stands where the name of a folder has the ratio."""
_DURING_DECODE: Final = re.compile(r"(decoding|cam)_.*")
_RATIO = re.compile(r"-?\d+(\.\d+)?")
_LINE = re.compile(r"(\w+):\s*(.*?)\s*")
_LENGTH = re.compile(r"(?:^|/)([1-9]\d{2,8})/?$")
_FEWEST_PARTS: Final = 4
_FLAGS: Final = ("query_aware", "compressed_questions", "compress_questions")
_CONDITIONS: Final = (
    ("fraction", "1", r"fraction(.+)"),
    ("max_context_length", "none", r"max_context(.+)"),
    ("needle_depth", "none", r"needle_depth(.+)"),
)
"""Settings that a result and its baseline must share, what they are by default, and how a folder's name has them."""


@dataclass(frozen=True)
class Run:
    """One run."""

    dataset: str
    data_dir: str
    model: str
    press: str
    removed: float | None
    """Fraction of tokens; None where neither the configuration nor the predictions say."""
    query_aware: bool
    channels: bool
    """Whether channels of the keys were removed."""
    conditions: Mapping[str, str] = field(default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether nothing was removed."""
        return self.press == _NO_PRESS or (self.removed == 0 and not self.channels and not self._while_decoding)

    @property
    def labels(self) -> dict[str, Label]:
        """Columns that it states."""
        labels: dict[str, Label] = {"model": self.model}
        if not self.full:
            labels["method"] = self.press
            if self.removed is not None and not self._while_decoding:
                labels["retention_ratio"] = round(1 - self.removed, 9)
        length = _LENGTH.search(self.data_dir) if self.dataset == "ruler" else None
        if length:
            labels["context_tokens"] = float(length[1])
        return labels

    @property
    def _while_decoding(self) -> bool:
        return bool(_DURING_DECODE.fullmatch(self.press))

    def refusals(self, stated: Stated) -> tuple[str, ...]:
        """Why its scores say nothing of a kept fraction of tokens."""
        if self.channels:
            return ("channels of the keys were removed: neither bits nor kept tokens say how much",)
        unknown = self.removed is None or self._while_decoding
        if self.full or not unknown or "retention_ratio" in stated.labels:
            return ()
        if self._while_decoding:
            return (f"{self.press} keeps a number of tokens, whatever the length: state the retention at yours",)
        return (f"how much {self.press} removed is not known: keep predictions.csv beside it, or state the retention",)


def run_of(path: Path) -> Run:
    """The run of a file of metrics. Raises InputError with what is missing or no number."""
    beside = path.with_name("config.yaml")
    named = named_run(path)
    has_config = path.name == "metrics.json" and beside.is_file()
    settings = read_config(read_text(beside)) if has_config else named
    if not settings:
        raise InputError(
            f"{path}: neither config.yaml beside it nor its folder's name says what was run: keep the folder as "
            "kvpress wrote it, DATASET__DATA_DIR__MODEL__PRESS__RATIO"
        )
    faults = Faults()
    for name in ("dataset", "model", "press_name"):
        if not settings.get(name):
            faults.add(f"{name} is not stated in {beside.name}")
    removed = _removed(settings, path.with_name("predictions.csv"), faults)
    channels = number(settings.get(_CHANNELS, "0"))
    faults.raise_if_any(str(path))
    return Run(
        dataset=settings["dataset"],
        data_dir=settings.get("data_dir", ""),
        model=settings["model"],
        press=settings["press_name"],
        removed=removed,
        query_aware=any(settings.get(name, "").lower() == "true" for name in _FLAGS),
        channels=channels is None or channels > 0 or settings["press_name"] == "think",
        conditions=_conditions(settings),
    )


def named_run(path: Path) -> dict[str, str]:
    """Settings in the name of a folder, or of a file; empty where it is no such name.

    >>> found = named_run(Path("results/ruler__4096__meta-llama--Llama-3.1-8B__snapkv__0.50__query_aware/metrics.json"))
    >>> found["data_dir"], found["press_name"], found["compression_ratio"], found["query_aware"]
    ('4096', 'snapkv', '0.50', 'true')
    """
    folder = path.parent.parent if path.parent.name.isdigit() else path.parent
    parts = (folder.name if path.name == "metrics.json" else path.name.removesuffix(".json")).split("__")
    place = next((i for i, part in enumerate(parts) if i >= _FEWEST_PARTS - 1 and _RATIO.fullmatch(part)), None)
    if place is None:
        return {}
    head, further = parts[: place - 2], parts[place + 1 :]
    settings = {
        "dataset": head[0],
        "data_dir": "__".join(head[1:]),
        "model": parts[place - 2].replace("--", "/"),
        "press_name": parts[place - 1],
        "compression_ratio": parts[place],
    }
    for name, _, pattern in (*_CONDITIONS, (_CHANNELS, "", r"key_channel_cr(.+)")):
        value = next((found[1] for part in further if (found := re.fullmatch(pattern, part))), "")
        settings |= {name: value} if value else {}
    return settings | {name: "true" for name in _FLAGS if name in further}


def read_config(text: str) -> dict[str, str]:
    r"""The settings of `config.yaml` that stand in one line; null counts as not stated.

    kvpress writes one key per line, and what continues a value is indented: more of YAML is not needed.

    >>> read_config("model: a/b\ndata_dir: '4096'\nthreshold: null\nmodel_kwargs:\n  dtype: auto\n")
    {'model': 'a/b', 'data_dir': '4096'}
    """
    found = (_LINE.fullmatch(line) for line in text.splitlines())
    pairs = {each[1]: _unquoted(each[2]) for each in found if each}
    return {name: value for name, value in pairs.items() if value not in ("", "null", "~", "{}")}


def _unquoted(text: str) -> str:
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text


def _removed(settings: Mapping[str, str], predictions: Path, faults: Faults) -> float | None:
    """The fraction of tokens that was removed; None where nothing says it."""
    press, text = settings.get("press_name", ""), settings.get("compression_ratio", "")
    if press == _NO_PRESS:
        return 0.0
    if not text or _BY_ITSELF.fullmatch(press) or any(name in settings for name in _UNKNOWN_RATIO):
        return _measured(predictions)
    ratio = number(text)
    if _DURING_DECODE.fullmatch(press) or (ratio is not None and 0 <= ratio < 1):
        return ratio
    faults.add(f"compression_ratio is {shown(text)}: it is the fraction that is removed, from 0 to less than 1")
    return None


def _measured(predictions: Path) -> float | None:
    """The mean ratio of all answers; None where there is none."""
    if not predictions.is_file():
        return None
    try:
        with predictions.open(encoding="utf-8", newline="") as lines:
            ratios = [number(line.get("compression_ratio") or "") for line in csv.DictReader(lines)]
    except (OSError, UnicodeDecodeError, csv.Error):
        return None
    known = [ratio for ratio in ratios if ratio is not None and math.isfinite(ratio)]
    mean = sum(known) / len(known) if known and len(known) == len(ratios) else None
    return mean if mean is not None and 0 <= mean < 1 else None


def _conditions(settings: Mapping[str, str]) -> dict[str, str]:
    found = {name: settings.get(name, default) for name, default, _ in _CONDITIONS}
    kept = {name: text if (value := number(text)) is None else f"{value:g}" for name, text in found.items()}
    return kept | {WEIGHTS: "fp8" if settings.get("fp8", "").lower() == "true" else AS_THEY_ARE}

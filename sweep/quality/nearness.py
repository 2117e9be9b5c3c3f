"""How far a published row is from a design, as a number and in words.

The number only ranks rows; its parts are of a size that a method's name counts as much as a factor of two in bits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kvwall.spaces.quality_methods import load_methods
from kvwall.spaces.quality_tasks import TASKS, task_named
from kvwall.sweep.quality.rows import FULL, Named, Row
from kvwall.sweep.readable import tokens_text

REMEDIES: Final = ("quantizer", "evictor", "reader", "weight_quantizer", "activation")
_BITS: Final = {"quantizer": "bits", "weight_quantizer": "bits of weights", "activation": "bits of activations"}
_SHARES: Final = {"evictor": "% of the tokens kept", "reader": "% of the tokens read"}
_NOUNS: Final = {
    "quantizer": "KV bits", "evictor": "tokens dropped", "reader": "tokens not read", "weight_quantizer": "weight bits",
    "activation": "activation bits",
}  # fmt: skip

_OF_FAMILY, _KIN, _OTHER_QUESTION, _STRANGE = 0.25, 1.0, 1.5, 4.0
"""A method of the family asked for; another one of the same family; the same where the question is seen or not; none
of these."""
_MORE_OR_LESS: Final = 3.0
"""A remedy that only one of both takes."""
_E_FOLD_OF_TOKENS: Final = 0.7
_PER_CHANNEL: Final = 0.5
_OTHER_CLASS, _OTHER_QUANTITY, _NO_AVERAGE = 2.0, 4.0, 0.5
_OTHER_MODEL, _OTHER_ROUNDING, _OTHER_KEYS = 0.25, 0.5, 1.5
_OCTAVE_OF_CONTEXT, _NO_CONTEXT = 0.1, 0.3


@dataclass(frozen=True)
class Used:
    """A remedy in use: its method, and how much."""

    named: Named
    amounts: tuple[float, ...]
    """Bits of K and V, bits, or the share of the tokens that is left."""


@dataclass(frozen=True)
class Asked:
    """A design as published rows are compared with it."""

    model: str
    task: str
    context: float
    used: Mapping[str, Used]
    """By remedy, those in use only."""
    visible: bool = True
    llama_3: bool = False
    k_outliers: bool = False

    def only(self, remedy: str) -> Asked:
        """The design with one of its remedies."""
        return replace(self, used={remedy: self.used[remedy]})


@dataclass(frozen=True)
class Gap:
    """A part of a distance; nothing to say where the words are empty."""

    size: float
    words: str = ""


def used_by(row: Row) -> dict[str, Used]:
    """The remedies that a row takes."""
    found: dict[str, Used] = {}
    if row.quantizer and min(row.key_bits, row.value_bits) < FULL:
        found["quantizer"] = Used(row.quantizer, (row.key_bits, row.value_bits))
    if row.evictor:
        found["reader" if row.reads else "evictor"] = Used(row.evictor, (row.kept,))
    if row.weight_quantizer:
        found["weight_quantizer"] = Used(row.weight_quantizer, (row.weight_bits,))
    if row.activation_bits < FULL:
        found["activation"] = Used(Named("activation", "activation"), (row.activation_bits,))
    return found


def gaps(asked: Asked, row: Row, context: float | None) -> Iterator[Gap]:
    """The parts of the distance of a row from a design; `context` is the row's, where it states one."""
    used = used_by(row)
    for remedy, own in asked.used.items():
        if remedy in used:
            yield from _name(remedy, own.named, used[remedy].named, asked.visible)
            yield _amount(remedy, own.amounts, used[remedy].amounts)
        else:
            yield Gap(_MORE_OR_LESS, f"without {_NOUNS[remedy]}")
    for remedy in (name for name in used if name not in asked.used):
        yield Gap(_MORE_OR_LESS, f"with {_setting(remedy, used[remedy].amounts)} besides")
    if row.per_channel and "weight_quantizer" in asked.used:
        yield Gap(_PER_CHANNEL, "one scale a channel instead of a group")
    yield _task(asked, row)
    yield _model(asked, row)
    yield _context(asked.context, context)


def setting_text(row: Row) -> str:
    """What a row compresses, in words.

    >>> setting_text(Row("", "", "", "", (), 0.0, key_bits=4.0, value_bits=2.0, quantizer=Named("naive", "naive")))
    'K 4, V 2 bits'
    """
    parts = [_setting(remedy, each.amounts) for remedy, each in used_by(row).items()]
    if row.evictor and load_methods()["evictor"].family(_known(row.evictor)) != _hidden_family(row.evictor):
        parts.append(f"question {'visible' if row.visible else 'hidden'}")
    return ", ".join(parts) or "nothing"


def _name(remedy: str, asked: Named, found: Named, visible: bool) -> Iterator[Gap]:
    if remedy == "activation":
        return
    if found == asked:
        yield Gap(0.0, f"same {'family' if asked.name == asked.family else 'method'} ({asked.name})")
    elif found.name == asked.name:
        other, own = ("hidden", "visible") if visible else ("visible", "hidden")
        yield Gap(_OTHER_QUESTION, f"same method ({asked.name}), question {other} instead of {own}")
    elif found.family == asked.family:
        of_family = asked.name == asked.family
        kind = "of the family asked for" if of_family else f"of the same family instead of {asked.name}"
        yield Gap(_OF_FAMILY if of_family else _KIN, f"{found.name} {kind}")
    else:
        yield Gap(_STRANGE, f"{found.name} of another family instead of {asked.name}")


def _amount(remedy: str, asked: tuple[float, ...], found: tuple[float, ...]) -> Gap:
    if remedy in _SHARES:
        size = _E_FOLD_OF_TOKENS * abs(_dropped_per_kept(asked[0]) - _dropped_per_kept(found[0]))
    else:
        size = sum(abs(math.log2(one / other)) for one, other in zip(asked, found, strict=True)) / len(asked)
    if size < 1e-3:
        return Gap(0.0, f"same {_BITS.get(remedy) or 'share of the tokens'}")
    return Gap(size, f"{_numbers(remedy, found)} instead of {_setting(remedy, asked)}")


def _dropped_per_kept(share: float) -> float:
    kept = min(max(share, 1e-4), 1 - 1e-4)
    return math.log((1 - kept) / kept)


def _setting(remedy: str, amounts: tuple[float, ...]) -> str:
    return f"{_numbers(remedy, amounts)} {_SHARES.get(remedy) or _BITS[remedy]}"


def _numbers(remedy: str, amounts: tuple[float, ...]) -> str:
    shown = [f"{100 * each:.3g}" if remedy in _SHARES else f"{each:.3g}" for each in amounts]
    return f"K {shown[0]}, V {shown[1]}" if len(set(shown)) > 1 else shown[0]


def _task(asked: Asked, row: Row) -> Gap:
    """Of the classes that a row's score is of, the share that is not asked for."""
    wanted = task_named(asked.task)
    classes = [TASKS[place] for place in wanted.rows]
    if row.log_ratio != (asked.task == "perplexity"):
        return Gap(_OTHER_QUANTITY, f"task {row.task} instead of {asked.task}")
    strange = sum(part.weight for part in row.parts if part.task not in classes)
    if strange > 1e-9:
        named = row.parts[0].task if len(row.parts) == 1 else "average over classes"
        return Gap(_OTHER_CLASS * strange, f"task {named} instead of {asked.task}")
    if wanted.weights and len(row.parts) == 1:
        return Gap(_NO_AVERAGE, f"one class ({row.parts[0].task}) of {asked.task}")
    return Gap(0.0)


def _model(asked: Asked, row: Row) -> Gap:
    """Kinds of model matter to quantizers of KV only."""
    if _plain(row.model) == _plain(asked.model):
        return Gap(0.0, "same model")
    size, words = _OTHER_MODEL, ["another model"]
    if "quantizer" in asked.used:
        if row.k_outliers != asked.k_outliers:
            size += _OTHER_KEYS
            words.append(f"whose keys have {'' if row.k_outliers else 'no '}outliers")
        if row.llama_3 != asked.llama_3:
            size += _OTHER_ROUNDING
            words.append("like Llama-3" if row.llama_3 else "not like Llama-3")
    return Gap(size, " ".join(words))


def _plain(model: str) -> str:
    """A model's label or catalogue id without what does not tell models apart.

    >>> _plain("meta-llama/Meta-Llama-3-8B-Instruct") == _plain("Llama-3-8B")
    True
    """
    return re.sub(r"^meta-|-(instruct|chat|it|hf)\b", "", model.rstrip("/").split("/")[-1].lower())


def _context(asked: float, found: float | None) -> Gap:
    if not found:
        return Gap(_NO_CONTEXT, "context not stated")
    octaves = abs(math.log2(found / asked))
    words = f"at {tokens_text(found)} instead of {tokens_text(asked)}" if octaves >= 1 else ""
    return Gap(_OCTAVE_OF_CONTEXT * octaves, words)


def _known(named: Named) -> str:
    return named.name if named.name in load_methods()["evictor"].all else named.family


def _hidden_family(named: Named) -> str:
    return load_methods()["evictor"].family(_known(named), question_visible=False)

"""The named axes of a design: one line each. The same word is a CLI option, a study key and a dataset dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kvwall.spaces.engines import engine_names
from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS, WEIGHT_QUANTIZERS

Value: TypeAlias = float | int | str | bool

_LARGEST = 1e300
"""Above this a whole number of Python may not have a float."""

NATIVE = "native"
"""The one word `weight_bits` takes: the checkpoint's own format per tensor class."""

ENGINES = engine_names()
PRICE_BASES = ("cloud", "list", "tco")
RESERVATIONS = ("paged", "contiguous")
ACCESSES = ("streamed", "parked")
DIE_PLACEMENTS = ("striped", "pinned")
SERVING_MODES = ("static", "continuous")


@dataclass(frozen=True)
class Axis:
    """One axis: what its values may be, and the value that leaves every metric as if the axis were not there."""

    name: str
    kind: Literal["int", "real", "name", "flag"]
    neutral: Value | None
    meaning: str
    low: float = -math.inf
    high: float = math.inf
    low_excluded: bool = False
    names: tuple[str, ...] = ()
    """Allowed names; empty for axes whose names come from the catalogue."""
    word: str = ""
    """The one word a numeric axis takes beside numbers, its neutral value; laws see 0."""

    @property
    def required(self) -> bool:
        """Whether a design must state it."""
        return self.neutral is None

    def check(self, value: object) -> Value:
        """The value as this axis holds it. Raises InputError saying what is allowed."""
        if self.word and value == self.word:
            return self.word
        match self.kind:
            case "name":
                return self._check_name(value)
            case "flag":
                if isinstance(value, bool):
                    return value
                raise InputError(f"{self.name} = {value!r}: it is true or false")
            case "int" | "real":
                return self._check_number(value)

    def _check_name(self, value: object) -> str:
        if not isinstance(value, str) or not value:
            raise InputError(f"{self.name} = {value!r}: it takes a name in quotes")
        if self.names and value not in self.names:
            allowed = ", ".join(self.names)
            raise InputError(f'{self.name} "{value}" is unknown{nearest(value, self.names)}: use one of {allowed}')
        return value

    def _check_number(self, value: object) -> float | int:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"{self.name} = {value!r} is not a number: {self.allowed}")
        number = float(value) if abs(value) <= _LARGEST else math.inf
        below = number <= self.low if self.low_excluded else number < self.low
        if not math.isfinite(number) or below or number > self.high:
            raise InputError(f"{self.name} = {value!r} is out of range: {self.allowed}")
        if self.kind == "int":
            if not number.is_integer():
                raise InputError(f"{self.name} = {value!r} is not whole: {self.allowed}")
            return int(number)
        return number

    @property
    def allowed(self) -> str:
        """What the axis takes, in words."""
        if self.kind == "flag":
            return "true or false"
        if self.kind == "name":
            return ", ".join(self.names) or "a catalogue name or a file's path"
        kind = "a whole number" if self.kind == "int" else "a number"
        low = f" {'above' if self.low_excluded else 'at least'} {self.low:g}" if math.isfinite(self.low) else ""
        high = f" at most {self.high:g}" if math.isfinite(self.high) else ""
        word = f' (or "{self.word}")' if self.word else ""
        return f"{kind}{low}{' and' if low and high else ''}{high}{word}"


_MOST_TOKENS = 1e9
_MOST_BITS = 16

_ALL = (
    Axis("model", "name", None, "model: catalogue id or path of a config.json"),
    Axis("hardware", "name", None, "chip: catalogue name or path of a TOML file"),
    Axis("engine", "name", "ideal", "serving engine: its memory rules and, in estimates, its speed", names=ENGINES),
    Axis("batch", "int", 1, "concurrent sequences on the replica", 1, 1e6),
    Axis("context", "int", None, "tokens in the cache at the evaluated step", 1, _MOST_TOKENS),
    Axis("output_tokens", "int", 0, "tokens still to be written", 0, _MOST_TOKENS),
    Axis("serving_mode", "name", "static", "whether prefill of arriving requests runs in between", names=SERVING_MODES),
    Axis("weight_bits", "real", NATIVE, "bits per weight of the streamed matrices", 1, 32, word=NATIVE),
    Axis(
        "weight_quantizer", "name", "structure_aware", "quality family of the weight quantizer", names=WEIGHT_QUANTIZERS
    ),
    Axis("activation_bits", "real", 16, "bits of activations and collectives", 1, _MOST_BITS),
    Axis("key_bits", "real", 16, "payload bits of a stored key element", 1, _MOST_BITS),
    Axis("value_bits", "real", 16, "payload bits of a stored value element", 1, _MOST_BITS),
    Axis("kv_group_size", "int", 0, "elements sharing a scale; 0 = no scale overhead", 0, 1e6),
    Axis("scale_bits", "real", 16, "bits of a group's scale", 0, 64),
    Axis("zero_bits", "real", 16, "bits of a group's zero-point", 0, 64),
    Axis("residual_window", "int", 0, "recent tokens kept at 16 bits", 0, _MOST_TOKENS),
    Axis("outlier_fraction", "real", 0.0, "share of KV elements kept apart at 32 bits", 0, 1),
    Axis("quantizer", "name", "structure_aware", "quality family or method of the KV quantizer", names=QUANTIZERS),
    Axis("retention", "real", 1.0, "fraction of tokens kept", 1e-6, 1),
    Axis("sink_tokens", "int", 0, "first tokens, always kept", 0, _MOST_TOKENS),
    Axis("recent_tokens", "int", 0, "last tokens, always kept", 0, _MOST_TOKENS),
    Axis("evictor", "name", "query_aware", "quality family or method of the eviction", names=EVICTORS),
    Axis("question_visible", "flag", True, "whether the question is known when tokens are scored"),
    Axis("read_fraction", "real", 1.0, "share of the kept tokens that a step reads", 1e-6, 1),
    Axis("block_size", "int", 1, "tokens per page", 1, 1e6),
    Axis("reservation", "name", "paged", "pages as needed, or the longest length at once", names=RESERVATIONS),
    Axis("max_model_length", "int", "context", "longest sequence that is served", 1, 2 * _MOST_TOKENS, word="context"),
    Axis("prefix_share", "real", 0.0, "fraction of the context common to a group of sequences", 0, 1),
    Axis("prefix_group", "int", 1, "sequences that have a prefix in common", 1, 1e6),
    Axis("prefix_aware_attention", "flag", False, "whether a common prefix is read once per group"),
    Axis("prefix_hit_rate", "real", 0.0, "share of the prompt's tokens found cached by prefill", 0, 1),
    Axis("placement_host", "real", 0.0, "fraction of kept KV in host memory", 0, 1),
    Axis("placement_cxl", "real", 0.0, "fraction of kept KV in CXL memory", 0, 1),
    Axis("placement_nvme", "real", 0.0, "fraction of kept KV on NVMe drives", 0, 1),
    Axis("placement_remote", "real", 0.0, "fraction of kept KV in remote memory", 0, 1),
    Axis("access", "name", "streamed", "KV in tiers is read by each step, or that of idle sequences", names=ACCESSES),
    Axis("link_overlap", "real", 1.0, "share of tier transfers hidden behind the rest of the step", 0, 1),
    Axis("tensor_parallel", "int", 1, "devices that split every layer", 1, 4096),
    Axis("pipeline_parallel", "int", 1, "stages that the layers are divided into", 1, 4096),
    Axis("context_parallel", "int", 1, "devices that divide the tokens of every sequence", 1, 4096),
    Axis("attention_data_parallel", "int", 1, "attention ranks that divide the sequences", 1, 4096),
    Axis("expert_parallel", "int", 1, "of the same devices, ranks that divide the experts", 1, 4096),
    Axis("expert_skew", "real", 0.0, "squared coefficient of variation of the experts' popularity", 0, 100),
    Axis("draft_tokens", "int", 0, "tokens drafted for each verifying step", 0, 64),
    Axis("acceptance_rate", "real", 0.7, "chance that a drafted token is accepted", 0, 1),
    Axis("die_placement", "name", "striped", "KV over all dies of a chip, or a page on one", names=DIE_PLACEMENTS),
    Axis("utilisation", "real", "engine", "fraction of memory, as the engine means it", 0, 1, True, word="engine"),
    Axis("price_basis", "name", "cloud", "which price of a device-hour", names=PRICE_BASES),
)

AXES: dict[str, Axis] = {axis.name: axis for axis in _ALL}


def axis_named(name: str) -> Axis:
    """The axis of this name. Raises InputError with the nearest names."""
    if name in AXES:
        return AXES[name]
    raise InputError(f'axis "{name}" is unknown{nearest(name, AXES)}: `kvwall catalog axes` lists them')

"""The named axes of a design: one line each. The same word is a CLI option, a study key and a dataset dimension."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, TypeAlias

from kvwall.spaces.errors import InputError, nearest
from kvwall.spaces.quality import EVICTORS, QUANTIZERS

Value: TypeAlias = float | int | str | bool

_LARGEST = 1e300
"""Above this a whole number of Python may not have a float."""

NATIVE = "native"
"""The one word `weight_bits` takes: the checkpoint's own format per tensor class."""

ENGINES = ("ideal",)
PRICE_BASES = ("cloud", "list", "tco")


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

    @property
    def required(self) -> bool:
        """Whether a design must state it."""
        return self.neutral is None

    def check(self, value: object) -> Value:
        """The value as this axis holds it. Raises InputError saying what is allowed."""
        if self.name == "weight_bits" and value == NATIVE:
            return NATIVE
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
        native = f' (or "{NATIVE}")' if self.name == "weight_bits" else ""
        return f"{kind}{low}{' and' if low and high else ''}{high}{native}"


_MOST_TOKENS = 1e9
_MOST_BITS = 16

_ALL = (
    Axis("model", "name", None, "model: catalogue id or path of a config.json"),
    Axis("hardware", "name", None, "chip: catalogue name or path of a TOML file"),
    Axis("engine", "name", "ideal", "serving engine whose memory rules apply", names=ENGINES),
    Axis("batch", "int", 1, "concurrent sequences on the replica", 1, 1e6),
    Axis("context", "int", None, "tokens in the cache at the evaluated step", 1, _MOST_TOKENS),
    Axis("output_tokens", "int", 0, "tokens still to be written", 0, _MOST_TOKENS),
    Axis("weight_bits", "real", NATIVE, "bits per weight of the streamed matrices", 1, 32),
    Axis("activation_bits", "real", 16, "bits of activations and collectives", 1, _MOST_BITS),
    Axis("key_bits", "real", 16, "payload bits of a stored key element", 1, _MOST_BITS),
    Axis("value_bits", "real", 16, "payload bits of a stored value element", 1, _MOST_BITS),
    Axis("kv_group_size", "int", 0, "elements sharing a scale; 0 = no scale overhead", 0, 1e6),
    Axis("scale_bits", "real", 16, "bits of a group's scale", 0, 64),
    Axis("zero_bits", "real", 16, "bits of a group's zero-point", 0, 64),
    Axis("residual_window", "int", 0, "recent tokens kept at 16 bits", 0, _MOST_TOKENS),
    Axis("outlier_fraction", "real", 0.0, "share of KV elements kept apart at 32 bits", 0, 1),
    Axis("quantizer", "name", "structure_aware", "quality family of the KV quantizer", names=QUANTIZERS),
    Axis("retention", "real", 1.0, "fraction of tokens kept", 1e-6, 1),
    Axis("sink_tokens", "int", 0, "first tokens, always kept", 0, _MOST_TOKENS),
    Axis("recent_tokens", "int", 0, "last tokens, always kept", 0, _MOST_TOKENS),
    Axis("evictor", "name", "query_aware", "quality family of the eviction method", names=EVICTORS),
    Axis("question_visible", "flag", True, "whether the question is known when tokens are scored"),
    Axis("placement_host", "real", 0.0, "fraction of kept KV in host memory, streamed each step", 0, 1),
    Axis("tensor_parallel", "int", 1, "devices that split every layer", 1, 4096),
    Axis("utilisation", "real", 1.0, "fraction of memory that may be used", 0, 1, low_excluded=True),
    Axis("price_basis", "name", "cloud", "which price of a device-hour", names=PRICE_BASES),
)

AXES: dict[str, Axis] = {axis.name: axis for axis in _ALL}

NOT_BUILT: tuple[str, ...] = (
    "read_fraction", "block_size", "reservation", "max_model_length", "prefix_share", "prefix_group",
    "prefix_aware_attention", "prefix_hit_rate", "placement_cxl", "placement_nvme", "placement_remote", "access",
    "link_overlap", "pipeline_parallel", "context_parallel", "attention_data_parallel", "expert_parallel",
    "expert_skew", "draft_tokens", "acceptance_rate", "die_placement", "serving_mode",
)  # fmt: skip
"""Axes of the public contract whose laws are not built yet: setting one is an error, never ignored."""


def axis_named(name: str) -> Axis:
    """The axis of this name. Raises InputError with the nearest names, or saying that it is not built yet."""
    if name in AXES:
        return AXES[name]
    if name in NOT_BUILT:
        raise InputError(f'axis "{name}" is not supported yet: leave it out; `kvwall catalog axes` lists the others')
    raise InputError(f'axis "{name}" is unknown{nearest(name, AXES)}: `kvwall catalog axes` lists them')

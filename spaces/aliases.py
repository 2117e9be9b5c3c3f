"""Labels of published measurements: the catalogue names and bits they stand for, with documented defaults.

The record is data (`catalog/aliases/decode.toml`); here it is typed and checked. A label that stands for nothing in
the catalogue is refused with a reason, as an `InputError`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.own_names import own_hardware, own_model

RECORD = Path(__file__).parent / "catalog" / "aliases" / "decode.toml"

_STRICT = ConfigDict(extra="forbid")


@with_config(_STRICT)
@dataclass(frozen=True)
class Alias:
    """What a hardware or model label stands for; exactly one of `name` and `refused` is stated."""

    name: str = ""
    refused: str = ""
    note: str = ""
    native: tuple[str, ...] = ()
    checkpoints: Mapping[str, str] | None = None


@with_config(_STRICT)
@dataclass(frozen=True)
class WeightFormat:
    """Bits of a weight label."""

    weight_bits: float | Literal["native"]
    activation_bits: float
    source: str = ""


@with_config(_STRICT)
@dataclass(frozen=True)
class KVDefault:
    """KV bits of rows that state none, where every condition that is given holds."""

    bits: float
    because: str
    text: str = ""
    model: tuple[str, ...] = ()
    hardware: tuple[str, ...] = ()
    framework: tuple[str, ...] = ()
    weights: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str], text: str) -> bool:
        """Whether it speaks for a row with these labels (model, hardware, framework, weights) and this text."""
        allowed = {"model": self.model, "hardware": self.hardware, "framework": self.framework, "weights": self.weights}
        return self.text in text and all(labels[kind] in some for kind, some in allowed.items() if some)


@with_config(_STRICT)
@dataclass(frozen=True)
class SplitDefault:
    """How the devices of a row split the model where it does not say so and its engine had one way only."""

    split: Literal["tensor_parallel", "pipeline_parallel"]
    framework: str
    version: str
    """As the rows state it, exactly."""
    because: str


@with_config(_STRICT)
@dataclass(frozen=True)
class Aliases:
    """The whole record."""

    hardware: Mapping[str, Alias]
    model: Mapping[str, Alias]
    weights: Mapping[str, WeightFormat]
    native_activations: Mapping[str, float]
    kv: Mapping[str, float]
    kv_default: tuple[KVDefault, ...]
    split_default: tuple[SplitDefault, ...]
    framework: Mapping[str, str]

    def hardware_name(self, label: str) -> str:
        """The catalogue name, or the path, of a hardware label. Raises InputError with the reason if there is none."""
        own = label not in self.hardware and own_hardware(label)
        return own or _alias("hardware", label, self.hardware).name

    def model_name(self, label: str) -> str:
        """The catalogue name, or the path, of a model label. Raises InputError with the reason if there is none.

        >>> load_aliases().model_name("Llama-3.1-8B"), load_aliases().model_name("meta-llama/Llama-3.1-8B-Instruct")
        ('meta-llama/Meta-Llama-3.1-8B', 'meta-llama/Meta-Llama-3.1-8B')
        """
        return self._model(label).name

    def _model(self, label: str) -> Alias:
        """A name that stands for itself has the formats that its aliases have."""
        name = "" if label in self.model else own_model(label)
        if not name:
            return _alias("model", label, self.model)
        native: set[str] = set()
        checkpoints: dict[str, str] = {}
        for alias in self.model.values():
            if alias.name == name:
                native.update(alias.native)
                checkpoints.update(alias.checkpoints or {})
            native.update(label for label, checkpoint in (alias.checkpoints or {}).items() if checkpoint == name)
        return Alias(name, native=tuple(sorted(native)), checkpoints=checkpoints)

    def weights_of(self, model: str, precision: str) -> tuple[str, WeightFormat]:
        """The catalogue name of a model in a weight precision, and the bits. Raises InputError with the reason.

        >>> load_aliases().weights_of("Llama-3.1-70B", "fp8")[0]
        'nvidia/Llama-3.1-70B-Instruct-FP8'
        """
        alias = self._model(model)
        label = precision.partition(" (")[0]  # a remark in brackets follows
        own = label.lower()  # llama.cpp and users write formats in capitals
        checkpoint = (alias.checkpoints or {}).get(own)
        if checkpoint or own in alias.native:
            return checkpoint or alias.name, WeightFormat("native", self.native_activations[own])
        return alias.name, self.weight_format(label)

    def weight_format(self, label: str) -> WeightFormat:
        """The bits of a weight label, whatever the model. Raises InputError if it is unknown."""
        found = self.weights.get(label) or self.weights.get(label.lower())
        if found is None:
            raise InputError(f'weight precision "{label}" is unknown{nearest(label, self.weights)}')
        return found

    def kv_bits(self, precision: str, labels: Mapping[str, str], text: str) -> float:
        """Bits of K and V of a row: as stated, else by the first default that holds. Raises InputError if unknown."""
        if precision:
            precision = precision if precision in self.kv else precision.lower()
            if precision not in self.kv:
                raise InputError(f'KV precision "{precision}" is unknown{nearest(precision, self.kv)}')
            return self.kv[precision]
        return next(default.bits for default in self.kv_default if default.holds(labels, text))

    def split(self, framework: str, version: str) -> str | None:
        """The axis along which this version of an engine splits a model over devices; None where it may choose.

        >>> load_aliases().split("llama.cpp", "2023-11")
        'tensor_parallel'
        """
        found = (each.split for each in self.split_default if (each.framework, each.version) == (framework, version))
        return next(found, None)

    def framework_name(self, label: str) -> str:
        """One name of a framework that sources spell in several ways.

        >>> load_aliases().framework_name("trt")
        'TensorRT-LLM'
        """
        return self.framework.get(label, label)


def _alias(kind: str, label: str, known: Mapping[str, Alias]) -> Alias:
    alias = known.get(label)
    if alias is None:
        raise InputError(f'{kind} "{label}" is not in the catalogue')
    if alias.refused:
        raise InputError(f'{kind} "{label}": {alias.refused}')
    return alias


@cache
def load_aliases(path: Path = RECORD) -> Aliases:
    """The checked record. Raises InputError with every fault.

    >>> load_aliases().hardware_name("H100-SXM5-80GB")
    'h100-sxm'
    """
    try:
        found = TypeAdapter(Aliases).validate_python(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as fault:
        raise InputError(f"{path}: cannot be read: {fault.strerror}") from fault
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise InputError(f"{path}: is no TOML file: {fault}") from fault
    except ValidationError as fault:
        lines = (f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in fault.errors())
        raise InputError(lines) from fault
    _check(found, path)
    return found


def _check(found: Aliases, path: Path) -> None:
    faults = Faults()
    for kind, aliases in (("hardware", found.hardware), ("model", found.model)):
        for label, alias in aliases.items():
            if bool(alias.name) == bool(alias.refused):
                faults.add(f'{path}: {kind} "{label}": state either name or refused')
            for native in {*alias.native, *(alias.checkpoints or {})} - found.native_activations.keys():
                faults.add(f'{path}: {kind} "{label}": native_activations has no "{native}"')
    last = found.kv_default[-1] if found.kv_default else None
    if last is None or last != KVDefault(last.bits, last.because):
        faults.add(f"{path}: kv_default: the last entry must hold for every row: give bits and because only")
    faults.raise_if_any()

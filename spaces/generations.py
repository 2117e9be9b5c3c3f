"""Generations of serving engines: whose speed is calibrated together.

The record is data (`catalog/calibration/generations.toml`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from pydantic import ConfigDict, TypeAdapter, ValidationError, with_config

from kvwall.spaces.engines import load_engine
from kvwall.spaces.errors import InputError

RECORD: Final = Path(__file__).parent / "catalog" / "calibration" / "generations.toml"
_NUMBER: Final = re.compile(r"(\d+)(?:\.(\d+))?")
_FIRST_YEAR: Final = 2000

_STRICT = ConfigDict(extra="forbid")


@with_config(_STRICT)
@dataclass(frozen=True)
class Generation:
    """One generation of a serving engine."""

    framework: str
    """Name of the engine in measured rows."""
    kernels: str = ""
    """Engine of the record of kernels; blank where none has been measured."""
    engine: str = ""
    """Value of the axis `engine`; blank for a generation that is only measured."""
    before: str = ""
    """Version from which on a newer generation begins."""
    years: tuple[str, ...] = ()
    """Versions that sources state as a year."""
    note: str = ""

    @property
    def own_kernels(self) -> bool:
        """Whether the measured kernels are those of this very generation."""
        return bool(self.kernels and self.engine and not self.before)

    def holds(self, version: str) -> bool:
        """Whether a stated version belongs to it or to an older one."""
        found = _NUMBER.search(version)
        if found is None or not self.before:
            return not self.before
        if int(found[1]) >= _FIRST_YEAR:
            return found[1] in self.years
        return (int(found[1]), int(found[2] or 0)) < _pair(self.before)


def _pair(version: str) -> tuple[int, int]:
    major, _, minor = version.partition(".")
    return int(major), int(minor or 0)


@cache
def load_generations(path: Path = RECORD) -> Mapping[str, Generation]:
    """Every generation by name. Raises InputError with every fault."""
    try:
        text = path.read_text(encoding="utf-8")
        return TypeAdapter(dict[str, Generation]).validate_python(tomllib.loads(text))
    except (OSError, tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise InputError(f"{path}: is no TOML file that can be read: {fault}") from fault
    except ValidationError as fault:
        raise InputError(
            f"{path}: {'.'.join(map(str, each['loc']))}: {each['msg']}" for each in fault.errors()
        ) from fault


def generation_of(framework: str, version: str) -> str:
    """The generation of a measured row; the framework's own name where it has none, which nothing is known of.

    >>> generation_of("vLLM", "0.6.3"), generation_of("vLLM", "0.12.0"), generation_of("vLLM", "2024")
    ('vllm-2024', 'vllm', 'vllm-2024')
    """
    own = {name: each for name, each in load_generations().items() if each.framework == framework}
    older = sorted((name for name in own if own[name].before), key=lambda name: _pair(own[name].before))
    newest = [name for name in own if not own[name].before]
    return next((name for name in older if own[name].holds(version)), newest[0] if newest else framework)


def generation_of_engine(engine: str) -> str:
    """The generation that a value of the axis `engine` stands for; the value itself where none is calibrated.

    >>> generation_of_engine("vllm-0.20"), generation_of_engine("ideal")
    ('vllm', 'ideal')
    """
    name = load_engine(engine).engine
    return next((found for found, each in load_generations().items() if each.engine == name), name)

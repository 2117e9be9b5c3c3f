"""A `config.json` read key by key: every wrong or missing key is collected, every class default noted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvwall.spaces.errors import Faults, InputError

LARGEST_COUNT = 2**31 - 1
"""No key of a config counts higher; a larger number is a typing error and would overflow later sums."""

LARGEST_LAYERS = 10_000
"""Layers are walked one by one where a weight format spares some of them."""


class Config:
    """One JSON object of a model's configuration.

    Readers return a usable stand-in where a key is wrong or missing, so that a constructor runs to
    its end and `settle` can report all faults of the file together.
    """

    def __init__(self, values: Mapping[str, Any], where: str, parent: Config | None = None) -> None:
        self.values = values
        self.where = where
        self.flags: list[str] = parent.flags if parent else []
        self.faults: Faults = parent.faults if parent else Faults()
        self.missing: list[str] = parent.missing if parent else []

    @property
    def spoiled(self) -> bool:
        """Whether anything is wrong or missing so far (a reader may have returned a stand-in)."""
        return bool(self.missing or self.faults)

    def states(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(key) is not None

    def count(self, *keys: str, default: int | None = None, meaning: str = "", most: int = LARGEST_COUNT) -> int:
        """The positive integer, at most `most`, under the first of `keys` that is stated.

        With a `default`, an absent key takes it and leaves a flag saying so (`meaning` explains it).
        """
        for key in keys:
            if self.states(key):
                return self._positive(key, most)
        if default is None:
            self.missing.append(" or ".join(keys))
            return 1
        self.flags.append(f"{keys[0]} not stated: class default {default}{' ' + meaning if meaning else ''}")
        return default

    def layer_count(self, *keys: str) -> int:
        """The number of decoder layers; as `count`."""
        return self.count(*keys, most=LARGEST_LAYERS)

    def optional_count(self, *keys: str) -> int | None:
        """As `count`, but None where none of the keys is stated."""
        return self.count(*keys) if any(self.states(key) for key in keys) else None

    def switch(self, key: str, default: bool) -> bool:
        """The true/false under `key`; a class default is silent, the constructor documents it."""
        value = self.values.get(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.faults.add(f"{self.where}: {key} = {value!r} must be true or false")
            return default
        return value

    def text(self, key: str) -> str | None:
        """The string under `key`, None where it is not stated."""
        value = self.values.get(key)
        if value is None or isinstance(value, str):
            return value
        self.faults.add(f"{self.where}: {key} = {value!r} must be a string")
        return None

    def names(self, key: str) -> tuple[str, ...]:
        """The list of strings under `key`, empty where it is not stated."""
        value = self.values.get(key)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.faults.add(f"{self.where}: {key} must be a list of strings")
        return ()

    def section(self, key: str) -> Config:
        """The nested object under `key`; an absent one reads as empty."""
        value = self.values.get(key)
        if value is not None and not isinstance(value, dict):
            self.faults.add(f"{self.where}: {key} must be an object, not {type(value).__name__}")
            value = None
        return Config(value or {}, f"{self.where}, {key}", self)

    def refuse(self, what: str) -> None:
        """Record that the model uses something this package does not count yet."""
        self.faults.add(f"{self.where}: {what} is not supported yet: supported are dense models with full attention")

    def settle(self) -> None:
        """Raise one InputError with everything wrong or missing so far; do nothing when all is well."""
        if self.missing:
            self.faults.add(f"{self.where}: missing {', '.join(dict.fromkeys(self.missing))}: state them in the file")
            self.missing.clear()
        self.faults.raise_if_any()

    def _positive(self, key: str, most: int) -> int:
        value = self.values[key]
        # bool is an int to Python, and JSON's NaN arrives as a float
        if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= most:
            self.faults.add(f"{self.where}: {key} = {value!r} must be a whole number from 1 to {most}")
            return 1
        return value


def parse_object(text: str, where: str) -> dict[str, Any]:
    """The JSON object in `text`. Raises InputError when it is no JSON or no object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise InputError(f"{where}: not valid JSON: {fault}") from fault
    if not isinstance(value, dict):
        raise InputError(f"{where}: must hold a JSON object, not {type(value).__name__}")
    return value

"""A `config.json` read key by key: every wrong or missing key is collected, every class default noted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from kvwall.spaces.errors import Faults, InputError

LARGEST_COUNT = 2**31 - 1
"""No key of a config counts higher; a larger number is a typing error and would overflow later sums."""

LARGEST_LAYERS = 1_000
"""Layers are walked one by one."""


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
        self.read: set[str] = set()
        """Keys that a constructor has asked for."""

    @property
    def spoiled(self) -> bool:
        """Whether anything is wrong or missing so far (a reader may have returned a stand-in)."""
        return bool(self.missing or self.faults)

    def states(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.value(key) is not None

    def value(self, key: str) -> object:
        """What stands under `key`, unchecked; None where it is not stated."""
        self.read.add(key)
        return self.values.get(key)

    def count(self, *keys: str, default: int | None = None, meaning: str = "", most: int = LARGEST_COUNT) -> int:
        """The positive integer, at most `most`, under the first of `keys` that is stated.

        With a `default`, an absent key takes it and leaves a flag saying so (`meaning` explains it).
        """
        for key in keys:
            if self.states(key):
                return self._whole(key, self.values[key], 1, most, 1)
        if default is None:
            self.missing.append(" or ".join(keys))
            return 1
        self.flags.append(f"{keys[0]} not stated: class default {default}{' ' + meaning if meaning else ''}")
        return default

    def alike(self, *keys: str, default: int | None = None, least: int = 1) -> int:
        """As `count`, for keys that some files state once per layer: a list must repeat one number.

        `least` is the smallest number allowed; a `default` is silent.
        """
        key = next((key for key in keys if self.states(key)), None)
        if key is None:
            if default is None:
                self.missing.append(" or ".join(keys))
            return least if default is None else default
        value = self.value(key)
        if isinstance(value, list) and value:
            if any(item != value[0] for item in value):
                self.refuse(f"a {key} that differs between layers")
            value = value[0]
        return self._whole(key, value, least, LARGEST_COUNT, least)

    def layer_count(self, *keys: str) -> int:
        """The number of decoder layers; as `count`."""
        return self.count(*keys, most=LARGEST_LAYERS)

    def optional_count(self, *keys: str) -> int | None:
        """As `count`, but None where none of the keys is stated."""
        return self.count(*keys) if any(self.states(key) for key in keys) else None

    def switch(self, key: str, default: bool) -> bool:
        """The true/false under `key`; a class default is silent, the constructor documents it."""
        value = self.value(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.faults.add(f"{self.where}: {key} = {shown(value)} must be true or false")
            return default
        return value

    def text(self, key: str) -> str | None:
        """The string under `key`, None where it is not stated."""
        value = self.value(key)
        if value is None or isinstance(value, str):
            return value
        self.faults.add(f"{self.where}: {key} = {shown(value)} must be a string")
        return None

    def number(self, key: str, default: float) -> float:
        """The positive number under `key`; a class default is silent, the constructor documents it."""
        value = self.value(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= LARGEST_COUNT:
            self.faults.add(
                f"{self.where}: {key} = {shown(value)} must be a number above 0 and at most {LARGEST_COUNT}"
            )
            return default
        return value

    def whole(self, key: str, default: int = 0) -> int:
        """The whole number from 0 under `key`; a class default is silent, the constructor documents it."""
        value = self.value(key)
        if value is None:
            return default
        return self._whole(key, value, 0, LARGEST_COUNT, default)

    def whole_numbers(self, key: str) -> tuple[int, ...]:
        """The list of whole numbers (0 and up) under `key`, empty where it is not stated."""
        value = self.value(key)
        if value is None:
            return ()
        if isinstance(value, list) and all(type(item) is int and 0 <= item <= LARGEST_COUNT for item in value):
            return tuple(value)
        self.faults.add(f"{self.where}: {key} must be a list of whole numbers")
        return ()

    def names(self, key: str) -> tuple[str, ...]:
        """The list of strings under `key`, empty where it is not stated."""
        value = self.value(key)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        self.faults.add(f"{self.where}: {key} must be a list of strings")
        return ()

    def section(self, key: str) -> Config:
        """The nested object under `key`; an absent one reads as empty."""
        value = self.value(key)
        if value is not None and not isinstance(value, dict):
            self.faults.add(f"{self.where}: {key} must be an object, not {type(value).__name__}")
            value = None
        return Config(value or {}, f"{self.where}, {key}", self)

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """The same object with some keys stated anew; faults, flags and what was read are shared."""
        changed = Config({**self.values, **values}, self.where, self)
        changed.read = self.read
        return changed

    def refuse(self, what: str) -> None:
        """Record that the model uses something whose parameters or KV this package cannot count."""
        self.faults.add(f"{self.where}: {what} is not supported: its parameters and KV are not counted by guess")

    def settle(self) -> None:
        """Raise one InputError with everything wrong or missing so far; do nothing when all is well."""
        if self.missing:
            self.faults.add(f"{self.where}: missing {', '.join(dict.fromkeys(self.missing))}: state them in the file")
            self.missing.clear()
        self.faults.raise_if_any()

    def _whole(self, key: str, value: object, least: int, most: int, stand_in: int) -> int:
        # bool is an int to Python, and JSON's NaN arrives as a float
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.faults.add(f"{self.where}: {key} = {shown(value)} must be a whole number from {least} to {most}")
            return stand_in
        return value


def shown(value: object) -> str:
    """A value of a config in a message, cut where it is long."""
    try:
        text = repr(value)
    except RecursionError:
        return f"a {type(value).__name__} nested too deeply"
    return text if len(text) <= 60 else f"{text[:57]}..."


def parse_object(text: str, where: str) -> dict[str, Any]:
    """The JSON object in `text`. Raises InputError when it is no JSON or no object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as fault:
        raise InputError(f"{where}: not valid JSON: {fault}") from fault
    if not isinstance(value, dict):
        raise InputError(f"{where}: must hold a JSON object, not {type(value).__name__}")
    return value

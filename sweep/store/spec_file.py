"""`spec.json`: what decided the results of a folder, and how another study differs from it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kvwall.spaces.errors import InputError
from kvwall.sweep.canonical import canonical_json
from kvwall.sweep.keeping import STORES, Store
from kvwall.sweep.store.atomic import write_atomically

NAME = "spec.json"
_MOST_SHOWN = 12


def settle_spec(folder: Path, spec: Mapping[str, Any]) -> None:
    """Write the spec, or check that the folder's is the same. Raises InputError naming what changed."""
    path = folder / NAME
    wanted = canonical_json(spec)
    if not path.exists():
        write_atomically(path, wanted)
        return
    stored = read_spec(folder)
    if canonical_json(stored) != wanted:
        changes = [*differences(stored, json.loads(wanted))]
        shown = changes[:_MOST_SHOWN] + ([f"and {len(changes) - _MOST_SHOWN} more"] * (len(changes) > _MOST_SHOWN))
        raise InputError(
            f"{folder} holds the results of another study (here -> now): {'; '.join(shown)}. "
            "Choose another folder with --out, or delete this one"
        )


def read_spec(folder: Path) -> dict[str, Any]:
    """The spec of a results folder. Raises InputError when it cannot be read."""
    path = folder / NAME
    try:
        spec = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as fault:
        raise InputError(f"{path} cannot be read ({fault}): delete {folder}, or choose another with --out") from fault
    if not isinstance(spec, dict) or not (isinstance(spec.get("axes"), dict) and isinstance(spec.get("dims"), list)):
        raise InputError(f"{path} holds no spec: delete {folder}, or choose another with --out")
    return spec


def stated_store(folder: Path) -> Store | None:
    """What a results folder is meant to hold; None where its spec does not say or cannot be read."""
    try:
        return STORES.get(str(read_spec(folder).get("store")))
    except InputError:
        return None


def differences(old: object, new: object, where: str = "") -> Iterator[str]:
    """What changed from one spec to another, one phrase each.

    >>> list(differences({"task": "code", "axes": {"batch": [1, 2]}}, {"task": "code", "axes": {"batch": [1, 4]}}))
    ['axes.batch: [1, 2] -> [1, 4]']
    """
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys([*old, *new]):
            yield from differences(old.get(key), new.get(key), f"{where}.{key}" if where else str(key))
    elif canonical_json({"": old}) != canonical_json({"": new}):
        yield f"{where}: {_shortened(old)} -> {_shortened(new)}"


def _shortened(value: object) -> str:
    text = "absent" if value is None else json.dumps(value)
    return text if len(text) <= 120 else f"{text[:80]} ... {text[-30:]}"

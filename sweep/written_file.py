"""Names of files that a command is to write, checked before anything is computed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence, Set
from pathlib import Path
from typing import Final

from kvwall.spaces.errors import Faults
from kvwall.sweep.store.atomic import check_target

PAGES: Final = (".html", ".htm")


def check_page(option: str, path: Path, inputs: Iterable[Path] = ()) -> None:
    """Refuse a name that no page can have, or that something else has.

    Args:
        option: by which the name was given, as "--plot".
        path: the name.
        inputs: files that the command reads.

    Raises:
        InputError: with every fault.
    """
    faults = Faults()
    if path.suffix.lower() not in PAGES:
        faults.add(f"{option} {path}: it becomes a page; name a file that ends in .html")
    check_place(option, path, inputs, faults)
    faults.raise_if_any()


def check_place(option: str, path: Path, inputs: Iterable[Path], faults: Faults) -> None:
    """Record why a file cannot be written there: no folder, no regular file, or one that the command reads."""
    try:
        if not path.parent.is_dir():
            faults.add(f"{option} {path}: there is no folder {path.parent}; make it, or name another")
        for each in inputs:
            if is_same(path, each):
                faults.add(f"{option} {path} would overwrite {each}, which is read: name another file")
    except (OSError, ValueError) as fault:  # a name too long, a null byte
        faults.add(f"{option} {path}: is no path ({fault}): name another file")
        return
    check_target(path, option, faults)


def check_record(
    path: Path, inputs: Sequence[Path], shipped: Path, beside: Sequence[Path] = (), hint: str = ""
) -> None:
    """Refuse a name that no record can have, or that the shipped one has.

    Args:
        path: the name, given as --out.
        inputs: files that the command reads.
        shipped: the record that must stay.
        beside: other files that are written with it.
        hint: what a reader should know of these.

    Raises:
        InputError: with every fault.
    """
    faults = Faults()
    if path.suffix != ".json":
        faults.add(f"--out {path}: give a name that ends in .json{hint}")
    check_place("--out", path, inputs, faults)
    faults.raise_if_any()
    if is_same(path, shipped):
        faults.add(f"--out {path} is the shipped record: give another name")
    for each in beside:
        check_place("--out", each, inputs, faults)
    faults.raise_if_any()


def holds(path: Path, keys: Set[str]) -> bool:
    """Whether a file is a JSON object with these keys at least, perhaps of an older version."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(found, dict) and keys <= found.keys()


def is_same(one: Path, other: Path) -> bool:
    """Whether two names are of one file, which need not exist."""
    try:
        return one.samefile(other)
    except OSError:
        pass
    try:
        return one.resolve() == other.resolve()
    except (OSError, RuntimeError):  # a loop of links
        return False

"""Names of files that a command is to write, checked before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable
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

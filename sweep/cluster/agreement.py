"""Whether all workers would compute what this machine would: packages, records, laws, results folder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from distributed import Client
from distributed.versions import get_versions

from kvwall.spaces.errors import InputError
from kvwall.sweep.cluster.worker import Found, examine, processor

_PACKAGES: Final = ("kvwall", "jax", "jaxlib")
_COMPARED: Final = ("python", *_PACKAGES, "numpy", "distributed")
_MOST_FAULTS: Final = 5


def check_packages(client: Client) -> None:
    """Raises InputError naming each worker whose packages are others than this machine's."""
    own = _versions(get_versions(packages=_PACKAGES))
    faults = []
    answers: Any = client.get_versions(packages=list(_PACKAGES))
    for address, found in answers["workers"].items():
        theirs = _versions(found)
        differing = [
            f"{name} {theirs[name] or 'absent'} (here {own[name] or 'absent'})"
            for name in _COMPARED
            if theirs[name] != own[name]
        ]
        if differing:
            faults.append(f"worker {address} has {', '.join(differing)}: use the same environment everywhere")
    _refuse(faults)


def _versions(found: Mapping[str, Any]) -> dict[str, str]:
    """Package -> version; of Python what decides whether code can be exchanged."""
    packages = found["packages"]
    versions = {name: str(packages.get(name) or "") for name in _COMPARED}
    return versions | {"python": ".".join(versions["python"].split(".")[:2])}


def check_workers(client: Client, run: str) -> list[str]:
    """Notices about the workers of a run whose plugin they have.

    Raises InputError naming each worker that has other records or laws, or does not share the results folder.
    """
    answers = client.run(examine, run, on_error="return")
    faults: list[str] = []
    processors = {processor()}
    for address, found in answers.items():
        if isinstance(found, Found):
            faults += found.faults
            processors.add(found.processor)
        elif isinstance(found, ImportError):
            faults.append(f"worker {address} cannot import kvwall ({found}): install it there")
        elif not isinstance(found, OSError):  # a worker that has just gone is replaced
            faults.append(f"worker {address} could not be examined ({type(found).__name__}: {found})")
    _refuse(faults)
    if len(processors) > 1:
        return [f"the processors differ ({', '.join(sorted(processors))}): so may the last bit of a number"]
    return []


def _refuse(faults: list[str]) -> None:
    if faults:
        more = [f"and {len(faults) - _MOST_FAULTS} more workers"] * (len(faults) > _MOST_FAULTS)
        raise InputError([*faults[:_MOST_FAULTS], *more])

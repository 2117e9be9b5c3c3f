"""Whether a worker would compute what the driver would: packages, records, laws, results folder."""

from __future__ import annotations

import os
import pickle
import platform
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kvwall.spaces.errors import InputError

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

PROBE: Final = ".probe.part"
"""File in the results folder that says whether workers see the same folder."""
_PACKAGES: Final = ("kvwall", "jax", "jaxlib", "numpy", "distributed")
_SECONDS_FOR_PROBE: Final = 15.0  # what a network file system may take to show a new file


@dataclass(frozen=True)
class Machine:
    """What a process computes with."""

    versions: Mapping[str, str]
    """Of Python, as far as it decides whether code can be exchanged, and of packages; "absent" where one is not."""
    processor: str
    """Blank where the system does not say. Kernels are compiled for it."""

    @classmethod
    def here(cls) -> Machine:
        """Of this process."""
        python = ".".join(platform.python_version_tuple()[:2])
        versions = {name: _version(name) for name in _PACKAGES}
        return cls({"python": python, **versions}, processor())

    def differences(self, driver: Machine) -> list[str]:
        """Packages whose versions keep this process from doing the driver's tasks."""
        theirs = {**dict.fromkeys(driver.versions, "absent"), **self.versions}
        return [f"{name} {theirs[name]} (here {own})" for name, own in driver.versions.items() if theirs[name] != own]


@dataclass(frozen=True)
class Ticket:
    """All that a worker must be told of a run."""

    run: str
    """Name of this run, never used again; also what the probe file holds."""
    machine: Machine
    """The driver's."""
    study: bytes
    """The study pickled, as it was read, without what was derived from it: a worker derives that from its own files."""
    spec: Mapping[str, Any]
    """What decides the results, as the driver has it."""
    spec_hash: str
    folder: Path
    """Absolute."""
    argv: tuple[str, ...]
    """The driver's: files say which command made them."""
    environment: Mapping[str, str | None]
    """Variables that workers must share; None where one must not be set."""


def agreed(ticket: Ticket) -> Study:
    """The study of a ticket, where this process would compute and write what the driver would.

    Raises InputError naming each difference.
    """
    where = f"worker {os.getpid()} on {platform.node()}"
    others = Machine.here().differences(ticket.machine)
    if others:
        raise InputError(f"{where} has {', '.join(others)}: use the same environment everywhere")
    study = _study(ticket, where)
    _check_folder(ticket, where)
    return study


def _study(ticket: Ticket, where: str) -> Study:
    from kvwall.sweep.store.spec_file import differences

    try:
        study: Study = pickle.loads(ticket.study)
        spec_hash, spec = study.spec_hash, study.spec()
    except InputError as fault:
        raise InputError(
            f"{where} cannot read the study: {fault} (a path in it must be absolute, and on a shared file system)"
        ) from fault
    except Exception as fault:  # whatever comes of other code than the driver's
        raise InputError(
            f"{where} cannot take in the study ({type(fault).__name__}: {fault}): install the same kvwall"
        ) from fault
    if spec_hash != ticket.spec_hash:
        changes = list(differences(dict(ticket.spec), spec))[:4]
        raise InputError(
            f"{where} has other records or laws than this machine ({'; '.join(changes)}): install the same kvwall"
        )
    return study


def _check_folder(ticket: Ticket, where: str) -> None:
    until = time.monotonic() + _SECONDS_FOR_PROBE
    while _probe(ticket.folder) != ticket.run:
        if time.monotonic() > until:
            raise InputError(
                f"{where} does not see {ticket.folder} as this machine does: choose with --out a folder on a file "
                "system that all workers share, mounted at the same path"
            )
        time.sleep(0.2)
    if not os.access(ticket.folder, os.W_OK):
        raise InputError(f"{where} may not write to {ticket.folder}: run the workers as a user who may")


def _probe(folder: Path) -> str:
    try:
        return (folder / PROBE).read_text()
    except OSError:
        return ""


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # a checkout on the path, for kvwall
        return "absent"


@cache
def processor() -> str:
    """What this machine computes with; blank where the system does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")

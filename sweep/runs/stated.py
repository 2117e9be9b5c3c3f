"""What the user states beside the files, joined with what a result states itself."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from kvwall.spaces.aliases import Aliases
from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.hardware import hardware_names
from kvwall.spaces.models.load import model_names
from kvwall.sweep.runs.result import Label

OPTIONS: Final[Mapping[str, str]] = {
    "hardware": "hardware",
    "model": "model",
    "n_devices": "n_devices",
    "tp": "tp",
    "pp": "pp",
    "ep": "ep",
    "weight_precision": "weight_precision",
    "kv_precision": "kv_precision",
    "framework": "framework",
    "framework_version": "framework_version",
    "batch": "batch_or_concurrency",
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
}
"""What a user can state -> the field of `MeasuredRow` that it fills."""

_COUNTS: Final = ("n_devices", "tp", "pp", "ep", "batch_or_concurrency", "input_tokens", "output_tokens")
_NAMES: Final[Mapping[str, Callable[[], tuple[str, ...]]]] = {"hardware": hardware_names, "model": model_names}


def option(field: str) -> str:
    """How the command line calls a field.

    >>> option("batch_or_concurrency")
    '--batch'
    """
    return "--" + next(name for name, filled in OPTIONS.items() if filled == field).replace("_", "-")


@dataclass(frozen=True)
class Stated:
    """What the user states."""

    labels: Mapping[str, Label]
    """Field -> value."""
    aliases: Aliases

    def joined(self, own: Mapping[str, Label]) -> dict[str, Label]:
        """A result's labels with the user's. Raises InputError where the two contradict each other.

        A label of the result that stands for nothing in the catalogue, as a server's own name for its model, is no
        contradiction: the user says what it stands for.
        """
        faults = Faults()
        for field in sorted(own.keys() & self.labels.keys()):
            if not self._agree(field, own[field], self.labels[field]):
                faults.add(
                    f"{field} is {own[field]} in the file and {self.labels[field]} by {option(field)}: "
                    "leave the option out, or read this file by itself"
                )
        faults.raise_if_any()
        return {**own, **self.labels}

    def _agree(self, field: str, own: Label, stated: Label) -> bool:
        meanings: Mapping[str, Callable[[str], str]] = {
            "hardware": self.aliases.hardware_name,
            "model": self.aliases.model_name,
            "framework": self.aliases.framework_name,
            "kv_precision": lambda label: str(self.aliases.kv_bits(label, {}, "")),
            "weight_precision": lambda label: str(self.aliases.weight_format(label)),
        }
        if str(own).lower() == str(stated).lower():
            return True
        if field not in meanings:
            return False
        try:
            meaning = meanings[field](str(own))
        except InputError:
            return True
        return meaning.lower() == meanings[field](str(stated)).lower()


def read_stated(stated: Mapping[str, str], aliases: Aliases) -> Stated:
    """What the user states, checked. Raises InputError with every fault."""
    faults = Faults()
    labels: dict[str, Label] = {}
    for name, text in stated.items():
        field = OPTIONS.get(name)
        if field is None:
            faults.add(f'"{name}" cannot be stated{nearest(name, OPTIONS)}: state any of {", ".join(OPTIONS)}')
        elif field not in _COUNTS:
            labels[field] = text.strip()
            _check_name(field, text.strip(), aliases, faults)
        elif re.fullmatch(r"0*[1-9]\d{0,8}", text.strip()):
            labels[field] = int(text)
        else:
            faults.add(f'{option(field)} is "{text}": give a whole number from 1 to 999999999')
    faults.raise_if_any()
    return Stated({field: label for field, label in labels.items() if label != ""}, aliases)


def _check_name(field: str, label: str, aliases: Aliases, faults: Faults) -> None:
    """A name that the user types must stand for something; a file's may not, and its rows are refused."""
    meaning = {"hardware": aliases.hardware_name, "model": aliases.model_name}.get(field)
    if meaning is None or not label:
        return
    try:
        meaning(label)
    except InputError as fault:
        near = nearest(label, _NAMES[field]())
        faults.add(f"{option(field)}: {fault}{near}: give a name of the catalogue or the path of your own file")

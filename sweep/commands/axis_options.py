"""Command-line options of the axes, generated from their register, and what a user typed into them."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Final

import typer

from kvwall.spaces.axes import AXES, Axis
from kvwall.spaces.errors import Faults, nearest
from kvwall.spaces.vetoes import VETO_NAMES

PANEL: Final = "Axes"
_NAMES_ALONE: Final = [[name] for name in AXES]
_LARGEST_EXACT: Final = 2.0**53
ALLOW_VETO_HELP: Final = (
    f"A veto not to impose, one of {', '.join(VETO_NAMES)}: --allow-veto {VETO_NAMES[0]}; repeatable"
)
QUALITY_CURVES_HELP: Final = "A record of `kvwall calibrate --quality`, with measured points of your own"
_NO_REMARKS: Final[Mapping[str, str]] = MappingProxyType({})


def with_axes(
    command: Callable[..., None], *, without: Sequence[str] = (), remarks: Mapping[str, str] = _NO_REMARKS
) -> Callable[..., None]:
    """The command with an option per axis; it receives what was typed as `typed`: axis -> texts.

    Typer reads the signature, so the options are put there. Axes in `without` have none; a remark is added to the
    help of its axis.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "typed"]

    def accepting(**arguments: Any) -> None:
        typed = {name: arguments.pop(name) for name in AXES if name not in without}
        command(**arguments, typed={name: list(texts) for name, texts in typed.items() if texts})

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(axis, remarks))
        for name, axis in AXES.items()
        if name not in without
    ]
    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *options]
    accepting.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    accepting.__annotations__ = {p.name: p.annotation for p in parameters}
    accepting.__doc__ = command.__doc__
    return accepting


def _annotation(axis: Axis, remarks: Mapping[str, str]) -> Any:
    neutral = "required" if axis.required else f"neutral: {_shown(axis.neutral)}"
    neutral = f"{neutral}; {remarks[axis.name]}" if axis.name in remarks else neutral
    names = f": {', '.join(axis.names)}" if axis.names else ""
    option = typer.Option(
        f"--{axis.name.replace('_', '-')}",
        help=f"{axis.meaning[0].upper()}{axis.meaning[1:]}{names} ({neutral})",
        metavar={"int": "N", "real": "X", "name": "NAME", "flag": "true|false"}[axis.kind],
        rich_help_panel=PANEL,
        show_default=False,
    )
    return Annotated[list[str] | None, option]


def _shown(neutral: object) -> str:
    return str(neutral).lower() if isinstance(neutral, bool) else f"{neutral}"


def value_of(axis: Axis, text: str) -> object:
    """What a typed text means for an axis; a text that means nothing stays text, for the axis to refuse."""
    if axis.kind == "flag":
        return {"true": True, "false": False}.get(text.strip().lower(), text)
    if axis.kind == "name":
        return text
    try:
        number = float(text)
    except ValueError:
        return text
    whole = math.isfinite(number) and number.is_integer() and abs(number) < _LARGEST_EXACT
    return int(number) if whole else number


def single_values(typed: Mapping[str, Sequence[str]], faults: Faults) -> dict[str, object]:
    """One value for each axis typed; an axis given twice is a fault."""
    for name, texts in typed.items():
        if len(texts) > 1:
            faults.add(f"{name} is given {len(texts)} times ({', '.join(texts)}): give it once")
    return {name: value_of(AXES[name], texts[0]) for name, texts in typed.items()}


def listed_values(typed: Mapping[str, Sequence[str]]) -> dict[str, object]:
    """A list of values for each axis typed: commas separate, repeats of the option add; an axis's name ties."""
    return {name: texts[0] if list(texts) in _NAMES_ALONE else _list(name, texts) for name, texts in typed.items()}


def _list(name: str, texts: Sequence[str]) -> list[object]:
    return [value_of(AXES[name], part.strip()) for text in texts for part in text.split(",")]


def refuse_leftovers(arguments: Sequence[str], options: Sequence[str], faults: Faults) -> None:
    """Record a fault for everything on the command line that no option took."""
    left = list(arguments)
    while left:
        word = left.pop(0)
        if word == "--":
            continue
        if not word.startswith("-") or _is_number(word):
            faults.add(f'"{word}" belongs to no option: write --option VALUE, and quote values with spaces')
            continue
        if "=" not in word and left and not left[0].startswith("--"):
            left.pop(0)  # its value
        faults.add(_unknown(word.split("=")[0], options))


def _unknown(option: str, options: Sequence[str]) -> str:
    if option in options:
        return f"{option} stands after a bare --, where nothing is an option: leave the -- out"
    return f"{option} is no option{nearest(option, options)}: --help lists them"


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def assumptions(typed: Sequence[str], faults: Faults) -> dict[str, str]:
    """Quantity by figure of every `--assume FIGURE="QUANTITY"`."""
    found: dict[str, str] = {}
    for text in typed:
        field, equals, quantity = text.partition("=")
        field = field.strip().replace("-", "_")
        if not equals or not field or not quantity.strip():
            faults.add(f'--assume {text}: write FIGURE="QUANTITY", e.g. --assume host_link_bandwidth="64 GB/s"')
        elif field in found:
            faults.add(f"--assume {field} is given twice: give it once")
        else:
            found[field] = quantity.strip().strip("\"'")
    return found


def confidence_of(text: str, faults: Faults) -> float:
    """The confidence typed."""
    try:
        return float(text)
    except ValueError:
        faults.add(f'--confidence "{text}" is not a number: use a fraction such as 0.9')
        return 0.9

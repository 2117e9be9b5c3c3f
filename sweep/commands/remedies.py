"""`kvwall remedies`: what each family of remedies is worth at a design, the best combination, and where each pays."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import Faults, nearest
from kvwall.sweep.commands.axis_options import (
    assumptions,
    confidence_of,
    refuse_leftovers,
    single_values,
    value_of,
    with_axes,
)
from kvwall.sweep.remedies import RemediesReport, remedies
from kvwall.sweep.single import attempt

NOTHING_ADMISSIBLE: Final = 3


@with_axes
def command(
    context_of_command: typer.Context,
    *,
    typed: Mapping[str, Sequence[str]],
    quality_budget: Annotated[
        str | None, typer.Option(help="Largest upper bound of the loss, such as 0.02; 1 = no limit", metavar="X")
    ] = None,
    task: Annotated[str, typer.Option(help="Task that the budget is about", metavar="TASK")] = "aggregate",
    confidence: Annotated[str, typer.Option(help="Confidence of the upper bound", metavar="X")] = "0.9",
    rate: Annotated[
        list[str] | None,
        typer.Option("--try", metavar="AXIS=VALUE,...", help="A setting of your own to rate as well; repeatable"),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option("--assume", metavar='FIGURE="QUANTITY"', help="A hardware figure of your own; repeatable"),
    ] = None,
    mode: Annotated[str, typer.Option(help="ceiling: what no implementation can beat", metavar="MODE")] = "ceiling",
    map_page: Annotated[
        Path | None, typer.Option("--map", metavar="FILE.html", help="Write the map as a page that needs no network")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """What each family of remedies is worth at one design within a quality budget, alone and combined.

    A table with the reason in a sentence, the best combination, and a map over context and batch of what pays most.
    """
    options = [option for each in context_of_command.command.params for option in each.opts]
    arguments = {"quality_budget": quality_budget, "task": task, "confidence": confidence, "mode": mode}
    report = _answer(context_of_command.args, options, typed, arguments, rate or [], assume or [], map_page)
    if map_page is not None:
        from kvwall.sweep.remedies.page import write_map

        write_map(report, map_page)
    if json:
        typer.echo(json_text.dumps(report.to_json(), allow_nan=False, indent=2))
    else:
        from kvwall.sweep.remedies.table import print_answer

        print_answer(report)
        if map_page is not None:
            typer.echo(f"Map: {map_page}")
    if report.best is None:
        raise typer.Exit(NOTHING_ADMISSIBLE)


def _answer(
    left: Sequence[str],
    options: Sequence[str],
    typed: Mapping[str, Sequence[str]],
    arguments: Mapping[str, Any],
    rate: Sequence[str],
    assume: Sequence[str],
    page: Path | None,
) -> RemediesReport:
    faults = Faults()
    refuse_leftovers(left, options, faults)
    if page is not None and page.suffix.lower() not in {".html", ".htm"}:
        faults.add(f"--map {page}: the map is a page; name a file that ends in .html")
    values, figures = single_values(typed, faults), assumptions(assume, faults)
    level = confidence_of(str(arguments["confidence"]), faults)
    budget = _number(arguments["quality_budget"])
    settings = [setting for text in rate if (setting := _setting(text, faults))]
    report = attempt(
        faults,
        lambda: remedies(
            **(dict(arguments) | {"confidence": level, "quality_budget": budget}),
            assume=figures, settings=settings, **values,
        ),
    )  # fmt: skip
    faults.raise_if_any()
    assert report is not None
    return report


def _number(text: str | None) -> object:
    """The number typed; a text that is none stays text, to be refused with the other faults."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _setting(text: str, faults: Faults) -> dict[str, object] | None:
    """A setting typed as AXIS=VALUE,AXIS=VALUE."""
    found: dict[str, object] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        name = name.replace("-", "_")
        if not equals or not value:
            faults.add(f'--try "{text}": write AXIS=VALUE,AXIS=VALUE, e.g. --try key_bits=2,value_bits=2')
            return None
        if name not in AXES:
            faults.add(f'--try: axis "{name}" is unknown{nearest(name, AXES)}: `kvwall catalog axes` lists them')
            return None
        if name in found:
            faults.add(f"--try: {name} is given twice: give it once")
        found[name] = value_of(AXES[name], value)
    return found

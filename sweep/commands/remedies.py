"""`kvwall remedies`: what each family of remedies is worth at a design, the best combination, and where each pays."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import Faults, InputError, nearest
from kvwall.spaces.modes import CALIBRATION_HELP, DEFAULT_MODE, MODE_HELP
from kvwall.sweep.commands.axis_options import (
    ALLOW_VETO_HELP,
    QUALITY_CURVES_HELP,
    assumptions,
    confidence_of,
    refuse_leftovers,
    single_values,
    value_of,
    with_axes,
)
from kvwall.sweep.remedies import RemediesReport, remedies
from kvwall.sweep.remedies.budget import DEFAULT_TASK
from kvwall.sweep.single import attempt
from kvwall.sweep.written_file import check_page

NOTHING_ADMISSIBLE: Final = 3


@with_axes
def command(
    context_of_command: typer.Context,
    *,
    typed: Mapping[str, Sequence[str]],
    quality_budget: Annotated[
        list[str] | None,
        typer.Option(
            help="Largest upper bound of the loss: 0.02, 1 = no limit; or of a task: retrieval=0.01, repeatable",
            metavar="[TASK=]X",
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option(
            help="Task that a budget without one is about (default: aggregate, or the first that has one)",
            metavar="TASK",
            show_default=False,
        ),
    ] = None,
    confidence: Annotated[str, typer.Option(help="Confidence of the upper bound", metavar="X")] = "0.9",
    rate: Annotated[
        list[str] | None,
        typer.Option("--try", metavar="AXIS=VALUE,...", help="A setting of your own to rate as well; repeatable"),
    ] = None,
    assume: Annotated[
        list[str] | None,
        typer.Option("--assume", metavar='FIGURE="QUANTITY"', help="A hardware figure of your own; repeatable"),
    ] = None,
    mode: Annotated[str, typer.Option(help=MODE_HELP, metavar="MODE")] = DEFAULT_MODE,
    calibration: Annotated[str, typer.Option(help=CALIBRATION_HELP, metavar="FILE.json")] = "",
    quality_curves: Annotated[str, typer.Option(help=QUALITY_CURVES_HELP, metavar="FILE.json")] = "",
    allow_veto: Annotated[list[str] | None, typer.Option("--allow-veto", help=ALLOW_VETO_HELP, metavar="NAME")] = None,
    map_page: Annotated[
        Path | None, typer.Option("--map", metavar="FILE.html", help="Write the map as a page that needs no network")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """What each family of remedies is worth at one design within a quality budget, alone and combined.

    A table with the reason in a sentence, the best combination, and a map over context and batch of what pays most.
    """
    options = [option for each in context_of_command.command.params for option in each.opts]
    faults = Faults()
    refuse_leftovers(context_of_command.args, options, faults)
    if map_page is not None:
        attempt(
            faults,
            lambda: check_page("--map", map_page, [Path(each) for each in (calibration, quality_curves) if each]),
        )
    budget = _budget(quality_budget or [], task, faults)
    more = {
        "mode": mode,
        "calibration": calibration,
        "quality_curves": quality_curves,
        "allow_veto": allow_veto or [],
    }
    report = _answer(typed, budget, task, confidence, more, rate or [], assume or [], faults)
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
    typed: Mapping[str, Sequence[str]],
    quality_budget: Any,
    task: str | None,
    confidence: str,
    more: Mapping[str, Any],
    rate: Sequence[str],
    assume: Sequence[str],
    faults: Faults,
) -> RemediesReport:
    values: dict[str, Any] = single_values(_first_of_lists(typed, faults), faults)
    figures = assumptions(assume, faults)
    level = confidence_of(confidence, faults)
    settings = [setting for text in rate if (setting := _setting(text, faults))]
    report = attempt(
        faults,
        lambda: remedies(
            quality_budget=quality_budget,
            task=task,
            confidence=level,
            assume=figures,
            settings=settings,
            **more,
            **values,
        ),
    )
    faults.raise_if_any()
    if report is None:
        raise InputError("state one design and a quality budget")
    return report


def _first_of_lists(typed: Mapping[str, Sequence[str]], faults: Faults) -> dict[str, list[str]]:
    """The texts, of a comma list the first part: a list is a fault of its own."""
    for name, texts in typed.items():
        if any("," in text for text in texts):
            faults.add(f"{name} = {', '.join(texts)}: one design is asked about, so it takes one value")
    return {name: [text.split(",")[0] for text in texts] for name, texts in typed.items()}


def _budget(texts: Sequence[str], task: str | None, faults: Faults) -> Any:
    """What was typed as budgets: one number, or task -> number; a number alone is about `task`."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, most = (part.strip() for part in text.rpartition("="))
        about = name if equals else task or DEFAULT_TASK
        if about in found:
            faults.add(f"--quality-budget {about} is given twice: give it once")
        found[about] = _number(most)
    if len(texts) == 1 and "=" not in texts[0]:
        return _number(texts[0])
    return found or None


def _number(text: str) -> Any:
    """The number typed; a text that is none stays text, to be refused with the other faults."""
    try:
        return float(text)
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

"""`kvwall evaluate`: every metric of one design."""

from __future__ import annotations

import json as json_text
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer

from kvwall.spaces.errors import Faults
from kvwall.spaces.modes import CALIBRATION_HELP, DEFAULT_MODE, MODE_HELP
from kvwall.sweep.commands.axis_options import (
    ALLOW_VETO_HELP,
    QUALITY_CURVES_HELP,
    assumptions,
    confidence_of,
    refuse_leftovers,
    single_values,
    with_axes,
)
from kvwall.sweep.evaluate import report_of
from kvwall.sweep.explain import explain as explained
from kvwall.sweep.report_table import print_explanation, print_report
from kvwall.sweep.single import SingleDesign, attempt, single_design

INFEASIBLE: Final = 3


@with_axes
def command(
    context_of_command: typer.Context,
    *,
    typed: Mapping[str, Sequence[str]],
    assume: Annotated[
        list[str] | None,
        typer.Option("--assume", metavar='FIGURE="QUANTITY"', help="A hardware figure of your own; repeatable"),
    ] = None,
    task: Annotated[str, typer.Option(help="Task of quality_loss", metavar="TASK")] = "aggregate",
    confidence: Annotated[str, typer.Option(help="Confidence of quality_loss_upper", metavar="X")] = "0.9",
    mode: Annotated[str, typer.Option(help=MODE_HELP, metavar="MODE")] = DEFAULT_MODE,
    calibration: Annotated[str, typer.Option(help=CALIBRATION_HELP, metavar="FILE.json")] = "",
    quality_curves: Annotated[str, typer.Option(help=QUALITY_CURVES_HELP, metavar="FILE.json")] = "",
    allow_veto: Annotated[list[str] | None, typer.Option("--allow-veto", help=ALLOW_VETO_HELP, metavar="NAME")] = None,
    explain: Annotated[bool, typer.Option("--explain", help="Each equation, its numbers, their sources")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """Every metric of one design: speed, traffic, memory, quality, cost; what binds it and why."""
    more = {
        "mode": mode,
        "calibration": calibration,
        "quality_curves": quality_curves,
        "allow_veto": allow_veto or [],
    }
    single = _single(context_of_command, typed, assume or [], task, confidence, more)
    if single is None:
        return
    report = report_of(single)
    explanation = explained(single) if explain else None
    if json:
        extra = {"explain": explanation.to_json()} if explanation else {}
        typer.echo(json_text.dumps(report.to_json() | extra, allow_nan=False, indent=2))
    else:
        print_report(report)
        if explanation:
            print_explanation(explanation)
    if not report.feasible:
        raise typer.Exit(INFEASIBLE)


def _single(
    context: typer.Context,
    typed: Mapping[str, Sequence[str]],
    assume: Sequence[str],
    task: str,
    confidence: str,
    more: Mapping[str, Any],
) -> SingleDesign | None:
    faults = Faults()
    refuse_leftovers(context.args, [option for each in context.command.params for option in each.opts], faults)
    values = single_values(typed, faults)
    figures, level = assumptions(assume, faults), confidence_of(confidence, faults)
    single = attempt(
        faults,
        lambda: single_design(values, task=task, confidence=level, assume=figures, **more),
    )
    faults.raise_if_any()
    return single

"""The command line: which commands exist, and how errors leave it. A command is one file in `sweep/commands`.

Only the module of the command that was asked for is imported, so that `kvwall --help` answers at once.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from kvwall.spaces.errors import InputError, nearest
from kvwall.sweep import interrupt

_WRONG_INPUT: Final = 2
_UNREAD: Final = 141
_SUMMARY: Final = "Where the memory wall stands for LLM serving, and which deployment clears it."
# Newer releases of typer carry click inside them, older ones use the click installed: either way this is its base.
_USAGE_ERRORS: Final[tuple[Any, ...]] = tuple(e for e in typer.BadParameter.__mro__ if e.__name__ == "ClickException")


@dataclass(frozen=True)
class Entry:
    """One command: the module with its function `command`, and its line in `kvwall --help`."""

    module: str
    summary: str
    collects_unknown: bool = False
    """Whether it reports unknown options itself, together with its other faults."""


COMMANDS: Final[Mapping[str, Entry]] = {
    "evaluate": Entry("kvwall.sweep.commands.evaluate", "Every metric of one design.", collects_unknown=True),
    "crossover": Entry(
        "kvwall.sweep.commands.crossover",
        "The context at which KV traffic passes weights.",
        collects_unknown=True,
    ),
    "remedies": Entry(
        "kvwall.sweep.commands.remedies", "What each remedy is worth at one design, and why.", collects_unknown=True
    ),
    "sweep": Entry("kvwall.sweep.commands.sweep", "Evaluate a study's whole grid; a second call resumes."),
    "pareto": Entry("kvwall.sweep.commands.pareto", "The exact front of a finished sweep."),
    "optimize": Entry("kvwall.sweep.commands.optimize", "Search a study for its best design."),
    "report": Entry("kvwall.sweep.commands.report", "One self-contained HTML page of a finished sweep."),
    "export": Entry("kvwall.sweep.commands.export", "A finished sweep as a table or array file."),
    "validate": Entry("kvwall.sweep.commands.validate", "Measured speeds and start-up figures against the laws."),
    "calibrate": Entry("kvwall.sweep.commands.calibrate", "Adapt estimates or quality curves to results of your own."),
    "catalog": Entry("kvwall.sweep.commands.catalog", "Hardware, models, studies, axes and metrics."),
}


_GOES_ON: Final = frozenset({"sweep", "optimize"})
"""Commands that the same command line takes up where it was stopped."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and leave with its exit code: 0, 2 wrong input, 3 nothing admissible, 130 interrupted."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a path that the terminal cannot show is no reason to fail
    if sys.stdout is None:  # started with a closed descriptor
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115 - lives as long as the process
    interrupt.listen()
    code = run(sys.argv[1:] if arguments is None else list(arguments))
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = _UNREAD
    except OSError as error:
        code = _unwritten(error)
        _silence()
    if code == _UNREAD:
        _silence()
    if code == interrupt.EXIT_CODE:
        os._exit(code)  # a kernel that still runs does not survive the end of the interpreter: it crashes
    sys.exit(code)


def run(arguments: Sequence[str]) -> int:
    """The exit code of a command line; faults go to stderr, one sentence a line."""
    arguments = [_dashed(word) for word in arguments] or ["--help"]
    try:
        program = typer.main.get_command(application(arguments))
        code = program.main(args=arguments, prog_name="kvwall", standalone_mode=False)
    except InputError as error:
        _complain(error.faults)
        return error.exit_code
    except (KeyboardInterrupt, typer.Abort):
        code = interrupt.EXIT_CODE
    except BrokenPipeError:
        return _UNREAD
    except _USAGE_ERRORS as error:
        _complain([error.format_message()])
        return _WRONG_INPUT
    except OSError as error:
        return _unwritten(error)
    if code == interrupt.EXIT_CODE:
        goes_on = ": the same command goes on from there" if _GOES_ON & set(arguments) else ""
        _complain([f"interrupted{goes_on}"])
    return code if isinstance(code, int) else 0


def _unwritten(error: OSError) -> int:
    """The exit code where the answer could not be written: /dev/full, a closed descriptor."""
    _complain([f"the answer could not be written: {error.strerror or error}"])
    return _WRONG_INPUT


def _silence() -> None:
    """Send the rest of stdout nowhere: its reader has gone, and Python flushes once more on exit and would complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def application(arguments: Sequence[str]) -> typer.Typer:
    """The program for a command line: the command it names in full, the others as lines of the help only."""
    asked = next((word for word in arguments if not word.startswith("-")), None)
    if asked is not None and asked not in built():
        raise InputError(f'"{asked}" is no command{nearest(asked, built())}: `kvwall --help` lists them')
    program = typer.Typer(
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich" if sys.stdout.isatty() else None,  # else its frames are not ASCII
        context_settings={"help_option_names": ["--help", "-h"]},
    )
    program.callback(help=_SUMMARY)(_options)
    for name in built():
        entry = COMMANDS[name]
        collects = {"allow_extra_args": True, "ignore_unknown_options": True} if entry.collects_unknown else {}
        command = importlib.import_module(entry.module).command if name == asked else _listed
        summary = None if name == asked else entry.summary
        program.command(name, help=summary, context_settings=collects)(command)
    return program


def built() -> tuple[str, ...]:
    """Names of the commands whose module exists."""
    return tuple(name for name, entry in COMMANDS.items() if importlib.util.find_spec(entry.module) is not None)


def _dashed(word: str) -> str:
    """An option spelled with underscores, as axes are elsewhere, in the command line's spelling."""
    option, equals, value = word.partition("=")
    return option.replace("_", "-") + equals + value if word.startswith("--") else word


def _version(asked: bool) -> None:
    if not asked:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        typer.echo(version("kvwall"))
    except PackageNotFoundError:
        typer.echo("not installed: run from its source folder")
    raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """The options that stand before a command."""


def _listed() -> None:
    """Stands in the help for a command that was not asked for; never called."""


def _complain(faults: Sequence[str]) -> None:
    for fault in faults:
        typer.echo(f"kvwall: {fault}", err=True)


if __name__ == "__main__":
    main()

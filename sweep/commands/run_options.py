"""Command-line options for what results of benchmark programs leave open, one for each name of `runs.OPTIONS`."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

PANEL: Final = "What the files leave open"
HELP: Final[Mapping[str, str]] = {
    "hardware": "Chip: catalogue name, path of a TOML file, or what the driver prints",
    "model": "Model: catalogue id or path of a config.json",
    "n_devices": "Devices of all replicas",
    "tp": "Degree of tensor parallelism",
    "pp": "Degree of pipeline parallelism",
    "ep": "Degree of expert parallelism",
    "weight_precision": "Format of the weights, as fp8 (blank: the checkpoint's own)",
    "kv_precision": "Format of the KV cache, as fp8 (blank: 16 bits)",
    "framework": "Serving engine, as vLLM",
    "framework_version": "Its version, as 0.11.0",
    "batch": "Sequences at once on one replica",
    "input_tokens": "Tokens of a prompt",
    "output_tokens": "Tokens written per request",
}


def with_run_options(command: Callable[..., None]) -> Callable[..., None]:
    """The command with these options; it receives what was typed as `stated`: name -> text.

    Typer reads the signature, so the options are put there.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != "stated"]

    def accepting(**arguments: Any) -> None:
        typed = {name: arguments.pop(name) for name in HELP}
        command(**arguments, stated={name: text for name, text in typed.items() if text is not None})

    options = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name))
        for name in HELP
    ]
    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *options]
    accepting.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    accepting.__annotations__ = {p.name: p.annotation for p in parameters}
    accepting.__doc__ = command.__doc__
    return accepting


def _annotation(name: str) -> Any:
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=HELP[name],
        metavar="TEXT",
        rich_help_panel=PANEL,
        show_default=False,
    )
    return Annotated[str | None, option]

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
    """The command with these options; it receives what was typed as `stated`: name -> text."""
    return with_text_options(command, "stated", HELP, PANEL)


def with_text_options(
    command: Callable[..., None], into: str, options: Mapping[str, str], panel: str
) -> Callable[..., None]:
    """The command with an option for each name, and what was typed in its parameter `into`: name -> text.

    Typer reads the signature, so the options are put there.
    """
    own = [p for p in inspect.signature(command, eval_str=True).parameters.values() if p.name != into]

    def accepting(**arguments: Any) -> None:
        typed = {name: arguments.pop(name) for name in options}
        command(**arguments, **{into: {name: text for name, text in typed.items() if text is not None}})

    added = [
        inspect.Parameter(
            name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=_annotation(name, words, panel)
        )
        for name, words in options.items()
    ]
    parameters = [*(p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own), *added]
    accepting.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    accepting.__annotations__ = {p.name: p.annotation for p in parameters}
    accepting.__doc__ = command.__doc__
    return accepting


def _annotation(name: str, words: str, panel: str) -> Any:
    option = typer.Option(
        f"--{name.replace('_', '-')}",
        help=words,
        metavar="TEXT",
        rich_help_panel=panel,
        show_default=False,
    )
    return Annotated[str | None, option]

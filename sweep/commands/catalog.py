"""`kvwall catalog`: what the catalogue holds, as lists and single entries."""

from __future__ import annotations

import json as json_text
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final, Literal

import typer
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from kvwall.spaces.assumptions import ROLES
from kvwall.spaces.models.language import UNVERIFIED
from kvwall.spaces.modes import ESTIMATE
from kvwall.sweep.catalog import SECTIONS, Entry, section_named
from kvwall.sweep.readable import number_text, rounded_text
from kvwall.sweep.terminal import new_table, terminal

_FIGURES: Final[Mapping[str, tuple[str, float]]] = {
    "memory_capacity": ("memory\nGB", 1e9),
    "memory_bandwidth": ("bandwidth\nTB/s", 1e12),
    "bf16_flops": ("BF16\nTFLOP/s", 1e12),
    "scale_up_bandwidth": ("scale-up\nGB/s", 1e9),
    "host_link_bandwidth": ("host link\nGB/s", 1e9),
}
"""Figures that the list of chips shows: heading with the unit, and what the unit is in SI."""
_TIER_FIGURES: Final[Mapping[str, tuple[str, float]]] = {
    "bandwidth": ("read\nGB/s", 1e9),
    "capacity": ("size\nGB", 1e9),
    "latency": ("latency\nus", 1e-6),
    "energy": ("energy\npJ/bit", 8e-12),
    "price": ("price\nUSD/GB", 1e-9),
}
"""The same of the list of tiers."""


_WIDE: Final = 10_000
"""Characters: room for any table."""


def command(
    section: Annotated[str | None, typer.Argument(help=", ".join(SECTIONS), show_default=False)] = None,
    name: Annotated[str | None, typer.Argument(metavar="[NAME|PATH]", show_default=False)] = None,
    json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout")] = False,
) -> None:
    """What the catalogue holds: a section's list, or one entry by name or by the path of a file of your own."""
    if section is None:
        _overview(json)
        return
    listed, entry_named = section_named(section)
    if name is None:
        entries = listed()
        if json:
            _print_json({section: entries})
        else:
            _TABLES[section](entries)
        return
    entry = entry_named(name)
    if json:
        _print_json(entry)
    else:
        _print_entry(entry)


def _print_json(value: Entry) -> None:
    typer.echo(json_text.dumps(value, allow_nan=False, indent=2))


def _overview(json: bool) -> None:
    counts = {section: len(listed()) for section, (listed, _) in SECTIONS.items()}
    if json:
        _print_json(counts)
        return
    console = terminal()
    for section, count in counts.items():
        console.print(f"{section:10}{count:4}   kvwall catalog {section}")


Kind = Literal["word", "number", "text"]
"""What a column holds; only text is broken into lines."""


def _print_table(headings: Mapping[str, Kind], rows: Sequence[Sequence[str]]) -> None:
    console = terminal()
    console.print(_table(console, headings, rows))


def _table(console: Console, headings: Mapping[str, Kind], rows: Sequence[Sequence[str]]) -> Table:
    table = new_table(console)
    for heading, kind in headings.items():
        justify: Literal["left", "right"] = "right" if kind == "number" else "left"
        table.add_column(heading, justify=justify, overflow="fold", no_wrap=kind != "text")
    for row in rows:
        table.add_row(*row[: len(headings)])
    return table


def _print_what_fits(headings: Mapping[str, Kind], rows: Sequence[Sequence[str]]) -> None:
    """Print the table without the last columns that the console has no room for, and say which."""
    console, kept = terminal(), list(headings)
    while True:
        table = _table(console, {heading: headings[heading] for heading in kept}, rows)
        if (
            len(kept) < 2
            or Measurement.get(console, console.options.update(width=_WIDE), table).maximum <= console.width
        ):
            break
        kept.pop()
    console.print(table)
    absent = [heading.replace("\n/", "/").replace("\n", " ") for heading in headings if heading not in kept]
    if absent:
        console.print(f"No room for {', '.join(absent)}: use a wider terminal, or --json.", style="yellow")


def _hardware(entries: Sequence[Entry]) -> None:
    rows = [[_name_with_status(entry), *_main_figures(entry, _FIGURES)] for entry in entries]
    _print_table({"name": "word", **{heading: "number" for heading, _ in _FIGURES.values()}}, rows)
    terminal().print("* announced, not shipping    - no source states it (give it with --assume)", style="dim")


def _name_with_status(entry: Entry) -> str:
    return str(entry["name"]) + ("" if entry["status"] == "shipping" else " *")


def _main_figures(entry: Entry, figures: Mapping[str, tuple[str, float]]) -> list[str]:
    return [
        rounded_text(entry[field] / unit) if entry[field] is not None else "-" for field, (_, unit) in figures.items()
    ]


def _tiers(entries: Sequence[Entry]) -> None:
    rows = [[_name_with_status(entry), entry["kind"], *_main_figures(entry, _TIER_FIGURES)] for entry in entries]
    numbers: dict[str, Kind] = {heading: "number" for heading, _ in _TIER_FIGURES.values()}
    _print_table({"name": "word", "kind": "word", **numbers}, rows)
    console = terminal()
    told = "* announced, not shipping    - no source states it    figures of one drive, port or channel"
    console.print(told, style="dim")
    words = ", ".join(f"{word} ({kind})" if kind != word else word for word, (kind, _) in ROLES.items())
    console.print(f"Use one with --assume WORD=NAME; the words and the kinds they take: {words}", style="dim")


def _models(entries: Sequence[Entry]) -> None:
    rows = [_model_row(entry) for entry in entries if entry["supported"]]
    headings = ("total\n1e9", "active\n1e9", "KV kB\n/token", "state MB\n/sequence", "context\ntokens", "bits")
    _print_what_fits({"name": "word", **{heading: "number" for heading in headings}}, rows)
    console = terminal()
    text = "KV at 16 bits, of all layers: those with windows stop growing. * unverified architecture."
    console.print(text if any(row[0].endswith(" *") for row in rows) else text.partition(" *")[0], style="dim")
    refused = [entry for entry in entries if not entry["supported"]]
    if refused:
        console.print("\nLayouts not supported yet:")
    for entry in refused:
        console.print(f"  {entry['name']}: {entry['reason']}", style="dim", markup=False)


def _model_row(entry: Entry) -> list[str]:
    unverified = any(flag.startswith(UNVERIFIED) for flag in entry["flags"])
    state = entry["state_bytes_per_sequence"]
    return [
        entry["name"] + (" *" if unverified else ""),
        rounded_text(entry["parameters_total"] / 1e9),
        rounded_text(entry["parameters_active"] / 1e9),
        rounded_text(entry["kv_bytes_per_token_all_layers"] / 1e3),
        rounded_text(state / 1e6) if state else "-",
        number_text(entry["max_positions"]) if entry["max_positions"] else "-",
        rounded_text(entry["weight_bits"]),
    ]


def _axes(entries: Sequence[Entry]) -> None:
    rows = [
        [e["name"], "required" if e["required"] else number_text(e["neutral"]), e["meaning"], e["allowed"]]
        for e in entries
    ]
    console = terminal()
    table = _table(console, {"axis": "word", "neutral": "word", "meaning": "text", "allowed": "text"}, rows)
    apart = sum(max(len(str(row[place])) for row in rows) for place in (0, 1))
    longest = max(len(word) for row in rows for word in str(row[3]).split())
    table.columns[3].width = max(longest, (console.width - apart) // 2)  # names of methods are long words
    console.print(table)


def _metrics(entries: Sequence[Entry]) -> None:
    rows = [[entry["name"], entry.get("unit", ""), _evidence(entry), _metric_meaning(entry)] for entry in entries]
    _print_table({"name": "word", "unit": "word", "evidence": "word", "meaning": "text"}, rows)


def _evidence(entry: Entry) -> str:
    """Of a ceiling, or of an estimate where only that has the metric."""
    return str(entry.get("evidence", ""))


def _metric_meaning(entry: Entry) -> str:
    found = f"{entry['meaning']}: {', '.join(entry['values'])}" if "values" in entry else str(entry["meaning"])
    if entry["modes"] == [ESTIMATE]:
        return f"{found} (of estimates)"
    return (
        f"{found} (calibrated in estimates)" if entry.get("evidence_in_estimates") != entry.get("evidence") else found
    )


def _engines(entries: Sequence[Entry]) -> None:
    _print_table({"name": "word", "meaning": "text"}, [[entry["name"], entry["meaning"]] for entry in entries])


def _studies(entries: Sequence[Entry]) -> None:
    rows = [[e["name"], f"{e['points']:,}", e["mode"], "; ".join(e["objectives"])] for e in entries]
    _print_table({"name": "word", "points": "number", "mode": "word", "objectives": "text"}, rows)


_TABLES: Final[Mapping[str, Callable[[Sequence[Entry]], None]]] = {
    "hardware": _hardware,
    "models": _models,
    "tiers": _tiers,
    "engines": _engines,
    "studies": _studies,
    "axes": _axes,
    "metrics": _metrics,
}


def _print_entry(entry: Entry) -> None:
    """Any entry, key by key; a figure with its source on the lines below."""
    console = terminal()
    for key, value in entry.items():
        if key == "figures":
            for field, figure in value.items():
                console.print(_figure_lines(field, figure), markup=False)
        elif key == "layers" and isinstance(value, list):
            console.print("\n".join(["layers:", *map(_layer_line, value)]), markup=False)
        elif key == "experts" and value is None:
            console.print("experts: none, every weight is read by every token")
        elif key == "text":
            console.print(f"\n{value}", markup=False)
        elif value not in ("", [], {}):
            console.print(f"{key}: {_plain(value)}", markup=False)


def _layer_line(group: Entry) -> str:
    """One kind of layer with what distinguishes it."""
    said = {"layers", "kind", "bytes_per_token"}
    told = {
        key: value
        for key, value in group.items()
        if key not in said and value not in (None, 0, False) and not (key in {"stride", "readers"} and value == 1)
    }
    grows = f"; {number_text(group['bytes_per_token'])} bytes/token at 16 bits" if group["bytes_per_token"] else ""
    return f"  {group['layers']} {group['kind']}: {_plain(told)}{grows}"


def _figure_lines(field: str, figure: Entry | None) -> str:
    if figure is None:
        return f"{field}: no source"
    note = f"\n    note: {figure['note']}" if figure["note"] else ""
    return f"{field}: {figure['shown']}\n    source: {figure['source']}{note}"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_plain(each)}" for key, each in value.items())
    if isinstance(value, list):
        return "; ".join(_plain(each) for each in value)
    return "not stated" if value is None else number_text(value)

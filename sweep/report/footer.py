"""The foot of the page: where every number comes from."""

from __future__ import annotations

from collections.abc import Iterator

from kvwall.objectives.tiers import TIERS
from kvwall.spaces.figures import display
from kvwall.spaces.hardware import Hardware
from kvwall.sweep.report.data import Results
from kvwall.sweep.report.parts import Section, Table
from kvwall.sweep.report.wording import short_name
from kvwall.sweep.study import Study

USED = (
    "memory_capacity", "memory_bandwidth", "bf16_flops", "fp8_flops", "int8_ops", "fp4_flops", "scale_up_bandwidth",
    "scale_up_domain", "scale_out_bandwidth", "memory_domains", "compute_dies", "memory_energy", "link_energy",
    "flop_energy", *(f"{tier}_{figure}" for tier in TIERS for figure in ("link_bandwidth", "link_devices", "capacity")),
    "cxl_energy", "nvme_energy", "remote_energy",
)  # fmt: skip
"""Figures of a chip that the laws read; the price comes by the study's price basis."""
_GLOBALS = (
    ("made by", "source"), ("results written", "date_created"), ("command", "argv"), ("platform", "platform"),
    ("study (sha256)", "spec_hash"), ("catalogue (sha256)", "catalogue_sha256"),
)  # fmt: skip
_EVIDENCE = (
    ("derived", "computed from the model's architecture and the chip's figures: no implementation beats it"),
    (
        "calibrated",
        "fitted to published measurements: speed of estimates, losses of quality, reach of a link, engine memory",
    ),
    ("reported", "stated by a source and taken as it is: the chip figures below"),
)


def source_section(results: Results) -> Section:
    """Evidence grades and the source of every chip figure used."""
    chips = zip(results.study.space.values("hardware"), results.study.catalogue.hardware, strict=True)
    found = [row for name, chip in chips for row in _rows(results.study, short_name(str(name)), chip)]
    sources = list(dict.fromkeys(source for *_, source, _ in found if source))
    rows = [(*row[:3], f"[{sources.index(row[3]) + 1}]" if row[3] else "", row[4]) for row in found]
    figures = Table(("chip", "figure", "value", "source", "note"), tuple(rows), 5)
    grades = Table(("evidence", "meaning"), _EVIDENCE, 2)
    notes = tuple(f"[{number}] {source}" for number, source in enumerate(sources, start=1))
    return Section("sources", "Where the numbers come from", (), (grades, figures), notes)


def _rows(study: Study, name: str, chip: Hardware) -> Iterator[tuple[str, str, str, str, str]]:
    """Chip, figure, value, source, note."""
    prices = tuple(f"{basis}_price" for basis in study.space.values("price_basis"))
    for field in (*USED, *prices):
        figure = getattr(chip, field)
        if figure is None:
            if field not in {"int8_ops", "fp4_flops"}:
                yield name, field.replace("_", " "), "no source", "", ""
            continue
        value = display(field, figure.value)
        yield name, field.replace("_", " "), value, figure.source, figure.note


def provenance_section(results: Results, now: str) -> Section:
    """Who made the results, from what, when."""
    attributes = results.front.attrs
    rows = [(label, str(attributes[key])) for label, key in _GLOBALS if key in attributes]
    rows.append(("page written", now))
    rows.append(("datasets", "view.nc (stored slice), front.nc (exact front), summary.nc (margins), beside this page"))
    return Section("provenance", "Provenance", (), (Table(("", ""), tuple(rows), 2),))

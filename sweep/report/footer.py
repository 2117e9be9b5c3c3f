"""The foot of the page: where every number comes from."""

from __future__ import annotations

from collections.abc import Iterator

from kvwall.spaces.hardware import FIGURES, Hardware, display
from kvwall.sweep.report.data import Results
from kvwall.sweep.report.parts import Section, Table
from kvwall.sweep.report.wording import short_name
from kvwall.sweep.study import Study

USED = (
    "memory_capacity", "memory_bandwidth", "bf16_flops", "fp8_flops", "int8_ops", "fp4_flops", "scale_up_bandwidth",
    "scale_up_domain", "host_link_bandwidth", "memory_energy", "link_energy", "flop_energy",
)  # fmt: skip
"""Figures of a chip that the laws read; the price comes by the study's price basis."""
_GLOBALS = (
    ("made by", "source"), ("results written", "date_created"), ("command", "argv"), ("platform", "platform"),
    ("study (sha256)", "spec_hash"), ("catalogue (sha256)", "catalogue_sha256"),
)  # fmt: skip
_EVIDENCE = (
    ("derived", "computed from the model's architecture and the chip's figures: a ceiling that no implementation beats"),
    ("calibrated", "a curve fitted to published measurements: every loss of quality"),
    ("reported", "stated by a source and taken as it is: the chip figures below"),
)


def source_section(results: Results) -> Section:
    """Evidence grades and the source of every chip figure used."""
    rows = []
    for chip in results.study.catalogue.hardware:
        rows += [*_rows(results.study, chip)]
    figures = Table(("chip", "figure", "value", "source", "note"), tuple(rows), 5)
    grades = Table(("evidence", "meaning"), _EVIDENCE, 2)
    return Section("sources", "Where the numbers come from", (), (grades, figures))


def _rows(study: Study, chip: Hardware) -> Iterator[tuple[str, ...]]:
    names = zip(study.space.values("hardware"), study.catalogue.hardware, strict=True)
    name = next(short_name(str(own)) for own, record in names if record is chip)
    prices = tuple(f"{basis}_price" for basis in study.space.values("price_basis"))
    for field in (*USED, *prices):
        figure = getattr(chip, field)
        if figure is None:
            if field not in {"int8_ops", "fp4_flops"}:
                yield name, field.replace("_", " "), "no source", "", ""
            continue
        value = display(field, figure.value)
        yield name, field.replace("_", " "), value, "assumed" if field in chip.assumed else figure.source, figure.note
        name = name if field not in FIGURES else name


def provenance_section(results: Results, now: str) -> Section:
    """Who made the results, from what, when."""
    attributes = results.front.attrs
    rows = [(label, str(attributes[key])) for label, key in _GLOBALS if key in attributes]
    rows.append(("page written", now))
    rows.append(("datasets", "view.nc (stored slice), front.nc (exact front), summary.nc (margins), beside this page"))
    return Section("provenance", "Provenance", (), (Table(("", ""), tuple(rows), 2),))

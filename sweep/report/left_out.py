"""What the ranking leaves out, chip by chip: designs that do not fit, cannot be laid out, or lack a figure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.step import evaluate_step
from kvwall.objectives.tiers import TIERS
from kvwall.spaces.axes import Value
from kvwall.spaces.figures import FIGURES
from kvwall.spaces.hardware import Hardware
from kvwall.sweep.reasons import PEAKS
from kvwall.sweep.report.data import Results
from kvwall.sweep.report.wording import listed, metric_label, share_text, short_name
from kvwall.sweep.study import Study

_FORMAT_AXES: Final = ("model", "weight_bits", "activation_bits", "key_bits", "value_bits")
"""Axes that decide which arithmetic a step does."""
_DEVICES: Final = ("tensor_parallel", "pipeline_parallel", "context_parallel", "attention_data_parallel")
"""Axes whose product is the devices of a replica."""
_PEAK_USES: Final = ("16-bit arithmetic", "8-bit arithmetic", "4-bit arithmetic")


@dataclass(frozen=True)
class Missing:
    """A figure of a chip that no source states, and that designs of the study need."""

    figure: str
    use: str
    """Which designs need it, in words."""


@dataclass(frozen=True)
class ChipCounts:
    """Designs of one chip by status, and why some have no speed."""

    chip: Value
    designs: int
    statuses: Mapping[str, int]
    missing: tuple[Missing, ...]
    """Figures without which the step has no time."""

    @property
    def unsourced(self) -> int:
        """Designs that lack a figure."""
        return self.statuses.get("unsourced_input", 0)

    def ranked_on(self) -> str:
        """A remark to stand beside the chip's number; empty where every design has a speed."""
        if not self.unsourced:
            return ""
        left = self.designs - self.unsourced
        among = (
            f"among {left:,} of its {self.designs:,} designs" if left else f"among none of its {self.designs:,} designs"
        )
        return f"{among}: the others have no speed, as {self._no_source()}"

    def sentence(self) -> str:
        """How many designs have no speed, and what would give them one."""
        short = short_name(str(self.chip))
        uses = [f"{one.figure} ({one.use})" for one in self.missing]
        lines = [f'"{self.chip}".{one.figure} = "{FIGURES[one.figure].example}"' for one in self.missing]
        added = f" Add it under [assume], written like {listed(lines)}, with its true value." if lines else ""
        return (
            f"{short}: {self.unsourced:,} of {self.designs:,} designs ({share_text(self.unsourced, self.designs)}) "
            f"have no speed and are not ranked: no source states {listed(uses) or 'a figure they need'}.{added}"
        )

    def _no_source(self) -> str:
        names = [one.figure for one in self.missing]
        return (
            f"{listed(names)} {'has' if len(names) == 1 else 'have'} no source" if names else "a figure has no source"
        )


def chip_counts(results: Results) -> tuple[ChipCounts, ...]:
    """Of every chip of the study; nothing where the summary does not tell."""
    study, summary = results.study, results.summary
    chips = list(zip(study.space.values("hardware"), study.catalogue.hardware, strict=True))
    dim = study.space.dimension_of("hardware")
    name = f"status_count_by_{dim}" if dim else "status_count"
    if summary is None or name not in summary:
        return ()
    words = [str(word) for word in summary["status"].values]
    counts = np.atleast_2d(summary[name].values)
    found = []
    for (chip, record), row in zip(chips, counts, strict=True):
        statuses = {word: int(count) for word, count in zip(words, row, strict=True) if count}
        designs = sum(statuses.values())
        missing = tuple(_missing(record, tuple(_needs(study, record)))) if "unsourced_input" in statuses else ()
        found.append(ChipCounts(chip, designs, statuses, missing))
    return tuple(found)


_Need: TypeAlias = tuple[str, str, NDArray[np.bool_]]
"""Figure, which designs need it in words, and a mask over the values that decide it."""


def _missing(chip: Hardware, needs: Sequence[_Need]) -> Iterator[Missing]:
    """Figures of the step's time that the chip has no source for, with the designs that need them."""
    for figure, use, needed in needs:
        absent = getattr(chip, figure) is None and not (figure == "fp8_flops" and chip.int8_ops is not None)
        if absent and needed.any():
            yield Missing(figure, use)


def _needs(study: Study, chip: Hardware) -> Iterator[_Need]:
    space = study.space
    several = [name for name in _DEVICES if max(map(int, space.values(name))) > 1]
    use = f"needed where {' or '.join(several)} is above 1"
    yield "scale_up_bandwidth", use, np.array([bool(several)])
    most = math.prod(max(map(int, space.values(name))) for name in _DEVICES)
    beyond = np.array([most > (chip.scale_up_domain.value if chip.scale_up_domain else math.inf)])
    yield "scale_out_bandwidth", "needed for replicas beyond what the scale-up link joins", beyond
    for tier in TIERS:
        placed = np.array(space.values(f"placement_{tier}")) > 0
        yield f"{tier}_link_bandwidth", f"needed where placement_{tier} is above 0", placed
    pinned = np.array([value == "pinned" for value in space.values("die_placement")])
    dies = "needed where die_placement is pinned"
    yield "memory_domains", dies, pinned & (chip.compute_dies is None)
    for peak, use, needed in zip(PEAKS, _PEAK_USES, arithmetic(study), strict=True):
        yield peak, f"needed for {use}", needed


def arithmetic(study: Study) -> list[NDArray[np.bool_]]:
    """Whether a step does 16-, 8- and 4-bit arithmetic, over the grid of the axes that decide it."""
    space = study.space
    deciding = [name for name in space.dims if name in {space.dimension_of(axis) for axis in _FORMAT_AXES}]
    grid = np.indices([len(space[name]) for name in deciding], sparse=True)
    positions = dict.fromkeys(space.dims, np.zeros((), np.int64)) | dict(zip(deciding, grid, strict=True))
    flop = evaluate_step(study.columns().design(positions)).ledger.flop_by_format
    shape = np.broadcast_shapes(*(np.shape(part) for part in flop))
    return [np.broadcast_to(np.asarray(part) > 0, shape) for part in flop]


def without_value(results: Results) -> Iterator[str]:
    """Sentences about chips on which a metric that the study asks for has no value although the step has a time."""
    study = results.study
    asked = dict.fromkeys([*(one.metric for one in study.objectives), *(one.metric for one in study.constraints)])
    needs = {
        "cost_per_million_tokens": [f"{basis}_price" for basis in study.space.values("price_basis")],
        "energy_per_token": ["memory_energy", "flop_energy"],
    }
    loads = (
        "continuous" in study.space.values("serving_mode")
        and max(map(float, study.space.values("prefix_hit_rate"))) > 0
    )
    if loads or "streamed" in study.space.values("access"):
        for tier in TIERS:
            if any(float(value) > 0 for value in study.space.values(f"placement_{tier}")):
                needs["energy_per_token"].append("link_energy" if tier == "host" else f"{tier}_energy")
    for name, chip in zip(study.space.values("hardware"), study.catalogue.hardware, strict=True):
        for metric in asked:
            lacking = [figure for figure in needs.get(metric, []) if getattr(chip, figure) is None]
            if lacking:
                lines = listed(f'"{name}".{figure} = "{FIGURES[figure].example}"' for figure in lacking)
                yield (
                    f"{short_name(str(name))}: no source states {listed(lacking)}, so designs that need it have no "
                    f"{metric_label(metric)} and are not ranked. Add it under [assume], written like {lines}, with "
                    "its true value."
                )

"""`summary.nc`: counts, extremes, shares and histograms over the whole grid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import netCDF4
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.register import LABELS, metric_named
from kvwall.sweep.store.attributes import Attributes, cf_units, evidence_in, provenance
from kvwall.sweep.store.checksum import add_checksum, sealed
from kvwall.sweep.store.coordinates import add_axes, scalar_names
from kvwall.sweep.store.image import add_variable, add_words, netcdf_image, set_globals

if TYPE_CHECKING:
    from kvwall.sweep.results import Summary
    from kvwall.sweep.study import Study

_COUNT: Attributes = {"units": "1"}


def summary_image(study: Study, summary: Summary) -> memoryview:
    """The bytes of the file."""

    def fill(file: netCDF4.Dataset) -> None:
        space = study.space
        whole = {dim: np.arange(len(space.values(dim))) for dim in space.dims}
        add_axes(file, space, whole, space.dims)
        _add_totals(file, summary)
        _add_counts(file, summary, scalar_names(space, space.dims))
        for kind, extremes in (("lowest", summary.low), ("highest", summary.high)):
            for dim, metrics in extremes.items():
                for name, numbers in metrics.items():
                    _add_extreme(file, study, kind, dim, name, np.asarray(numbers))
        _add_histograms(file, study, summary)
        add_checksum(file)
        about = "The whole grid in numbers, stored points or not: best and worst per axis value, shares, histograms."
        set_globals(file, provenance(study, "summary.nc", f"{study.name}: summary", about))

    return sealed(netcdf_image(fill))


def _add_totals(file: netCDF4.Dataset, summary: Summary) -> None:
    for name, meaning in (
        ("points", "points of the grid"),
        ("feasible", "points whose status is ok"),
        ("admissible", "feasible points inside every constraint"),
    ):
        add_variable(file, name, (), np.asarray(getattr(summary, name), np.int64), {"long_name": meaning, **_COUNT})
    if summary.rejected:
        file.createDimension("constraint", len(summary.rejected))
        add_words(file, "constraint", ("constraint",), list(summary.rejected), {"long_name": "constraint of the study"})
        about = {"long_name": "feasible points that this constraint alone rejects", **_COUNT}
        add_variable(file, "rejected", ("constraint",), np.array(list(summary.rejected.values()), np.int64), about)


def _add_counts(file: netCDF4.Dataset, summary: Summary, scalars: str) -> None:
    for name, codes in summary.totals.items():
        file.createDimension(name, len(codes))
        add_words(file, name, (name,), LABELS[name].meanings, {"long_name": LABELS[name].meaning})
        about: Attributes = {"long_name": f"points of each {name}", "coordinates": scalars, **_COUNT}
        add_variable(file, f"{name}_count", (name,), np.asarray(codes, np.int64), about)
    for dim, labels in summary.counts.items():
        for name, codes in labels.items():
            about = {"long_name": f"points of each {name} at each {dim}", **_COUNT}
            add_variable(file, f"{name}_count_by_{dim}", (dim, name), np.asarray(codes, np.int64), about)


def _add_extreme(
    file: netCDF4.Dataset, study: Study, kind: str, dim: str, name: str, numbers: NDArray[np.floating]
) -> None:
    metric = metric_named(name, study.task, study.mode)
    about: Attributes = {
        "long_name": f"{kind} over feasible points: {metric.meaning}",
        **cf_units(metric.unit),
        "evidence": evidence_in(metric, study),
    }
    add_variable(file, f"{name}_{kind}_by_{dim}", (dim,), numbers, about)


def _add_histograms(file: netCDF4.Dataset, study: Study, summary: Summary) -> None:
    for name, histogram in summary.histogram.items():
        metric = metric_named(name, study.task, study.mode)
        bins, edges = f"{name}_bin", f"{name}_edge"
        file.createDimension(bins, len(histogram.counts))
        file.createDimension(edges, len(histogram.edges))
        about = {"long_name": f"edges of the bins: {metric.meaning}", **cf_units(metric.unit)}
        add_variable(file, f"{name}_histogram_edges", (edges,), np.asarray(histogram.edges), about)
        counted = {"long_name": f"feasible points per bin: {metric.meaning}", **_COUNT}
        add_variable(file, f"{name}_histogram_count", (bins,), np.asarray(histogram.counts, np.int64), counted)

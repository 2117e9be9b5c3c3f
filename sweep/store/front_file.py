"""`front.nc`: the exact front, one row per design, every metric unrounded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import netCDF4
import numpy as np

from kvwall.objectives.register import LABELS, metric_named
from kvwall.sweep.store.attributes import label_attributes, metric_attributes, provenance
from kvwall.sweep.store.checksum import add_checksum, sealed
from kvwall.sweep.store.coordinates import add_axes_by_row, scalar_names
from kvwall.sweep.store.image import add_variable, netcdf_image, set_globals

if TYPE_CHECKING:
    from kvwall.sweep.results import FrontTable
    from kvwall.sweep.study import Study

ROW = "point"
"""Dimension of the front's rows."""
CERTIFICATE = "certificate"
"""Attribute, JSON: what settled every design of the grid, where the front was found by bounds."""


def front_image(study: Study, table: FrontTable, about_search: Mapping[str, str] | None = None) -> memoryview:
    """The bytes of the file; `about_search` are global attributes of how the front was found."""
    space = study.space
    places = np.unravel_index(table.grid_index, space.shape) if space.dims else ()
    positions = dict(zip(space.dims, places, strict=True))
    coordinates = {"coordinates": scalar_names(space, ())}

    def fill(file: netCDF4.Dataset) -> None:
        file.createDimension(ROW, len(table))
        add_axes_by_row(file, space, positions, ROW)
        for name, counts, meaning in (
            ("grid_index", table.grid_index, "flat index into the study's grid"),
            ("multiplicity", table.multiplicity, "designs whose objectives tie exactly with this one, itself included"),
        ):
            add_variable(file, name, (ROW,), np.asarray(counts, np.int64), {"long_name": meaning, "units": "1"})
        for name, numbers in table.metrics.items():
            about = metric_attributes(metric_named(name, study.task, study.mode), study)
            add_variable(file, name, (ROW,), np.asarray(numbers), {**about, **coordinates})
        for name, codes in table.labels.items():
            about = label_attributes(LABELS[name])
            add_variable(file, name, (ROW,), np.asarray(codes, dtype=np.int8), {**about, **coordinates})
        add_checksum(file)
        summary = "Non-dominated admissible designs of the whole grid, from unrounded values."
        set_globals(file, provenance(study, "front.nc", f"{study.name}: exact front", summary), about_search or {})

    return sealed(netcdf_image(fill))

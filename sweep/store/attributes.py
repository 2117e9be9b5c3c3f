"""Attributes of files and variables, in CF terms: units that UDUNITS knows, flags for labels, provenance."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sys
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kvwall.objectives.register import Label, Metric
from kvwall.spaces.axes import Axis
from kvwall.sweep.canonical import canonical_json

if TYPE_CHECKING:
    from kvwall.sweep.study import Study

Attribute: TypeAlias = str | int | float | np.generic | NDArray[Any]
Attributes: TypeAlias = Mapping[str, Attribute]

NOT_COMPUTED = -1
"""Code of a label, other than the status, where its shard is missing."""

_NOT_IN_UDUNITS = {"FLOP", "USD", "token"}
_TOKEN_AXES = {"context", "residual_window"}
_PACKAGES = ("numpy", "jax", "xarray", "netCDF4", "h5py")


def attribute(value: object) -> Attribute:
    """The value as netCDF takes it: text, numbers and arrays as they are, everything else as JSON text."""
    if isinstance(value, str | np.ndarray | np.generic | int | float) and not isinstance(value, bool):
        return value
    return json.dumps(value, default=str)


def cf_units(unit: str) -> Attributes:
    """`units` that UDUNITS accepts; where that leaves out a word (FLOP, USD, token), the whole in `display_units`.

    >>> cf_units("FLOP byte-1")
    {'units': 'byte-1', 'display_units': 'FLOP byte-1'}
    >>> cf_units("s-1")
    {'units': 's-1'}
    """
    known = [word for word in unit.split() if word.rstrip("-0123456789") not in _NOT_IN_UDUNITS]
    units = " ".join(known) or "1"
    return {"units": units} if units == unit else {"units": units, "display_units": unit}


def metric_attributes(metric: Metric, study: Study) -> Attributes:
    """Of a metric's variable in a study."""
    return {"long_name": metric.meaning, **cf_units(metric.unit), "evidence": evidence_in(metric, study)}


def evidence_in(metric: Metric, study: Study) -> str:
    """A metric's evidence in a study: calibrated as soon as one of its engines is real and the metric rests on it."""
    return metric.evidence_of(calibrated_engine=set(study.space.values("engine")) != {"ideal"})


def label_attributes(label: Label) -> Attributes:
    """Of a label's variable: codes and their words."""
    codes = {code: word for code, word in enumerate(label.meanings)}
    if label.name != "status":
        codes = {NOT_COMPUTED: "not_computed", **codes}
    return {
        "long_name": label.meaning,
        "flag_values": np.array(list(codes), dtype=np.int8),
        "flag_meanings": " ".join(codes.values()),
        "evidence": "derived",
    }


def axis_attributes(axis: Axis) -> Attributes:
    """Of an axis's coordinate."""
    attributes: Attributes = {"long_name": axis.meaning}
    if axis.kind == "flag":
        # `dtype` is how xarray knows that an int8 holds truth values.
        codes = np.array([0, 1], dtype=np.int8)
        return {**attributes, "flag_values": codes, "flag_meanings": "false true", "dtype": "bool"}
    if axis.kind == "name":
        return attributes
    return {**attributes, **cf_units(_axis_unit(axis.name))}


def _axis_unit(name: str) -> str:
    if name in _TOKEN_AXES or name.endswith("_tokens"):
        return "token"
    return "bit" if name.endswith("_bits") else "1"


def provenance(study: Study, file: str, title: str, summary: str) -> Attributes:
    """Global attributes of a file: what it is, who made it, from what."""
    now = _now().isoformat(timespec="seconds")
    spec = study.spec()
    version = str(spec["version"])
    argv = [word.encode(errors="backslashreplace").decode() for word in sys.argv]  # names of files may be no UTF-8
    stated: dict[str, object] = {
        "Conventions": "CF-1.12 ACDD-1.3",
        "title": title,
        "summary": summary,
        "source": f"kvwall {version}, analytic {study.mode} model of LLM decoding",
        "history": f"{now} {' '.join(argv)}",
        "date_created": now,
        "id": file_id(study, file),
        "spec_hash": study.spec_hash,
        "catalogue_sha256": hashlib.sha256(canonical_json({"catalogue": spec.get("catalogue")})).hexdigest(),
        "catalogue_records": spec.get("catalogue"),
        "kvwall_version": version,
        **_versions(),
        "platform": platform.platform(),
        "argv": argv,
        "study_name": study.name,
        "mode": study.mode,
        "store": study.store,
        "profile": study.profile,
        "quality_task": study.task,
        "quality_confidence": study.confidence,
        "quality_budgets": [str(budget) for budget in study.budgets],
        "allowed_vetoes": list(study.allow_veto),
        "assumptions": {chip: dict(figures) for chip, figures in study.assume.items()},
        "objectives": [f"{objective.sense} {objective.metric}" for objective in study.objectives],
        "constraints": [str(constraint) for constraint in study.constraints],
        "study_toml": study.text or study.resolved(),
    }
    return {name: attribute(value) for name, value in stated.items()}


def file_id(study: Study, file: str) -> str:
    """A UUID, the same whenever the same study writes the same file."""
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{study.spec_hash}/{file}"))


def _now() -> datetime:
    """The time, or the one that SOURCE_DATE_EPOCH states: then equal runs write equal bytes."""
    stated = os.environ.get("SOURCE_DATE_EPOCH", "")
    return datetime.fromtimestamp(int(stated), UTC) if stated.isdecimal() else datetime.now(UTC)


@cache
def _versions() -> Mapping[str, str]:
    found = {f"{package.lower()}_version": metadata.version(package) for package in _PACKAGES}
    return {**found, "python_version": platform.python_version()}

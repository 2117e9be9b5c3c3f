"""Why a number is missing: the bounds of a band are missing for the reason of their metric."""

from __future__ import annotations

import pytest

from kvwall.objectives.register import BANDED, band_of
from kvwall.spaces.hardware import hardware_names, load_hardware
from kvwall.sweep.calibration.record import write_record
from kvwall.sweep.evaluate import evaluate
from tests.stand_in_record import stand_in


@pytest.fixture(scope="module")
def record(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("record") / "record.json"
    write_record(stand_in(), path)
    return str(path)


def lacking(figure: str) -> str:
    """A chip of the catalogue of which no source states a figure."""
    return next(
        name
        for name in hardware_names()
        if getattr(load_hardware(name), figure) is None and load_hardware(name).memory_bandwidth is not None
    )


def test_bounds_are_missing_for_the_reason_of_their_metric(record: str) -> None:
    chip = lacking("cloud_price")
    found = evaluate(model="Qwen/Qwen3-8B", hardware=chip, context=8192, price_basis="cloud", calibration=record)
    assert "cloud_price of" in found.reasons["cost_per_million_tokens"]
    for name in BANDED:
        for bound in band_of(name):
            assert found.reasons.get(bound) == found.reasons.get(name), bound
            assert (found.metrics[bound] is None) == (found.metrics[name] is None), bound

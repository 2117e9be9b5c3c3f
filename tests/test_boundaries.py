"""Signed distances to the boundaries of the regimes: which side a design is on agrees with its labels."""

from __future__ import annotations

import math

import pytest

import kvwall
from kvwall.sweep.boundaries import BOUNDARIES
from kvwall.sweep.cli import run

LLAMA = "meta-llama/Llama-3.3-70B-Instruct"
DESIGNS = {
    "weights bind": {"batch": 1, "context": 8192, "tensor_parallel": 8},
    "KV binds": {"batch": 64, "context": 131_072, "tensor_parallel": 8, "key_bits": 8, "value_bits": 8},
    "arithmetic binds": {"batch": 4096, "context": 64, "tensor_parallel": 8, "activation_bits": 16, "weight_bits": 4},
    "does not fit": {"batch": 64, "context": 131_072, "tensor_parallel": 2},
    "a tier's link binds": {"batch": 8, "context": 65_536, "tensor_parallel": 8, "placement_host": 0.5},
    "a full tier": {"batch": 64, "context": 131_072, "tensor_parallel": 8, "placement_host": 0.5},
}  # fmt: skip
ASSUMED = {"host_capacity": "30 GB"}


@pytest.mark.parametrize("name", DESIGNS)
def test_signs_agree_with_labels(name):
    report = kvwall.evaluate(mode="ceiling", model=LLAMA, hardware="h200-sxm", assume=ASSUMED, **DESIGNS[name])
    found = report.boundaries
    assert tuple(found) == BOUNDARIES
    bound = report.labels["bound_by"]
    assert found[bound] == pytest.approx(report.metrics["regime_distance"], rel=1e-9)
    assert all(found[other] <= 0 for other in ("hbm", "compute", "scale_up") if other != bound)
    assert (found["capacity"] > 0) == (report.metrics["memory_margin"] < 0)
    more = report.metrics["kv_bytes_read"] / report.metrics["weight_bytes_read"]
    assert found["kv"] == pytest.approx(math.log(more), rel=1e-9)
    assert (found["tier_link"] is None) == ("placement_host" not in DESIGNS[name])
    assert report.to_json()["boundaries"] == dict(found)


def test_the_designs_lie_on_different_sides():
    reports = [
        kvwall.evaluate(mode="ceiling", model=LLAMA, hardware="h200-sxm", assume=ASSUMED, **axes)
        for axes in DESIGNS.values()
    ]
    assert {report.labels["bound_by"] for report in reports} == {"hbm", "compute", "tier_link"}
    for boundary in ("kv", "capacity"):
        assert {report.boundaries[boundary] > 0 for report in reports} == {True, False}


def test_what_is_not_used_or_not_known_is_null():
    axes = {"model": LLAMA, "hardware": "h200-sxm", "context": 8192}
    alone = kvwall.evaluate(mode="ceiling", **axes).boundaries
    assert alone["scale_up"] is None
    assert alone["hbm"] == -alone["compute"]
    unsourced = kvwall.evaluate(mode="ceiling", **axes, tensor_parallel=16).boundaries
    assert {name for name, distance in unsourced.items() if distance is not None} == {"kv", "capacity"}
    impossible = kvwall.evaluate(mode="ceiling", **axes, tensor_parallel=7).boundaries
    assert set(impossible.values()) == {None}


def test_capacity_is_that_of_the_fullest_place():
    """A tier of 30 GB that must hold 40 is ln(4/3) past its boundary, however much is left on the device."""
    axes = {"model": LLAMA, "hardware": "h200-sxm", "context": 131_072, "tensor_parallel": 8, "placement_host": 0.5}
    report = kvwall.evaluate(mode="ceiling", **axes, batch=16, assume={"host_capacity": "30 GB"})
    held = 0.5 * report.metrics["kv_bytes_reserved"] / 8
    assert report.boundaries["capacity"] == pytest.approx(math.log(held / 30e9), rel=1e-9)


def test_the_terminal_shows_them(capsys):
    run(
        [
            "evaluate",
            "--mode",
            "ceiling",
            "--model",
            LLAMA,
            "--hardware",
            "h200-sxm",
            "--context",
            "8192",
            "--batch",
            "4",
        ]
    )
    out = capsys.readouterr().out
    rows = out[out.index("boundary") :].splitlines()
    assert [row.split()[0] for row in rows[2:6]] == ["kv", "hbm", "compute", "capacity"]
    assert "binds: " in rows[3]

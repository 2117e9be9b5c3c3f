"""Transfer size: the law by hand, its record refitted from its rows, the metric on designs, and what the flags say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

import kvwall as kv
from kvwall.objectives.metrics import tier_bandwidth
from kvwall.objectives.register import metric_register
from kvwall.objectives.step import evaluate_step
from kvwall.objectives.transfer import effective_bandwidth, link_sourced
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.errors import InputError
from kvwall.spaces.space import make_space
from kvwall.spaces.transfer import RECORD, TransferRow, load_transfer_curve
from kvwall.sweep.transfer_fit import fit_transfer, record_text

CURVE = load_transfer_curve()
LLAMA: dict[str, object] = {"model": "meta-llama/Meta-Llama-3-8B", "hardware": "h100-sxm", "context": 8192}
TOKEN = 2 * 8 * 128 * 2
"""Bytes of a token in one layer of Llama-3-8B: keys and values of 8 heads of 128 at 16 bits."""


def reached(size: float, link: float) -> float:
    """The law in plain Python: the time of a piece, then bytes over it."""
    return size / (CURVE.seconds_per_piece + size / (CURVE.large_share * link))


def bandwidth(assume: Mapping[str, str] | None = None, **axes: object) -> float:
    """The metric of Llama-3-8B, by itself."""
    space = make_space(LLAMA | axes)
    catalogue = load_catalogue(space, {str(space.values("hardware")[0]): assume or {}})
    with jax.enable_x64(True):
        design = Columns(space, catalogue).design({})
        assert bool(link_sourced(design))
        return float(tier_bandwidth(design, evaluate_step(design)))


def flags(**axes: object) -> str:
    """All flags in one text."""
    return "\n".join(kv.evaluate(mode="ceiling", **(LLAMA | axes)).flags)


def test_small_pieces_cost_their_number_and_large_ones_their_bytes() -> None:
    link = 64e9
    assert effective_bandwidth(1.0, link, 1e-5, 0.5) == pytest.approx(1 / 1e-5, rel=1e-4)
    assert effective_bandwidth(1e15, link, 1e-5, 0.5) == pytest.approx(0.5 * link, rel=1e-4)
    half = CURVE.half_size(link)
    assert reached(half, link) == pytest.approx(0.5 * CURVE.large_share * link)


def test_larger_pieces_and_faster_links_are_never_slower() -> None:
    sizes, links = np.geomspace(1e2, 1e9, 50), np.geomspace(1e9, 1e12, 20)[:, None]
    found = effective_bandwidth(sizes, links, CURVE.seconds_per_piece, CURVE.large_share)
    assert np.all(np.diff(found, axis=0) > 0)
    assert np.all(np.diff(found, axis=1) > 0)
    assert np.all(found < CURVE.large_share * links)


def test_the_record_is_what_its_rows_give() -> None:
    assert record_text(fit_transfer(CURVE.rows, CURVE.fitted)) == RECORD.read_text(encoding="utf-8")


def test_other_rows_give_another_record() -> None:
    slower = tuple(replace(row, bandwidth=row.bandwidth / 2) for row in CURVE.rows)
    found = fit_transfer(slower, CURVE.fitted)
    assert found.seconds_per_piece == pytest.approx(2 * CURVE.seconds_per_piece, rel=1e-2)
    assert found.large_share == pytest.approx(CURVE.large_share / 2, rel=1e-2)


def test_the_fit_finds_a_planted_curve() -> None:
    sizes = [4e3, 3e4, 2e5, 2e6, None]
    planted = [
        (size, link, effective_bandwidth(size or 1e15, link, 3e-6, 0.8)) for size in sizes for link in (3e10, 6e10)
    ]
    rows = [TransferRow("x", "PCIe 5.0", "planted", size, float(found), link, "", "") for size, link, found in planted]
    found = fit_transfer(rows, "2026-01-01")
    assert (found.seconds_per_piece, found.large_share) == pytest.approx((3e-6, 0.8), rel=1e-3)
    assert found.worst_factor == pytest.approx(1, abs=1e-2)


def test_the_record_says_how_far_its_rows_lie() -> None:
    factors = [
        np.exp(abs(np.log(reached(row.piece_bytes or 1e15, row.link_bandwidth) / row.bandwidth))) for row in CURVE.rows
    ]
    assert max(factors) == pytest.approx(CURVE.worst_factor, rel=1e-3)
    assert 1 < CURVE.typical_factor < CURVE.worst_factor
    assert all(row.source and 0 < row.share < 1 for row in CURVE.rows)


def test_published_copies_of_small_blocks() -> None:
    """4096 blocks of 4 KiB in 22.4 ms, 512 of 512 KiB in 11.2 ms (MI300X); the curve is within its stated factor."""
    of_loop = {row.piece_bytes: row.bandwidth for row in CURVE.rows if row.method == "per-block loop"}
    assert of_loop[4096] == pytest.approx(4096 * 4096 / 22.4e-3, rel=1e-3)
    assert of_loop[524288] == pytest.approx(512 * 524288 / 11.2e-3, rel=1e-3)
    for size, measured in of_loop.items():
        assert size is not None
        assert 1 / CURVE.worst_factor < reached(size, 64e9) / measured < CURVE.worst_factor


@pytest.mark.parametrize(
    ("wrong", "fault"),
    [("", "not a transfer record"), ('{"version": "1"}', "seconds_per_piece"), ("[", "not a transfer record")],
)
def test_a_broken_record_is_a_message(tmp_path: Path, wrong: str, fault: str) -> None:
    path = tmp_path / "transfer.json"
    path.write_text(wrong, encoding="utf-8")
    with pytest.raises(InputError, match=fault):
        load_transfer_curve(path)


@pytest.mark.parametrize(
    ("axes", "tokens"),
    [
        ({}, 1),
        ({"block_size": 16}, 16),
        ({"block_size": 16, "key_bits": 8, "value_bits": 8}, 8),
        ({"block_size": 16, "key_bits": 4, "value_bits": 8}, 6),
        ({"block_size": 64, "tensor_parallel": 4}, 16),
        ({"block_size": 64, "tensor_parallel": 16}, 8),  # one KV head a device at least
        ({"block_size": 16, "retention": 0.25, "batch": 7}, 16),
        ({"block_size": 16, "reservation": "contiguous"}, 8192),
    ],
)
def test_the_metric_is_of_a_page_of_one_layer(axes: dict[str, object], tokens: float) -> None:
    assert bandwidth(**axes) == pytest.approx(reached(tokens * TOKEN, 64e9), rel=1e-12)


@pytest.mark.parametrize(
    ("placed", "link"),
    [
        ({}, 64e9),
        ({"placement_host": 0.1}, 64e9),
        ({"placement_nvme": 0.1}, 14e9 / 4),
        ({"placement_host": 0.5, "placement_nvme": 0.1}, 14e9 / 4),
        ({"placement_host": 0.5, "placement_remote": 0.1, "access": "parked"}, 50e9),
    ],
)
def test_the_metric_is_of_the_slowest_placed_link(placed: dict[str, object], link: float) -> None:
    assume = {"nvme": "nvme-gen5-micron9550", "nvme_link_devices": "4", "remote": "rdma-400g"}
    assert bandwidth(assume, block_size=16, **placed) == pytest.approx(reached(16 * TOKEN, link), rel=1e-12)


def test_latents_strides_and_states_are_pages_too() -> None:
    """A latent of DeepSeek is 512 + 64 elements; where a model keeps only states, one layer's moves whole."""
    latent = bandwidth(model="deepseek-ai/DeepSeek-V3", block_size=64)
    assert latent == pytest.approx(reached(64 * 576 * 2, 64e9), rel=1e-12)
    mamba = kv.evaluate(mode="ceiling", **(LLAMA | {"model": "mistralai/Mamba-Codestral-7B-v0.1", "block_size": 64}))
    assert mamba.metrics["tier_bandwidth"] == bandwidth(model="mistralai/Mamba-Codestral-7B-v0.1")
    assert mamba.metrics["tier_bandwidth"] == pytest.approx(
        reached(mamba.metrics["kv_bytes_stored"] / 64, 64e9), rel=1e-12
    )  # 64 layers


def test_times_stay_those_of_the_datasheet() -> None:
    one, many = (kv.evaluate(mode="ceiling", **LLAMA, placement_host=0.5, block_size=size).metrics for size in (1, 128))
    assert one["tier_bandwidth"] < many["tier_bandwidth"]
    for name in ("reload_time", "break_even_context", "time_per_output_token", "tokens_per_second"):
        assert one[name] == many[name]


def test_it_is_a_calibrated_detail_and_null_without_the_link_s_source() -> None:
    metric = metric_register("aggregate", "ceiling")["tier_bandwidth"]
    assert (metric.evidence, metric.unit, metric.summarised) == ("calibrated", "byte s-1", False)
    found = kv.evaluate(mode="ceiling", **(LLAMA | {"hardware": "b200-sxm"}))
    assert found.metrics["tier_bandwidth"] is None
    assert found.reasons["tier_bandwidth"].startswith("host_link_bandwidth of b200-sxm has no source")
    found = kv.evaluate(mode="ceiling", **LLAMA, placement_cxl=0.5, placement_host=0.1)
    assert found.reasons["tier_bandwidth"].startswith("cxl_link_bandwidth of h100-sxm has no source")


@pytest.mark.usefixtures("float64")
def test_its_unit_is_that_of_its_arguments() -> None:
    """In other bytes and seconds the law gives the same bandwidth in those."""
    here = effective_bandwidth(65536.0, 64e9, 6e-6, 0.7)
    for byte, second in ((8.0, 1.0), (1.0, 1000.0), (8.0, 1000.0)):
        there = effective_bandwidth(65536.0 * byte, 64e9 * byte / second, 6e-6 * second, 0.7)
        assert there == pytest.approx(here * byte / second, rel=1e-12)
    slope = jax.grad(effective_bandwidth)(65536.0, 64e9, 6e-6, 0.7)
    assert slope == pytest.approx((effective_bandwidth(65537.0, 64e9, 6e-6, 0.7) - here), rel=1e-4)


def test_flags_tell_of_small_pages_and_of_measured_copies() -> None:
    small = flags(placement_host=0.5, block_size=16)
    share = 100 * reached(16 * TOKEN, 64e9) / 64e9
    assert f"streamed pages of 65.54 kB reach about {share:.2g} % of the link (calibrated)" in small
    assert (
        "times are at the host link's 64 GB/s; where it was measured, large copies reached 35.2 GB/s to 52.77" in small
    )
    large = flags(placement_host=0.5, block_size=256)
    assert "pages of" not in large
    assert "large copies reached" in large
    assert "pages of" not in flags(block_size=16)
    assert "large copies" not in flags(block_size=16)
    assert "parked pages of" in flags(placement_host=0.5, access="parked", block_size=16)
    assert "parked pages of" in flags(placement_host=0.5, access="parked", engine="vllm")
    assert "pages of" not in flags(placement_host=0.5)


def test_flags_tell_where_the_curve_is_borrowed_and_know_the_link_s_technology() -> None:
    found = kv.evaluate(mode="ceiling", **LLAMA, placement_nvme=0.5, block_size=2, assume={"nvme": "nvme-gen4"}).flags
    assert any("% of the link (calibrated on copies over host links)" in flag for flag in found)
    assert "450 GB/s; where it was measured, large copies reached 342 GB/s to 346 GB/s" in flags(
        hardware="gh200-144", placement_host=0.5
    )
    other = kv.evaluate(mode="ceiling", **LLAMA, placement_host=0.5, assume={"host_link": "pcie6-x16"}).flags
    assert not any("large copies" in flag for flag in other)

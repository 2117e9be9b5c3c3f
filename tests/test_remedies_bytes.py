"""Bytes, pages and capacity: laws that hold for random designs of all axes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from kvwall.spaces.axes import AXES
from tests.drawn_designs import (
    ALL_WINDOW,
    AXES_DRAWN,
    BITS,
    FULL,
    NEUTRAL,
    OTHERS,
    TOLERANCE,
    Numbers,
    designs,
    evaluated,
    few,
    more,
)

pytestmark = pytest.mark.usefixtures("float64")


def test_every_axis_is_drawn() -> None:
    """But those that change only quality, prices, or the rules of an engine."""
    others = {"engine", "quantizer", "evictor", "question_visible", "price_basis", "scale_bits", "zero_bits"}
    others |= {"weight_quantizer"}
    assert set(AXES_DRAWN) == set(AXES) - others


@few
@given(designs())
def test_every_number_of_a_design_is_finite(axes: Numbers) -> None:
    """Or infinite for a reason. A pool of refusals would be found out: too many examples would be left out."""
    found = evaluated(axes)
    assume(found.possible)
    endless = {"max_context", "crossover_context_bytes", "break_even_context"}
    assert all(np.isfinite(number) or name in endless for name, number in found.metrics.items())
    assert found.metrics["tokens_per_second"] > 0


# Bytes of KV


@few
@given(designs(model=st.sampled_from((*FULL, *OTHERS))))
def test_devices_past_the_kv_heads_never_lower_a_devices_kv(axes: Numbers) -> None:
    """All models here have at most 16 KV heads: twice the devices hold and read the same, each."""
    some, twice = (evaluated(axes, tensor_parallel=devices) for devices in (16, 32))
    for part in ("device_kv", "device_stored"):
        assert twice.parts[part] == pytest.approx(some.parts[part], rel=TOLERANCE)
    assert twice.metrics["kv_bytes_read"] == pytest.approx(2 * some.metrics["kv_bytes_read"], rel=TOLERANCE)


@few
@given(designs(model=ALL_WINDOW, prefix_share=0.0, output_tokens=0), st.sampled_from([1, 5000, 10**6]))
def test_windowed_kv_saturates(axes: Numbers, more: int) -> None:
    """Past a window of 4096 tokens in every layer nothing is added: not to what is stored, and not to what is read."""
    full, longer, shorter = (evaluated(axes, context=tokens) for tokens in (4096, 4096 + more, 4095))
    for metric in ("kv_bytes_stored", "kv_bytes_read"):
        assert longer.metrics[metric] == pytest.approx(full.metrics[metric], rel=TOLERANCE)
        assert shorter.metrics[metric] < full.metrics[metric]


@few
@given(designs(model=st.sampled_from((*FULL, *OTHERS))), BITS, BITS, st.sampled_from(["key_bits", "value_bits"]))
def test_bytes_increase_in_bits(axes: Numbers, one: float, other: float, axis: str) -> None:
    """Strictly below 16 bits: contexts here are beyond the residual window, and what is shared at most half."""
    low, high = sorted((one, other))
    assume(low < high < 16)
    tied = {"value_bits": "key_bits", "key_bits": "value_bits"}[axis]
    few_bits, many_bits = (evaluated(axes, **{axis: bits, tied: axes[tied]}) for bits in (low, high))
    latent = axes["model"].startswith("deepseek") and axis == "value_bits"
    for metric in ("kv_bytes_read", "kv_bytes_stored", "kv_bytes_reserved"):
        if latent:
            assert many_bits.metrics[metric] == few_bits.metrics[metric]
        else:
            assert many_bits.metrics[metric] > few_bits.metrics[metric]


@few
@given(designs(prefix_group=1))
def test_no_more_is_read_than_stored_and_no_more_stored_than_reserved(axes: Numbers) -> None:
    """No layer shares another's store here; each drafted token reads the draft's layer once more."""
    found = evaluated(axes)
    assume(found.possible)
    read, stored, reserved = (found.metrics[f"kv_bytes_{what}"] for what in ("read", "stored", "reserved"))
    drafts, layers = axes["draft_tokens"], found.parts["layers"]
    again = (layers + drafts) / (layers + 1) if drafts else 1
    assert read <= stored * again * (1 + TOLERANCE)
    assert stored <= reserved * (1 + TOLERANCE)


@few
@given(designs(model=st.sampled_from(FULL), prefix_aware_attention=True), st.floats(0.01, 0.5))
def test_prefix_sharing_saves_in_proportion_to_the_share(axes: Numbers, share: float) -> None:
    """Nothing at share 0 or in a group of 1; of full attention without eviction twice as much at twice the share."""
    kept = {"retention": 1.0, "residual_window": 0, "block_size": 1, "batch": 64 * axes["batch"]}
    plain = evaluated(axes, prefix_share=0.0, **kept)
    once, twice = (evaluated(axes, prefix_share=times * share, **kept) for times in (1, 2))
    alone = evaluated(axes, prefix_share=share, prefix_group=1, **kept)
    for metric in ("kv_bytes_read", "kv_bytes_stored", "kv_bytes_reserved"):
        before = plain.metrics[metric]
        assert alone.metrics[metric] == before
        saved = before - once.metrics[metric]
        assert before - twice.metrics[metric] == pytest.approx(2 * saved, rel=1e-6, abs=TOLERANCE * before)
        assert saved > 0 if axes["prefix_group"] > 1 else saved == 0


def test_a_shared_prefix_by_hand() -> None:
    """Llama-3-8B, 16 sequences of 10,000 tokens at 128 KiB, 4000 common to groups of 4: 3 of 4 copies are spared."""
    axes = NEUTRAL | {"batch": 16, "context": 10_000, "prefix_share": 0.4, "prefix_group": 4}
    stored = 16 * 131_072 * (6000 + 4000 / 4)
    assert evaluated(axes).metrics["kv_bytes_stored"] == stored
    assert evaluated(axes).metrics["kv_bytes_read"] == 16 * 131_072 * 10_000
    assert evaluated(axes, prefix_aware_attention=True).metrics["kv_bytes_read"] == stored


# Paging


@few
@given(designs(reservation="paged", prefix_group=1), st.sampled_from([1, 16, 64, 100, 1000]))
def test_pages_reserve_at_most_a_block_more_than_is_stored(axes: Numbers, block: int) -> None:
    found = evaluated(axes, block_size=block)
    stored, reserved = found.metrics["kv_bytes_stored"], found.metrics["kv_bytes_reserved"]
    sequences = axes["batch"] * axes["tensor_parallel"] * axes["context_parallel"]
    padding = (block - 1) * found.parts["token_bytes"] * sequences
    assert stored * (1 - TOLERANCE) <= reserved <= (stored + padding) * (1 + TOLERANCE)


@few
@given(designs(), st.sampled_from([1, 16, 64, 128]), st.integers(0, 5000))
def test_reserving_at_once_is_never_less_than_by_pages(axes: Numbers, block: int, spare_blocks: int) -> None:
    """For a longest sequence of whole blocks; blocks divide the windows here."""
    longest = (-(-(axes["context"] + axes["output_tokens"]) // block) + spare_blocks) * block
    paged, at_once = (
        evaluated(axes, block_size=block, max_model_length=longest, reservation=how) for how in ("paged", "contiguous")
    )
    assert at_once.metrics["kv_bytes_reserved"] >= paged.metrics["kv_bytes_reserved"] * (1 - TOLERANCE)
    assert at_once.metrics["memory_margin"] <= paged.metrics["memory_margin"] + 1e-3


# Capacity


def margin(axes: Numbers, **changed: Any) -> float:
    return evaluated(axes, **changed).metrics["memory_margin"]


@more
@given(designs(prefix_group=st.sampled_from([1, 3, 5000])))
def test_the_largest_batch_fits_and_one_more_does_not(axes: Numbers) -> None:
    found = evaluated(axes)
    assume(found.possible)
    most = found.metrics["max_batch"]
    slack = 1e-6 * (abs(found.metrics["memory_margin"]) + 1)
    assert 0 <= most < 1e15
    assert margin(axes, batch=most + 1) < slack
    if most >= 1:
        assert margin(axes, batch=most) >= -slack


@more
@given(designs())
def test_the_longest_context_fits_and_a_block_more_does_not(axes: Numbers) -> None:
    """One more token where pages have one; reserved at once, the longest sequence fits or none."""
    found = evaluated(axes)
    assume(found.possible)
    most = found.metrics["max_context"]
    slack = 1e-6 * (abs(found.metrics["memory_margin"]) + 1)
    if np.isinf(most):
        assert margin(axes, context=1e12, max_model_length=0) >= -slack
        return
    if most >= 1:
        assert margin(axes, context=most) >= -slack
    longer = max(most, 0) + 1
    stated = axes["max_model_length"]
    if not stated or longer + axes["output_tokens"] <= stated:
        assert margin(axes, context=longer) < slack

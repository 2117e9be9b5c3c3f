"""The oracle's remedies and tiers, against numbers worked out by hand.

The tiny model stores 32 B a token (16 B a layer) and streams 3408 B: 2384 B of layers, 1024 B of head; a row is 16 B.
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.oracle import Store, oracle
from tests.oracle_cases import CHIP, FULL, LATENT, STATE, TINY, WINDOW, kv_bytes, number, tiny
from tests.oracle_work import prompt_entries

FAST_LINKS = CHIP | {"memory_bandwidth": 1e9, "scale_up_bandwidth": 1e9}


@pytest.mark.parametrize(
    ("store", "read", "stored"),
    [
        # Eight of sixteen entries, and of all a page's least and largest key: 2 * 2 * 2 elements * 2 B / 4 tokens.
        (FULL, 2 * (8 * 16 + 16 * 4), 2 * 16 * (16 + 4)),
        (WINDOW, 2 * 6 * 16, 2 * 6 * 16),  # not evictable: read whole
        (replace(LATENT, top_k=4), 2 * (4 * 16 + 16 * 6), 2 * 16 * (16 + 6)),  # fewer than a half
        (replace(LATENT, top_k=40), 2 * (8 * 16 + 16 * 6), 2 * 16 * (16 + 6)),
        (STATE, 200, 200),
    ],
)
def test_sparse_reads(store: Store, read: float, stored: float) -> None:
    result = oracle(tiny(store), CHIP, {"context": 16, "read_fraction": 0.5, "block_size": 4})
    assert (result["kv_bytes_read"], result["kv_bytes_stored"]) == (read, stored)


@pytest.mark.parametrize(
    ("store", "axes", "tokens"),
    [
        (FULL, {}, 14),
        (FULL, {"block_size": 4}, 16),
        (FULL, {"block_size": 4, "reservation": "contiguous"}, 14),
        (FULL, {"reservation": "contiguous", "max_model_length": 100}, 100),
        (FULL, {"max_model_length": 100}, 14),
        (WINDOW, {"block_size": 4}, 8),
        (WINDOW, {"block_size": 4, "reservation": "contiguous"}, 6),
    ],
)
def test_reservation(store: Store, axes: dict[str, float | str], tokens: float) -> None:
    result = oracle(tiny(store), CHIP, {"context": 10, "output_tokens": 4, **axes})
    assert result["kv_bytes_reserved"] == 2 * 16 * tokens
    assert result["kv_bytes_stored"] == 2 * 16 * (14 if store is FULL else 6)
    assert result["memory_margin"] == 10_000 - 4432 - 160 - 2 * 16 * tokens


def test_longest_context_in_pages() -> None:
    # 10,000 - 4432 - 160 = 5408 B are 169 tokens, ten pages of sixteen; four of the tokens are output.
    axes: dict[str, float | str] = {"context": 10, "output_tokens": 4}
    assert oracle(TINY, CHIP, axes)["max_context"] == 165
    assert oracle(TINY, CHIP, axes | {"block_size": 16})["max_context"] == 156
    assert oracle(TINY, CHIP, axes | {"block_size": 200})["max_context"] == 0
    assert oracle(TINY, CHIP, axes | {"block_size": 16, "max_model_length": 100})["max_context"] == 96
    assert oracle(TINY, CHIP, axes | {"block_size": 16, "reservation": "contiguous"})["max_context"] == 165
    held = axes | {"max_model_length": 100, "reservation": "contiguous"}
    assert oracle(TINY, CHIP, held)["max_context"] == 96
    assert oracle(TINY, CHIP, held | {"max_model_length": 170})["max_context"] == 0


def test_pool() -> None:
    result = oracle(TINY, CHIP, {"context": 10, "block_size": 4})
    # 5408 B of KV beside one sequence's 160 B; a request takes three pages, 384 B: 14.08 of ten tokens.
    assert result["kv_pool_bytes"] == 10_000 - 4432 - 160
    assert (result["kv_pool_tokens"], result["kv_pool_blocks"]) == (140, 35)
    assert result["max_concurrency"] == pytest.approx(5568 / (384 + 160))
    longer = oracle(TINY, CHIP, {"context": 10, "max_model_length": 20, "placement_host": 0.5})
    assert longer["kv_pool_tokens"] == math.floor(5408 / 320 * 20)
    assert longer["max_concurrency"] == pytest.approx(5568 / (320 + 160))
    assert oracle(TINY, CHIP | {"memory_capacity": 4000.0}, {"context": 10})["kv_pool_tokens"] == 0


@pytest.mark.parametrize(
    ("axes", "stored", "read"),
    [
        ({"prefix_group": 4}, 4 * 448, 4 * 384),  # nothing is common
        ({"prefix_share": 0.5}, 4 * 448, 4 * 384),  # to one sequence
        # Five of ten prompt tokens, 160 B, are kept once for four sequences, or twice, or for the four there are.
        ({"prefix_share": 0.5, "prefix_group": 4}, 4 * 448 - 3 * 160, 4 * 384),
        ({"prefix_share": 0.5, "prefix_group": 2}, 4 * 448 - 2 * 160, 4 * 384),
        ({"prefix_share": 0.5, "prefix_group": 9}, 4 * 448 - 3 * 160, 4 * 384),
        ({"prefix_share": 0.5, "prefix_group": 4, "prefix_aware_attention": True}, 4 * 448 - 480, 4 * 384 - 480),
        # A page more than the output: still five tokens.
        ({"prefix_share": 0.5, "prefix_group": 4, "block_size": 5}, 4 * 448 - 3 * 160, 4 * 384),
    ],
)
def test_common_prefix(axes: dict[str, float | bool], stored: float, read: float) -> None:
    """Four sequences of 10 tokens with 4 more to come: 12 at the step."""
    result = oracle(TINY, CHIP, {"context": 10, "output_tokens": 4, "batch": 4, **axes})
    assert result["kv_bytes_stored"] == stored
    assert result["kv_bytes_read"] == read
    pages = 4 * 32 if "block_size" in axes else 0
    assert result["kv_bytes_reserved"] == stored + pages


def test_common_prefix_in_stores() -> None:
    axes = {"context": 10, "batch": 2, "prefix_share": 0.5, "prefix_group": 2, "prefix_aware_attention": True}
    # A window of 6 of 10 tokens has one of the prefix's five left; a chunk that has restarted none.
    assert kv_bytes(oracle(tiny(WINDOW), CHIP, axes)) == 2 * (2 * 6 * 16) - 2 * 16
    assert kv_bytes(oracle(tiny(replace(WINDOW, chunked=True)), CHIP, axes)) == 2 * 2 * 3.5 * 16
    assert kv_bytes(oracle(tiny(STATE), CHIP, axes)) == 2 * 200
    # Half of the tokens are kept, and half of those are read, with 4 B to choose by: 1.25 of 2.5 entries are common.
    sparse = axes | {"retention": 0.5, "read_fraction": 0.5, "block_size": 4}
    assert kv_bytes(oracle(TINY, CHIP, sparse)) == 2 * 2 * (2.5 * 16 + 5 * 4) - 2 * (1.25 * 16 + 2.5 * 4)
    # Eight tokens are plain, 16 B a layer, two of 4 bits, 4 B: of the five oldest three are plain.
    plain = axes | {"key_bits": 4, "value_bits": 4, "residual_window": 8}
    assert kv_bytes(oracle(TINY, CHIP, plain)) == 2 * 2 * (8 * 16 + 2 * 4) - 2 * (3 * 16 + 2 * 4)
    # The common half costs 160 B / 8, the own one 160 B, activations 160 B: 5568 / 340 sequences.
    assert oracle(TINY, CHIP, axes | {"batch": 1, "prefix_group": 8})["max_batch"] == 16
    # Fewer sequences than the group have the whole prefix: (5568 - 160) / 320.
    assert oracle(TINY, CHIP, axes | {"batch": 1, "prefix_group": 100})["max_batch"] == 16
    assert oracle(TINY, CHIP | {"memory_capacity": 5600.0}, axes | {"prefix_group": 8})["max_batch"] == 3


def test_tiers_side_by_side() -> None:
    axes: dict[str, float | str] = {"context": 100, "placement_cxl": 0.25, "placement_nvme": 0.25}
    result = oracle(TINY, CHIP, axes)
    # 800 B each, over 5 B/s and a half of 4 B/s; HBM 3424 + 1600 + 32 B at 100 B/s.
    assert result["time_per_output_token"] == 400
    assert result["bound_by"] == "tier_link"
    assert result["regime_distance"] == pytest.approx(math.log(400 / 50.56))
    flop = 2 * 1664 + 2 * 2 * 100 * 4 * 4
    assert result["energy_per_token"] == pytest.approx(5056 + 3 * 800 + 4 * 800 + flop / 2)
    assert result["memory_margin"] == 10_000 - 4432 - 1600 - 160
    # What is not hidden comes on top: 0.4 of 400 s after what the rest takes, 240 s of it hidden.
    assert oracle(TINY, CHIP, axes | {"link_overlap": 0.6})["time_per_output_token"] == pytest.approx(240 + 160)
    assert oracle(TINY, CHIP, axes | {"link_overlap": 0})["time_per_output_token"] == pytest.approx(50.56 + 400)
    small = CHIP | {"nvme_capacity": 900.0}
    assert oracle(TINY, small, axes)["memory_margin"] == 100
    assert oracle(TINY, small, axes)["max_batch"] == 1
    assert oracle(TINY, small, axes)["max_context"] == 112
    assert oracle(TINY, small | {"nvme_capacity": 700.0}, axes)["status"] == "memory"
    assert oracle(TINY, CHIP | {"nvme_energy": None}, axes)["energy_per_token"] is None


def test_parked_sequences_rest() -> None:
    axes: dict[str, float | str] = {"context": 10, "batch": 4, "placement_host": 0.5, "access": "parked"}
    result = oracle(TINY, CHIP, axes)
    assert kv_bytes(result) == 2 * 320
    # Two decode: rows 32, KV 640, written 64.
    assert result["time_per_output_token"] == pytest.approx((3408 + 32 + 640 + 64) / 100)
    assert result["tokens_per_second"] == pytest.approx(2 / 41.44)
    assert result["kv_bytes_stored"] == 4 * 320
    assert result["memory_margin"] == 10_000 - 4432 - 2 * 320 - 2 * 160
    flop = 2 * (2 * 1664 + 2 * 2 * 10 * 4 * 4)
    assert result["energy_per_token"] == pytest.approx((4144 + flop / 2) / 2)


def test_pinned_pages_crowd_a_domain() -> None:
    axes: dict[str, float | str] = {"context": 10, "die_placement": "pinned"}
    # One sequence has one of two domains: its 352 B of KV take twice as long. Three: two on one, 4/3.
    assert oracle(TINY, CHIP, axes)["time_per_output_token"] == pytest.approx((3424 + 2 * 352) / 100)
    three = oracle(TINY, CHIP, axes | {"batch": 3})
    assert three["time_per_output_token"] == pytest.approx((3408 + 48 + 4 / 3 * 3 * 352) / 100)
    assert oracle(TINY, CHIP | {"memory_domains": None}, axes)["status"] == "unsourced_input"


def test_speculation() -> None:
    result = oracle(TINY, CHIP, {"context": 10, "draft_tokens": 2, "acceptance_rate": 0.5})
    # One more layer: read twice, kept and written once more for each of three tokens.
    assert (kv_bytes(result), result["kv_bytes_stored"]) == (2 * 320, 480)
    draft = 2384 / 2 + 1024
    assert result["weight_bytes_read"] == 3408 + 3 * 16 + 2 * draft
    seconds = (3456 + 2 * draft + 640 + 3 * 48) / 100
    assert result["time_per_output_token"] == pytest.approx(seconds / 1.75)
    assert result["memory_margin"] == 10_000 - 4432 - 1192 - 480 - 160
    # Layers 2 * 1152 for three tokens and a half of it for two; the head for five; attention 640 for four.
    flop = 4 * 2304 + 5 * 1024 + 4 * 640
    assert result["energy_per_token"] == pytest.approx((100 * seconds + flop / 2) / 1.75)


def test_continuous_serving() -> None:
    axes: dict[str, float | str] = {"context": 8, "output_tokens": 4, "batch": 2, "prefix_hit_rate": 0.5}
    result = oracle(TINY, CHIP, axes | {"serving_mode": "continuous"})
    # Half a request a step: two tokens of it are new, rows and KV; two were cached and are read.
    assert result["weight_bytes_read"] == 3408 + 4 * 16
    assert result["time_per_output_token"] == pytest.approx((3472 + 640 + 64 + 64 + 64) / 100)
    # Its FLOP: layers for two tokens, attention of a half of (8^2 - 4^2) / 2 pairs of 64 FLOP.
    flop = 2 * 3328 + 2 * 640 + 2 * 2304 + 12 * 64
    assert result["arithmetic_intensity"] == pytest.approx(flop / 4304)
    assert oracle(TINY, CHIP, axes | {"serving_mode": "continuous", "output_tokens": 0}) == {
        "status": "layout",
        "veto": "none",
    }


@pytest.mark.parametrize(
    ("store", "entries"),
    [
        (FULL, 50),
        (WINDOW, 18 + 24),
        (replace(WINDOW, chunked=True), 18 + 4 * 3.5),
        (replace(FULL, stride=2), 25),
        (replace(WINDOW, stride=2), 21),
    ],
)
def test_entries_that_a_prompt_attends_to(store: Store, entries: float) -> None:
    assert prompt_entries(store, 0, 10) == entries
    assert prompt_entries(store, 0, 4) + prompt_entries(store, 4, 10) == entries


def test_chosen_entries_of_a_prompt() -> None:
    assert prompt_entries(FULL, 0, 10, most=4) == 8 + 24
    assert prompt_entries(replace(FULL, stride=2), 0, 10, most=4) == 16 + 8
    assert prompt_entries(WINDOW, 0, 10, most=100) == 42


def test_first_token() -> None:
    axes: dict[str, float | str] = {"context": 10}
    result = oracle(TINY, CHIP, axes)
    # 3408 B, ten rows, ten tokens of KV. Arithmetic: layers for ten tokens, the head once, 50 pairs of 64 FLOP.
    assert result["time_to_first_token"] == pytest.approx((3408 + 160 + 320) / 100)
    assert oracle(TINY, FAST_LINKS, axes)["time_to_first_token"] == pytest.approx(23.04 + 1.024 + 3.2)
    # Half is found: five rows, five tokens written, five read; (10^2 - 5^2) / 2 pairs.
    half = axes | {"prefix_hit_rate": 0.5}
    assert oracle(TINY, CHIP, half)["time_to_first_token"] == pytest.approx((3408 + 80 + 160 + 160) / 100)
    assert oracle(TINY, FAST_LINKS, half)["time_to_first_token"] == pytest.approx(11.52 + 1.024 + 2.4)
    # Prefill of a latent multiplies whole heads: 4 * 5 elements, not 4 * (8 + 6).
    latent = tiny(replace(LATENT, prefill_dim=5))
    assert oracle(latent, FAST_LINKS, axes)["time_to_first_token"] == pytest.approx(23.04 + 1.024 + 2 * 50 * 40 / 1e3)
    assert oracle(TINY, CHIP | {"memory_bandwidth": None}, axes)["time_to_first_token"] is None


def test_first_token_after_parking() -> None:
    axes: dict[str, float | str] = {"context": 10, "batch": 2, "placement_host": 0.5, "access": "parked"}
    axes |= {"prefix_hit_rate": 0.5}
    # Computing takes 38.88 s, the new half 38.08 s; 80 B of the found half come over 10 B/s meanwhile.
    assert oracle(TINY, CHIP, axes)["time_to_first_token"] == pytest.approx(38.08)
    # Nothing hides its 8 s: computing is faster.
    assert oracle(TINY, CHIP, axes | {"link_overlap": 0})["time_to_first_token"] == pytest.approx(38.88)
    quick = CHIP | {"host_link_bandwidth": 160.0}
    assert oracle(TINY, quick, axes | {"link_overlap": 0})["time_to_first_token"] == pytest.approx(38.58)


def test_reload_or_compute_again() -> None:
    result = oracle(
        TINY, CHIP, {"context": 10, "prefix_hit_rate": 0.5, "batch": 2, "prefix_share": 1, "prefix_group": 2}
    )
    assert result["reload_time"] == 320 / 10
    assert result["break_even_bandwidth"] == pytest.approx(320 / 38.88)
    # Arithmetic: 2.304 s a token and 0.032 s a token squared, against 3.2 s a token over the link.
    assert result["break_even_context"] == pytest.approx((3.2 - 2.304) / 0.032)
    assert oracle(TINY, CHIP | {"host_link_bandwidth": 20.0}, {"context": 10})["break_even_context"] == 0
    # Without attention both grow alike.
    never = oracle(tiny(STATE), CHIP | {"host_link_bandwidth": 1.0}, {"context": 10})
    assert never["break_even_context"] == math.inf
    # Two thirds come over 10 B/s while one comes over 5 B/s.
    tiers = {"context": 10, "placement_host": 0.5, "placement_cxl": 0.25}
    assert oracle(TINY, CHIP, tiers)["reload_time"] == pytest.approx(320 * 2 / 3 / 10)
    assert number(oracle(TINY, CHIP, tiers | {"placement_cxl": 0.5}), "reload_time") == pytest.approx(32)

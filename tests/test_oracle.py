"""The oracle itself, against the paper's figures and numbers worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from tests.oracle import Routed, Store, oracle
from tests.oracle_cases import B200, CHIP, FULL, LATENT, PAPER, STATE, TINY, WINDOW, kv_bytes, number, tiny


@pytest.mark.parametrize(("batch", "tokens"), [(1, 427246), (32, 13351)])
def test_paper_crossover(batch: int, tokens: int) -> None:
    result = oracle(PAPER, B200, {"context": 128_000, "batch": batch})
    assert round(number(result, "crossover_context_bytes")) == tokens


def test_paper_bytes() -> None:
    result = oracle(PAPER, B200, {"context": 128_000})
    assert result["weight_bytes_read"] == 140e9
    assert result["kv_bytes_read"] == result["kv_bytes_stored"] == 327_680 * 128_000 == 41_943_040_000
    labels = ("phase", "regime", "bound_by", "status")
    assert [result[name] for name in labels] == ["weight", "weight", "hbm", "ok"]


@pytest.mark.parametrize(
    ("context", "retention", "speedup"), [(128_000, 1, 1.25), (512_000, 1, 1.91), (512_000, 0.5, 2.05)]
)
def test_paper_speedup_of_two_bit_kv(context: int, retention: float, speedup: float) -> None:
    plain = oracle(PAPER, B200, {"context": context})
    small = oracle(PAPER, B200, {"context": context, "key_bits": 2, "value_bits": 2, "retention": retention})
    ratio = number(small, "tokens_per_second") / number(plain, "tokens_per_second")
    assert round(ratio, 2) == speedup


def test_tiny_step_by_hand() -> None:
    result = oracle(TINY, CHIP, {"context": 10, "batch": 2, "output_tokens": 4})
    # (256 + 128 + 768 + 512 + 40) * 2 = 3408 and two input rows of 16 B.
    assert result["weight_bytes_read"] == 3440
    assert result["kv_bytes_read"] == 2 * 32 * 12
    assert result["kv_bytes_stored"] == 2 * 32 * 14
    # HBM 3440 + 768 + 64 = 4272 B, 42.72 s; FLOP 2*2*1664 + 2*2*2*12*4*4 = 8192, 8.192 s.
    assert result["time_per_output_token"] == pytest.approx(42.72)
    assert result["tokens_per_second"] == pytest.approx(2 / 42.72)
    assert result["regime_distance"] == pytest.approx(math.log(42.72 / 8.192))
    assert result["arithmetic_intensity"] == pytest.approx(8192 / 4272)
    assert result["ridge_point"] == 10
    # Stored: 3408 + the 1024 B table; activations 2 * (16 + 64) * 2 = 320.
    assert result["memory_margin"] == 10_000 - 4432 - 896 - 320
    # A sequence costs 14 * 32 + 160 = 608: 5568 / 608 = 9.16; two sequences at T: 5248 / 64 = 82 tokens, less 4.
    assert (result["max_batch"], result["max_context"]) == (9, 78)
    assert result["crossover_context_bytes"] == pytest.approx(3440 / 64)
    assert result["energy_per_token"] == pytest.approx((4272 * 1.0 + 8192 * 0.5) / 2)
    assert result["cost_per_million_tokens"] == pytest.approx(3.0 * 21.36 * 1e6)


def test_quantized_window_groups_and_outliers_by_hand() -> None:
    axes: dict[str, float] = {"context": 10, "key_bits": 4, "value_bits": 2, "kv_group_size": 32, "zero_bits": 0}
    axes |= {"outlier_fraction": 0.01}
    # K 4 + 0.5 + 0.32 = 4.82 bits, V 2.82 bits, eight elements of each per token.
    plain = oracle(TINY, CHIP, axes)
    assert kv_bytes(plain) == pytest.approx(10 * (4.82 + 2.82))
    assert kv_bytes(oracle(TINY, CHIP, axes | {"zero_bits": 16})) == pytest.approx(10 * (5.32 + 3.32))
    # Four of ten tokens stay at 16 bit: 6 * 7.64 + 4 * 32; the new token is written at 16 bit (32 B).
    window = oracle(TINY, CHIP, axes | {"residual_window": 4})
    assert kv_bytes(window) == pytest.approx(6 * 7.64 + 128)
    flop = 2 * 1664 + 2 * 2 * 10 * 4 * 4
    assert window["arithmetic_intensity"] == pytest.approx(flop / (3424 + 6 * 7.64 + 128 + 32))
    # Quantized elements: a step writes one token of 7.64 B.
    assert plain["arithmetic_intensity"] == pytest.approx(flop / (3424 + 76.4 + 7.64))
    # The equation with four plain tokens: 128 + 7.64 * (C - 4) = 3424.
    assert window["crossover_context_bytes"] == pytest.approx(4 + (3424 - 128) / 7.64)
    # Sixteen bits carry no overhead whatever the group.
    assert kv_bytes(oracle(TINY, CHIP, axes | {"key_bits": 16, "value_bits": 16})) == 320


def test_eviction_keeps_sinks_and_recent_tokens() -> None:
    axes = {"retention": 0.25, "sink_tokens": 4, "recent_tokens": 8}
    assert kv_bytes(oracle(TINY, CHIP, axes | {"context": 8})) == 8 * 32
    result = oracle(TINY, CHIP, axes | {"context": 52})
    assert kv_bytes(result) == 22 * 32
    # 12 + (C - 12) / 4 = 3424 / 32 = 107, C = 392.
    assert result["crossover_context_bytes"] == pytest.approx(392)


def test_tensor_parallel_replicates_kv_past_its_heads() -> None:
    result = oracle(TINY, CHIP, {"context": 10, "tensor_parallel": 4})
    # One of two KV heads on each of four devices: half the cache each, twice the cache in all.
    assert kv_bytes(result) == 2 * 320
    # Per device (256 + 768 + 512) / 4 + 128 / 2 + 40 = 488 parameters and a quarter of a row of 16 B.
    assert result["weight_bytes_read"] == 4 * (976 + 4)
    # Stored 976 + 1024 / 4; KV 160; activations (16 + 64 / 4) * 2.
    assert result["memory_margin"] == 10_000 - 976 - 256 - 160 - 64
    # All-reduce 2 layers * 2 * 2 * 3/4 * 16 B = 96 B, 6 s; HBM (980 + 160 + 16) / 100 = 11.56 s.
    assert result["time_per_output_token"] == pytest.approx(11.56)
    assert result["regime_distance"] == pytest.approx(math.log(11.56 / 6))
    assert result["tokens_per_second_per_device"] == pytest.approx(1 / 11.56 / 4)
    assert result["cost_per_million_tokens"] == pytest.approx(4 * 3.0 * 11.56 * 1e6)
    # FLOP are split: 2 * 1664 + 640 = 3968 on four devices of 10 FLOP/s.
    dull = oracle(TINY, CHIP | {"bf16_flops": 10.0}, {"context": 10, "tensor_parallel": 4})
    assert dull["bound_by"] == "compute"
    assert dull["time_per_output_token"] == pytest.approx(99.2)
    slow = oracle(TINY, CHIP | {"scale_up_bandwidth": 4.0}, {"context": 10, "tensor_parallel": 4})
    assert (slow["bound_by"], slow["regime"], slow["time_per_output_token"]) == ("scale_up", "scale_up", 24)
    parallel_block = oracle(
        TINY | {"reduces_per_layer": 1}, CHIP | {"scale_up_bandwidth": 2.0}, {"context": 10, "tensor_parallel": 4}
    )
    assert parallel_block["time_per_output_token"] == 24


def test_host_placement_moves_reads_to_the_link_and_frees_memory() -> None:
    result = oracle(TINY, CHIP, {"context": 100, "placement_host": 0.75})
    assert kv_bytes(result) == 3200
    # The link reads 2400 B at 10 B/s; HBM 3424 + 800 + 32 B at 100 B/s.
    assert result["time_per_output_token"] == pytest.approx(240)
    assert (result["bound_by"], result["regime"]) == ("tier_link", "tier_link")
    assert result["memory_margin"] == 10_000 - 4432 - 800 - 160
    flop = 2 * 1664 + 2 * 2 * 100 * 4 * 4
    assert result["arithmetic_intensity"] == pytest.approx(flop / (4256 + 2400))
    assert result["energy_per_token"] == pytest.approx(4256 + 2 * 2400 + flop / 2)
    assert oracle(TINY, CHIP, {"context": 100, "placement_host": 1})["max_context"] == math.inf


@pytest.mark.parametrize(
    ("chip", "axes", "seconds"),
    [
        # HBM is made free; the GEMM has 2 * 1664 = 3328 FLOP and attention 2 * 2 * 10 * 16 = 640.
        ({}, {"weight_bits": 4}, 3.968),
        ({}, {"weight_bits": 8, "activation_bits": 8}, 1.664),  # the 16-bit cache keeps attention at 16 bit, apart
        ({}, {"weight_bits": 8, "activation_bits": 8, "key_bits": 4, "value_bits": 8}, 1.984),
        ({"fp8_flops": None}, {"weight_bits": 8, "activation_bits": 8}, 3328 / 3000),
        ({}, {"weight_bits": 4, "activation_bits": 4}, 0.832),
    ],
)
def test_arithmetic_format(chip: dict[str, float | None], axes: dict[str, float], seconds: float) -> None:
    result = oracle(TINY, CHIP | {"memory_bandwidth": 1e9} | chip, {"context": 10, **axes})
    assert result["time_per_output_token"] == pytest.approx(seconds)
    assert (result["bound_by"], result["regime"]) == ("compute", "compute")


def test_explicit_weight_bits_leave_vectors_and_embedding_alone() -> None:
    result = oracle(TINY, CHIP, {"context": 10, "weight_bits": 4})
    # 1664 matrix parameters at half a byte, 40 vectors and a row of 8 at two bytes, 512 in the table.
    assert result["weight_bytes_read"] == 832 + 80 + 16
    assert result["memory_margin"] == 10_000 - 832 - 80 - 1024 - 320 - 160
    tied = TINY | {"tied_embeddings": True}
    assert oracle(tied, CHIP, {"context": 10, "weight_bits": 4})["memory_margin"] == 10_000 - 832 - 80 - 320 - 160


@pytest.mark.parametrize(
    ("chip", "axes", "status"),
    [
        ({}, {}, "ok"),
        ({"memory_capacity": 4911.0}, {}, "memory"),  # 4432 + 320 + 160 = 4912
        ({"memory_capacity": 4912.0}, {}, "ok"),
        ({}, {"utilisation": 0.4}, "memory"),
        ({}, {"tensor_parallel": 3}, "layout"),
        ({"scale_up_domain": 2, "bf16_flops": None}, {"tensor_parallel": 3}, "layout"),
        ({"scale_up_domain": 2}, {"tensor_parallel": 4}, "ok"),
        ({"scale_up_domain": 2, "scale_out_bandwidth": None}, {"tensor_parallel": 4}, "unsourced_input"),
        ({"scale_up_domain": None}, {"tensor_parallel": 4}, "ok"),
        ({"scale_up_bandwidth": None}, {"tensor_parallel": 2}, "unsourced_input"),
        ({"scale_up_bandwidth": None, "host_link_bandwidth": None, "fp4_flops": None}, {}, "ok"),
        ({"host_link_bandwidth": None, "memory_capacity": 1.0}, {"placement_host": 0.1}, "unsourced_input"),
        ({"fp8_flops": None, "int8_ops": None}, {"weight_bits": 8, "activation_bits": 8}, "unsourced_input"),
    ],
)
def test_status(chip: dict[str, float | None], axes: dict[str, float], status: str) -> None:
    assert oracle(TINY, CHIP | chip, {"context": 10, **axes})["status"] == status


def test_unsourced_figures_give_none_and_the_rest_stays() -> None:
    dark = oracle(TINY, CHIP | {"memory_bandwidth": None, "price": None, "link_energy": None}, {"context": 10})
    for name in ("time_per_output_token", "tokens_per_second", "cost_per_million_tokens", "ridge_point", "regime"):
        assert dark[name] is None
    assert dark["memory_margin"] == 10_000 - 4432 - 320 - 160
    assert dark["energy_per_token"] is not None
    boxless = oracle(TINY, CHIP | {"memory_capacity": None}, {"context": 10})
    assert [boxless[name] for name in ("memory_margin", "max_batch", "max_context", "phase")] == [None] * 4


def test_search_limits_and_phase() -> None:
    full = oracle(TINY, CHIP | {"memory_capacity": 4000.0}, {"context": 10})
    assert (full["max_batch"], full["max_context"], full["phase"]) == (0, 0, "capacity")
    assert oracle(TINY, CHIP, {"context": 108})["phase"] == "kv"  # 3456 B against 3424
    assert oracle(TINY, CHIP, {"context": 107})["phase"] == "weight"
    never = oracle(TINY, CHIP, {"context": 10, "retention": 1e-15})
    assert never["crossover_context_bytes"] == math.inf


@pytest.mark.parametrize(
    ("store", "read", "stored"),
    [
        (WINDOW, 2 * 6 * 16, 2 * 6 * 16),
        (replace(WINDOW, window=11), 2 * 10 * 16, 2 * 11 * 16),
        (replace(WINDOW, chunked=True), 2 * 3.5 * 16, 2 * 6 * 16),
        (replace(WINDOW, chunked=True, window=10), 2 * 10 * 16, 2 * 10 * 16),  # just full: not yet restarted
        (LATENT, 2 * 10 * 16, 2 * 12 * 16),
        (replace(LATENT, top_k=4), 2 * 4 * 16, 2 * 12 * 16),
        (replace(LATENT, top_k=4, index_dim=5, index_heads=3), 2 * (4 * 16 + 10 * 10), 2 * 12 * 26),
        (replace(LATENT, stride=4), 2 * 2.5 * 16, 2 * 3 * 16),
        (replace(FULL, readers=3), 3 * 2 * 10 * 16, 2 * 12 * 16),
        (STATE, 200, 200),
    ],
)
def test_stores_by_hand(store: Store, read: float, stored: float) -> None:
    """Ten tokens at the step, twelve at the end."""
    result = oracle(tiny(store), CHIP, {"context": 8, "output_tokens": 4})
    assert (result["kv_bytes_read"], result["kv_bytes_stored"]) == (read, stored)


def test_eviction_and_quantization_of_stores_by_hand() -> None:
    model = tiny(FULL, WINDOW, replace(LATENT, index_dim=4, index_heads=1), STATE)
    # Half of 10 tokens in the full and latent stores, the window whole; K and V at 4 bits, rope and index at 16.
    result = oracle(model, CHIP, {"context": 10, "retention": 0.5, "key_bits": 4, "value_bits": 4})
    assert kv_bytes(result) == 2 * (5 * 4 + 6 * 4 + 5 * (3 + 4 + 8) + 100)
    # Four devices: one of two heads, the latent whole, a quarter of the state.
    result = oracle(model, CHIP, {"context": 10, "tensor_parallel": 4})
    assert kv_bytes(result) == 4 * 2 * (10 * 8 + 6 * 8 + 10 * 24 + 25)
    # A window of 8 recent tokens at 16 bits is two entries of four tokens: 2.5 entries of 6 elements.
    model = tiny(replace(LATENT, stride=4))
    result = oracle(model, CHIP, {"context": 10, "key_bits": 4, "residual_window": 8})
    assert kv_bytes(result) == 2 * (2 * 12 + 0.5 * 3 + 2.5 * 4)


def test_flop_and_writes_of_stores_by_hand() -> None:
    result = oracle(tiny(replace(LATENT, top_k=4, index_dim=5, index_heads=3), STATE), CHIP, {"context": 10})
    # Two layers: 4 heads * (8 + 6) for 4 entries, 3 * 5 for all 10.
    flop = 2 * 1664 + 2 * 2 * (4 * 4 * 14 + 10 * 15)
    # Written: an entry of 26 B in two layers, and both states.
    moved = 3424 + kv_bytes(result) + 2 * 26 + 200
    assert kv_bytes(result) == 2 * (4 * 16 + 10 * 10 + 100)
    assert result["arithmetic_intensity"] == pytest.approx(flop / moved)


def test_routed_experts_by_hand() -> None:
    routed = Routed(layers=2, experts=8, active=2, elements=100, bits=4.5, payload_bits=4)
    model = TINY | {"routed": routed, "router": 64, "router_bits": 16}
    result = oracle(model, CHIP, {"context": 10, "batch": 2})
    # Two sequences meet 8 * (1 - 0.75^2) = 3.5 experts a layer; the router is 128 B, two rows 32 B.
    assert result["weight_bytes_read"] == 3408 + 128 + 32 + 2 * 3.5 * 100 * 4.5 / 8
    assert result["memory_margin"] == 10_000 - (4432 + 128 + 2 * 8 * 100 * 4.5 / 8) - 2 * 320 - 320
    flop = 2 * 2 * (1664 + 64 + 2 * 2 * 100) + 2 * 2 * 2 * 10 * 16
    moved = number(result, "weight_bytes_read") + 2 * (320 + 32)
    assert result["arithmetic_intensity"] == pytest.approx(flop / moved)
    # Each of two devices holds half of the experts and the whole router.
    halved = oracle(model, CHIP, {"context": 10, "batch": 2, "tensor_parallel": 2})
    whole = number(oracle(TINY, CHIP, {"context": 10, "batch": 2, "tensor_parallel": 2}), "weight_bytes_read")
    assert number(halved, "weight_bytes_read") == pytest.approx(whole + 2 * 128 + 2 * 3.5 * 100 * 4.5 / 8)
    # Asked for 8 bits: experts follow, the router does not, and its arithmetic stays at 16 bits.
    asked = oracle(model, CHIP | {"bf16_flops": None}, {"context": 10, "batch": 2, "weight_bits": 8})
    assert number(asked, "weight_bytes_read") == 1664 + 80 + 128 + 32 + 2 * 3.5 * 100
    assert asked["status"] == "unsourced_input"
    narrow = {"context": 10, "activation_bits": 4, "weight_bits": 4}
    assert oracle(model | {"ffn": 0}, CHIP, narrow)["ridge_point"] == 40


@pytest.mark.parametrize(
    ("stores", "tokens"),
    [
        ((WINDOW,), math.inf),
        ((STATE,), math.inf),
        ((replace(STATE, state_bytes=2000),), 0),
        ((FULL, STATE), (3424 - 200) / 32),
        ((FULL, WINDOW), (3424 - 6 * 32) / 32),
        ((replace(FULL, layers=3), replace(WINDOW, window=60, chunked=True)), 3424 / 80),
        ((replace(FULL, layers=1), replace(WINDOW, window=60, chunked=True)), (3424 - 30.5 * 32) / 16),
        ((replace(LATENT, top_k=4, index_dim=5),), (3424 - 2 * 4 * 16) / 20),
    ],
)
def test_crossover_of_stores(stores: tuple[Store, ...], tokens: float) -> None:
    assert oracle(tiny(*stores), CHIP, {"context": 10})["crossover_context_bytes"] == pytest.approx(tokens)


def test_contexts_without_end() -> None:
    assert oracle(tiny(WINDOW), CHIP, {"context": 10})["max_context"] == math.inf
    assert oracle(tiny(WINDOW, STATE), CHIP | {"memory_capacity": 4800.0}, {"context": 10})["max_context"] == 0
    # 10,000 - 4432 - 160 - 200 = 5208 B for 32 B a token.
    assert oracle(tiny(FULL, STATE), CHIP, {"context": 10})["max_context"] == 162


def test_misspelt_axis_is_refused() -> None:
    with pytest.raises(KeyError, match="tensor_paralel"):
        oracle(TINY, CHIP, {"context": 10, "tensor_paralel": 2})

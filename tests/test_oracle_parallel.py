"""The oracle's parallel degrees, against numbers worked out by hand with the tiny model and the slow chip."""

from __future__ import annotations

import math

import pytest

from tests.oracle import Routed, oracle
from tests.oracle_cases import CHIP, STATE, TINY, kv_bytes, tiny

ROUTED = Routed(layers=2, experts=8, active=2, elements=100, bits=16, payload_bits=16)
MIXTURE = TINY | {"ffn": 0, "routed": ROUTED, "router": 0, "router_bits": 16}
QUICK_LINK = CHIP | {"scale_up_bandwidth": 1e9}


def test_pipeline() -> None:
    axes: dict[str, float | str] = {"context": 10, "batch": 4, "pipeline_parallel": 2}
    result = oracle(TINY, CHIP, axes)
    # Two micro-batches stream 2384 B of layers and 1024 B of head twice; four rows.
    assert result["weight_bytes_read"] == 2 * 3408 + 64
    # The last stage: half of the layers and of 4 * 352 B of KV, the head and the rows.
    assert result["time_per_output_token"] == pytest.approx((2384 + 704 + 2048 + 64) / 100)
    assert result["tokens_per_second_per_device"] == pytest.approx(4 / 52 / 2)
    assert result["memory_margin"] == 10_000 - 1192 - 1024 - 2 * 320 - 4 * 160
    # Handed on: 4 * 16 B. Arithmetic of the last stage: half of 4 * (2304 + 640), and the head.
    assert result["regime_distance"] == pytest.approx(math.log(52 / ((2 * 2944 + 4 * 1024) / 1000)))
    slow = oracle(TINY, CHIP | {"scale_up_bandwidth": 1.0}, axes)
    assert (slow["bound_by"], slow["time_per_output_token"]) == ("scale_up", 64)
    # One sequence alone goes through one stage after the other.
    assert oracle(TINY, CHIP, axes | {"batch": 1})["time_per_output_token"] == pytest.approx((3424 + 352) / 100)
    # The draft layer lies with the head: 1192 B more.
    assert oracle(TINY, CHIP, axes | {"draft_tokens": 1})["memory_margin"] == 10_000 - 1192 - 2216 - 1.5 * 640 - 640
    # Stages in two domains: what is handed on goes between them.
    apart = CHIP | {"scale_up_domain": 1, "scale_out_bandwidth": 0.5, "scale_up_bandwidth": None}
    assert oracle(TINY, apart, axes)["time_per_output_token"] == 128
    assert oracle(TINY, CHIP, axes | {"pipeline_parallel": 3})["status"] == "layout"


def test_uneven_stages() -> None:
    axes: dict[str, float | str] = {"context": 10, "batch": 4, "pipeline_parallel": 2}
    result = oracle(TINY | {"layers": 3, "head": 0}, CHIP, axes)
    # Two of three layers in the first stage.
    assert result["time_per_output_token"] == pytest.approx(2 / 3 * (2 * 2384 + 4 * 352) / 100)


def test_context_parallel() -> None:
    axes: dict[str, float | str] = {"context": 10, "context_parallel": 2}
    result = oracle(TINY, CHIP, axes)
    # K and V projections (256 B) and vectors (80 B) whole, the rest halved.
    assert result["weight_bytes_read"] == 2 * (256 + 80) + 512 + 1536 + 1024 + 16
    assert (kv_bytes(result), result["kv_bytes_stored"]) == (320, 320)
    seconds = (336 + 256 + 768 + 512 + 8 + 160 + 16) / 100
    assert result["time_per_output_token"] == pytest.approx(seconds)
    # Two all-reduces a layer, 16 B each, and half of 4 heads of (2 + 2) elements a layer: 64 + 32 B.
    assert result["regime_distance"] == pytest.approx(math.log(seconds / 6))
    assert kv_bytes(oracle(tiny(STATE), CHIP, axes)) == 400  # states are on both
    assert oracle(TINY, CHIP, axes | {"context_parallel": 3})["status"] == "layout"


def test_attention_data_parallel() -> None:
    axes: dict[str, float | str] = {"context": 10, "batch": 3, "attention_data_parallel": 2}
    result = oracle(TINY, CHIP, axes)
    # Attention's 768 B and 80 B of vectors on both; three sequences, two of them on one.
    assert result["weight_bytes_read"] == 2 * 848 + 1536 + 1024 + 48
    assert kv_bytes(result) == 3 * 320
    seconds = (848 + 1280 + 24 + 2 * 352) / 100
    assert result["time_per_output_token"] == pytest.approx(seconds)
    # Only FFNs reduce: 2 layers * 2 * 1/2 * 3 * 16 B, 6 s. Attention's FLOP are two sequences', the FFN's halved.
    assert result["regime_distance"] == pytest.approx(math.log(seconds / (2 * 768 + 1.5 * 2560 + 2 * 640) * 1000))
    slow = oracle(TINY, CHIP | {"scale_up_bandwidth": 2.0}, axes)
    assert (slow["bound_by"], slow["time_per_output_token"]) == ("scale_up", 48)
    assert result["memory_margin"] == 10_000 - 848 - 1280 - 512 - 2 * 320 - 2 * (16 + 64 / 2) * 2
    # A sequence costs 320 + 96 B of 10,000 - 2640: 17 on each.
    assert result["max_batch"] == 34
    assert result["phase"] == "weight"
    # Alone: 2384 B on each; three of the sequence's, and the one that has it binds.
    alone = axes | {"batch": 1, "context": 80}
    found = oracle(TINY, CHIP, alone)
    assert (found["phase"], found["regime"]) == ("weight", "kv")
    # A prompt's layers: queries, K and V on one rank, the FFN on both. Ten tokens, 50 pairs, the head.
    prompt = oracle(TINY, QUICK_LINK | {"memory_bandwidth": 1e9}, {"context": 10, "attention_data_parallel": 2})
    assert prompt["time_to_first_token"] == pytest.approx((10 * 768 + 10 * 1536 / 2 + 512 + 3200) / 1000)
    # In continuous serving its rank takes the whole of it: a tenth of two rows and tokens a step.
    flow = axes | {"serving_mode": "continuous", "output_tokens": 10, "batch": 1}
    read = 848 + 1280 + (1 + 1) * 8 + 15 * 32 + 32 + 32
    assert oracle(TINY, CHIP, flow)["time_per_output_token"] == pytest.approx(read / 100)


def test_expert_parallel() -> None:
    axes: dict[str, float | str] = {"context": 10, "tensor_parallel": 4, "expert_parallel": 4}
    result = oracle(MIXTURE, CHIP, axes)
    # Two of eight experts of 200 B in each layer, half a one on each of four ranks; the busiest reads a whole one.
    dense = (512 + 1024) / 4 + 128 + 80
    assert result["weight_bytes_read"] == 4 * dense + 16 + 800
    seconds = (dense + 4 + 400 + 176) / 100
    assert result["time_per_output_token"] == pytest.approx(seconds)
    # 2 layers: attention 2 * 3/4 * 16 B; a rank is met with 1 - (3/4)^2.
    assert result["regime_distance"] == pytest.approx(math.log(seconds / ((48 + 48 * 0.4375) / 16)))
    assert result["memory_margin"] == 10_000 - dense - 256 - 2 * 2 * 200 - 160 - 64
    # Two devices to a rank: half an expert each, and their own reduce of 2 * 1/2 * 16 B a layer when met.
    pairs = oracle(MIXTURE, CHIP, axes | {"expert_parallel": 2})
    assert pairs["time_per_output_token"] == pytest.approx((dense + 4 + 200 + 176) / 100)
    sent = 48 + 2 * (16 + 16) * 0.75
    assert pairs["regime_distance"] == pytest.approx(math.log((dense + 380) / 100 / (sent / 16)))
    assert oracle(TINY, CHIP, axes)["status"] == "layout"
    assert oracle(MIXTURE, CHIP, axes | {"expert_parallel": 3}) == {"status": "layout", "veto": "none"}


def test_expert_skew() -> None:
    # Popular experts are met again: of two tokens the second meets (1 + ln(4/3))^-1 of the rest instead of 3/4.
    axes: dict[str, float | str] = {"context": 10, "batch": 2, "expert_skew": 1}
    met = 8 * (1 - 0.75 / (1 + math.log(4 / 3)))
    assert oracle(MIXTURE, CHIP, axes)["weight_bytes_read"] == pytest.approx(3408 - 1536 + 32 + 2 * met * 200)
    even = oracle(MIXTURE, CHIP, axes | {"expert_skew": 0})
    assert even["weight_bytes_read"] == pytest.approx(3408 - 1536 + 32 + 2 * 3.5 * 200)
    # The hottest of two ranks: 1 + sqrt(2 ln 2 * 2/8) times the mean's tokens.
    hot = 1 + math.sqrt(math.log(2) / 2)
    pair = {"context": 10, "tensor_parallel": 2, "expert_parallel": 2, "expert_skew": 1}
    flop = 768 / 2 + 1024 / 2 + 640 / 2 + 800 / 2 * hot
    quick = QUICK_LINK | {"memory_bandwidth": 1e9}
    assert oracle(MIXTURE, quick, pair)["time_per_output_token"] == pytest.approx(flop / 1000)
    flop = 10 * (768 + 800 * hot) / 2 + 1024 / 2 + 3200 / 2
    assert oracle(MIXTURE, quick, pair)["time_to_first_token"] == pytest.approx(flop / 1000)


def test_domains() -> None:
    axes: dict[str, float | str] = {"context": 10, "tensor_parallel": 4}
    chip = CHIP | {"scale_up_domain": 2, "memory_bandwidth": 1e9}
    # Four reduces: inside 2 * 1/2 * 16 B each, between two domains 2 * 1/2 * 16 / 2.
    result = oracle(TINY, chip | {"scale_out_bandwidth": 4.0}, axes)
    assert result["time_per_output_token"] == 4 * 8 / 4
    assert oracle(TINY, chip | {"scale_out_bandwidth": 1e9}, axes)["time_per_output_token"] == 4 * 16 / 16
    # Two expert ranks of two devices: attention as before; met with 3/4, the pair inside, the ranks across.
    mixed = axes | {"expert_parallel": 2}
    met = oracle(MIXTURE, chip | {"scale_out_bandwidth": 1.0}, mixed)
    assert met["time_per_output_token"] == pytest.approx(2 * 8 + 2 * 0.75 * 8)
    assert oracle(MIXTURE, chip | {"scale_out_bandwidth": 1e9}, mixed)["time_per_output_token"] == pytest.approx(
        (2 * 16 + 2 * 0.75 * 16) / 16
    )
    # Four ranks, two of them near.
    four = oracle(MIXTURE, chip | {"scale_out_bandwidth": 1e9}, axes | {"expert_parallel": 4})
    assert four["time_per_output_token"] == pytest.approx((2 * 16 + 2 * 0.4375 * 16) / 16)


def test_messages() -> None:
    axes = {"context": 10, "tensor_parallel": 2, "context_parallel": 2, "pipeline_parallel": 2}
    # 2 layers * 2 reduces * 2 * 3 devices, 2 exchanges, one hand-over.
    assert oracle(TINY, CHIP, axes)["messages_per_step"] == 24 + 2 + 1
    # Expert layers: 2 * (1 + 1) instead of 2 * 3.
    experts = axes | {"expert_parallel": 2}
    assert oracle(MIXTURE, CHIP, experts)["messages_per_step"] == 2 * (6 + 4) + 2 + 1
    assert oracle(TINY, CHIP, {"context": 10})["messages_per_step"] == 0


@pytest.mark.parametrize(
    "axes",
    [
        {"placement_host": 0.6, "placement_cxl": 0.6},
        {"placement_host": 1, "access": "parked"},
        {"output_tokens": 5, "max_model_length": 14},
        {"tensor_parallel": 4, "context_parallel": 2},
        {"pipeline_parallel": 4},
        {"expert_parallel": 2},
    ],
)
def test_impossible_layouts(axes: dict[str, float | str]) -> None:
    assert oracle(TINY, CHIP, {"context": 10, **axes})["status"] == "layout"

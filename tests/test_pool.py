"""The KV pool's laws against hand arithmetic and against what engines printed."""

from __future__ import annotations

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from kvwall.objectives import pages, pool, startup
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.engine_columns import CacheBits, Startup
from kvwall.spaces.engine_states import state_columns
from kvwall.spaces.engines import load_engine
from kvwall.spaces.models.load import load_model
from kvwall.spaces.space import make_space

pytestmark = pytest.mark.usefixtures("float64")

GIB = 2**30
BF16 = CacheBits(16.0, 16.0, 16.0)
FP8 = CacheBits(8.0, 8.0, 16.0)
START = Startup(
    max_model_length=8192.0,
    block_size=16.0,
    batched_tokens=8192.0,
    sequences=1024.0,
    prefix_caching=0.0,
    draft_tokens=0.0,
    draft_layers=0.0,
    tensor_parallel=1.0,
    context_parallel=1.0,
)


def columns_of(name):
    space = make_space({"model": name, "hardware": "h100-sxm", "context": 1})
    return Columns(space, load_catalogue(space)).design({}).model


def layout_of(name, engine="vllm-0.20", bits=BF16, **changes):
    model = load_model(name)
    start = replace(START, **changes)
    columns, states = load_engine(engine).columns, state_columns(model.groups, len(model.groups))
    return columns, pages.layout(columns, columns_of(name).groups, states, bits, start), start


def per_token(name, engine="vllm-0.20", bits=BF16, **changes):
    columns, layout, start = layout_of(name, engine, bits, **changes)
    return float(pool.bytes_per_token(columns, layout, start.max_model_length))


def test_gemma_3_pays_for_seventy_layers():
    # 62 layers, 10 of them full: 7 groups of 10; 16 heads of 128, K and V, 2 bytes
    assert per_token("google/gemma-3-27b-it") == 70 * 16 * 128 * 2 * 2
    _, layout, _ = layout_of("google/gemma-3-27b-it")
    assert float(layout.groups) == 7
    assert float(layout.request_blocks) == 512 + 6 * 513  # a window of 1,024 and a batch of 8,192 span all of it
    assert 15997 / float(layout.request_blocks) == pytest.approx(4.46, abs=0.005)


def test_windows_need_what_they_and_the_batch_span():
    _, layout, _ = layout_of("google/gemma-3-27b-it", max_model_length=131_072.0, batched_tokens=2048.0)
    assert float(layout.request_blocks) == 131_072 / 16 + 6 * (np.ceil((1023 + 2048) / 16) + 1)


def test_gemma_4_full_layers_take_longer_blocks():
    # sliding: 16 heads of 256, 16,384 B; full: 4 of 512, 8,192 B, so 32 tokens a block
    columns, layout, _ = layout_of("google/gemma-4-31B-it")
    assert float(layout.block_bytes) == 10 * 262_144
    assert float(layout.request_blocks) == 256 + 5 * 513
    blocks = pool.pool_blocks(69.75 * GIB, layout)
    assert float(blocks) == 28569
    assert float(pool.pool_tokens(columns, blocks, layout, 8192.0)) == 76_176
    assert float(pool.max_concurrency(blocks, layout)) == pytest.approx(10.13, abs=0.005)


def test_the_newest_band_counts_by_concurrency():
    # 24,302 blocks at 262,144 tokens in groups of 1 and 5, batches of 4,096: 650,262 tokens, as printed by 0.25.1
    settings = {"max_model_length": 262_144.0, "batched_tokens": 4096.0, "tensor_parallel": 4.0}
    columns, layout, _ = layout_of("google/gemma-4-31B-it", "vllm-0.21", **settings)
    assert float(pool.pool_tokens(columns, 24302.0, layout, 262_144.0)) == 650_262
    assert per_token("google/gemma-4-31B-it", "vllm-0.21", **settings) == pytest.approx(24_492.5, abs=0.1)


@pytest.mark.parametrize(
    ("name", "bits", "devices", "drafts", "block"),
    [
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", BF16, 1, 0, 544),  # 16-bit state: 1,097,728 B over 2,048 B
        ("Qwen/Qwen3.5-35B-A3B", BF16, 1, 0, 1056),  # 32-bit state: 2,146,304 B over 2,048 B
        ("Qwen/Qwen3.5-122B-A10B", BF16, 2, 0, 2096),  # half of 4,268,032 B over 1,024 B
        ("Qwen/Qwen3.5-27B", BF16, 1, 0, 784),
        ("Qwen/Qwen3.5-27B", FP8, 1, 0, 1568),
        ("Qwen/Qwen3.5-27B", FP8, 4, 3, 1600),  # three drafts lengthen the convolution's tail
    ],
)
def test_an_attention_block_holds_one_recurrent_page(name, bits, devices, drafts, block):
    settings = {"tensor_parallel": float(devices), "draft_tokens": float(drafts), "max_model_length": 1e6}
    _, layout, _ = layout_of(name, bits=bits, **settings)
    assert float(layout.smallest_block) == block


def test_hybrids_count_every_group_and_their_states():
    columns, layout, _ = layout_of("Qwen/Qwen3-Next-80B-A3B-Instruct")
    assert per_token("Qwen/Qwen3-Next-80B-A3B-Instruct") == 4 * 24_576
    assert float(layout.request_blocks) == 16 + 3
    assert float(pool.pool_tokens(columns, 3958.0, layout, 8192.0)) == 538_016
    assert 3958 / float(layout.request_blocks) == pytest.approx(208.32, abs=0.005)


def test_prefix_caching_and_drafts_add_states():
    # 12 attention layers and the draft's, 36 recurrent: 13 and 3 groups of 13 with 3 pads
    settings = {"prefix_caching": 1.0, "draft_tokens": 1.0, "draft_layers": 1.0, "max_model_length": 262_144.0}
    _, layout, _ = layout_of("Qwen/Qwen3.5-122B-A10B", bits=FP8, **settings)
    assert float(layout.groups) == 4
    assert float(layout.request_blocks) == np.ceil(262_144 / 4192) + 3 * 3
    assert float(layout.block_bytes) == 4192 * 13 * 1024


def test_a_recurrent_block_is_the_whole_request_without_prefix_caching():
    # Nemotron 3 Super: blocks of more than 8,192 tokens, counted as 8,192
    _, layout, _ = layout_of("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", bits=FP8)
    assert float(layout.smallest_block) == 8192
    _, longer, _ = layout_of("nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-FP8", bits=FP8, max_model_length=1e6)
    assert float(longer.smallest_block) == 8320


@pytest.mark.parametrize(
    ("name", "bits", "changes", "expected"),
    [
        ("zai-org/GLM-5", FP8, {}, 78 * 788),
        ("zai-org/GLM-5", BF16, {}, 78 * 1284),
        ("deepseek-ai/DeepSeek-V3.2", BF16, {}, 78_324),
        ("deepseek-ai/DeepSeek-R1", BF16, {"tensor_parallel": 8.0}, 61 * 576 * 2),
        ("deepseek-ai/DeepSeek-R1", BF16, {"tensor_parallel": 8.0, "context_parallel": 8.0}, 61 * 576 * 2 / 8),
        ("Qwen/Qwen3-235B-A22B", BF16, {"tensor_parallel": 4.0}, 48_128),
        ("Qwen/Qwen3-235B-A22B", BF16, {"tensor_parallel": 8.0}, 48_128),
        ("openai/gpt-oss-120b", BF16, {}, 73_728),
    ],
)
def test_bytes_per_token(name, bits, changes, expected):
    assert per_token(name, bits=bits, **changes) == pytest.approx(expected, rel=1e-12)


def test_sparse_rows_without_scales_are_plain():
    columns, _, start = layout_of("deepseek-ai/DeepSeek-V3.2")
    plain = replace(columns, sparse_row_bytes=0.0)
    model = load_model("deepseek-ai/DeepSeek-V3.2")
    layout = pages.layout(plain, columns_of(model.name).groups, state_columns(model.groups, 1), FP8, start)
    assert float(pool.bytes_per_token(plain, layout, 8192.0)) == 61 * 708


def test_other_engines_do_not_group():
    assert per_token("openai/gpt-oss-120b", "trtllm") == 73_728  # all 36 layers in full
    assert per_token("openai/gpt-oss-120b", "sglang") == pytest.approx(0.9 * 73_728)  # windows at 0.8 of full
    assert per_token("openai/gpt-oss-120b", "vllm-0.7") == 73_728


def test_ideal_charges_a_window_what_it_holds():
    _, layout, _ = layout_of("openai/gpt-oss-120b", "ideal", block_size=1.0)
    assert float(layout.block_bytes) == 18 * 2048
    assert float(layout.request_blocks) * float(layout.block_bytes) == 18 * 2048 * (8192 + 128)


def test_sglang_keeps_states_in_a_pool_of_their_own():
    columns, groups = load_engine("sglang").columns, columns_of("Qwen/Qwen3.5-27B").groups
    assert float(pool.pool_of_kv(columns, 19.0, groups)) == pytest.approx(10.0)
    assert float(pool.pool_of_kv(columns, 19.0, columns_of("Qwen/Qwen3-8B").groups)) == 19.0


def test_the_fraction_means_what_each_engine_means():
    parts = (80.0, 0.9, 15.0, 2.0, 1.0, 3.0)  # memory, fraction, weights, activations, non-torch, graphs
    found = {name: float(pool.pool_bytes(load_engine(name).columns, *parts)) for name in ("ideal", "vllm-0.20", "vllm")}
    assert found == {"ideal": pytest.approx(54.0), "vllm-0.20": pytest.approx(54.0), "vllm": pytest.approx(51.0)}
    assert float(pool.pool_bytes(load_engine("sglang").columns, *parts)) == pytest.approx(0.9 * 79 - 15)
    assert float(pool.pool_bytes(load_engine("trtllm").columns, *parts)) == pytest.approx(0.9 * (80 - 18))


def test_sglang_as_it_was_logged():
    # 63.72 GiB free after loading, 78.81 before, fraction 0.88
    columns = load_engine("sglang").columns
    found = pool.pool_bytes(columns, 78.81, 0.88, 78.81 - 63.72, 0.0, 0.0, 0.0)
    assert float(found) == pytest.approx(54.26, abs=0.005)


@pytest.mark.parametrize(
    ("engine", "name", "changes", "peak"),
    [
        ("vllm-0.20", "meta-llama/Meta-Llama-3.1-8B", {}, 1.89),
        ("vllm-0.20", "meta-llama/Meta-Llama-3.1-8B", {"tensor_parallel": 4.0}, 1.89),
        ("vllm-0.20", "microsoft/phi-4", {}, 1.52),
        ("vllm-0.20", "google/gemma-7b", {}, 3.63),
        ("vllm-0.20", "meta-llama/Llama-2-7b-hf", {}, 0.77),  # inside a layer, not in the sampler
        ("vllm-0.20", "deepseek-ai/DeepSeek-V2-Lite", {}, 1.93),
        ("vllm-0.16", "meta-llama/Meta-Llama-3.1-8B", {}, 4.76),
        ("vllm-0.16", "Qwen/Qwen3-0.6B", {}, 5.56),
        ("vllm-0.7", "meta-llama/Meta-Llama-3.1-8B", {"max_model_length": 20_000.0, "sequences": 256.0}, 2.07),
        ("vllm-0.7", "meta-llama/Meta-Llama-3.1-8B", {"max_model_length": 29_000.0, "sequences": 256.0}, 2.99),
    ],
)
def test_the_profiled_peak_is_near_the_logged_one(engine, name, changes, peak):
    start = replace(START, **changes)
    found = startup.activation_peak(load_engine(engine).columns, columns_of(name), start, 16.0)
    assert float(found) / GIB == pytest.approx(peak, abs=0.06)


def test_communication_takes_memory_where_layers_are_split():
    columns = load_engine("vllm").columns
    found = [float(startup.non_torch(columns, n, m)) / GIB for n, m in ((1.0, 8e10), (2.0, 8.5e10), (2.0, 2.4e10))]
    assert found == [pytest.approx(0.25), pytest.approx(2.1), pytest.approx(0.7)]


def test_padded_copies_are_of_rows_of_512_bytes():
    thirty, large = columns_of("Qwen/Qwen3-30B-A3B"), columns_of("Qwen/Qwen3-235B-A22B")
    assert float(startup.padded_expert_copy(thirty, 1.0)) == 48 * 128 * 2048 * (768 + 128) * 2
    assert float(startup.padded_expert_copy(large, 4.0)) == 0  # 384 elements
    assert float(startup.padded_expert_copy(columns_of("Qwen/Qwen3-8B"), 1.0)) == 0


def test_laws_hold_on_a_grid_as_at_its_points():
    name = "google/gemma-3-27b-it"
    columns, _, start = layout_of(name)
    lengths, devices = np.array([4096.0, 8192.0, 131_072.0])[:, None], np.array([1.0, 2.0])[None, :]
    groups = jax.tree.map(lambda leaf: jnp.asarray(leaf).reshape(leaf.shape[0], 1, 1), columns_of(name).groups)
    states = jax.tree.map(lambda leaf: leaf[:, None, None], state_columns(load_model(name).groups, 2))
    grid = jax.jit(pages.layout)(
        columns, groups, states, BF16, replace(start, max_model_length=lengths, tensor_parallel=devices)
    )
    found = np.broadcast_to(grid.request_blocks * grid.block_bytes, (3, 2))
    for i, length in enumerate(lengths[:, 0]):
        for j, n in enumerate(devices[0]):
            _, one, _ = layout_of(name, max_model_length=length, tensor_parallel=n)
            assert found[i, j] == float(one.request_blocks * one.block_bytes)


@pytest.mark.parametrize("engine", ["ideal", "vllm", "vllm-0.7", "sglang", "trtllm", "llamacpp"])
@pytest.mark.parametrize(
    "name", ["mistralai/Mamba-Codestral-7B-v0.1", "deepseek-ai/DeepSeek-V4-Pro", "paper/llama-3-70b"]
)
def test_layouts_of_every_kind_are_finite(engine, name):
    columns, layout, start = layout_of(name, engine)
    for value in jax.tree.leaves(layout):
        assert float(value) > 0
        assert np.isfinite(float(value))
    assert np.isfinite(float(pool.bytes_per_token(columns, layout, start.max_model_length)))


def test_small_devices_have_smaller_defaults():
    columns = load_engine("vllm").columns
    assert float(startup.default_batched_tokens(columns, 24 * GIB)) == 2048
    assert float(startup.default_sequences(columns, 24 * GIB)) == 256
    assert float(startup.default_batched_tokens(columns, 79 * GIB)) == 8192
    assert float(startup.default_sequences(columns, 79 * GIB)) == 1024

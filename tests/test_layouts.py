"""How each layout keeps and reads KV: current models worked out by hand."""

from __future__ import annotations

import math
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

from kvwall.objectives import metrics
from kvwall.objectives.step import Step, evaluate_step
from kvwall.objectives.weights import distinct_experts
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.design import Design, Experts
from kvwall.spaces.models.load import load_model
from kvwall.spaces.space import make_space

pytestmark = pytest.mark.usefixtures("float64")

UNSEEN = Path(__file__).parent / "data" / "models"
ALL_WINDOW = str(UNSEEN / "mistral-7b-v0.1.json")
SHARED = str(UNSEEN / "gemma-3n-e4b.json")
MAMBA = "mistralai/Mamba-Codestral-7B-v0.1"
SCOUT = "meta-llama/Llama-4-Scout-17B-16E-Instruct"


def stepped(model: str | list[str], **axes: object) -> tuple[Design, Step]:
    """A design and its step; lists become dimensions, the models' last."""
    space = make_space({"hardware": "b200-sxm", "context": 1000, **axes, "model": model})
    along = np.ix_(*(np.arange(length) for length in space.shape))
    design = Columns(space, load_catalogue(space)).design(dict(zip(space.dims, along, strict=True)))
    order = [list(space.dims).index(name) for name in axes if name in space.dims]
    assert order == sorted(order), "dimensions come in the order of the axes"
    return design, evaluate_step(design)


def number(value: object) -> float:
    """The one number of an array."""
    return float(np.asarray(value).item())


def device_bytes(model: str, **axes: object) -> tuple[float, float]:
    """KV bytes of one device, read and stored."""
    ledger = stepped(model, **axes)[1].ledger
    return number(ledger.kv_read), number(ledger.kv_stored)


# Routed experts


def test_distinct_experts_tend_to_all() -> None:
    tokens = jnp.array([1.0, 2.0, 8.0, 64.0, 512.0, 1e6])
    met = np.asarray(distinct_experts(Experts(1.0, 256.0, 8.0, 1.0, 16.0, 16.0), tokens, 0.0))
    # 256 * (1 - (31/32)^2) = 15.75: two tokens share a quarter of an expert.
    assert met[:2] == pytest.approx([8, 15.75])
    assert np.all(np.diff(met) > 0)
    assert met[-1] == pytest.approx(256)
    one = Experts(1.0, 4.0, 4.0, 1.0, 16.0, 16.0)
    assert np.asarray(distinct_experts(one, tokens, 0.0)) == pytest.approx(np.full(6, 4.0))


def test_a_large_batch_reads_every_expert() -> None:
    """Qwen3-235B: at batch 1 its active parameters, at a large batch all of them."""
    name = "Qwen/Qwen3-235B-A22B"
    model = load_model(name)
    _, step = stepped(name, batch=[1, 8, 64, 1_000_000])
    rows = np.array([1, 8, 64, 1_000_000]) * 2 * model.embedding_row
    read = np.asarray(step.ledger.weights_read).ravel() - rows
    assert read[0] == 2 * (model.parameters_active - model.embedding)
    assert np.all(np.diff(read) > 0)
    assert read[-1] == pytest.approx(2 * (model.parameters_total - model.embedding))


def test_routers_are_whole_on_every_device_at_their_own_bits() -> None:
    """DeepSeek-V3 at 4 bits: 58 routers of 256 rows of 7168, two bytes each, do not divide."""
    read = [
        number(stepped("deepseek-ai/DeepSeek-V3", tensor_parallel=n, weight_bits=bits)[1].ledger.weights_read)
        for n in (1, 2)
        for bits in (4, 8)
    ]
    model = load_model("deepseek-ai/DeepSeek-V3")
    fixed = 2 * model.router + 2 * model.vectors
    assert model.router == 58 * 256 * 7168
    assert 2 * read[0] - read[1] == pytest.approx(fixed + 2 * model.embedding_row)
    assert 2 * read[2] - read[3] == pytest.approx(fixed + model.embedding_row)


# Crossover


@pytest.mark.parametrize("name", [MAMBA, ALL_WINDOW])
def test_no_crossover_and_no_longest_context_without_growth(name: str) -> None:
    design, step = stepped(name)
    assert number(metrics.crossover_context_bytes(design, step)) == math.inf
    assert number(metrics.max_context(design, step)) == math.inf


def test_states_alone_can_outweigh_the_weights() -> None:
    """Mamba-Codestral: 14.3 GB of weights, 272 MB of state a sequence: at batch 100 the wall is behind."""
    for name in (MAMBA, "Qwen/Qwen3-Next-80B-A3B-Instruct"):
        design, step = stepped(name, batch=10_000)
        assert number(metrics.crossover_context_bytes(design, step)) == 0
    design, step = stepped(MAMBA, batch=100)
    assert number(metrics.crossover_context_bytes(design, step)) == 0
    assert number(metrics.crossover_context_bytes(*stepped(MAMBA, batch=40))) == math.inf


def test_crossovers_by_hand() -> None:
    # Gemma-3-27B: 27,009,346,304 weights and a row of 5376, 2 B each; windows hold 436,207,616 B, a token 81,920 B.
    found = number(metrics.crossover_context_bytes(*stepped("google/gemma-3-27b-it")))
    assert found == pytest.approx((54_018_692_608 + 10_752 - 436_207_616) / 81_920, rel=1e-12)
    # Scout reads 48 * 4096 B a token inside the chunk; past it 36 layers read 4096.5 tokens. At batch 64 the 3.3 GB of
    # weights per sequence lie past it (16.9k tokens by the first slope), at batch 256 inside (4.3k).
    for batch, inside in ((64, False), (256, True)):
        design, step = stepped(SCOUT, batch=batch)
        share = number(step.ledger.weights_read) / batch
        assert (share / (48 * 4096) <= 8192) == inside
        expected = share / (48 * 4096) if inside else (share - 36 * 4096.5 * 4096) / (12 * 4096)
        assert number(metrics.crossover_context_bytes(design, step)) == pytest.approx(expected, rel=1e-12)


# Models by hand: bytes at 16 bits and 100,000 tokens of context unless they say otherwise


@pytest.mark.parametrize(
    ("name", "read", "stored"),
    [
        # 62 layers, 16 KV heads * 256 * 2 B = 8192 B: 52 of 1024 tokens, 10 of all.
        ("google/gemma-3-27b-it", 436_207_616 + 8_192_000_000, 436_207_616 + 8_192_000_000),
        # 61 layers of a latent of 512 and 64 rope elements: 70,272 B a token.
        ("deepseek-ai/DeepSeek-V3", 7_027_200_000, 7_027_200_000),
        # As V3 with an index key of 128: reads 2048 latents of 1152 B and 100,000 index keys of 256 B.
        ("deepseek-ai/DeepSeek-V3.2", 61 * (2048 * 1152 + 25_600_000), 61 * 100_000 * 1408),
        # 36 layers, 8 KV heads of 64 + 64 elements = 2048 B: 18 of 128 tokens, 18 of all.
        ("openai/gpt-oss-120b", 4_718_592 + 3_686_400_000, 4_718_592 + 3_686_400_000),
        # 48 layers, 8 KV heads * 256 * 2 B = 4096 B: 36 restart every 8192 tokens, so 4096.5 on average; 12 of all.
        (SCOUT, 604_053_504 + 4_915_200_000, 1_207_959_552 + 4_915_200_000),
        # 12 of 48 layers with 2 KV heads * 512 * 2 B = 2048 B; 36 states of 32 heads * 128 * 128 * 4 B and three
        # steps of 8192 convolution channels at 2 B: 2,097,152 + 49,152 B.
        ("Qwen/Qwen3-Next-80B-A3B-Instruct", 2_457_600_000 + 77_266_944, 2_457_600_000 + 77_266_944),
        # 10 layers of 4096 B a token; 54 states of 256 heads * 64 * 256 * 4 B and three steps of
        # 256 * 64 + 2 * 8 * 256 = 20,480 channels at 2 B: 16,777,216 + 122,880 B.
        ("nvidia/Nemotron-H-56B-Base-8K", 4_096_000_000 + 912_605_184, 4_096_000_000 + 912_605_184),
    ],
)
def test_kv_bytes_by_hand(name: str, read: float, stored: float) -> None:
    assert device_bytes(name, context=100_000) == (read, stored)


@pytest.mark.parametrize(("context", "tokens"), [(1, 1), (8192, 8192), (8193, 4096.5), (10**6, 4096.5)])
def test_a_chunk_is_half_full_on_average(context: int, tokens: float) -> None:
    read, stored = device_bytes(SCOUT, context=context)
    assert read == 4096 * (36 * tokens + 12 * context)
    assert stored == 4096 * (36 * min(context, 8192) + 12 * context)
    assert np.mean(np.arange(1, 8193)) == 4096.5


@pytest.mark.parametrize("context", [100, 2048, 2049, 10**6])
def test_sparse_attention_reads_its_choice_and_the_whole_index(context: int) -> None:
    read, stored = device_bytes("deepseek-ai/DeepSeek-V3.2", context=context)
    assert read == 61 * (min(context, 2048) * 1152 + context * 256)
    assert stored == 61 * context * (1152 + 256)


def test_latents_by_hand() -> None:
    name = "deepseek-ai/DeepSeek-V3"
    # Every one of eight devices holds all latents; the rope part stays at 16 bits: 61 * (512 + 128) B a token.
    assert device_bytes(name, tensor_parallel=8) == device_bytes(name)
    assert device_bytes(name, key_bits=8, value_bits=8)[0] == 1000 * 61 * 640
    # Attention of 1000 tokens: 61 * 2 * 128 heads * (576 + 512), 241.8 FLOP for each of 1152 B.
    flop = stepped(name, context=[1000, 2000])[1].ledger.flop_by_format[0]
    assert np.diff(np.asarray(flop).ravel()).item() == 1000 * 61 * 2 * 128 * 1088
    # The index of V3.2 takes 2 * 64 heads * 128 for every token; beyond 2048 nothing else is added.
    flop = stepped("deepseek-ai/DeepSeek-V3.2", context=[3000, 4000])[1].ledger.flop_by_format[0]
    assert np.diff(np.asarray(flop).ravel()).item() == 1000 * 61 * 2 * 64 * 128


def test_compressed_entries_by_hand() -> None:
    """DeepSeek-V4-Pro: 61 windows of 128; 31 stores of an entry per 128 tokens, 30 of one per 4, of which 1024 read."""
    read, stored = device_bytes("deepseek-ai/DeepSeek-V4-Pro", context=64_000)
    assert read == 61 * 128 * 1024 + 31 * 500 * 1024 + 30 * (1024 * 1024 + 16_000 * 256)
    assert stored == 61 * 128 * 1024 + 31 * 500 * 1024 + 30 * 16_000 * (1024 + 256)
    # 64 recent tokens at 16 bits are half an entry, 16 entries and half a window: 448 of 512 elements are quantized.
    axes = {"context": 64_000, "key_bits": 8, "residual_window": 64}
    saved = 448 * (61 * 64 + 31 * (500 - 0.5) + 30 * (16_000 - 16))
    assert device_bytes("deepseek-ai/DeepSeek-V4-Pro", **axes)[1] == pytest.approx(stored - saved)


def test_states_by_hand() -> None:
    # Eight devices: one of eight KV heads and an eighth of the states each.
    read, _ = device_bytes("nvidia/Nemotron-H-56B-Base-8K", context=100_000, tensor_parallel=8)
    assert read == 512_000_000 + 114_075_648
    # A step writes one token of 12 layers, and every state.
    assert number(stepped("Qwen/Qwen3-Next-80B-A3B-Instruct")[1].ledger.kv_written) == 24_576 + 77_266_944
    # Mamba: the context adds nothing.
    assert device_bytes(MAMBA, context=1) == device_bytes(MAMBA, context=10**6)


def test_shared_layers_by_hand() -> None:
    """Gemma-3n: every reader reads, only owners store."""
    model = load_model(SHARED)
    read, stored = device_bytes(SHARED, context=100)
    assert stored == 100 * model.kv_bytes_per_token_all_layers
    assert read == 100 * float(sum(group.readers * group.bytes_per_token for group in model.groups))
    assert sum(group.readers * group.layers for group in model.groups) == model.decoder_layers
    # The tables of per-layer embeddings are stored, and never streamed.
    memory, ledger = stepped(SHARED)[1].memory, stepped(SHARED)[1].ledger
    assert model.layer_embedding > 2_000_000_000
    idle = number(memory.weights) - number(ledger.weights_read)
    assert idle == 2 * (model.layer_embedding + model.embedding - model.embedding_row)

"""A tiny model and a slow chip, whose numbers can be worked out by hand, and the paper's, for tests of the oracle."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.oracle import Answer, Store

# Nominal Llama-3-70B: 70e9 parameters in one class, nothing but their count matters for the bytes.
PAPER: dict[str, Any] = {
    "hidden": 8192, "intermediate": 28672, "vocab": 128256, "layers": 80, "reduces_per_layer": 2,
    "stores": (Store(80, query_heads=64, kv_heads=8, key_dim=128, value_dim=128, score_dim=128, mix_dim=128),),
    "tied_embeddings": False, "embedding_rows": 0,
    "query_output": 0, "key_value": 0, "ffn": 70e9, "head": 0, "embedding": 0, "vectors": 0,
    "query_output_bits": 16, "key_value_bits": 16, "ffn_bits": 16, "head_bits": 16, "embedding_bits": 16,
    "vectors_bits": 16,
}  # fmt: skip
# Two layers, four query heads on two KV heads of two: a 16-bit token is 2 * 2 * (2 + 2) * 2 = 32 B.
TINY = PAPER | {
    "hidden": 8, "intermediate": 16, "vocab": 64, "layers": 2,
    "stores": (Store(2, query_heads=4, kv_heads=2, key_dim=2, value_dim=2, score_dim=2, mix_dim=2),),
    "embedding_rows": 8, "query_output": 256, "key_value": 128, "ffn": 768, "head": 512, "embedding": 512,
    "vectors": 40,
}  # fmt: skip
B200: dict[str, float | None] = {
    "memory_capacity": 192e9, "memory_bandwidth": 8.0e12, "bf16_flops": 2.25e15, "fp8_flops": 4.5e15,
    "int8_ops": 4.5e15, "fp4_flops": 9e15, "scale_up_bandwidth": 900e9, "scale_up_domain": 8,
    "host_link_bandwidth": 64e9, "memory_energy": 40e-12, "link_energy": 80e-12, "flop_energy": 0.5e-12,
    "price": 0.001, "scale_out_bandwidth": 50e9, "memory_domains": 2,
    "cxl_energy": 80e-12, "nvme_energy": 100e-12, "remote_energy": 160e-12,
    "cxl_link_bandwidth": 32e9, "nvme_link_bandwidth": 14e9, "remote_link_bandwidth": 50e9,
    "host_link_devices": None, "cxl_link_devices": None, "nvme_link_devices": 2, "remote_link_devices": None,
    "host_capacity": None, "cxl_capacity": None, "nvme_capacity": None, "remote_capacity": None,
}  # fmt: skip
# Small figures that make the tiny model's numbers readable.
CHIP: dict[str, float | None] = B200 | {
    "memory_capacity": 10_000.0, "memory_bandwidth": 100.0, "bf16_flops": 1000.0, "fp8_flops": 2000.0,
    "int8_ops": 3000.0, "fp4_flops": 4000.0, "scale_up_bandwidth": 16.0, "scale_up_domain": 4,
    "host_link_bandwidth": 10.0, "memory_energy": 1.0, "link_energy": 2.0, "flop_energy": 0.5, "price": 3.0,
    "scale_out_bandwidth": 8.0, "cxl_link_bandwidth": 5.0, "nvme_link_bandwidth": 4.0, "remote_link_bandwidth": 1.0,
    "cxl_energy": 3.0, "nvme_energy": 4.0, "remote_energy": 5.0,
}  # fmt: skip


def number(result: Answer, name: str) -> float:
    """A metric that must be a number."""
    value = result[name]
    assert isinstance(value, float)
    return value


def kv_bytes(result: Answer) -> float:
    """KV bytes read, as a number."""
    return number(result, "kv_bytes_read")


def tiny(*stores: Store, **changes: object) -> dict[str, Any]:
    """The tiny model with other stores."""
    return TINY | {"stores": stores} | changes


FULL: Store = TINY["stores"][0]  # 16 B a token and layer
WINDOW = replace(FULL, window=6, evictable=False)
LATENT = Store(2, query_heads=4, kv_heads=1, key_dim=6, value_dim=0, score_dim=8, mix_dim=6, rope_dim=2)
STATE = Store(2, query_heads=4, kv_heads=4, key_dim=0, value_dim=0, score_dim=0, mix_dim=0, state_bytes=100,
              evictable=False)  # fmt: skip

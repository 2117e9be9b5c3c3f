"""Which remedies are known to collapse, told from the names of models and methods."""

from __future__ import annotations

from tests.oracle_given import Given
from tests.oracle_kv import kept

OUTLIERS_IN_KEYS = {"Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-3B", "Qwen/Qwen3-0.6B"}
LIKE_LLAMA_3 = {
    "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B", "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Meta-Llama-3-70B", "meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3.1-405B",
    "meta-llama/Meta-Llama-3.1-70B", "meta-llama/Meta-Llama-3.1-8B", "nvidia/Llama-3.1-70B-Instruct-FP8",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1", "paper/llama-3-70b",
}  # fmt: skip
"""Models of the catalogue."""
NAIVE = {"naive", "int_per_token", "nf_per_token"}
"""Quantizers that round to the nearest step with one scale a token."""
NEVER_SEE = {
    "query_agnostic", "position", "random", "expected_attention", "knorm", "critical_snapkv", "streaming_llm",
    "read_sparse", "block_retrieval", "quest", "page_mean", "cluster", "infllm",
}  # fmt: skip
"""Evictors that never know what will be asked."""
BY_QUESTION = {
    "query_aware", "heavy_hitter", "snapkv", "pyramidkv", "tova", "ada_snapkv", "h2o", "scissorhands",
}  # fmt: skip
"""Evictors that know it where it is visible."""


def veto_of(given: Given) -> str:
    """The first veto that applies, or none."""
    name = given.model.get("name", "")
    bits = [given.axis("key_bits"), given.axis("value_bits")]
    if name in OUTLIERS_IN_KEYS and bits[0] < 8:
        return "k_outliers"
    if name in LIKE_LLAMA_3 and given.axes["quantizer"] in NAIVE and min(bits) < 4:
        return "naive_low_bits"
    dropped = kept(given, given.time_context) < given.time_context
    evictor = given.axes["evictor"]
    blind = evictor in NEVER_SEE or (evictor in BY_QUESTION and not given.axes["question_visible"])
    return "blind_retrieval" if given.axes["hard_retrieval"] and dropped and blind else "none"

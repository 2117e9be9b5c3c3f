"""Heads, head dimension and tie of a config, under their usual key names."""

from __future__ import annotations

from kvwall.spaces.models.architecture import Heads
from kvwall.spaces.models.config import Config


def read_heads(
    config: Config,
    hidden: int,
    *,
    absent_kv_is_mha: bool = False,
    default_dim: int | None = None,
) -> Heads:
    """Query heads, KV heads and head dimension under their usual key names.

    hidden/heads is the head dimension only where the config states none and the class has no own
    default (`default_dim`). `absent_kv_is_mha`: the class reads an absent KV-head count as one KV
    head per query head; where its default is a number instead, the key is necessary (a null always
    means one per query head). Faults are recorded in the config.
    """
    query = config.count("num_attention_heads")
    stated_null = "num_key_value_heads" in config.values and not config.states("num_key_value_heads")
    if absent_kv_is_mha or stated_null:
        kv = config.count("num_key_value_heads", default=query, meaning="(one per query head, MHA)")
    else:
        kv = config.count("num_key_value_heads")
    if config.states("head_dim") or default_dim is not None:
        dim = config.count("head_dim", default=default_dim)
    else:
        dim = even_head_dim(config, hidden, query)
    require_even_groups(config, query, kv, "num_key_value_heads")
    return Heads(query, kv, dim)


def require_even_groups(config: Config, query: int, kv: int, key: str) -> None:
    """Record a fault unless each KV head serves the same number of query heads."""
    if query % kv and not (query == 1 and config.spoiled):  # a 1 may stand in for a head count that is missing
        config.faults.add(f"{config.where}: {key} = {kv} must divide the {query} attention heads")


def read_tie(config: Config, default: bool) -> bool:
    """Whether the head is the embedding; an unstated tie takes the class default and leaves a flag."""
    if not config.states("tie_word_embeddings"):
        config.flags.append(f"tie_word_embeddings not stated: class default {str(default).lower()}")
    return config.switch("tie_word_embeddings", default)


def even_head_dim(config: Config, hidden: int, query: int) -> int:
    """hidden/heads, for families that define it so; an uneven split is a fault of the config."""
    if hidden % query and not (hidden == 1 and config.spoiled):  # a 1 may stand in for a missing width
        config.faults.add(
            f"{config.where}: hidden size {hidden} is not a multiple of {query} heads and no head_dim is stated"
        )
    return max(1, hidden // query)

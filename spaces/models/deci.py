"""DeciLM: Llama's block with a number of KV heads of its own per layer.

Source: the code published with the checkpoint. vLLM repeats KV heads until every layer has as many as the widest.
"""

from __future__ import annotations

from kvwall.spaces.models.architecture import Architecture, Heads
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.decoder import attention, decoder, norms, read_frame
from kvwall.spaces.models.experts import dense_block
from kvwall.spaces.models.heads import even_head_dim, require_even_groups

_KEY = "num_key_value_heads_per_layer"


def deci(config: Config) -> Architecture:
    """Class default: head not tied. The list of KV heads is necessary; a single number beside it is not read."""
    frame = read_frame(config)
    query = config.count("num_attention_heads")
    dim = even_head_dim(config, frame.hidden, query)
    width = config.count("intermediate_size")
    rest = dense_block(frame.hidden, width) + norms(frame.hidden)
    layers = [attention(frame.hidden, Heads(query, kv, dim)) + rest for kv in _kv_heads(config, frame.layers, query)]
    return decoder(config, frame, layers, tied=False, intermediate=width)


def _kv_heads(config: Config, layers: int, query: int) -> tuple[int, ...]:
    """KV heads of each layer; one each where the list is missing or wrong, which is recorded."""
    found = config.whole_numbers(_KEY)
    if not found:
        config.missing.append(_KEY)
    elif len(found) != layers or 0 in found:
        if not config.spoiled:
            config.faults.add(f"{config.where}: {_KEY} must list {layers} numbers above 0")
    else:
        for kv in sorted(set(found)):
            require_even_groups(config, query, kv, _KEY)
        return found
    return (1,) * layers

"""Native weight formats: what `quantization_config` or a ModelOpt sibling file says about bits per weight.

Overheads follow the stored tensors. FP8 in blocks: a 32-bit scale per block. GPTQ and AWQ: per group a
16-bit scale and a zero-point as wide as a weight. compressed-tensors: per group a 16-bit scale, and a
zero-point only when asymmetric. bitsandbytes 4-bit: a 32-bit scale per 64 weights, or, quantized
twice, 8 bits per 64 and 32 bits per 16,384. NVFP4: an 8-bit scale per 16. MXFP4: an 8-bit scale per 32.
Scales per tensor or per output channel (under 0.01 bit per weight) and GPTQ's group index are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kvwall.spaces.errors import nearest
from kvwall.spaces.models.config import Config

SCALE_BITS = 16
BLOCK_SCALE_BITS = 32
MXFP4_OVERHEAD = 8 / 32
_BYTE_SCALES = frozenset({"uint8", "float8_e4m3fn", "float8_e8m0fnu"})
"""Scales of one byte, as MXFP4 has them; where no dtype is stated they have 16 bits."""


@dataclass(frozen=True)
class WeightFormat:
    """How the quantized matrices of a checkpoint are stored."""

    payload_bits: int
    overhead_bits: float
    """Scales and zero-points, per weight."""
    kept: tuple[str, ...]
    """Modules left in the checkpoint's own dtype, as the file names them."""
    head: bool
    """Whether the LM head is quantized when `kept` does not name it."""
    only_experts: bool = False
    """Whether the format is one of the routed experts alone."""
    experts: tuple[int, float] | None = None
    """Payload and overhead bits of the routed experts where they differ from the other matrices."""

    def reaches(self, tensor_class: str) -> bool:
        """Whether matrices of the class are quantized at all."""
        return tensor_class == "expert" or not self.only_experts

    def bits_of(self, tensor_class: str) -> tuple[int, float]:
        """Payload and overhead bits of a quantized matrix of the class."""
        if tensor_class == "expert" and self.experts is not None:
            return self.experts
        return self.payload_bits, self.overhead_bits


def read_format(root: Config, language: Config, sibling: Config | None) -> WeightFormat | None:
    """The format in force; None for a plain 16- or 32-bit checkpoint. Faults go to the config.

    `quantization_config` at the top wins over the sibling file, and that over the language part's own,
    which may be left from the checkpoint that was quantized anew.
    """
    weight_format = None
    if root.states("quantization_config"):
        weight_format = _read(root.section("quantization_config"))
    elif sibling is not None:
        weight_format = _modelopt(sibling.section("quantization"))
    elif language.states("quantization_config"):
        weight_format = _read(language.section("quantization_config"))
    return _with_expert_dtype(language, weight_format)


def _with_expert_dtype(language: Config, weight_format: WeightFormat | None) -> WeightFormat | None:
    """DeepSeek-V4 states the format of its experts apart: FP4 with a scale per 32 weights."""
    dtype = language.text("expert_dtype")
    if dtype is None or weight_format is None or dtype == "fp8":
        return weight_format
    if dtype != "fp4":
        language.faults.add(f"{language.where}: expert_dtype '{dtype}' is not known: supported are fp4, fp8")
        return weight_format
    return replace(weight_format, experts=(4, MXFP4_OVERHEAD))


def _read(quantization: Config) -> WeightFormat | None:
    method = quantization.text("quant_method")
    if method is None:
        quantization.missing.append("quant_method")
        return None
    reader = _METHODS.get(method)
    if reader is None:
        known = ", ".join(sorted(_METHODS))
        quantization.faults.add(
            f"{quantization.where}: quant_method '{method}' is not known{nearest(method, _METHODS)}: "
            f"supported are {known}"
        )
        return None
    return reader(quantization)


def _fp8(quantization: Config) -> WeightFormat:
    kept = quantization.names("modules_to_not_convert") + quantization.names("ignored_layers")
    return WeightFormat(8, _block_overhead(quantization, "weight_block_size"), kept, head=False)


def _mxfp4(quantization: Config) -> WeightFormat:
    return WeightFormat(4, MXFP4_OVERHEAD, quantization.names("modules_to_not_convert"), head=False, only_experts=True)


def _grouped(quantization: Config) -> WeightFormat:
    bits = quantization.count("bits", "w_bit", most=8)
    group = quantization.values.get("group_size", quantization.values.get("q_group_size"))
    overhead = 0.0
    if group != -1:  # one group per column: as good as none
        overhead = (SCALE_BITS + bits) / quantization.count("group_size", "q_group_size")
    for key in ("dynamic", "modules_in_block_to_quantize"):
        if quantization.states(key):
            quantization.refuse(f"a format per module ({key})")
    head = quantization.switch("lm_head", False)
    return WeightFormat(bits, overhead, quantization.names("modules_to_not_convert"), head)


def _bitsandbytes(quantization: Config) -> WeightFormat | None:
    kept = quantization.names("llm_int8_skip_modules")
    if quantization.switch("load_in_4bit", False):
        twice = quantization.switch("bnb_4bit_use_double_quant", False)
        return WeightFormat(4, 8 / 64 + 32 / (64 * 256) if twice else 32 / 64, kept, head=False)
    if quantization.switch("load_in_8bit", False):
        return WeightFormat(8, 0.0, kept, head=False)
    quantization.missing.append("load_in_4bit or load_in_8bit")
    return None


def _compressed_tensors(quantization: Config) -> WeightFormat | None:
    groups = quantization.section("config_groups")
    sparsity = quantization.section("sparsity_config").text("format")
    if sparsity not in (None, "dense"):
        quantization.refuse(f"sparse weights (sparsity_config.format = {sparsity})")
    if len(groups.values) != 1:
        quantization.refuse(f"compressed-tensors with {len(groups.values)} config_groups: one is")
        return None
    group = groups.section(next(iter(groups.values)))
    if group.names("targets") not in ((), ("Linear",)):
        quantization.refuse(f"compressed-tensors with targets {', '.join(group.names('targets'))}")
    if not group.states("weights"):
        return None  # activations or KV cache only
    weights = group.section("weights")
    bits = weights.count("num_bits", most=16)
    return WeightFormat(bits, _strategy_overhead(weights, bits), quantization.names("ignore"), head=True)


def _strategy_overhead(weights: Config, bits: int) -> float:
    strategy = weights.text("strategy")
    if strategy in (None, "tensor", "channel"):
        return 0.0
    if strategy == "group":
        zero = 0 if weights.switch("symmetric", True) else bits
        dtype = (weights.text("scale_dtype") or "").removeprefix("torch.")
        scale = 8 if dtype in _BYTE_SCALES else SCALE_BITS
        return (scale + zero) / weights.count("group_size")
    if strategy == "tensor_group":
        return 8 / weights.count("group_size")
    if strategy == "block":
        return _block_overhead(weights, "block_structure")
    weights.refuse(f"compressed-tensors strategy {strategy}")
    return 0.0


def _modelopt(quantization: Config) -> WeightFormat | None:
    algorithm = quantization.text("quant_algo")
    kept = quantization.names("exclude_modules") + quantization.names("ignore")
    cache = quantization.text("kv_cache_quant_algo")
    if cache is not None:
        quantization.flags.append(f"checkpoint made for a {cache} KV cache: not applied, set key_bits and value_bits")
    if algorithm is None:
        return None
    group = quantization.count("group_size") if quantization.states("group_size") else None
    formats = {
        "FP8": (8, 0.0),
        "FP8_PER_CHANNEL_PER_TOKEN": (8, 0.0),
        "FP8_PB_WO": (8, BLOCK_SCALE_BITS / (128 * 128)),
        "NVFP4": (4, 8 / (group or 16)),
        "W4A16_AWQ": (4, SCALE_BITS / (group or 128)),
        "W4A8_AWQ": (4, SCALE_BITS / (group or 128)),
    }
    if algorithm not in formats:
        quantization.faults.add(
            f"{quantization.where}: quant_algo '{algorithm}' is not known: supported are {', '.join(formats)}"
        )
        return None
    payload, overhead = formats[algorithm]
    return WeightFormat(payload, overhead, kept, head=True)


def _block_overhead(config: Config, key: str) -> float:
    if not config.states(key):
        return 0.0
    block = config.values[key]
    sizes = [size for size in block if type(size) is int and size > 0] if isinstance(block, list) else []
    if len(sizes) != 2 or len(block) != 2:
        config.faults.add(f"{config.where}: {key} = {block!r} must be two positive whole numbers")
        return 0.0
    return BLOCK_SCALE_BITS / (sizes[0] * sizes[1])


_METHODS: dict[str, Callable[[Config], WeightFormat | None]] = {
    "awq": _grouped,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "fbgemm_fp8": _fp8,
    "fp8": _fp8,
    "gptq": _grouped,
    "modelopt": _modelopt,
    "mxfp4": _mxfp4,
}

"""The register of model families: `model_type` of a config.json -> constructor. A family is one line here."""

from __future__ import annotations

from collections.abc import Callable

from kvwall.spaces.models.architecture import Architecture
from kvwall.spaces.models.bloom import bloom
from kvwall.spaces.models.cohere import cohere, cohere2
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.dbrx import dbrx
from kvwall.spaces.models.deci import deci
from kvwall.spaces.models.deepseek import (
    axk1,
    deepseek_v2,
    deepseek_v3,
    dense_first,
    dense_latent,
    mistral4,
    sparse_deepseek,
)
from kvwall.spaces.models.deepseek_v4 import deepseek_v4
from kvwall.spaces.models.falcon import falcon, refined_web
from kvwall.spaces.models.gemma3n import gemma3n
from kvwall.spaces.models.gemma4 import gemma4
from kvwall.spaces.models.gpt2 import gpt2, gpt_bigcode
from kvwall.spaces.models.gpt_neox import gpt_neox
from kvwall.spaces.models.gptj import gptj
from kvwall.spaces.models.jamba import jamba
from kvwall.spaces.models.kimi_linear import bailing_hybrid, kimi_linear
from kvwall.spaces.models.laguna import laguna
from kvwall.spaces.models.lfm2 import lfm2, lfm2_moe
from kvwall.spaces.models.llama import llama_like
from kvwall.spaces.models.llama4 import llama4
from kvwall.spaces.models.llama_variants import LLAMA_VARIANTS
from kvwall.spaces.models.mamba import mamba, mamba2
from kvwall.spaces.models.mamba_hybrid import bamba, falcon_h1, granite_hybrid
from kvwall.spaces.models.mimo_v2 import mimo_v2_flash
from kvwall.spaces.models.minimax import minimax
from kvwall.spaces.models.minimax_m3 import minimax_m3
from kvwall.spaces.models.moe_variants import GLM_MOE, MOE_VARIANTS
from kvwall.spaces.models.mpt import mpt
from kvwall.spaces.models.nemotron_h import nemotron_h
from kvwall.spaces.models.nemotron_nas import nemotron_nas
from kvwall.spaces.models.nominal import nominal
from kvwall.spaces.models.opt import opt
from kvwall.spaces.models.phi import phi
from kvwall.spaces.models.qwen_next import qwen3_next
from kvwall.spaces.models.stablelm import stablelm
from kvwall.spaces.models.step import step3
from kvwall.spaces.models.ungated import nemotron, starcoder2

Constructor = Callable[[Config], Architecture]

CONSTRUCTORS: dict[str, Constructor] = {
    **{model_type: llama_like(variant) for model_type, variant in {**LLAMA_VARIANTS, **MOE_VARIANTS}.items()},
    "axk1": axk1,
    "bailing_hybrid": bailing_hybrid,
    "bamba": bamba,
    "bloom": bloom,
    "cohere": cohere,
    "cohere2": cohere2,
    "dbrx": dbrx,
    "deci": deci,
    "deepseek_v2": deepseek_v2,
    "deepseek_v3": deepseek_v3,
    "deepseek_v32": sparse_deepseek,
    "deepseek_v4": deepseek_v4,
    "falcon": falcon,
    "falcon_h1": falcon_h1,
    "falcon_mamba": mamba,
    "gemma3n_text": gemma3n,
    "gemma4_text": gemma4,
    "glm4_moe_lite": dense_first,
    "glm_moe_dsa": sparse_deepseek,
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "granitemoehybrid": granite_hybrid,
    "jamba": jamba,
    "kimi_k2": deepseek_v3,
    "kimi_linear": kimi_linear,
    "laguna": laguna,
    "lfm2": lfm2,
    "lfm2_moe": lfm2_moe,
    "llama4_text": llama4,
    "mamba": mamba,
    "mamba2": mamba2,
    "mimo_v2_flash": mimo_v2_flash,
    "minicpm3": dense_latent,
    "minimax": minimax,
    "minimax_m1": minimax,
    "minimax_m3_vl_text": minimax_m3,
    "minimax_text_01": minimax,
    "mistral4": mistral4,
    "mpt": mpt,
    "nemotron": nemotron,
    "nemotron-nas": nemotron_nas,
    "nemotron_h": nemotron_h,
    "nominal": nominal,
    "opt": opt,
    "phi": phi,
    "qwen3_5_moe_text": qwen3_next,
    "qwen3_5_text": qwen3_next,
    "qwen3_next": qwen3_next,
    "RefinedWeb": refined_web,
    "RefinedWebModel": falcon,
    "sarvam_mla": dense_first,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
    "step3p5": step3,
    "step3p7_text": step3,
    "youtu": dense_latent,
}

REUSED: dict[str, tuple[str, Constructor]] = {"glm": ("n_routed_experts", llama_like(GLM_MOE))}
"""A model_type under which some files hold another family, the key that tells, and that family."""

ALIASES: dict[str, str] = {
    "glm4v_text": "glm4",
    "glm4v_moe_text": "glm4_moe",
    "kimi_k25_text": "kimi_k2",
    "qwen2_5_vl_text": "qwen2",
    "qwen2_vl_text": "qwen2",
    "qwen3_vl_moe_text": "qwen3_moe",
    "qwen3_vl_text": "qwen3",
}
"""Language parts of multimodal models that are another family's block under a name of their own."""

_TOWER = "vision tower not counted"

WRAPPERS: dict[str, str] = {
    "aya_vision": _TOWER,
    "cohere2_vision": _TOWER,
    "gemma3": _TOWER,
    "gemma3n": "vision and audio towers not counted",
    "gemma4": "vision and audio towers not counted",
    "glm4v": _TOWER,
    "glm4v_moe": _TOWER,
    "idefics3": _TOWER,
    "internvl": _TOWER,
    "internvl_chat": _TOWER,
    "kimi_k25": _TOWER,
    "kimi_k3": _TOWER,
    "kimi_vl": _TOWER,
    "lfm2_vl": _TOWER,
    "llama4": _TOWER,
    "llava": _TOWER,
    "llava_next": _TOWER,
    "llava_onevision": _TOWER,
    "minimax_m3": _TOWER,
    "minimax_m3_vl": _TOWER,
    "mistral3": _TOWER,
    "paligemma": _TOWER,
    "qwen2_5_vl": _TOWER,
    "qwen2_vl": _TOWER,
    "qwen3_5": _TOWER,
    "qwen3_5_moe": _TOWER,
    "qwen3_vl": _TOWER,
    "qwen3_vl_moe": _TOWER,
    "smolvlm": _TOWER,
    "step3p7": _TOWER,
    "voxtral": "audio tower not counted",
}
"""Types whose language model sits in `text_config` or `llm_config`, and the flag each leaves."""

FLAT_WRAPPERS: dict[str, str] = {"qwen2_vl": "qwen2", "qwen2_5_vl": "qwen2"}
"""Wrappers whose older files keep the language model's keys at the top, and its family."""

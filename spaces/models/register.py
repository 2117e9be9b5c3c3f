"""The register of model families: `model_type` of a config.json -> constructor. A family is one line here."""

from __future__ import annotations

from collections.abc import Callable

from kvwall.spaces.models.architecture import Architecture
from kvwall.spaces.models.bloom import bloom
from kvwall.spaces.models.cohere import cohere
from kvwall.spaces.models.config import Config
from kvwall.spaces.models.falcon import falcon, refined_web
from kvwall.spaces.models.gpt2 import gpt2, gpt_bigcode
from kvwall.spaces.models.gpt_neox import gpt_neox
from kvwall.spaces.models.gptj import gptj
from kvwall.spaces.models.llama import llama_like
from kvwall.spaces.models.llama_variants import LLAMA_VARIANTS
from kvwall.spaces.models.moe_variants import MOE_VARIANTS
from kvwall.spaces.models.mpt import mpt
from kvwall.spaces.models.nominal import nominal
from kvwall.spaces.models.opt import opt
from kvwall.spaces.models.phi import phi
from kvwall.spaces.models.stablelm import stablelm
from kvwall.spaces.models.ungated import nemotron, starcoder2

CONSTRUCTORS: dict[str, Callable[[Config], Architecture]] = {
    **{model_type: llama_like(variant) for model_type, variant in {**LLAMA_VARIANTS, **MOE_VARIANTS}.items()},
    "bloom": bloom,
    "cohere": cohere,
    "falcon": falcon,
    "gpt2": gpt2,
    "gpt_bigcode": gpt_bigcode,
    "gpt_neox": gpt_neox,
    "gptj": gptj,
    "mpt": mpt,
    "nemotron": nemotron,
    "nominal": nominal,
    "opt": opt,
    "phi": phi,
    "RefinedWeb": refined_web,
    "RefinedWebModel": falcon,
    "stablelm": stablelm,
    "starcoder2": starcoder2,
}

WRAPPERS: dict[str, str] = {"mistral3": "vision tower not counted"}
"""Types whose language model sits in `text_config`, and the flag each leaves."""

"""Vetoes in words: the values that set one off, the limit they break, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import jax

from kvwall.objectives import veto
from kvwall.spaces.vetoes import VETO_NAMES, smallest_key_bits, smallest_naive_bits
from kvwall.sweep.single import SingleDesign


@dataclass(frozen=True)
class VetoFound:
    """A veto that applies to a design."""

    name: str
    allowed: bool
    """Whether the user overrides it."""
    what: str
    """The values and what is known of them, without a full stop."""
    remedy: str


def vetoes_of(single: SingleDesign) -> tuple[VetoFound, ...]:
    """Every veto that applies, those the user allows included."""
    with jax.enable_x64(True):
        applies = veto.each(single.design.kv_format, single.step.ledger.kept_fraction, single.design.veto.known)
    words = {"k_outliers": _k_outliers, "naive_low_bits": _naive_low_bits, "blind_retrieval": _blind_retrieval}
    allowed = single.catalogue.vetoes.allowed
    found = [name for name, one in zip(VETO_NAMES, applies, strict=True) if bool(one)]
    return tuple(VetoFound(name, name in allowed, *words[name](single)) for name in found)


def imposed_vetoes(single: SingleDesign) -> str:
    """Why a design is vetoed and what to do, for every veto that is not allowed; empty where none is."""
    told = [f"{one.what}; {one.remedy}, or {_allow(one.name)}" for one in vetoes_of(single) if not one.allowed]
    return "; and ".join(told)


def veto_flags(single: SingleDesign) -> Iterator[str]:
    """A flag for every veto that applies, and for those that are allowed."""
    for one in vetoes_of(single):
        if one.allowed:
            yield f"veto {one.name} is allowed, so the design is judged as if it were not there: {one.what}"
        else:
            yield f"vetoed: {one.what}; {one.remedy}, or {_allow(one.name)}"


def _allow(name: str) -> str:
    return f"allow it with --allow-veto {name}"


def _k_outliers(single: SingleDesign) -> tuple[str, str]:
    bits, least = single.number("key_bits"), smallest_key_bits(single.model)
    what = f"{bits:g}-bit keys on {single.inputs['model']}, whose keys have outliers: published low-bit K collapses"
    return what, f"use key_bits >= {least:g}"


def _naive_low_bits(single: SingleDesign) -> tuple[str, str]:
    quantizer = str(single.inputs["quantizer"])
    least = smallest_naive_bits(single.model, quantizer)
    sides = [("keys", "key_bits"), ("values", "value_bits")]
    low = [f"{single.number(axis):g}-bit {side}" for side, axis in sides if single.number(axis) < least]
    what = (
        f"{' and '.join(low)} by quantizer {quantizer} on {single.inputs['model']}, which is built like Llama-3: "
        "published perplexity grows many times over"
    )
    return what, f"use key_bits and value_bits >= {least:g} or a quantizer that fits its steps to keys and values"


def _blind_retrieval(single: SingleDesign) -> tuple[str, str]:
    kept = 100 * float(single.step.ledger.kept_fraction)
    seen = "visible" if single.inputs["question_visible"] else "hidden"
    what = (
        f"{100 - kept:.3g} % of the tokens are dropped by evictor {single.inputs['evictor']} with the question "
        f"{seen}, and hard retrieval is in the workload: what is asked for may be among them"
    )
    return what, "use retention 1, or an evictor that scores by the question with question_visible true"

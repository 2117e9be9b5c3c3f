"""The hazards of published rows under a hierarchy of effects, from which the curves of the record are read.

Every curve is a sum of effects on the logarithm of its scale: of the family, the task, both, the method. Three more are
no curve's: how hard a subtask is, what is peculiar to a model, and to a source; they take up what would else bend the
curves, and predictions of new sources leave them out. All effects are drawn to zero, that is to a family's mean or to
the mean over tasks, with the strengths of `PRIORS`, which were chosen on sources left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np

from kvwall.objectives import quality
from kvwall.spaces.quality import ROUNDING_BITS, SUBTASK_ON_BITS
from kvwall.spaces.quality_columns import BitCurve, EvictionCurve, SmallBudget
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS
from kvwall.spaces.quality_tasks import TASKS
from kvwall.sweep.quality.rows import Row
from kvwall.sweep.quality.terms import FAMILIES, Floats, Terms, codes, terms_of

Parameters = Mapping[str, Any]

KINDS: Final = ("evictor", "quantizer", "weight_quantizer")

_EVICTOR_CENTRES: Final = {
    "query_aware": 2.5, "query_agnostic": 1.0, "heavy_hitter": 1.5, "reconstruction": 2.5, "position": 0.8,
    "random": 0.3, "head_adaptive": 2.0, "read_sparse": 2.5, "block_retrieval": 1.5, "decode_window": 1.5,
    "decode_redundancy": 2.5, "learned": 2.5,
}  # fmt: skip
"""Where families' log_half is drawn to: random eviction loses a share of needles near 1 - r, which is log_half 0."""
_QUANTIZER_CENTRES: Final = {
    "structure_aware": -5.2, "naive_grouped": -4.2, "naive": -3.0, "fp8": -5.0, "fp4": -3.5,
}  # fmt: skip
"""ln of the hazard at 4 bits."""
_WEIGHT_CENTRES: Final = {"structure_aware": -4.0, "naive": -3.0, "fp8": -4.0, "fp4": -3.6, "int8": -4.0}
_ACTIVATION_CENTRE: Final = -3.0
_CEILING_CENTRES: Final = {
    "aggregate": 1.4, "retrieval_easy": 5.3, "retrieval_hard": 5.3, "reasoning": 4.0, "code": 2.5, "summarisation": 0.5,
    "perplexity": 5.3,
}  # fmt: skip
"""Logit of the loss when nearly all is dropped."""
_FREE_CEILINGS: Final = ("aggregate", "reasoning", "code", "summarisation")
_FRAGILITY_ON_EVICTION: Final = 0.6
"""How far a fragile task moves log_half, where it moves the logarithm of other hazards by 1."""
SMALL: Final = 1 / 16
"""Kept fraction that is a small budget: 512 of the 8192 tokens that all its rows are of."""

PRIORS: Final[Mapping[str, float]] = {
    "fragility": 1.5,
    "evictor_family": 2.0, "evictor_task": 0.7, "evictor_family_task": 0.7, "evictor_method": 0.4,
    "evictor_method_task": 0.2, "steep_task": 1.0, "steep_family": 0.7, "ceiling": 1.0,
    "bits_family": 2.0, "bits_task": 0.7, "bits_family_task": 0.7, "bits_method": 0.8, "bits_method_task": 0.4,
    "slope_family": 0.4, "slope_task": 0.4, "bits_floor": 1.5, "key_share": 1.0, "rounding": 2.0, "outliers": 2.0,
    "weight_family": 2.0, "weight_task": 1.5, "weight_slope_family": 0.5, "weight_slope_task": 0.4,
    "weight_floor": 1.5, "per_channel": 1.0, "activation": 1.0, "activation_task": 0.5, "activation_slope": 0.3,
    "small_budget": 1.0, "subtask": 0.5,
    "model": 0.25, "source": 0.6, "source_task": 0.4,
}  # fmt: skip
"""Standard deviation of each effect."""


class Hierarchy:
    """The model of a set of rows: its effects, their penalty, and hazards by remedy."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self._subtasks = codes([part.subtask for row in rows for part in row.parts])
        self._models = codes([row.model for row in rows])
        self._sources = codes([row.source for row in rows])

    @cached_property
    def terms(self) -> Terms:
        """The rows as arrays."""
        return terms_of(self.rows, self._subtasks, self._models, self._sources)

    @property
    def subtasks(self) -> Mapping[str, int]:
        """Subtask -> its place among the effects."""
        return self._subtasks

    def initial(self) -> dict[str, Floats]:
        """All effects at zero."""
        tasks, evictors, quantizers = len(TASKS), len(EVICTORS), len(QUANTIZERS)
        families = {remedy: len(names) for remedy, names in FAMILIES.items()}
        shapes: dict[str, tuple[int, ...]] = {
            "fragility": (tasks,),
            "evictor_family": (families["evictor"],),
            "evictor_task": (tasks,),
            "evictor_family_task": (families["evictor"], tasks),
            "evictor_method": (evictors,),
            "evictor_method_task": (evictors, tasks),
            "steep_task": (tasks,),
            "steep_family": (families["evictor"],),
            "ceiling": (tasks,),
            "bits_family": (families["quantizer"],),
            "bits_task": (tasks,),
            "bits_family_task": (families["quantizer"], tasks),
            "bits_method": (quantizers,),
            "bits_method_task": (quantizers, tasks),
            "slope_family": (families["quantizer"],),
            "slope_task": (tasks,),
            "bits_floor": (tasks,),
            "key_share": (),
            "rounding": (families["quantizer"],),
            "outliers": (),
            "weight_family": (families["weight_quantizer"],),
            "weight_task": (tasks,),
            "weight_slope_family": (families["weight_quantizer"],),
            "weight_slope_task": (tasks,),
            "weight_floor": (tasks,),
            "per_channel": (),
            "activation": (),
            "activation_task": (tasks,),
            "activation_slope": (),
            "small_budget": (),
            "subtask": (len(self._subtasks),),
            "model": (len(self._models), len(KINDS), 2),
            "source": (len(self._sources), len(KINDS)),
            "source_task": (len(self._sources), len(KINDS), tasks),
        }
        return {name: np.zeros(shape) for name, shape in shapes.items()}


def penalty(effects: Parameters) -> Any:
    """Half the sum of squares of all effects in their own units."""
    return 0.5 * sum(jnp.sum((effects[name] / sd) ** 2) for name, sd in PRIORS.items())


def key_share(effects: Parameters) -> Any:
    """Share of the KV hazard that keys carry at equal bits."""
    return jax.nn.sigmoid(0.8 + effects["key_share"])


def eviction_curve(effects: Parameters, family: Any, task: Any, method: Any, known: Any) -> EvictionCurve:
    """The curve of an evictor; `known` is 1 where it is a method's, 0 where its family's. No spread, no noise."""
    centre = _centres("evictor", _EVICTOR_CENTRES)[family] + effects["evictor_family"][family]
    centre = centre + effects["evictor_task"][task] - _FRAGILITY_ON_EVICTION * effects["fragility"][task]
    centre = centre + effects["evictor_family_task"][family, task]
    centre = centre + known * (effects["evictor_method"][method] + effects["evictor_method_task"][method, task])
    steep = 1 + jnp.exp(-1.25 + effects["steep_task"][task] + effects["steep_family"][family])
    free = jnp.array([each in _FREE_CEILINGS for each in TASKS])
    logit = jnp.array([_CEILING_CENTRES[each] for each in TASKS]) + jnp.where(free, effects["ceiling"], 0.0)
    return EvictionCurve(steep, centre, jax.nn.sigmoid(logit)[task], 1.0, 0.0)


def cache_curve(effects: Parameters, family: Any, task: Any, method: Any, known: Any) -> BitCurve:
    """The curve of a KV quantizer, K and V together."""
    log_scale = _centres("quantizer", _QUANTIZER_CENTRES)[family] + effects["bits_family"][family]
    log_scale = log_scale + effects["bits_task"][task] + effects["fragility"][task]
    log_scale = log_scale + effects["bits_family_task"][family, task]
    log_scale = log_scale + known * (effects["bits_method"][method] + effects["bits_method_task"][method, task])
    slope = 1.5 * jnp.exp(effects["slope_family"][family] + effects["slope_task"][task])
    return BitCurve(jnp.exp(log_scale), slope, jnp.exp(-7.5 + effects["bits_floor"][task]), 1.0, 0.0)


def weight_curve(effects: Parameters, family: Any, task: Any) -> BitCurve:
    """The curve of weights."""
    log_scale = _centres("weight_quantizer", _WEIGHT_CENTRES)[family] + effects["weight_family"][family]
    log_scale = log_scale + effects["weight_task"][task]
    slope = 1.8 * jnp.exp(effects["weight_slope_family"][family] + effects["weight_slope_task"][task])
    return BitCurve(jnp.exp(log_scale), slope, jnp.exp(-6.5 + effects["weight_floor"][task]), 1.0, 0.0)


def activation_curve(effects: Parameters, task: Any) -> BitCurve:
    """The curve of activations."""
    log_scale = _ACTIVATION_CENTRE + effects["activation"] + effects["activation_task"][task]
    slope = 1.5 * jnp.exp(effects["activation_slope"])
    return BitCurve(jnp.exp(log_scale), slope + 0.0 * log_scale, 0.0 * log_scale, 1.0, 0.0)


def small_budget_hazard(effects: Parameters) -> Any:
    """What a 2-bit cache of a small budget loses besides."""
    return jnp.exp(-2.3 + effects["small_budget"])


def hazards(effects: Parameters, terms: Terms, peculiar: bool = True) -> dict[str, Any]:
    """Central hazard of every entry by remedy; without what is peculiar to models and sources if not asked for."""
    task, source = terms.task, terms.source
    ppl = terms.log_ratio.astype(int)

    def own(kind: str) -> Any:
        place = KINDS.index(kind)
        found = effects["source"][source, place] + effects["source_task"][source, place, task]
        return (found + effects["model"][terms.model, place, ppl]) if peculiar else 0.0

    subtask = effects["subtask"][terms.subtask]
    eviction = eviction_curve(effects, terms.evictor_family, task, terms.evictor, terms.evictor_known)
    eviction = EvictionCurve(
        eviction.exponent,
        eviction.log_half + subtask + own("evictor"),
        eviction.ceiling,
        eviction.spread,
        eviction.noise,
    )
    cache = cache_curve(effects, terms.quantizer_family, task, terms.quantizer, terms.quantizer_known)
    breaks = terms.llama_3 * rounding(effects)[terms.quantizer_family]
    factor = own("quantizer") - SUBTASK_ON_BITS * subtask + breaks
    slope = cache.slope - breaks / ROUNDING_BITS
    share, half = key_share(effects), BitCurve(cache.scale * jnp.exp(factor), slope, cache.floor / 2, 1.0, 0.0)
    key_factor = jnp.exp(terms.k_outliers * effects["outliers"])
    weights = weight_curve(effects, terms.weight_family, task)
    weight_factor = jnp.exp(own("weight_quantizer") + terms.per_channel * effects["per_channel"])
    narrower, budget = jnp.minimum(terms.key_bits, terms.value_bits), SmallBudget(small_budget_hazard(effects), SMALL)
    return {
        "evictor": terms.evicts * quality.eviction_hazard(terms.kept, eviction, upper=False),
        "quantizer": quality.bit_hazard(terms.key_bits, half.scaled(share * key_factor), upper=False)
        + quality.bit_hazard(terms.value_bits, half.scaled(1 - share), upper=False)
        + quality.small_budget_hazard(narrower, terms.dropped_to, budget),
        "weight_quantizer": quality.bit_hazard(terms.weight_bits, weights.scaled(weight_factor), upper=False),
        "activation": quality.bit_hazard(terms.activation_bits, activation_curve(effects, task), upper=False),
    }


def _centres(remedy: str, by_name: Mapping[str, float]) -> Any:
    return jnp.array([by_name[family] for family in FAMILIES[remedy]])


def rounding(effects: Parameters) -> Any:
    """Ln of the factor at 4 bits on Llama-3-like models, per family: of those that round to the nearest step only."""
    rounds = jnp.array([name in ("naive", "naive_grouped") for name in FAMILIES["quantizer"]])
    return jnp.where(rounds, effects["rounding"], 0.0)


def predicted(total: Any, terms: Terms) -> Any:
    """Loss of every row from the total hazard of its parts."""
    loss = quality.loss_from_hazard(total, terms.log_ratio)
    return jax.ops.segment_sum(terms.weight * loss, terms.rows, num_segments=terms.count)

"""The hazards of published rows under a hierarchy of effects, from which the curves of the record are read.

Every curve is a sum of effects on the logarithm of its scale: of the family, the task, both, the method. Three more are
no curve's: how hard a subtask is, what is peculiar to a model, and to a source; they take up what would else bend the
curves, and predictions of new sources leave them out. All effects are drawn to zero, that is to a family's mean or to
the mean over tasks, with the strengths of `PRIORS`, which were chosen on sources left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from kvwall.objectives import quality
from kvwall.spaces.quality import ROUNDING_BITS, SUBTASK_ON_BITS
from kvwall.spaces.quality_columns import BitCurve, EvictionCurve, SmallBudget
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS, load_methods
from kvwall.spaces.quality_tasks import TASKS
from kvwall.sweep.quality.rows import FULL, Named, Row

Floats = NDArray[np.float64]
Parameters = Mapping[str, Any]

FAMILIES: Final = {remedy: tuple(names.families) for remedy, names in load_methods().items()}
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


@dataclass(frozen=True)
class Terms:
    """Rows as arrays, NumPy's, which laws take like JAX's; a row of several parts stands as often."""

    rows: NDArray[np.int64]
    """The row that each entry is a part of."""
    count: int
    weight: Floats
    task: NDArray[np.int64]
    subtask: NDArray[np.int64]
    evicts: Floats
    evictor_family: NDArray[np.int64]
    evictor: NDArray[np.int64]
    evictor_known: Floats
    kept: Any
    quantizes: Floats
    quantizer_family: NDArray[np.int64]
    quantizer: NDArray[np.int64]
    quantizer_known: Floats
    key_bits: Any
    value_bits: Any
    weight_family: NDArray[np.int64]
    weight_bits: Any
    activation_bits: Any
    per_channel: Floats
    llama_3: Floats
    k_outliers: Floats
    model: NDArray[np.int64]
    source: NDArray[np.int64]

    @property
    def log_ratio(self) -> Any:
        """Per entry, whether its loss is a perplexity's."""
        return self.task == TASKS.index("perplexity")


class Hierarchy:
    """The model of a set of rows: its effects, their penalty, and hazards by remedy."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.rows = tuple(rows)
        self._subtasks = _codes([part.subtask for row in rows for part in row.parts])
        self._models = _codes([row.model for row in rows])
        self._sources = _codes([row.source for row in rows])

    @cached_property
    def terms(self) -> Terms:
        """The rows as arrays."""
        parts = [(place, row, part) for place, row in enumerate(self.rows) for part in row.parts]
        of = [row for _, row, _ in parts]
        evictors = [_codes_of(row.evictor, "evictor", EVICTORS) for row in of]
        quantizers = [_codes_of(row.quantizer, "quantizer", QUANTIZERS) for row in of]
        return Terms(
            rows=_ints([place for place, _, _ in parts]),
            count=len(self.rows),
            weight=_floats([part.weight for _, _, part in parts]),
            task=_ints([TASKS.index(part.task) for _, _, part in parts]),
            subtask=_ints([self._subtasks[part.subtask] for _, _, part in parts]),
            evicts=_floats([row.kept < 1 for row in of]),
            evictor_family=_ints([each[0] for each in evictors]),
            evictor=_ints([each[1] for each in evictors]),
            evictor_known=_floats([each[2] for each in evictors]),
            kept=_floats([min(max(row.kept, 1e-4), 1.0) for row in of]),
            quantizes=_floats([row.quantizer is not None for row in of]),
            quantizer_family=_ints([each[0] for each in quantizers]),
            quantizer=_ints([each[1] for each in quantizers]),
            quantizer_known=_floats([each[2] for each in quantizers]),
            key_bits=_floats([row.key_bits for row in of]),
            value_bits=_floats([row.value_bits for row in of]),
            weight_family=_ints([_codes_of(row.weight_quantizer, "weight_quantizer", ())[0] for row in of]),
            weight_bits=_floats([row.weight_bits for row in of]),
            activation_bits=_floats([row.activation_bits for row in of]),
            per_channel=_floats([row.per_channel and row.weight_bits < FULL for row in of]),
            llama_3=_floats([row.llama_3 for row in of]),
            k_outliers=_floats([row.k_outliers for row in of]),
            model=_ints([self._models[row.model] for row in of]),
            source=_ints([self._sources[row.source] for row in of]),
        )

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
    centre = jnp.array(list(_EVICTOR_CENTRES.values()))[family] + effects["evictor_family"][family]
    centre = centre + effects["evictor_task"][task] - _FRAGILITY_ON_EVICTION * effects["fragility"][task]
    centre = centre + effects["evictor_family_task"][family, task]
    centre = centre + known * (effects["evictor_method"][method] + effects["evictor_method_task"][method, task])
    steep = 1 + jnp.exp(-1.25 + effects["steep_task"][task] + effects["steep_family"][family])
    free = jnp.array([each in _FREE_CEILINGS for each in TASKS])
    logit = jnp.array([_CEILING_CENTRES[each] for each in TASKS]) + jnp.where(free, effects["ceiling"], 0.0)
    return EvictionCurve(steep, centre, jax.nn.sigmoid(logit)[task], 1.0, 0.0)


def cache_curve(effects: Parameters, family: Any, task: Any, method: Any, known: Any) -> BitCurve:
    """The curve of a KV quantizer, K and V together."""
    log_scale = jnp.array(list(_QUANTIZER_CENTRES.values()))[family] + effects["bits_family"][family]
    log_scale = log_scale + effects["bits_task"][task] + effects["fragility"][task]
    log_scale = log_scale + effects["bits_family_task"][family, task]
    log_scale = log_scale + known * (effects["bits_method"][method] + effects["bits_method_task"][method, task])
    slope = 1.5 * jnp.exp(effects["slope_family"][family] + effects["slope_task"][task])
    return BitCurve(jnp.exp(log_scale), slope, jnp.exp(-7.5 + effects["bits_floor"][task]), 1.0, 0.0)


def weight_curve(effects: Parameters, family: Any, task: Any) -> BitCurve:
    """The curve of weights."""
    log_scale = jnp.array(list(_WEIGHT_CENTRES.values()))[family] + effects["weight_family"][family]
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
        "evictor": terms.evicts * quality.eviction_hazard(terms.kept, eviction),
        "quantizer": quality.bit_hazard(terms.key_bits, _scaled(half, share * key_factor))
        + quality.bit_hazard(terms.value_bits, _scaled(half, 1 - share))
        + quality.small_budget_hazard(narrower, terms.kept, budget),
        "weight_quantizer": quality.bit_hazard(terms.weight_bits, _scaled(weights, weight_factor)),
        "activation": quality.bit_hazard(terms.activation_bits, activation_curve(effects, task)),
    }


def rounding(effects: Parameters) -> Any:
    """Ln of the factor at 4 bits on Llama-3-like models, per family: of those that round to the nearest step only."""
    rounds = jnp.array([name in ("naive", "naive_grouped") for name in FAMILIES["quantizer"]])
    return jnp.where(rounds, effects["rounding"], 0.0)


def predicted(total: Any, terms: Terms) -> Any:
    """Loss of every row from the total hazard of its parts."""
    loss = quality.loss_from_hazard(total, terms.log_ratio)
    return jax.ops.segment_sum(terms.weight * loss, terms.rows, num_segments=terms.count)


def _scaled(curve: BitCurve, factor: Any) -> BitCurve:
    return BitCurve(curve.scale * factor, curve.slope, curve.floor, curve.spread, curve.noise)


def _codes(names: Sequence[str]) -> dict[str, int]:
    return {name: place for place, name in enumerate(sorted(set(names)))}


def _codes_of(named: Named | None, remedy: str, methods: Sequence[str]) -> tuple[int, int, int]:
    """Places of the family and of the method, and whether the method is one."""
    if named is None:
        return 0, 0, 0
    is_method = named.name in methods and named.name not in FAMILIES[remedy]
    return FAMILIES[remedy].index(named.family), methods.index(named.name) if is_method else 0, int(is_method)


def _ints(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _floats(values: Sequence[float]) -> Floats:
    return np.array(values, dtype=np.float64)

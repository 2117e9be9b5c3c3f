"""Terms of the calibration: the logarithms that are fitted to whole steps, and what each changes of what is achieved.

A term is a sum of effects: the mean of all rows, the engine's generation, the chip's architecture, the chip; and of one
user's own machine, where a record has been told rows of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

import jax.numpy as jnp

from kvwall.spaces.achieved import Achieved, ByBits, ByCache, ByDevices, ByWeight
from kvwall.spaces.generations import load_generations
from kvwall.spaces.kernel_shares import KernelShares
from kvwall.spaces.units import Real

Level: TypeAlias = Literal["engine", "architecture", "chip", "machine"]
LEVELS: Final[tuple[Level, ...]] = ("engine", "architecture", "chip", "machine")
MACHINE: Final[Level] = "machine"
"""A generation of an engine on a chip, as one user has them: no shipped record has such effects."""


@dataclass(frozen=True)
class Term:
    """What is known of a term before any whole step is seen: normal distributions of the logarithm."""

    meaning: str
    unit: str
    """Of its exponential."""
    mean: float
    """ln of the value expected."""
    sd: float
    """Of the mean over all engines and chips."""
    spread: Mapping[Level, float]
    """Standard deviation among the members of a level; levels that are not named make no difference."""
    own_kernels: float | None = None
    """The same among generations of engines whose own kernels are measured, where that is less."""

    def spread_of(self, level: str, member: str) -> float:
        """Standard deviation of a member's effect; 0 where the level makes no difference."""
        generation = load_generations().get(member) if level == "engine" else None
        if self.own_kernels is not None and generation is not None and generation.own_kernels:
            return self.own_kernels
        return next((spread for name, spread in self.spread.items() if name == level), 0.0)


def _term(meaning: str, unit: str, value: float, sd: float, own_kernels: float | None = None, **spread: float) -> Term:
    return Term(meaning, unit, math.log(value), sd, spread, own_kernels)  # type: ignore[arg-type]


TERMS: Final[Mapping[str, Term]] = {
    "weights": _term(
        "time of dense weights over the kernels'", "1", 1.05, 0.08, engine=0.12, architecture=0.08, chip=0.07
    ),
    "weights_8": _term("the same of 8-bit weights, besides", "1", 1.0, 0.1, engine=0.12),
    "weights_4": _term("the same of 4-bit weights, besides", "1", 1.1, 0.15, engine=0.2, architecture=0.1),
    "experts_16": _term(
        "time of 16-bit experts over the kernels' of dense weights", "1", 1.35, 0.2, engine=0.3, architecture=0.1
    ),
    "experts_8": _term("the same of 8-bit experts", "1", 1.35, 0.2, engine=0.3, architecture=0.1),
    "experts_4": _term("the same of 4-bit experts", "1", 1.35, 0.2, engine=0.3, architecture=0.1),
    "compute": _term("time of matrices' arithmetic over the kernels'", "1", 1.1, 0.1, engine=0.1, architecture=0.1),
    "attention": _term(
        "time of attention over the kernels'",
        "1",
        1.0,
        0.04,
        own_kernels=0.05,
        engine=0.12,
        architecture=0.04,
        chip=0.03,
    ),
    "attention_8": _term("the same of an 8-bit cache, besides", "1", 1.0, 0.05, own_kernels=0.05, engine=0.15),
    "query_group": _term(
        "the same for every eightfold of query heads per KV head", "1", 1.0, 0.02, own_kernels=0.03, engine=0.4
    ),
    "latent": _term("the same over latents, besides", "1", 1.0, 0.06, own_kernels=0.05, engine=0.1, architecture=0.05),
    "link": _term(
        "time of collectives' bytes over the kernels'", "1", 0.8, 0.15, engine=0.15, architecture=0.1, chip=0.1
    ),
    "collective": _term(
        "cost of a collective over the kernels'", "1", 1.35, 0.4, engine=0.4, architecture=0.2, chip=0.2
    ),
    "layer": _term(
        "cost of a decoder layer besides bytes and FLOP", "s", 25e-6, 0.5, engine=0.6, architecture=0.2, chip=0.1
    ),
    "expert_layer": _term("the same of a layer's routing", "s", 20e-6, 0.5, engine=0.4, architecture=0.2),
    "step": _term("cost of a step", "s", 0.5e-3, 0.6, engine=0.7, architecture=0.1),
    "sequence": _term("cost of a sequence in a step", "s", 5e-6, 0.7, engine=0.7),
    "activation": _term("passes over a hidden vector in a layer", "1", 20.0, 0.6, engine=0.25, architecture=0.15),
    "prefill": _term(
        "time of prefill's arithmetic over that of matrices", "1", 1.3, 0.2, engine=0.25, architecture=0.15, chip=0.1
    ),
    "prompt_layer": _term("cost of a layer in a prompt's prefill", "s", 100e-6, 1.0, engine=0.6, architecture=0.15),
    "mixing": _term("share of others' prefill that falls between tokens", "1", 0.7, 0.2, engine=0.25),
    "machine": _term("time of everything over what engine and chip give", "1", 1.0, 0.001, machine=0.2),
}


_TIMES: Final = frozenset(
    ("weights", "experts_16", "experts_8", "experts_4", "compute", "attention", "link", "collective", "layer")
    + ("expert_layer", "step", "sequence", "activation", "prompt_layer")
)
"""Terms that say how long something takes by itself; the others are on top of these, or no times."""


def achieved(kernels: KernelShares, value: Mapping[str, Real]) -> Achieved:
    """What is achieved, from what kernels reach alone and the value of every term of TERMS, as a logarithm."""
    whole = value["machine"]
    slowed = {name: value[name] + (whole if name in _TIMES else 0.0) for name in TERMS}
    time = {name: jnp.exp(slowed[name]) for name in TERMS}
    dense, attention = time["weights"], time["attention"]
    eight, latent = attention * time["attention_8"], time["latent"]
    return Achieved(
        weights=_weights(kernels.weights, dense, dense * time["weights_8"], dense * time["weights_4"]),
        experts=_weights(kernels.weights, time["experts_16"], time["experts_8"], time["experts_4"]),
        compute=ByBits(
            *(
                _share(each, time["compute"])
                for each in (kernels.compute.sixteen, kernels.compute.eight, kernels.compute.four)
            )
        ),
        attention=ByCache(_share(kernels.attention.sixteen, attention), _share(kernels.attention.eight, eight)),
        group_cost=time["query_group"],
        latent=ByCache(
            _share(kernels.latent.sixteen, attention * latent), _share(kernels.latent.eight, eight * latent)
        ),
        latent_compute=ByCache(
            _share(kernels.latent_compute.sixteen, attention * latent),
            _share(kernels.latent_compute.eight, eight * latent),
        ),
        link=ByDevices(
            *(_share(each, time["link"]) for each in (kernels.link.two, kernels.link.four, kernels.link.eight))
        ),
        collective=ByDevices(
            *(
                each * time["collective"]
                for each in (kernels.collective.two, kernels.collective.four, kernels.collective.eight)
            )
        ),
        layer=time["layer"],
        expert_layer=time["expert_layer"],
        step=time["step"],
        sequence=time["sequence"],
        activation=time["activation"],
        prefill=time["prefill"],
        prompt_layer=time["prompt_layer"],
        mixing=jnp.minimum(time["mixing"], 1.0),
    )


def _weights(reached: ByWeight, sixteen: Real, eight: Real, four: Real) -> ByWeight:
    return ByWeight(
        sixteen=_share(reached.sixteen, sixteen),
        eight=_share(reached.eight, eight),
        eight_only=_share(reached.eight_only, eight),
        four=_share(reached.four, four),
        four_only=_share(reached.four_only, four),
    )


def _share(reached: Real, slower: Real) -> Real:
    """Share that kernels reach alone, as whole steps see it; nothing reaches more than all."""
    return jnp.minimum(reached / slower, 1.0)

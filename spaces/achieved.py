"""What an engine achieves on a chip, as the laws read it: shares of datasheet peaks, and what calls cost besides.

`calibration` fills these columns from its record and from that of kernels. A share is at most 1.
"""

from __future__ import annotations

from dataclasses import dataclass

import jax

from kvwall.spaces.units import Bits, Count, Flag, Ratio, Real, Seconds, Tokens


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ByWeight:
    """One number per format of weights and what multiplies them."""

    sixteen: Real
    eight: Real
    """8-bit weights times 8-bit activations."""
    eight_only: Real
    """8-bit weights times wider activations."""
    four: Real
    """4-bit weights times 4-bit activations."""
    four_only: Real
    """4-bit weights times wider activations."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ByBits:
    """One number per format of arithmetic, in the order of `objectives.compute.ByFormat`."""

    sixteen: Real
    eight: Real
    four: Real


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ByDevices:
    """One number per count of devices of a collective; counts between belong to the next."""

    two: Real
    four: Real
    eight: Real
    """And more."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class ByCache:
    """One number per precision of the KV cache that attention reads."""

    sixteen: Real
    eight: Real
    """8 bits and fewer."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Achieved:
    """An engine on a chip."""

    weights: ByWeight
    """Share of the memory's bandwidth, of dense matrices."""
    experts: ByWeight
    """The same of routed experts."""
    compute: ByBits
    """Share of the arithmetic peak, of matrices."""
    attention: ByCache
    """Share of the memory's bandwidth, of attention with KV heads."""
    group_cost: Ratio
    """Factor on the time of attention for every eightfold of query heads per KV head."""
    latent: ByCache
    """Share of the memory's bandwidth, of attention over latents."""
    latent_compute: ByCache
    """Share of the arithmetic peak of the KV's format, of the same."""
    link: ByDevices
    """Share of the scale-up link, of collectives."""
    collective: ByDevices
    """Seconds of a collective besides its bytes."""
    layer: Seconds
    """Of a decoder layer besides its bytes and FLOP: kernels that start and drain."""
    expert_layer: Seconds
    """The same of a layer's routing."""
    step: Seconds
    """Of a step: the scheduler, the sampler."""
    sequence: Seconds
    """Of each sequence of a step: bookkeeping, sampling, detokenizing."""
    activation: Count
    """Passes over a token's hidden vector in a layer, through memory and not divided over devices."""
    prefill: Ratio
    """Time of prefill's arithmetic over that of matrices of its FLOP at the share above."""
    prompt_layer: Seconds
    """Of each layer of a prompt's prefill, besides its FLOP."""
    mixing: Ratio
    """Share of other prompts' prefill that falls between the tokens of a sequence, not before its first."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Reached:
    """How far the measurements go that an engine on a chip is calibrated on."""

    engine: Flag
    """Whether the engine's generation was measured on any chip."""
    chip: Flag
    """Whether it was on this one."""
    cache_bits: tuple[Bits, ...]
    """Bits per KV element that were; 0 fills the rest."""
    context: Tokens
    """The longest, of all engines and chips."""
    batch: Count
    """The largest."""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Calibrated:
    """What an engine achieves on a chip, and how sure that is."""

    achieved: Achieved
    directions: Achieved
    """Independent ways to be wrong by one standard deviation, along a leading dimension: what each adds to a number."""
    model_spread: Ratio
    """Standard deviation of ln time among models, dense ones, beyond all that."""
    expert_spread: Ratio
    """The same of models with routed experts."""
    reached: Reached

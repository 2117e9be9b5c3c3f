"""Estimate mode: operators one after another, each at what it achieves, plus what calls cost besides.

Source: model.md section 4 of the design; the numbers are those of `catalog/calibration/`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import cached_property

import jax
import jax.numpy as jnp

from kvwall.objectives import tiers, time
from kvwall.objectives.compute import ByFormat
from kvwall.objectives.operators import Operators
from kvwall.objectives.overlap import overlapped
from kvwall.spaces.achieved import Achieved, ByBits, ByCache, ByDevices, ByWeight, Calibrated
from kvwall.spaces.design import HardwareColumns
from kvwall.spaces.units import BytesPerSecond, Code, Count, Flag, Ratio, Real, Seconds

DEVIATIONS_OF_BAND = 1.2816
"""Standard deviations from the middle to the 10 % and 90 % bounds of a normal distribution."""
_EIGHTFOLD = 8.0
"""Query heads per KV head at which attention takes `group_cost` times as long."""
_FIRST_TOKEN = 0.2
"""Standard deviation of ln(time to the first token) beyond that of steps: a judgement. Rows of whole requests hold its
arithmetic; servers add queues and preprocessing that no row states.
"""
LARGE_MESSAGES = 0.7
"""Time of a prompt's collectives over that at the share of small messages.

Source: all-reduces from 256 MB reach 0.6 to 0.8 of a link, up to 16 MiB 0.42, `catalog/measured/allreduce.parquet`.
"""

BOUNDS = (*time.RESOURCES, "overhead")
"""What can take most of a step, in the order of the `bound_by` codes."""


@dataclass(frozen=True)
class OperatorTimes:
    """Seconds of one decode step, operator by operator, and of one prompt's prefill."""

    moved: Seconds
    """Weights out of memory."""
    multiplied: Seconds
    """Arithmetic of matrices."""
    attention: Seconds
    collectives: Seconds
    activations: Seconds
    overhead: Seconds
    prompt_work: Seconds
    """Arithmetic and collectives of one prompt."""
    prompt_fixed: Seconds
    """Besides, of prompts that are read together."""
    mixing: Ratio

    @property
    def matrices(self) -> Seconds:
        """Transfer and arithmetic of matrices, which overlap."""
        return overlapped(self.moved, self.multiplied)

    @property
    def prompt(self) -> Seconds:
        """Prefill of one prompt."""
        return self.prompt_work + self.prompt_fixed

    @property
    def decode(self) -> Seconds:
        """A step without prompts."""
        return self.matrices + self.attention + self.collectives + self.activations + self.overhead

    @property
    def besides_attention(self) -> Seconds:
        """The same, without attention."""
        return self.matrices + self.collectives + self.activations + self.overhead


def operator_times(work: Operators, achieved: Achieved, chip: HardwareColumns) -> OperatorTimes:
    """Seconds of every operator of a step at what the engine achieves on the chip."""
    awaited, bandwidth = work.stages.awaited, chip.memory_bandwidth
    of_layers = read_time(work.dense, achieved.weights, bandwidth) + read_time(
        work.experts, achieved.experts, bandwidth
    )
    body, end = (multiply_time(flop, achieved.compute, chip) for flop in work.matrices)
    slower, fixed = (of_devices(each, work.devices) for each in (inverse(achieved.link), achieved.collective))
    layers = work.stages.micro * (work.stages.layers * achieved.layer + work.expert_layers * achieved.expert_layer)
    prompt = multiply_time(work.prompt, achieved.compute, chip) * achieved.prefill
    prompt_sent = time.link_time(work.prompt_sent, chip) * of_large_messages(slower)
    return OperatorTimes(
        moved=awaited(of_layers, read_time(work.ends, achieved.weights, bandwidth), 0.0),
        multiplied=awaited(body, end, 0.0),
        attention=awaited(0.0, 0.0, attention_time(work, achieved, chip)),
        collectives=time.link_time(work.sent, chip) * slower + work.calls * fixed,
        activations=awaited(0.0, 0.0, achieved.activation * work.hidden / bandwidth),
        overhead=awaited(layers, 0.0, 0.0) + achieved.step + work.sequences * achieved.sequence,
        prompt_work=prompt + prompt_sent,
        prompt_fixed=work.stages.layers * achieved.prompt_layer,
        mixing=achieved.mixing,
    )


def read_time(size: ByWeight, share: ByWeight, bandwidth: BytesPerSecond) -> Seconds:
    """Seconds to read weights, each format at its share of the bandwidth.

    >>> one, half = ByWeight(10.0, 0.0, 0.0, 20.0, 0.0), ByWeight(1.0, 1.0, 1.0, 0.5, 1.0)
    >>> read_time(one, half, 10.0)
    5.0
    """
    names = [field.name for field in fields(ByWeight)]
    seconds: Seconds = sum(getattr(size, name) * (1 / (getattr(share, name) * bandwidth)) for name in names)
    return seconds


def multiply_time(flop: ByFormat, share: ByBits, chip: HardwareColumns) -> Seconds:
    """Seconds of arithmetic, one format after another, each at its share of the peak."""
    shares = (share.sixteen, share.eight, share.four)
    return sum(work / (part * peak) for work, part, peak in zip(flop, shares, time.peaks(chip), strict=True))


def attention_time(work: Operators, achieved: Achieved, chip: HardwareColumns) -> Seconds:
    """Seconds of attention of all layers besides the cost of calls.

    With KV heads its bytes decide but where many tokens are scored at once; over latents, which all heads share, its
    FLOP may.
    """
    narrow = work.narrow_cache

    def of_cache(wide: Real, eight: Real) -> Real:
        return jnp.where(narrow, eight, wide)

    def read(share: ByCache) -> Seconds:
        per_byte = (1 / (each * chip.memory_bandwidth) for each in (share.sixteen, share.eight))
        return work.kv * of_cache(*per_byte)

    arithmetic = achieved.latent_compute
    per_flop_of_heads = 1 / (achieved.compute.sixteen * chip.bf16_flops.value)  # what is narrow is widened first
    per_flop = of_cache(1 / (arithmetic.sixteen * chip.bf16_flops.value), 1 / (arithmetic.eight * chip.fp8_flops.value))
    by_group = achieved.group_cost ** (jnp.log(work.query_group) / jnp.log(_EIGHTFOLD))
    of_heads = overlapped(read(achieved.attention) * by_group, work.attention * per_flop_of_heads)
    return jnp.where(work.latent, overlapped(read(achieved.latent), work.attention * per_flop), of_heads)


def of_large_messages(slower: Ratio) -> Ratio:
    """Time of a prompt's collectives over that at the whole link, from the same of small messages; never below 1.

    >>> float(of_large_messages(2.5)), float(of_large_messages(1.2))
    (1.75, 1.0)
    """
    return jnp.maximum(LARGE_MESSAGES * slower, 1.0)


def inverse(share: ByDevices) -> ByDevices:
    """Times over those at the whole link."""
    return ByDevices(two=1 / share.two, four=1 / share.four, eight=1 / share.eight)


def of_devices(number: ByDevices, devices: Count) -> Real:
    """The number of a collective among so many devices.

    >>> float(of_devices(ByDevices(2.0, 4.0, 8.0), 3.0))
    4.0
    """
    return jnp.where(devices <= 2, number.two, jnp.where(devices <= 4, number.four, number.eight))


@dataclass(frozen=True)
class Served:
    """How a step is served: what of its transfers is hidden, and the prompts that arrive."""

    transfer: Seconds
    """Of KV over the links of tiers."""
    link_overlap: Ratio
    arriving: Count
    """Prompts per step."""
    active: Count
    """Sequences that decode."""
    ceiling: Seconds
    """What no implementation can beat."""
    static: bool = False
    """Whether it is known beforehand that none arrive."""

    def iteration(self, times: OperatorTimes) -> Seconds:
        """Mean seconds of a step, prompts included: what throughput follows from."""
        return jnp.maximum(self._decode(times) + self.arriving * times.prompt, self.ceiling)

    def token(self, times: OperatorTimes) -> Seconds:
        """Mean seconds between tokens of a sequence: of others' prompts, those that fall between its tokens."""
        others = jnp.maximum(1 - 1 / jnp.maximum(self.active, 1.0), 0.0)
        between = times.mixing * self.arriving * others * times.prompt
        return jnp.maximum(self._decode(times) + between, self.ceiling)

    def _decode(self, times: OperatorTimes) -> Seconds:
        return tiers.exposed(times.decode, self.transfer, self.link_overlap)


@dataclass(frozen=True)
class Estimate:
    """A step as a deployment will see it, and how sure that is."""

    work: Operators
    calibrated: Calibrated
    chip: HardwareColumns
    served: Served
    routed: Flag
    """Whether the model has routed experts."""
    beyond: Ratio
    """Standard deviation of ln time for how far it lies beyond what was measured."""
    first: Callable[[Achieved], Seconds]
    """Seconds to the first token of one prompt alone, at what is achieved."""

    @cached_property
    def times(self) -> OperatorTimes:
        """Seconds of every operator."""
        return self.times_at(self.calibrated.achieved)

    def times_at(self, achieved: Achieved) -> OperatorTimes:
        """Seconds of every operator of this step at what would be achieved."""
        return operator_times(self.work, achieved, self.chip)

    @property
    def iteration(self) -> Seconds:
        """Mean seconds of a step."""
        return self.served.iteration(self.times)

    @property
    def token(self) -> Seconds:
        """Mean seconds between tokens of a sequence."""
        return self.served.token(self.times)

    @cached_property
    def first_token(self) -> Seconds:
        """Seconds to the first token."""
        return self.first(self.calibrated.achieved)

    @cached_property
    def spread(self) -> Ratio:
        """Standard deviation of ln(seconds between tokens)."""
        return self._spread_of(lambda achieved: self.served.token(self.times_at(achieved)))

    @cached_property
    def iteration_spread(self) -> Ratio:
        """Standard deviation of ln(step time); without arriving prompts that is the time between tokens."""
        if self.served.static:
            return self.spread
        return self._spread_of(lambda achieved: self.served.iteration(self.times_at(achieved)))

    @cached_property
    def first_token_spread(self) -> Ratio:
        """Standard deviation of ln(seconds to the first token), of which few rows speak."""
        return jnp.sqrt(self._spread_of(self.first) ** 2 + _FIRST_TOKEN**2)

    def _spread_of(self, seconds: Callable[[Achieved], Seconds]) -> Ratio:
        """Standard deviation of ln(seconds): each direction's effect on it, and how much models differ."""

        def move(direction: Achieved) -> Seconds:
            def moved(deviations: Real) -> Seconds:
                return seconds(
                    jax.tree.map(lambda best, one: best + deviations * one, self.calibrated.achieved, direction)
                )

            there: Seconds = jax.jvp(moved, (0.0,), (1.0,))[1]
            return there

        moves = jnp.sum(jax.vmap(move)(self.calibrated.directions) ** 2, axis=0)
        own = jnp.where(self.routed, self.calibrated.expert_spread, self.calibrated.model_spread)
        middle = seconds(self.calibrated.achieved)
        return jnp.sqrt(moves / (middle * middle) + own * own + self.beyond * self.beyond)

    @property
    def ordered(self) -> tuple[Seconds, ...]:
        """Seconds of what can take most of a step, in the order of BOUNDS; they add up to the step."""
        times = self.times
        hbm = times.moved + times.attention + times.activations
        arithmetic = times.matrices - times.moved + self.served.arriving * times.prompt
        exposed = self.served.iteration(times) - times.decode - self.served.arriving * times.prompt
        return hbm, arithmetic, times.collectives, jnp.maximum(exposed, 0.0), times.overhead


def largest(times: tuple[Seconds, ...]) -> Code:
    """Index of the largest; of equal ones the first.

    >>> int(largest((1.0, 3.0, 2.0)))
    1
    """
    found, code = times[0], jnp.zeros_like(times[0], dtype=jnp.int32)
    for place, each in enumerate(times[1:], start=1):
        code = jnp.where(each > found, place, code)
        found = jnp.maximum(found, each)
    return code


def lead(times: tuple[Seconds, ...]) -> Ratio:
    """ln(largest / second largest).

    >>> round(float(lead((1.0, 4.0, 2.0))), 4)
    0.6931
    """
    first, second = times[0], jnp.zeros_like(times[0])
    for each in times[1:]:
        second = jnp.maximum(second, jnp.minimum(first, each))
        first = jnp.maximum(first, each)
    return jnp.log(first / jnp.where(second > 0, second, first))

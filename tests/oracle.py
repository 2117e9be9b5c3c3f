"""A second, plain-Python account of one decode step, for tests to compare the package with.

It shares no code with the package: scalars, `math` and searches by bisection instead of arrays and
closed forms, so that an error has to be made twice, in two different ways, to go unnoticed. Every layout
of attention and routed experts, ceiling mode. SI units: bytes, seconds, FLOP, joules, US dollars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

NEUTRAL: dict[str, float | str | bool | None] = {
    "batch": 1,
    "output_tokens": 0,
    "weight_bits": None,
    "activation_bits": 16,
    "key_bits": 16,
    "value_bits": 16,
    "kv_group_size": 0,
    "scale_bits": 16,
    "zero_bits": 16,
    "residual_window": 0,
    "outlier_fraction": 0,
    "retention": 1,
    "sink_tokens": 0,
    "recent_tokens": 0,
    "placement_host": 0,
    "tensor_parallel": 1,
    "utilisation": 1,
}
IGNORED = {"model", "hardware", "engine", "quantizer", "evictor", "question_visible", "price_basis"}
MATRICES = ("query_output", "key_value", "ffn", "head")
"""Classes whose width `weight_bits` sets; routers keep their own."""
SEARCH_LIMIT = 10**15


@dataclass(frozen=True)
class Store:
    """One kind of KV store, and in how many layers it is found."""

    layers: int
    query_heads: int
    kv_heads: int
    key_dim: int
    value_dim: int
    score_dim: int
    mix_dim: int
    rope_dim: int = 0
    index_dim: int = 0
    index_heads: int = 0
    window: int | None = None
    chunked: bool = False
    stride: int = 1
    top_k: int | None = None
    state_bytes: int = 0
    readers: int = 1
    evictable: bool = True


@dataclass(frozen=True)
class Routed:
    """Routed experts: in `layers` layers `experts` of which a token meets `active`."""

    layers: int
    experts: int
    active: int
    elements: int
    bits: float
    payload_bits: float


@dataclass(frozen=True)
class Step:
    """One decode step of a model on a hardware at fully resolved axes."""

    model: Mapping[str, Any]
    hardware: Mapping[str, float | None]
    axes: Mapping[str, float | str | bool | None]

    def axis(self, name: str) -> float:
        """A numeric axis."""
        value = self.axes[name]
        if value is None or isinstance(value, str):
            raise TypeError(f"{name} = {value!r} is not a number")
        return float(value)

    @property
    def devices(self) -> int:
        """Devices of the replica."""
        return int(self.axis("tensor_parallel"))

    @property
    def stores(self) -> tuple[Store, ...]:
        """The model's KV stores."""
        found: tuple[Store, ...] = self.model["stores"]
        return found

    @property
    def routed(self) -> Routed | None:
        """The model's routed experts."""
        found: Routed | None = self.model.get("routed")
        return found

    def heads_held(self, store: Store) -> int:
        """KV heads of a store on the worst device: whole heads, never less than one."""
        return -(-store.kv_heads // self.devices)

    @property
    def kv_share(self) -> float:
        """Share of the K and V projections on the worst device: they follow the heads; all heads weigh the same."""
        projected = [store for store in self.stores if store.key_dim]
        heads = sum(store.layers * store.kv_heads for store in projected)
        return sum(store.layers * self.heads_held(store) for store in projected) / heads if heads else 1.0

    # KV cache

    def kept(self, context: float) -> float:
        """Tokens left of `context` after eviction."""
        always = self.axis("sink_tokens") + self.axis("recent_tokens")
        if context <= always:
            return context
        return always + self.axis("retention") * (context - always)

    def quantized_bits(self, bits: float) -> float:
        """Bits of one quantized element with its share of scale and zero point."""
        group = self.axis("kv_group_size")
        if bits >= 16 or group <= 0:
            return bits
        return bits + (self.axis("scale_bits") + self.axis("zero_bits")) / group

    def outlier_bits(self, bits: float) -> float:
        """Bits of sparse outliers per quantized element; a 16-bit cache has none."""
        return 0.0 if bits >= 16 else 32 * self.axis("outlier_fraction")

    def element_bits(self, bits: float, entries: float, recent: float) -> float:
        """Bits of one element position summed over `entries`, of which up to `recent` are plain."""
        plain = min(recent, entries)
        old = entries - plain
        return plain * max(16.0, bits) + old * (self.quantized_bits(bits) + self.outlier_bits(bits))

    def read_bytes_of(self, store: Store, entries: float) -> float:
        """Bytes of so many entries of one store on the worst device, their index apart."""
        recent = self.axis("residual_window") / store.stride
        keys = store.key_dim * self.element_bits(self.axis("key_bits"), entries, recent)
        values = store.value_dim * self.element_bits(self.axis("value_bits"), entries, recent)
        return (self.heads_held(store) * (keys + values) + 16 * store.rope_dim * entries) / 8

    def entries_held(self, store: Store, context: float) -> float:
        """Entries that a store holds."""
        if store.evictable:
            return self.kept(context) / store.stride
        return (context if store.window is None else min(context, store.window)) / store.stride

    def entries_seen(self, store: Store, context: float) -> float:
        """Entries a step may attend to: a chunk that has restarted is half full on average."""
        if store.chunked and store.window is not None and context > store.window:
            return (store.window + 1) / 2 / store.stride
        return self.entries_held(store, context)

    def entries_read(self, store: Store, context: float) -> float:
        """Entries a step reads."""
        seen = self.entries_seen(store, context)
        return seen if store.top_k is None else min(seen, store.top_k)

    def state(self, store: Store) -> float:
        """Bytes of a sequence's recurrent state on the worst device; heads divide evenly."""
        return store.layers * store.state_bytes / self.devices

    def kv_stored(self, context: float, batch: float) -> float:
        """KV bytes of `batch` sequences of `context` tokens on the worst device, all tiers."""
        total = 0.0
        for store in self.stores:
            held = self.entries_held(store, context)
            total += store.layers * (self.read_bytes_of(store, held) + 2 * store.index_dim * held) + self.state(store)
        return batch * total

    def kv_read_at(self, context: float, batch: float) -> float:
        """KV bytes a step reads at `context` tokens on the worst device, all tiers; every reader reads."""
        total = 0.0
        for store in self.stores:
            each = self.read_bytes_of(store, self.entries_read(store, context))
            each += 2 * store.index_dim * self.entries_seen(store, context)
            total += store.layers * store.readers * each + self.state(store)
        return batch * total

    @property
    def kv_written(self) -> float:
        """Bytes that one step writes per device: each sequence's new token and its states."""
        total = 0.0
        for store in self.stores:
            entry = 16.0 * (store.rope_dim + store.index_dim)
            for part, width in (("key", store.key_dim), ("value", store.value_dim)):
                bits = self.axis(f"{part}_bits")
                quantized = self.quantized_bits(bits) + self.outlier_bits(bits)
                fresh = max(16.0, bits) if self.axis("residual_window") > 0 else quantized
                entry += self.heads_held(store) * width * fresh
            total += store.layers * entry / 8 / store.stride + self.state(store)
        return self.axis("batch") * total

    @property
    def time_context(self) -> float:
        """Tokens in the cache at the evaluated step: the mean over the generation."""
        return self.axis("context") + self.axis("output_tokens") / 2

    @property
    def kv_read(self) -> float:
        """KV bytes read per step and device, all tiers."""
        return self.kv_read_at(self.time_context, self.axis("batch"))

    # Weights

    def bits(self, kind: str) -> float:
        """Bits per weight of a tensor class: an explicit width moves the streamed matrices only."""
        if kind in MATRICES and self.axes["weight_bits"] is not None:
            return self.axis("weight_bits")
        return float(self.model[f"{kind}_bits"])

    def multiplied_bits(self, kind: str) -> float:
        """Bits of a class's weights as the multiplier sees them: without scales."""
        if kind in (*MATRICES, "routed") and self.axes["weight_bits"] is not None:
            return self.axis("weight_bits")
        if kind == "routed" and self.routed:
            return self.routed.payload_bits
        stored = self.model.get(f"{kind}_bits", 16)
        return float(self.model.get(f"{kind}_payload_bits", stored))

    def expert_bytes(self, each_layer: float) -> float:
        """Bytes of `each_layer` experts in every expert layer on a device."""
        one = self.routed
        if one is None:
            return 0.0
        bits = one.bits if self.axes["weight_bits"] is None else self.axis("weight_bits")
        return one.layers * each_layer * one.elements * bits / 8 / self.devices

    @property
    def experts_met(self) -> float:
        """Expected distinct experts of a layer: each is missed by all sequences with (1 - k/E)^batch."""
        one = self.routed
        if one is None:
            return 0.0
        return one.experts * (1 - (1 - one.active / one.experts) ** self.axis("batch"))

    @property
    def weights_streamed(self) -> float:
        """Bytes of the parameters that a device streams every step, without embedding rows and experts."""
        share = {"query_output": 1 / self.devices, "key_value": self.kv_share, "vectors": 1.0}
        share |= {"ffn": 1 / self.devices, "head": 1 / self.devices}
        total = sum(self.model[kind] * self.bits(kind) / 8 * part for kind, part in share.items())
        return total + (self.model["router"] * self.bits("router") / 8 if self.routed else 0.0)

    @property
    def weights_read(self) -> float:
        """Weight bytes per step and device, the input rows of the batch included."""
        rows = self.axis("batch") * self.model["embedding_rows"] * self.bits("embedding") / 8
        return self.weights_streamed + self.expert_bytes(self.experts_met) + rows / self.devices

    @property
    def weights_stored(self) -> float:
        """Weight bytes that rest on a device."""
        table = 0.0 if self.model["tied_embeddings"] else self.model["embedding"] * self.bits("embedding") / 8
        table += self.model.get("layer_embedding", 0.0) * self.bits("embedding") / 8
        every = self.expert_bytes(self.routed.experts) if self.routed else 0.0
        return self.weights_streamed + every + table / self.devices

    # Capacity

    def margin(self, context: float, batch: float) -> float | None:
        """Bytes left on the worst device at `context` tokens plus the output; negative does not fit."""
        capacity = self.hardware["memory_capacity"]
        if capacity is None:
            return None
        wide = max(2 * self.model["intermediate"], self.model["vocab"]) / self.devices
        activations = batch * (2 * self.model["hidden"] + wide) * self.axis("activation_bits") / 8
        stored = self.kv_stored(context + self.axis("output_tokens"), batch)
        resident = (1 - self.axis("placement_host")) * stored
        return self.axis("utilisation") * capacity - self.weights_stored - resident - activations

    def largest(self, margin: Callable[[int], float | None]) -> float | None:
        """The largest whole number >= 1 whose margin is not negative, 0 if none, inf if all."""

        def fits(count: int) -> bool:
            left = margin(count)
            return left is not None and left >= 0

        if self.hardware["memory_capacity"] is None:
            return None
        if not fits(1):
            return 0.0
        good, bad = 1, 2
        while fits(bad):
            good, bad = bad, 2 * bad
            if bad > SEARCH_LIMIT:
                return math.inf
        while bad - good > 1:
            middle = (good + bad) // 2
            good, bad = (middle, bad) if fits(middle) else (good, middle)
        return float(good)

    # Arithmetic and links

    def format(self, bits: float) -> str:
        """The arithmetic format that operands of `bits` run in."""
        if bits > 8:
            return "compute16"
        return "compute8" if bits > 4 else "compute4"

    def peak(self, form: str) -> float | None:
        """FLOP/s of a format; 8 bit falls back on integer arithmetic."""
        if form == "compute16":
            return self.hardware["bf16_flops"]
        if form == "compute4":
            return self.hardware["fp4_flops"]
        eight = self.hardware["fp8_flops"]
        return self.hardware["int8_ops"] if eight is None else eight

    @property
    def multiplied(self) -> dict[str, float]:
        """Weights one token is multiplied by, by class."""
        found = {kind: self.model[kind] for kind in MATRICES}
        if self.routed:
            found["router"] = self.model["router"]
            found["routed"] = self.routed.layers * self.routed.active * self.routed.elements
        return found

    @property
    def attention_flop(self) -> float:
        """Attention FLOP of one sequence: scores and mixing of what is read, the index of what is seen."""
        total = 0.0
        for store in self.stores:
            per_entry = 2 * store.query_heads * (store.score_dim + store.mix_dim)
            attended = self.entries_read(store, self.time_context) * per_entry
            indexed = self.entries_seen(store, self.time_context) * 2 * store.index_heads * store.index_dim
            total += store.layers * store.readers * (attended + indexed)
        return total

    @property
    def flop(self) -> dict[str, float]:
        """All FLOP of the replica by the format that does them."""
        activation = self.axis("activation_bits")
        work = [(max(self.multiplied_bits(kind), activation), 2 * count) for kind, count in self.multiplied.items()]
        work.append((max(self.axis("key_bits"), self.axis("value_bits"), activation), self.attention_flop))
        total: dict[str, float] = {}
        for bits, each in work:
            if each > 0:
                total[self.format(bits)] = total.get(self.format(bits), 0.0) + self.axis("batch") * each
        return total

    @property
    def scale_up_bytes(self) -> float:
        """All-reduce bytes per step and device."""
        n = self.devices
        message = self.axis("batch") * self.model["hidden"] * self.axis("activation_bits") / 8
        return self.model["layers"] * self.model["reduces_per_layer"] * 2 * (n - 1) / n * message

    @property
    def hbm_bytes(self) -> float:
        """HBM bytes per step and device."""
        return self.weights_read + (1 - self.axis("placement_host")) * self.kv_read + self.kv_written

    @property
    def tier_bytes(self) -> float:
        """Bytes per step and device over the host link."""
        return self.axis("placement_host") * self.kv_read

    # Time, status and labels

    @property
    def unsourced(self) -> bool:
        """Whether a figure this step cannot do without is missing."""
        needed = [self.hardware["memory_capacity"], self.hardware["memory_bandwidth"]]
        needed += [self.peak(form) for form in self.flop]
        if self.devices > 1:
            needed.append(self.hardware["scale_up_bandwidth"])
        if self.axis("placement_host") > 0:
            needed.append(self.hardware["host_link_bandwidth"])
        return any(figure is None for figure in needed)

    @property
    def times(self) -> dict[str, float] | None:
        """Seconds of each resource on the worst device; None when a figure is unsourced."""
        if self.unsourced:
            return None
        work: dict[str, tuple[float, float | None]] = {"hbm": (self.hbm_bytes, self.hardware["memory_bandwidth"])}
        work |= {form: (flop / self.devices, self.peak(form)) for form, flop in self.flop.items()}
        work["scale_up"] = (self.scale_up_bytes, self.hardware["scale_up_bandwidth"])
        work["tier_link"] = (self.tier_bytes, self.hardware["host_link_bandwidth"])
        return {name: amount / rate if rate else 0.0 for name, (amount, rate) in work.items()}

    @property
    def status(self) -> str:
        """The first named reason against this design, or ok."""
        n, domain = self.devices, self.hardware["scale_up_domain"]
        uneven = any(one.query_heads % n or (one.kv_heads % n and n % one.kv_heads) for one in self.stores)
        if uneven or (domain is not None and n > domain):
            return "layout"
        if self.unsourced:
            return "unsourced_input"
        left = self.margin(self.axis("context"), self.axis("batch"))
        return "memory" if left is None or left < 0 else "ok"

    @property
    def phase(self) -> str | None:
        """The paper's phase; unknown without a capacity."""
        left = self.margin(self.axis("context"), self.axis("batch"))
        if left is None:
            return None
        if left < 0:
            return "capacity"
        return "kv" if self.kv_read > self.weights_read else "weight"

    @property
    def regime(self) -> tuple[str | None, str | None, float | None]:
        """The binding resource, the regime and ln(largest time / second); arithmetic is one resource."""
        if self.times is None:
            return None, None, None
        times = {"hbm": self.times["hbm"], "compute": 0.0, "scale_up": 0.0, "tier_link": 0.0}
        for name, seconds in self.times.items():
            resource = "compute" if name.startswith("compute") else name
            times[resource] = max(times[resource], seconds)
        bound, second, *_ = sorted(times, key=lambda name: -times[name])
        distance = math.log(times[bound] / times[second]) if times[second] > 0 else math.inf
        kv = (1 - self.axis("placement_host")) * self.kv_read + self.kv_written
        share = "kv" if kv > self.weights_read else "weight"
        return bound, share if bound == "hbm" else bound, distance

    @property
    def crossover(self) -> float:
        """The first context at which KV read equals weights read, 0 if it always is more, inf if never.

        Reads grow with context but where chunks restart, so each stretch between restarts is searched apart.
        """
        batch, goal = self.axis("batch"), self.weights_read
        if self.kv_read_at(0.0, batch) >= goal:
            return 0.0
        restarts = {float(one.window) for one in self.stores if one.chunked and one.window}
        low = 0.0
        for high in sorted(restarts | {float(SEARCH_LIMIT)}):
            if self.kv_read_at(high, batch) >= goal:
                return self.bisected(low, high, goal)
            low = high
        return math.inf

    def bisected(self, low: float, high: float, goal: float) -> float:
        """The context between two others at which `goal` bytes of KV are read."""
        while low < (middle := (low + high) / 2) < high:
            enough = self.kv_read_at(middle, self.axis("batch")) >= goal
            low, high = (low, middle) if enough else (middle, high)
        return high

    @property
    def energy(self) -> float | None:
        """Joules of the replica per generated token."""
        per_byte, per_flop = self.hardware["memory_energy"], self.hardware["flop_energy"]
        per_link_byte = self.hardware["link_energy"] if self.tier_bytes > 0 else 0.0
        if per_byte is None or per_flop is None or per_link_byte is None:
            return None
        moved = self.devices * (self.hbm_bytes * per_byte + self.tier_bytes * per_link_byte)
        return (moved + sum(self.flop.values()) * per_flop) / self.axis("batch")

    @property
    def ridge(self) -> float | None:
        """FLOP/B at which the format of the FFN's weights, dense or routed, meets the memory roof."""
        most = max(("ffn", "routed"), key=lambda kind: self.multiplied.get(kind, 0.0))
        form = self.format(max(self.multiplied_bits(most), self.axis("activation_bits")))
        peak, bandwidth = self.peak(form), self.hardware["memory_bandwidth"]
        return None if peak is None or bandwidth is None else peak / bandwidth


def speed(step: Step) -> dict[str, float | str | None]:
    """Metrics that need the step time; all None when a figure is unsourced."""
    names = ("tokens_per_second", "tokens_per_second_per_device", "tokens_per_second_per_user")
    bound, regime, distance = step.regime
    labels = {"bound_by": bound, "regime": regime, "regime_distance": distance}
    times, price = step.times, step.hardware["price"]
    if times is None:
        return dict.fromkeys((*names, "time_per_output_token", "cost_per_million_tokens")) | labels
    seconds = max(times.values())
    rate = step.axis("batch") / seconds
    found = dict(zip(names, (rate, rate / step.devices, 1 / seconds), strict=True))
    cost = None if price is None else step.devices * price / rate * 1e6
    return {**found, "time_per_output_token": seconds, "cost_per_million_tokens": cost, **labels}


def oracle(
    model: Mapping[str, Any],
    hardware: Mapping[str, float | None],
    axes: Mapping[str, float | str | bool | None],
) -> dict[str, float | str | None]:
    """Every non-quality metric and label of one decode step; None where it is unknown.

    `model` has sizes, parameter counts and bits by tensor class, its `stores`, and `routed` experts if any;
    stored bits stand for payload bits where those are not given. A `hardware` figure of None has no source;
    `axes` not given are neutral and `context` is required. An unknown axis is a KeyError.
    """
    unknown = set(axes) - set(NEUTRAL) - IGNORED - {"context"}
    if unknown:
        raise KeyError(f"unknown axes {sorted(unknown)}")
    step = Step(model, hardware, NEUTRAL | dict(axes))
    n, context, batch = step.devices, step.axis("context"), step.axis("batch")
    stored = n * step.kv_stored(context + step.axis("output_tokens"), batch)
    return {
        **speed(step),
        "weight_bytes_read": n * step.weights_read,
        "kv_bytes_read": n * step.kv_read,
        "kv_bytes_stored": stored,
        "kv_bytes_reserved": stored,
        "memory_margin": step.margin(context, batch),
        "max_batch": step.largest(lambda count: step.margin(context, count)),
        "max_context": step.largest(lambda tokens: step.margin(tokens, batch)),
        "arithmetic_intensity": sum(step.flop.values()) / (n * (step.hbm_bytes + step.tier_bytes)),
        "ridge_point": step.ridge,
        "energy_per_token": step.energy,
        "crossover_context_bytes": step.crossover,
        "phase": step.phase,
        "status": step.status,
    }

"""The oracle's step time on the worst device, and the labels that hang on it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

from tests.oracle_given import Given
from tests.oracle_kv import found_by_step, in_hbm, read_by_step, written_by_step
from tests.oracle_memory import SEARCH_LIMIT, Memory
from tests.oracle_veto import veto_of
from tests.oracle_weights import hottest_rank, multiplied, streamed, weights_read
from tests.oracle_work import Sent, flop, peak, step_collectives, step_pass, weight_format


@dataclass(frozen=True)
class Step:
    """One decode step."""

    given: Given

    @cached_property
    def kv_read(self) -> float:
        """KV bytes that a step reads of a sequence per device, all tiers."""
        return read_by_step(self.given, self.given.time_context)

    @cached_property
    def kv_in_hbm(self) -> float:
        """KV bytes that HBM reads and writes of a sequence per device, with the prompts that arrive in its place."""
        read = self.kv_read + found_by_step(self.given)
        return in_hbm(self.given) * read + written_by_step(self.given)

    @cached_property
    def weights_read(self) -> float:
        """Weight bytes read per mean device of a column of stages."""
        return weights_read(self.given)

    @property
    def tier_bytes(self) -> dict[str, float]:
        """Bytes of a sequence that come to a column's device from each tier; of a parked one, those of its prompt."""
        moved = found_by_step(self.given) + (0.0 if self.given.parked else self.kv_read)
        return {tier: fraction * moved for tier, fraction in self.given.placed.items()}

    @cached_property
    def flop(self) -> dict[str, tuple[float, float]]:
        """FLOP of a column's worst device by format."""
        return flop(self.given, step_pass(self.given, self.given.sequences), hottest_rank(self.given))

    @cached_property
    def sent(self) -> Sent:
        """Bytes the worst device sends."""
        return step_collectives(self.given)

    def link(self, tier: str) -> float | None:
        """A device's share of the link to a tier."""
        bandwidth = self.given.hardware[f"{tier}_link_bandwidth"]
        return None if bandwidth is None else bandwidth / (self.given.hardware[f"{tier}_link_devices"] or 1.0)

    @property
    def unsourced(self) -> bool:
        """Whether a figure this step cannot do without is missing."""
        given = self.given
        needed = [given.hardware["memory_capacity"], given.hardware["memory_bandwidth"]]
        needed += [peak(given, form) for form in self.flop]
        if self.sent.inside > 0:
            needed.append(given.hardware["scale_up_bandwidth"])
        if self.sent.across > 0:
            needed.append(given.hardware["scale_out_bandwidth"])
        needed += [self.link(tier) for tier in given.placed]
        if given.axes["die_placement"] == "pinned":
            needed.append(given.hardware["memory_domains"])
        return any(figure is None for figure in needed)

    @property
    def crowding(self) -> float:
        """KV of the fullest memory domain of a chip as a multiple of the mean, where a sequence is on one."""
        domains = self.given.hardware["memory_domains"]
        if self.given.axes["die_placement"] != "pinned" or domains is None:
            return 1.0
        sequences = max(self.given.sequences, 1.0)
        return math.ceil(sequences / domains) * domains / sequences

    @cached_property
    def times(self) -> dict[str, float] | None:
        """Seconds of each resource on the worst device; None when a figure is unsourced."""
        given = self.given
        if self.unsourced:
            return None

        def seconds(amount: float, rate: float | None) -> float:
            return amount / rate if rate else 0.0

        body, end = streamed(given, busiest=True)
        count = given.sequences
        hbm = given.waited(body + self.crowding * count * self.kv_in_hbm, end)
        compute = [seconds(given.waited(*work), peak(given, form)) for form, work in self.flop.items()]
        tiers = [seconds(given.waited(count * amount), self.link(tier)) for tier, amount in self.tier_bytes.items()]
        inside = seconds(self.sent.inside, given.hardware["scale_up_bandwidth"])
        across = seconds(self.sent.across, given.hardware["scale_out_bandwidth"])
        return {
            "hbm": seconds(hbm, given.hardware["memory_bandwidth"]),
            "compute": max(compute, default=0.0),
            "scale_up": max(inside, across),
            "tier_link": max(tiers, default=0.0),
        }

    @property
    def seconds(self) -> float | None:
        """How long the step takes; of the tiers, the part that nothing hides comes on top."""
        if self.times is None:
            return None
        times, overlap = dict(self.times), self.given.axis("link_overlap")
        tier = times.pop("tier_link")
        return max(*times.values(), overlap * tier) + (1 - overlap) * tier

    # Labels

    @property
    def meaningless(self) -> bool:
        """Whether the axes contradict each other so that no number means anything; the status is layout."""
        given, ranks = self.given, self.given.expert_ranks
        faults = (
            given.outside > 1,
            given.parked and given.outside >= 1,
            given.routed is not None and given.stage_devices % ranks != 0,
            given.axes["serving_mode"] == "continuous" and given.axis("output_tokens") < 1,
        )
        return any(faults)

    @property
    def impossible(self) -> bool:
        """Whether a layout cannot be."""
        given, one = self.given, self.given.routed
        n, ranks = given.tensor, given.expert_ranks
        # Query heads are divided over all devices of a rank, KV heads over those of a tensor group.
        whole = given.axis("context") + given.axis("output_tokens")
        uneven = any(
            store.query_heads % given.rank_devices or (store.kv_heads % n and n % store.kv_heads)
            for store in given.stores
        )
        faults = (
            self.meaningless,
            uneven,
            given.stages > given.layers,
            ranks > 1 and (one is None or given.stage_devices % ranks != 0 or ranks > one.experts),
            0 < given.axis("max_model_length") < whole,
        )
        return any(faults)

    @property
    def status(self) -> str:
        """The first named reason against this design, or ok."""
        if self.impossible:
            return "layout"
        if self.unsourced:
            return "unsourced_input"
        left = Memory(self.given).margin(self.given.axis("context"), self.given.axis("batch"))
        if left is None or left < 0:
            return "memory"
        return "ok" if veto_of(self.given) == "none" else "veto"

    @property
    def phase(self) -> str | None:
        """The paper's phase; unknown without a capacity."""
        left = Memory(self.given).margin(self.given.axis("context"), self.given.axis("batch"))
        if left is None:
            return None
        if left < 0:
            return "capacity"
        return "kv" if self.replica_kv(self.kv_read) > self.replica_weights else "weight"

    @property
    def regime(self) -> tuple[str | None, str | None, float | None]:
        """The binding resource, the regime and ln(largest time / second); arithmetic is one resource."""
        if self.times is None:
            return None, None, None
        bound, second, *_ = sorted(self.times, key=lambda name: -(self.times or {})[name])
        distance = math.log(self.times[bound] / self.times[second]) if self.times[second] > 0 else math.inf
        kv, weights = self.hbm_shares
        share = "kv" if kv > weights else "weight"
        return bound, share if bound == "hbm" else bound, distance

    @property
    def hbm_shares(self) -> tuple[float, float]:
        """Bytes of KV that the HBM of the worst device of a column moves, and of weights."""
        return self.given.sequences * self.kv_in_hbm, self.weights_read

    # Totals of the replica

    @property
    def tokens(self) -> float:
        """Tokens generated."""
        return self.given.active * self.given.accepted

    def replica_kv(self, each: float) -> float:
        """Bytes of all decoding sequences on all devices."""
        return self.given.rank_devices * self.given.active * each

    @property
    def replica_weights(self) -> float:
        """Weight bytes of all devices."""
        return self.given.stage_devices * self.weights_read

    @property
    def all_flop(self) -> float:
        """FLOP of all devices: of all attention ranks and expert ranks, not as many times the worst one."""
        mean = flop(self.given, step_pass(self.given, self.given.active / self.given.ranks))
        return self.given.stage_devices * sum(body + end for body, end in mean.values())

    @property
    def intensity(self) -> float:
        """FLOP per byte moved."""
        return self.all_flop / (self.replica_weights + self.replica_kv(self.kv_in_hbm + sum(self.tier_bytes.values())))

    @property
    def energy(self) -> float | None:
        """Joules of the replica per generated token."""
        given = self.given
        moved = {"memory_energy": self.replica_weights + self.replica_kv(self.kv_in_hbm)}
        for tier, amount in self.tier_bytes.items():
            if amount == 0:
                continue
            moved["link_energy" if tier == "host" else f"{tier}_energy"] = self.replica_kv(amount)
        total = 0.0
        for name, amount in moved.items():
            each = given.hardware[name]
            if each is None:
                return None
            total += amount * each
        per_flop = given.hardware["flop_energy"]
        return None if per_flop is None else (total + self.all_flop * per_flop) / self.tokens

    @property
    def ridge(self) -> float | None:
        """FLOP/B at which the format of the FFN's weights, dense or routed, meets the memory roof."""
        most = max(("ffn", "routed"), key=lambda kind: multiplied(self.given).get(kind, 0.0))
        found, bandwidth = peak(self.given, weight_format(self.given, most)), self.given.hardware["memory_bandwidth"]
        return None if found is None or bandwidth is None else found / bandwidth


def crossover(given: Given) -> float:
    """The first context at which KV read equals weights read, 0 if it always is more, inf if never.

    Reads grow with context but where chunks restart, so each stretch between restarts is searched apart.
    """
    goal = given.stage_devices * weights_read(given) / given.rank_devices / given.active
    if read_by_step(given, 0.0) >= goal:
        return 0.0
    restarts = {float(one.window) for one in given.stores if one.chunked and one.window}
    low = 0.0
    for high in sorted(restarts | {float(SEARCH_LIMIT)}):
        if read_by_step(given, high) >= goal:
            return bisected(given, low, high, goal)
        low = high
    return math.inf


def bisected(given: Given, low: float, high: float, goal: float) -> float:
    """The context between two others at which `goal` bytes of KV are read."""
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if read_by_step(given, middle) >= goal else (middle, high)
    return high

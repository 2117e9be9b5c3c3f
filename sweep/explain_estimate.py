"""An estimate in an explanation: the step operator by operator, at what the engine achieves, and its band.

The sections before it are those of the ceiling, whose times end in "_ceiling".
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any, Final

from kvwall.objectives import tiers
from kvwall.objectives.compute import ByFormat
from kvwall.objectives.estimate import (
    DEVIATIONS_OF_BAND,
    LARGE_MESSAGES,
    Estimate,
    attention_time,
    multiply_time,
    of_devices,
    read_time,
)
from kvwall.objectives.operators import added
from kvwall.objectives.register import band_of
from kvwall.objectives.time import link_time
from kvwall.spaces.achieved import ByCache
from kvwall.spaces.generations import generation_of_engine
from kvwall.sweep.equation import Sheet, product
from kvwall.sweep.reasons import PEAKS, missing_figures
from kvwall.sweep.single import SingleDesign

_SECTION: Final = "Estimate (operators one after another on the busiest device)"
_BAND: Final = "Estimate: metrics and their 10 % and 90 % bounds"
_WORK: Final = "operators of the busiest device: the bytes and FLOP above, by format"
_SLOTS: Final = ("sixteen", "eight", "four")
RENAMED: Final = frozenset(
    {"step", "time_per_output_token", "tokens_per_second", "tokens_per_second_per_device", "time_to_first_token",
     "cost_per_million_tokens", "distance_hbm", "distance_compute", "distance_scale_up", "distance_tier_link"}
)  # fmt: skip
"""Symbols that the ceiling's sections and the estimate's share; the ceiling's get a suffix."""


def add_estimate(sheet: Sheet, single: SingleDesign) -> None:
    """The equations of an estimate, below those of its ceiling; nothing where a figure has no source."""
    if missing_figures(single, "time_per_output_token"):
        return
    page = _Page(sheet, single)
    page.matrices()
    page.attention()
    page.collectives()
    page.calls()
    page.step()
    page.metrics()


class _Page:
    """The equations being written."""

    def __init__(self, sheet: Sheet, single: SingleDesign) -> None:
        self.sheet, self.single, self.step_of = sheet, single, single.step
        self.estimate: Estimate = single.step.estimated
        self.work, self.times, self.achieved = (
            self.estimate.work,
            self.estimate.times,
            self.estimate.calibrated.achieved,
        )
        record, engine = single.catalogue.calibration, str(single.inputs["engine"])
        if record is None:
            raise TypeError("a ceiling has no calibration")
        self.source = (
            f"calibration {record.version}, fitted {record.fitted} to {record.rows} rows, of "
            f"{generation_of_engine(engine)} on {single.hardware.name}: spaces/catalog/calibration/estimate.json"
        )

    def given(self, symbol: str, number: Any, meaning: str, source: str = _WORK) -> str:
        """Declare a number that enters; its symbol."""
        self.sheet.given(symbol, number, meaning, source)
        return symbol

    def reached(self, symbol: str, number: Any, meaning: str) -> str:
        """Declare a number of the calibration; its symbol."""
        return self.given(symbol, number, meaning, self.source)

    def add(self, symbol: str, formula: str, result: Any, unit: str = "s", section: str = _SECTION) -> None:
        """Add an equation."""
        self.sheet.add(section, symbol, formula, result, unit)

    def waits(self, symbol: str, formula: str, alone: Any, result: Any) -> None:
        """Add a time of the layers; with pipeline stages a step waits for the most loaded one."""
        if float(self.work.stages.stages) > 1 and float(alone) > 0:
            factor = self.given(f"waits_{symbol}", result / alone, "stages and micro-batches: waited for over alone")
            formula = product(factor, f"({formula})")
        self.add(symbol, formula, result)

    def matrices(self) -> None:
        """Transfer and arithmetic of matrices, and their overlap."""
        work, achieved, chip = self.work, self.achieved, self.estimate.chip
        terms = [*self._read("weights", added(work.dense, work.ends), achieved.weights)]
        terms += self._read("experts", work.experts, achieved.experts)
        alone = read_time(added(work.dense, work.ends), achieved.weights, chip.memory_bandwidth)
        alone = alone + read_time(work.experts, achieved.experts, chip.memory_bandwidth)
        self.waits("t_weights", " + ".join(terms), alone, self.times.moved)
        flop: ByFormat = tuple(sum(each) for each in zip(*work.matrices, strict=True))  # type: ignore[assignment]
        self.waits(
            "t_multiply",
            " + ".join(self._multiplied("gemm", flop)) or "0",
            multiply_time(flop, achieved.compute, chip),
            self.times.multiplied,
        )
        self.add("t_matrices", "(t_weights**3 + t_multiply**3)**(1/3)", self.times.matrices)

    def _read(self, name: str, size: Any, share: Any) -> list[str]:
        terms = []
        for field in fields(size):
            amount = getattr(size, field.name)
            if float(amount) > 0:
                moved = self.given(f"{name}_{field.name}", amount, f"bytes of {name} in the format {field.name}")
                part = self.reached(f"share_{name}_{field.name}", getattr(share, field.name), "of the bandwidth")
                terms.append(f"{moved}/({part}*memory_bandwidth)")
        return terms

    def _multiplied(self, name: str, flop: ByFormat) -> list[str]:
        terms = []
        for slot, amount, peak in zip(_SLOTS, flop, PEAKS, strict=True):
            if float(amount) > 0:
                done = self.given(f"{name}_flop_{slot}", amount, f"FLOP of {name}, format {slot}")
                part = self.reached(f"share_flop_{slot}", getattr(self.achieved.compute, slot), "of the peak")
                terms.append(f"{done}/({part}*{peak})")
        return terms

    def attention(self) -> None:
        """Attention, whose KV is read at its own share; passes over hidden vectors."""
        work, achieved = self.work, self.achieved
        kv = self.given("kv_moved", work.kv, "bytes of KV read and written in device memory")
        alone = attention_time(work, achieved, self.estimate.chip)
        if bool(work.latent):
            share = self._of_cache("share_latent", achieved.latent)
            part = self._of_cache("share_latent_flop", achieved.latent_compute)
            done = self.given("attention_work", work.attention, "FLOP of attention")
            peak = "fp8_flops" if bool(work.narrow_cache) else "bf16_flops"
            formula = f"(({kv}/({share}*memory_bandwidth))**3 + ({done}/({part}*{peak}))**3)**(1/3)"
        else:
            share = self._of_cache("share_attention", achieved.attention)
            group = self.given("query_group", work.query_group, "query heads per KV head")
            cost = self.reached("group_cost", achieved.group_cost, "time for every eightfold of query heads")
            done = self.given("attention_work", work.attention, "FLOP of attention")
            part = self.reached("share_flop_sixteen", achieved.compute.sixteen, "of the peak")
            read = f"{kv}/({share}*memory_bandwidth)*{cost}**(ln({group})/ln(8))"
            formula = f"(({read})**3 + ({done}/({part}*bf16_flops))**3)**(1/3)"
        self.waits("t_attention", formula, alone, self.times.attention)
        hidden = self.given("hidden_bytes", work.hidden, "bytes of hidden vectors, once for each layer")
        passes = self.reached("passes", achieved.activation, "over a hidden vector in a layer, through memory")
        through = achieved.activation * work.hidden / self.estimate.chip.memory_bandwidth
        self.waits("t_activations", f"{passes}*{hidden}/memory_bandwidth", through, self.times.activations)

    def _of_cache(self, symbol: str, share: ByCache) -> str:
        narrow = bool(self.work.narrow_cache)
        form = "KV of 8 bits and fewer" if narrow else "KV of 16 bits"
        return self.reached(symbol, share.eight if narrow else share.sixteen, f"of the bandwidth or peak, {form}")

    def collectives(self) -> None:
        """Bytes over the link at its share, and what each collective costs."""
        if float(self.work.devices) <= 1:
            return
        sent = link_time(self.work.sent, self.estimate.chip)
        size = self.given("t_link", sent, "s of the collectives' bytes at the whole link")
        share = self.reached("share_link", of_devices(self.achieved.link, self.work.devices), "of the link")
        calls = self.given("calls", self.work.calls, "collectives that wait for each other")
        cost = self.reached("per_call", of_devices(self.achieved.collective, self.work.devices), "s of a collective")
        self.add("t_collectives", f"{size}/{share} + {calls}*{cost}", self.times.collectives)

    def calls(self) -> None:
        """What layers, the step and its sequences cost besides."""
        work, achieved = self.work, self.achieved
        layer = self.reached("per_layer", achieved.layer, "s of a decoder layer besides bytes and FLOP")
        terms = [f"decoder_layers*{layer}"]
        alone = work.stages.layers * achieved.layer
        if float(work.expert_layers) > 0:
            layers = self.given("expert_layers", work.expert_layers, "layers with routed experts")
            terms.append(f"{layers}*{self.reached('per_routing', achieved.expert_layer, 's of a layer of routing')}")
            alone = alone + work.expert_layers * achieved.expert_layer
        step = self.reached("per_step", achieved.step, "s of a step")
        each = self.reached("per_sequence", achieved.sequence, "s of a sequence of a step")
        sequences = self.given("sequences", work.sequences, "sequences of the attention rank that has most")
        of_layers = self.times.overhead - achieved.step - work.sequences * achieved.sequence
        self.waits("t_layers", " + ".join(terms), alone, of_layers)
        self.add("t_overhead", f"t_layers + {step} + {sequences}*{each}", self.times.overhead)

    def step(self) -> None:
        """The sum, with transfers that are not hidden and prompts that arrive; never below the ceiling."""
        served, times = self.estimate.served, self.times
        parts = ["t_matrices", "t_attention", "t_activations", "t_overhead"]
        parts += ["t_collectives"] if float(self.work.devices) > 1 else []
        self.add("t_decode", " + ".join(parts), times.decode)
        decode = "t_decode"
        if float(served.transfer) > 0:
            moved = self.given("t_transfer", served.transfer, "s of KV over the links of tiers, page by page")
            formula = f"max(t_decode, overlap*{moved}) + (1 - overlap)*{moved}"
            self.add("t_exposed", formula, tiers.exposed(times.decode, served.transfer, served.link_overlap))
            decode = "t_exposed"
        token = step = decode
        if float(served.arriving) > 0:
            token, step = self._prompts(decode)
        self.add("step", f"max({step}, step_ceiling)", self.estimate.iteration)
        if token != step:
            self.add("between_tokens", f"max({token}, step_ceiling)", self.estimate.token)

    def _prompts(self, decode: str) -> tuple[str, str]:
        """(between tokens, of a step) with the prompts that arrive meanwhile."""
        served, times, achieved = self.estimate.served, self.times, self.achieved
        terms = [f"factor_prefill*({' + '.join(self._multiplied('prompt', self.work.prompt))})"]
        self.reached("factor_prefill", achieved.prefill, "time of prefill over that of matrices of its FLOP")
        if float(self.work.devices) > 1:
            sent = link_time(self.work.prompt_sent, self.estimate.chip)
            size = self.given("t_prompt_link", sent, "s of a prompt's collectives at the whole link")
            terms.append(f"max({LARGE_MESSAGES}/share_link, 1)*{size}")
        per_layer = self.reached("per_prompt_layer", achieved.prompt_layer, "s of a layer of a prompt")
        terms.append(f"decoder_layers*{per_layer}")
        self.add("t_prompt", " + ".join(terms), times.prompt, "s of one prompt")
        arriving = self.given("arriving", served.arriving, "prompts per step", "axes of the workload")
        active = self.given("decoding", served.active, "sequences that decode", "axes of the workload")
        mixing = self.reached("mixing", achieved.mixing, "share of others' prefill between a sequence's tokens")
        between = f"{decode} + {mixing}*{arriving}*max(1 - 1/max({active}, 1), 0)*t_prompt"
        return between, f"{decode} + {arriving}*t_prompt"

    def metrics(self) -> None:
        """The metrics, each with its band."""
        found, load = self.single.evaluation.metrics, self.step_of.load
        token = "between_tokens" if float(self.estimate.served.arriving) > 0 else "step"
        active = self.given("active_sequences", load.active, "sequences that decode", "axes of the workload")
        yielded = self.given("tokens_yielded", load.yielded, "tokens of a sequence per step", "axes of speculation")
        formulas = {
            "time_per_output_token": f"{token}/{yielded}",
            "tokens_per_second_per_user": f"{yielded}/{token}",
            "tokens_per_second": f"{active}*{yielded}/step",
        }
        spreads = {"time_per_output_token": self.estimate.spread, "tokens_per_second": self.estimate.iteration_spread}
        for name, formula in formulas.items():
            self.add(name, formula, found[name], _unit(name), _BAND)
        limits = {
            "time_per_output_token": f"step_ceiling/{yielded}",
            "tokens_per_second": f"{active}*{yielded}/step_ceiling",
        }
        for name, spread in spreads.items():
            self._band(name, spread, limits[name])
        self._first_token()

    def _first_token(self) -> None:
        name = "time_to_first_token"
        if missing_figures(self.single, name):
            return
        source = f"{self.source}; a prompt's matrices, collectives and calls at what is achieved"
        own = self.given("t_first", self.estimate.first_token, "s of one prompt alone on the replica", source)
        self.add(name, f"max({own}, {name}_ceiling)", self.single.evaluation.metrics[name], "s", _BAND)
        self._band(name, self.estimate.first_token_spread, f"{name}_ceiling")

    def _band(self, name: str, spread: Any, limit: str) -> None:
        width = self.reached(f"spread_{name}", spread, f"standard deviation of ln({name})")
        low, high = band_of(name)
        down, up = f"{name}*exp(-{DEVIATIONS_OF_BAND}*{width})", f"{name}*exp({DEVIATIONS_OF_BAND}*{width})"
        if _is_rate(name):
            up = f"min({up}, {limit})"
        else:
            down = f"max({down}, {limit})"
        found = self.single.evaluation.metrics
        self.add(low, down, found[low], _unit(name), _BAND)
        self.add(high, up, found[high], _unit(name), _BAND)


def _is_rate(name: str) -> bool:
    return name.startswith("tokens_per_second")


def _unit(name: str) -> str:
    return "tok/s" if _is_rate(name) else "s"

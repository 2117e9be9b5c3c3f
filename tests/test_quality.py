"""Quality loss: neutral settings cost nothing, laws are monotone, and the shipped curves say what was published."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kvwall as kv
from kvwall.objectives.quality import (
    Compression,
    bit_hazard,
    cache_hazard,
    composed_loss,
    composed_loss_upper,
    eviction_hazard,
)
from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import RECORD, Narrowed, QualityCurves, curve_key, load_quality_curves
from kvwall.spaces.quality_columns import QualityParameters
from kvwall.spaces.quality_methods import EVICTORS, QUANTIZERS, READERS, WEIGHT_QUANTIZERS, load_methods, reader_of
from kvwall.spaces.quality_record_columns import check_confidence, quality_parameters
from kvwall.spaces.quality_tasks import TASKS, task_named, task_rows

CURVES = load_quality_curves()
PERPLEXITY = TASKS.index("perplexity")
TRAITS = ((), ("llama_3",), ("k_outliers",))
NEUTRAL = Compression(16.0, 16.0, 1.0, 1.0, 16.0, 16.0)
bits = st.floats(1.5, 18.0, width=32)
shares = st.floats(2.0**-8, 1.0, width=32)


def every_design(confidence: float = 0.9, curves: QualityCurves = CURVES) -> QualityParameters:
    """All names at once: leaves of shape (task, quantizer, model, evictor, seen, weights), 1 off their axes."""
    loaded = quality_parameters(curves, confidence, TRAITS)

    def spread(curve: Any, before: int, after: int) -> Any:
        def shaped(leaf: Any) -> Any:
            return np.reshape(leaf, (len(TASKS), *(1,) * before, *np.shape(leaf)[1:], *(1,) * after))

        return jax.tree.map(shaped, curve)

    return QualityParameters(
        cache=spread(loaded.cache, 0, 3),
        evictor=spread(loaded.evictor, 2, 1),
        reader=spread(loaded.reader, 2, 1),
        weight=spread(loaded.weight, 4, 0),
        activation=spread(loaded.activation, 0, 5),
        small_budget=spread(loaded.small_budget, 0, 5),
        log_ratio=spread(loaded.log_ratio, 0, 5),
    )


PARAMETERS = every_design()
SHAPE = (len(TASKS), len(QUANTIZERS), len(TRAITS), len(EVICTORS), 2, len(WEIGHT_QUANTIZERS))


def loss(upper: bool = False, **changed: float) -> np.ndarray:
    """Loss per (task, quantizer, model, evictor, seen, weight quantizer)."""
    law = composed_loss_upper if upper else composed_loss
    return np.broadcast_to(np.asarray(law(replace(NEUTRAL, **changed), PARAMETERS)), SHAPE)


def quantized(key: float, value: float, quantizer: str, trait: int = 0) -> np.ndarray:
    """Central loss per task of one quantizer."""
    return loss(key_bits=key, value_bits=value)[:, QUANTIZERS.index(quantizer), trait, 0, 0, 0]


def evicted(kept: float, evictor: str, seen: bool, upper: bool = False) -> dict[str, float]:
    """Loss by task of one evictor."""
    found = loss(upper, kept_fraction=kept)[:, 0, 0, EVICTORS.index(evictor), int(seen), 0]
    return dict(zip(TASKS, map(float, found), strict=True))


@pytest.mark.parametrize("law", [composed_loss, composed_loss_upper])
@pytest.mark.parametrize("neutral_bits", [16.0, 32.0])
def test_neutral_settings_cost_exactly_nothing(law: Callable[..., jax.Array], neutral_bits: float) -> None:
    asked = Compression(neutral_bits, neutral_bits, 1.0, 1.0, neutral_bits, neutral_bits)
    traced = jax.jit(law)(jax.tree.map(jnp.float32, asked), PARAMETERS)  # nothing is left out of a traced law
    assert np.array_equal(np.asarray(traced), np.zeros(np.shape(traced)))
    assert np.array_equal(np.asarray(law(asked, PARAMETERS)), np.zeros(np.shape(law(asked, PARAMETERS))))


@pytest.mark.parametrize("field", [field.name for field in fields(Compression)])
def test_any_departure_from_neutral_costs_something(field: str) -> None:
    assert np.all(loss(**{field: 8.0 if field.endswith("bits") else 0.5}) > 0)


@settings(max_examples=40, deadline=None)
@given(st.tuples(bits, bits, shares, shares, bits, bits), st.integers(0, 5), st.floats(0.0, 1.0))
def test_more_bits_or_more_tokens_never_lose_more(setting: tuple[float, ...], raised: int, step: float) -> None:
    most = 1.0 if raised in (2, 3) else 18.0
    more = list(setting)
    more[raised] = setting[raised] + step * (most - setting[raised])
    for law in (composed_loss, composed_loss_upper):
        before, after = (np.asarray(law(Compression(*each), PARAMETERS)) for each in (setting, more))
        assert np.all(after <= before * (1 + 1e-5) + 1e-7)


@settings(max_examples=30, deadline=None)
@given(st.tuples(bits, bits, shares, shares, bits, bits))
def test_upper_is_never_below_central_and_accuracy_losses_stay_in_range(setting: tuple[float, ...]) -> None:
    central, upper = (
        np.asarray(law(Compression(*setting), PARAMETERS)) for law in (composed_loss, composed_loss_upper)
    )
    assert np.all(upper >= central)
    assert np.all(central >= 0)
    assert np.all(upper[:PERPLEXITY] <= 1)
    assert np.all(np.isfinite(upper))


def test_upper_rises_with_confidence() -> None:
    asked = Compression(4.0, 4.0, 0.5, 0.5, 4.0, 8.0)
    at = [np.asarray(composed_loss_upper(asked, every_design(level))) for level in (0.5, 0.62, 0.9, 0.99)]
    assert all(np.all(low <= high) for low, high in zip(at, at[1:], strict=False))
    assert np.all(at[0] <= at[-1])
    assert np.mean(at[0] < at[-1]) > 0.9  # where all is lost already, nothing rises


@pytest.mark.parametrize("setting", [(16.0,) * 2 + (1.0,) * 2 + (16.0,) * 2, (2.0, 2.0, 0.02, 0.02, 2.0, 4.0)])
def test_gradients_are_finite_everywhere(setting: tuple[float, ...]) -> None:
    def total(*design: jax.Array) -> jax.Array:
        return jnp.sum(composed_loss_upper(Compression(*design), PARAMETERS))

    with jax.debug_nans(True):
        gradient = jax.grad(total, argnums=tuple(range(6)))(*map(jnp.float32, setting))
    assert np.all(np.isfinite(gradient))
    assert np.all(np.asarray(gradient) <= 0)


@pytest.mark.parametrize("setting", [(3.0, 5.0, 0.4, 0.9, 4.25, 8.0), (8.0, 2.5, 0.03, 1.0, 15.0, 16.0)])
def test_gradients_agree_with_differences(setting: tuple[float, ...]) -> None:
    with jax.enable_x64(True):
        wide = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), PARAMETERS)
        point = jnp.array(setting, jnp.float64)

        def law(design: jax.Array) -> jax.Array:
            return composed_loss_upper(Compression(*design), wide)[:, :, :, ::7, :, :]

        jacobian = jax.jacfwd(law)(point)
        for axis in range(6):
            step = jnp.eye(6)[axis] * 1e-6
            if axis in (4, 5) and setting[axis] == 16.0:
                continue  # a kink: nothing is gained beyond
            if axis == 3 and setting[axis] == 1.0:
                continue
            slope = (law(point + step) - law(point - step)) / 2e-6
            np.testing.assert_allclose(jacobian[..., axis], slope, rtol=1e-4, atol=1e-6)


def test_keys_matter_more_than_values() -> None:
    for quantizer in QUANTIZERS:
        assert np.all(quantized(2.0, 16.0, quantizer)[:PERPLEXITY] >= quantized(16.0, 2.0, quantizer)[:PERPLEXITY])
    assert CURVES.key_share > 0.6


def test_naive_degrades_faster_than_structure_aware_below_four_bits() -> None:
    careful, naive = (
        [quantized(payload, payload, name)[PERPLEXITY] for payload in (4.0, 3.0, 2.0)]
        for name in ("structure_aware", "naive")
    )
    ratios = [worse / better for worse, better in zip(naive, careful, strict=True)]
    assert ratios[0] > 2
    assert ratios[0] < ratios[1] < ratios[2]  # higher, and steeper
    assert np.all(quantized(3.0, 3.0, "naive") > quantized(3.0, 3.0, "structure_aware"))


@pytest.mark.parametrize(
    ("quantizer", "payload", "median"),
    [("structure_aware", 4, 0.0075), ("structure_aware", 3, 0.034), ("kvquant_dense", 2, 0.206), ("kvquant", 2, 0.053)]
    + [("naive_grouped", 4, 0.015), ("naive_grouped", 3, 0.082), ("naive", 4, 0.056), ("naive", 3, 0.62)],
)
def test_published_perplexity_medians_are_within_a_factor_of_two_and_a_half(
    quantizer: str, payload: int, median: float
) -> None:
    assert median / 2.5 < quantized(payload, payload, quantizer)[PERPLEXITY] < median * 2.5


@pytest.mark.parametrize(
    ("name", "payload", "median"),
    [("fp8", 8.0, 0.002), ("structure_aware", 4.15, 0.016), ("structure_aware", 3.0, 0.07), ("naive", 3.0, 0.13)],
)
def test_published_weight_medians_are_within_a_factor_of_two_and_a_half(
    name: str, payload: float, median: float
) -> None:
    found = loss(weight_bits=payload)[0, 0, 0, 0, 0, WEIGHT_QUANTIZERS.index(name)]
    assert median / 2.5 < found < median * 2.5


def test_an_implementation_matters_as_much_as_bits() -> None:
    other, authors = (quantized(2.0, 2.0, name)[:PERPLEXITY] for name in ("kivi_quanto", "kivi"))
    assert np.all(other > authors)
    assert all(other[TASKS.index(task)] > 1.4 * authors[TASKS.index(task)] for task in ("reasoning", "code"))


def test_an_average_hides_what_needles_lose() -> None:
    seeing, position = evicted(0.5, "snapkv", True), evicted(0.5, "streaming_llm", True)
    assert seeing["aggregate"] < 0.05
    assert seeing["retrieval_hard"] > 5 * seeing["aggregate"]
    assert position["retrieval_hard"] > 0.3  # a needle is where it was dropped, or is not
    assert evicted(0.5, "snapkv", False)["retrieval_hard"] > 2 * seeing["retrieval_hard"]
    for kept in (0.75, 0.5):  # random eviction keeps a hard needle's tokens about as often as it keeps any
        assert evicted(kept, "random", True)["retrieval_hard"] > 0.7 * (1 - kept)


def test_blind_eviction_may_lose_every_needle_with_nine_tokens_of_ten_kept() -> None:
    assert evicted(0.9, "knorm", True, upper=True)["retrieval_easy"] > 0.5
    assert evicted(0.9, "snapkv", True, upper=True)["retrieval_easy"] < 0.1


def test_reading_less_than_all_costs_less_than_dropping_it_blindly() -> None:
    reading = loss(read_fraction=0.1)[:, 0, 0, EVICTORS.index("quest"), 1, 0]
    dropping = loss(kept_fraction=0.1)[:, 0, 0, EVICTORS.index("knorm"), 1, 0]
    needles = [TASKS.index("retrieval_easy"), TASKS.index("retrieval_hard")]
    assert np.all(reading[needles] < 0.5 * dropping[needles])


def test_a_reader_has_its_own_curve_and_what_is_dropped_beside_it_is_dropped_blindly() -> None:
    families = load_methods()["evictor"]
    assert {reader_of(name) for name in EVICTORS if families.family(name) not in READERS} == {READERS[0]}
    found = quality_parameters(CURVES)
    quest, snapkv, blind, reads = (EVICTORS.index(name) for name in ("quest", "snapkv", "query_agnostic", READERS[0]))
    halves = [np.asarray(curve.log_half) for curve in (found.evictor, found.reader)]
    assert np.array_equal(halves[0][:, quest], halves[0][:, blind])
    assert np.array_equal(halves[1][:, snapkv], halves[1][:, reads])
    own = [CURVES.evictor["quest"][task].log_half for task in TASKS]
    np.testing.assert_allclose(halves[1][:, quest, 1], own, rtol=1e-6)


def test_paging_and_sharing_prefixes_cost_no_quality() -> None:
    base = {"model": "meta-llama/Llama-3.3-70B-Instruct", "hardware": "h100-sxm", "tensor_parallel": 8}
    plain = kv.evaluate(**base, context=32768, batch=8, mode="ceiling")  # type: ignore[arg-type]
    paged = kv.evaluate(
        **base, context=32768, batch=8, mode="ceiling", block_size=16, prefix_share=0.5, prefix_group=8,
        prefix_aware_attention=True, placement_host=0.5,
    )  # type: ignore[arg-type]  # fmt: skip
    losses = {name for name in plain.metrics if name.startswith("quality_loss")}
    assert len(losses) > 15
    assert {plain.metrics[name] for name in losses} == {paged.metrics[name] for name in losses} == {0.0}


def test_ruler_is_the_mean_of_its_tiers_and_retrieval_the_worse_of_both() -> None:
    report = kv.evaluate(
        model="meta-llama/Llama-3.3-70B-Instruct", hardware="h100-sxm", tensor_parallel=8, context=32768, retention=0.5,
        evictor="snapkv", mode="ceiling",
    )  # fmt: skip
    for name in ("quality_loss", "quality_loss_upper"):
        tiers = {task: report.metrics[f"{name}_{task}"] for task in TASKS}
        mean = (5 * tiers["aggregate"] + 5 * tiers["retrieval_easy"] + 3 * tiers["retrieval_hard"]) / 13  # type: ignore[operator]
        assert report.metrics[f"{name}_ruler"] == pytest.approx(mean, rel=1e-6)
        assert report.metrics[f"{name}_retrieval"] == max(tiers["retrieval_easy"], tiers["retrieval_hard"])  # type: ignore[type-var]
    assert sum(task_named("ruler").weights or ()) == pytest.approx(1.0)
    assert task_rows("retrieval") == (TASKS.index("retrieval_easy"), TASKS.index("retrieval_hard"))


def test_composition_multiplies_survivals_and_adds_ln_ratios() -> None:
    settings_of = {"cache": {"key_bits": 4.0, "value_bits": 4.0}, "evict": {"kept_fraction": 0.5}}
    settings_of |= {"read": {"read_fraction": 0.5}, "weight": {"weight_bits": 3.0}, "act": {"activation_bits": 8.0}}
    whole = loss(**{name: each for setting in settings_of.values() for name, each in setting.items()})
    parts = [loss(**setting) for setting in settings_of.values()]
    survived = np.prod([1 - part[:PERPLEXITY] for part in parts], axis=0)
    np.testing.assert_allclose(1 - whole[:PERPLEXITY], survived, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(whole[PERPLEXITY], sum(part[PERPLEXITY] for part in parts), rtol=1e-5)


@pytest.mark.parametrize(
    ("payload", "kept", "beyond"), [(4.0, 0.02, 0), (2.0, 0.5, 0), (2.0, 0.0625, 1), (3.0, 0.02, 1)]
)
def test_few_bits_with_few_tokens_lose_more_than_the_product(payload: float, kept: float, beyond: int) -> None:
    both = loss(key_bits=payload, value_bits=payload, kept_fraction=kept)[:PERPLEXITY]
    alone = (1 - loss(key_bits=payload, value_bits=payload)[:PERPLEXITY]) * (1 - loss(kept_fraction=kept)[:PERPLEXITY])
    extra = 1 - (1 - both) / np.maximum(alone, 1e-30)
    seen = extra[alone > 1e-3]
    assert np.all(seen > 0.02) if beyond else np.all(np.abs(seen) < 1e-4)


def test_the_upper_curve_is_spread_times_the_hazard_plus_noise() -> None:
    curve = PARAMETERS.cache.key
    hazard, upper = (np.asarray(bit_hazard(3.0, curve, upper=each), float) for each in (False, True))
    np.testing.assert_allclose(
        upper, np.asarray(curve.spread) * hazard + np.asarray(curve.noise) * (13 / 12) ** 5, rtol=1e-5
    )
    dropped = PARAMETERS.evictor
    hazard, upper = (np.asarray(eviction_hazard(0.5, dropped, upper=each), float) for each in (False, True))
    np.testing.assert_allclose(
        upper, np.asarray(dropped.spread) * hazard + np.asarray(dropped.noise) * np.log(2), rtol=1e-5
    )


def test_models_without_traits_have_one_curve_and_traits_only_raise_it() -> None:
    assert quality_parameters(CURVES, 0.9, [(), ()]).cache.key.scale.shape == (len(TASKS), len(QUANTIZERS), 1)  # type: ignore[union-attr]
    for quantizer in QUANTIZERS:
        for payload in (4.0, 3.0, 2.0):
            plain, llama, outlier = (quantized(payload, payload, quantizer, trait) for trait in range(3))
            assert np.all(llama >= plain * (1 - 1e-5))
            assert np.all(outlier >= plain)
            assert outlier[PERPLEXITY] > 5 * plain[PERPLEXITY]
    naive = QUANTIZERS.index("naive")
    fragile = loss(key_bits=4.0, value_bits=4.0)[PERPLEXITY, naive, :, 0, 0, 0]
    assert fragile[1] > fragile[0]


def test_values_do_not_suffer_from_outliers_of_keys() -> None:
    plain, _, outlier = (quantized(16.0, 4.0, "kivi", trait) for trait in range(3))
    assert np.array_equal(plain, outlier)


def test_every_leaf_of_a_curve_has_its_axes_shape() -> None:
    loaded = quality_parameters(CURVES, 0.9, TRAITS)
    names = {"evictor": (len(EVICTORS), 2), "reader": (len(EVICTORS), 2), "weight": (len(WEIGHT_QUANTIZERS),)}
    names |= {"activation": (), "small_budget": ()}
    for part, shape in names.items():
        curve = getattr(loaded, part)
        assert {np.shape(getattr(curve, field.name)) for field in fields(curve)} == {(len(TASKS), *shape)}
    for curve in (loaded.cache.key, loaded.cache.value):
        shapes = {np.shape(getattr(curve, field.name)) for field in fields(curve)}
        assert shapes == {(len(TASKS), len(QUANTIZERS), len(TRAITS))}


def test_a_fit_of_the_users_own_moves_one_curve_and_draws_its_upper_one_closer() -> None:
    key = curve_key("quantizer", "kivi", "aggregate")
    own = replace(CURVES, narrowed={key: Narrowed(log_factor=float(np.log(3)), remaining=0.25, points=2)})
    before, after = (quality_parameters(each).cache for each in (CURVES, own))
    kivi, others = QUANTIZERS.index("kivi"), [place for place, name in enumerate(QUANTIZERS) if name != "kivi"]
    hazards = [np.asarray(cache_hazard(3.0, 3.0, each, upper=False)) for each in (before, after)]
    np.testing.assert_allclose(hazards[1][0, kivi], 3 * hazards[0][0, kivi], rtol=1e-5)
    assert np.array_equal(hazards[0][:, others], hazards[1][:, others])
    assert np.array_equal(hazards[0][1:], hazards[1][1:])
    spreads = [np.log(np.asarray(each.key.spread)[0, kivi]) for each in (before, after)]
    np.testing.assert_allclose(spreads[1], 0.25 * spreads[0], rtol=1e-4)


@pytest.mark.parametrize("confidence", [0.4, 1.0, 90])
def test_a_confidence_outside_of_the_record_is_refused(confidence: float) -> None:
    with pytest.raises(InputError, match=r"outside 0\.5 to 0\.99"):
        check_confidence(CURVES, confidence)


def test_a_record_that_lacks_a_curve_is_refused_with_every_fault(tmp_path: Any) -> None:
    broken = tmp_path / "curves.json"
    text = RECORD.read_text()
    broken.write_text(text.replace('"kivi": {', '"kiwi": {', 1).replace('"random": {', '"chance": {', 1))
    with pytest.raises(InputError) as error:
        load_quality_curves(broken)
    assert any("quantizer kivi lacks" in fault for fault in error.value.faults)
    assert any("evictor random lacks" in fault for fault in error.value.faults)
    broken.write_text("{")
    with pytest.raises(InputError, match="not a quality record"):
        load_quality_curves(broken)


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('"key_share": 0.', '"key_share": 7.', "key_share"),
        ('"scale": 0.', '"scale": -0.', "at least 0"),
        ('"ceiling": 0.', '"ceiling": 3.', "ceiling between"),
        ('"noise": [', '"noise": [9.0, ', "for each confidence"),
        ('"confidences": [0.5, ', '"confidences": [0.7, ', "confidences"),
        ('"outlier_keys": ', '"outlier_keys": 1e999, "per_channel": ', "outlier_keys"),
        ('"evictor_hidden": {', '"evictor_hidden": {}, "x": {', "x"),
    ],
)
def test_numbers_that_no_fit_gives_are_refused(tmp_path: Any, old: str, new: str, told: str) -> None:
    broken = tmp_path / "curves.json"
    text = RECORD.read_text()
    assert old in text
    broken.write_text(text.replace(old, new, 1))
    with pytest.raises(InputError, match=told):
        load_quality_curves(broken)


def test_an_unknown_task_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(InputError, match="retrieval_easy"):
        task_rows("retrieval_esy")

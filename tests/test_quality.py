"""Quality loss: neutral settings cost nothing, laws are monotone, the record is what its rows say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kvwall.objectives.quality import (
    composed_loss,
    composed_loss_upper,
    eviction_hazard,
    quantization_hazard,
)
from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import (
    EVICTORS,
    QUANTIZERS,
    RECORD,
    TASKS,
    Evidence,
    FittedBits,
    QualityParameters,
    load_quality_curves,
    task_rows,
)
from kvwall.sweep import quality_fit
from kvwall.sweep.quality_curve import bits_hazard, fit_bits
from kvwall.sweep.quality_curve import eviction_hazard as double_eviction_hazard
from kvwall.sweep.quality_held_out import Hazard, Margin, held_out_margins, upper_curve
from kvwall.sweep.quality_rows import ROWS, Row, read_rows

CURVES = load_quality_curves()
PERPLEXITY = TASKS.index("perplexity")
bits = st.floats(1.5, 18.0, width=32)
kept_fractions = st.floats(2.0**-8, 1.0, width=32)


def every_design(confidence: float = 0.9) -> QualityParameters:
    """All families at once: leaves of shape (task, quantizer, evictor, question_visible), size 1 off their axes."""
    loaded = CURVES.parameters(confidence)
    return QualityParameters(
        quantizer=jax.tree.map(lambda leaf: leaf[:, :, None, None], loaded.quantizer),
        evictor=jax.tree.map(lambda leaf: leaf[:, None], loaded.evictor),
        weight=jax.tree.map(lambda leaf: leaf[:, None, None, None], loaded.weight),
    )


PARAMETERS = every_design()


def quantized(key: float, value: float, quantizer: str) -> np.ndarray:
    """Central loss per task of one quantizer."""
    return np.asarray(composed_loss(key, value, 1.0, 16.0, PARAMETERS))[:, QUANTIZERS.index(quantizer), 0, 0]


def evicted(kept: float, evictor: str, seen: bool) -> np.ndarray:
    """Central loss per task of one evictor."""
    return np.asarray(composed_loss(16.0, 16.0, kept, 16.0, PARAMETERS))[:, 0, EVICTORS.index(evictor), int(seen)]


@pytest.mark.parametrize("loss", [composed_loss, composed_loss_upper])
@pytest.mark.parametrize("neutral_bits", [16.0, 32.0])
def test_neutral_settings_cost_exactly_nothing(loss: Callable[..., jax.Array], neutral_bits: float) -> None:
    found = jax.jit(loss)(neutral_bits, neutral_bits, 1.0, neutral_bits, PARAMETERS)
    assert found.shape == (len(TASKS), len(QUANTIZERS), len(EVICTORS), 2)
    assert np.array_equal(np.asarray(found), np.zeros(found.shape))


def test_any_departure_from_neutral_costs_something() -> None:
    for setting in ((8.0, 16.0, 1.0, 16.0), (16.0, 8.0, 1.0, 16.0), (16.0, 16.0, 0.5, 16.0), (16.0, 16.0, 1.0, 8.0)):
        assert np.all(np.asarray(composed_loss(*setting, PARAMETERS)) > 0)


@settings(max_examples=60, deadline=None)
@given(bits, bits, kept_fractions, bits, st.integers(0, 3), st.floats(0.0, 1.0))
def test_more_bits_or_more_tokens_never_lose_more(
    key: float, value: float, kept: float, weight: float, raised: int, step: float
) -> None:
    less = [key, value, kept, weight]
    more = less.copy()
    more[raised] = less[raised] + step * ((1.0 if raised == 2 else 18.0) - less[raised])
    for loss in (composed_loss, composed_loss_upper):
        before, after = (np.asarray(loss(*setting, PARAMETERS)) for setting in (less, more))
        assert np.all(after <= before * (1 + 1e-5) + 1e-7)


@settings(max_examples=40, deadline=None)
@given(bits, bits, kept_fractions, bits)
def test_upper_is_never_below_central_and_accuracy_losses_stay_in_range(
    key: float, value: float, kept: float, weight: float
) -> None:
    central = np.asarray(composed_loss(key, value, kept, weight, PARAMETERS))
    upper = np.asarray(composed_loss_upper(key, value, kept, weight, PARAMETERS))
    assert np.all(upper >= central)
    assert np.all(central >= 0)
    assert np.all(upper[:PERPLEXITY] <= 1)
    assert np.all(np.isfinite(upper))


def test_upper_rises_with_confidence() -> None:
    at = [np.asarray(composed_loss_upper(4.0, 4.0, 0.5, 4.0, every_design(level))) for level in (0.5, 0.62, 0.9, 0.99)]
    assert all(np.all(low <= high) for low, high in zip(at, at[1:], strict=False))
    assert np.all(at[0] < at[-1])


@pytest.mark.parametrize("setting", [(16.0, 16.0, 1.0, 16.0), (2.0, 2.0, 0.02, 2.0), (4.0, 8.0, 0.999, 4.25)])
def test_gradients_are_finite_everywhere(setting: tuple[float, ...]) -> None:
    def total(*design: jax.Array) -> jax.Array:
        return jnp.sum(composed_loss_upper(*design, PARAMETERS))

    with jax.debug_nans(True):
        gradient = jax.grad(total, argnums=(0, 1, 2, 3))(*map(jnp.float32, setting))
    assert np.all(np.isfinite(gradient))
    assert np.all(np.asarray(gradient) <= 0)


def double_hazards(key: float, value: float, kept: float, weight: float) -> np.ndarray:
    """Hazard per (task, quantizer, evictor, question_visible) by the fit's own float64 laws."""
    shares = (CURVES.key_share, 1 - CURVES.key_share)
    total = np.zeros((len(TASKS), len(QUANTIZERS), len(EVICTORS), 2))
    for row, task in enumerate(TASKS):
        total[row] += bits_hazard(np.array([[weight]]), (1.0,), CURVES.weight[task])
        for column, family in enumerate(QUANTIZERS):
            curve = CURVES.quantizer[family][task]
            total[row, column] += bits_hazard(np.array([[key, value]]), shares, curve)
        for column, evictor in enumerate(EVICTORS):
            for seen, name in enumerate(("hidden", "visible")):
                curves = CURVES.evictor[evictor][name]
                total[row, :, column, seen] += double_eviction_hazard(np.array([[kept]]), curves[task])
    return total


def double_loss(*setting: float) -> np.ndarray:
    hazard = double_hazards(*setting)
    hazard[:PERPLEXITY] = -np.expm1(-hazard[:PERPLEXITY])
    return hazard


@pytest.mark.parametrize("setting", [(3.0, 5.0, 0.4, 4.25), (8.0, 2.0, 0.9, 8.0), (2.5, 4.0, 0.03, 15.0)])
def test_law_and_gradient_agree_with_the_float64_law_of_the_fit(setting: tuple[float, ...]) -> None:
    np.testing.assert_allclose(composed_loss(*setting, PARAMETERS), double_loss(*setting), rtol=3e-5, atol=1e-7)
    jacobian = jax.jacfwd(lambda design: composed_loss(*design, PARAMETERS))(jnp.array(setting, jnp.float32))
    for axis in range(4):
        step = np.eye(4)[axis] * 1e-4
        slope = (double_loss(*(np.array(setting) + step)) - double_loss(*(np.array(setting) - step))) / 2e-4
        np.testing.assert_allclose(jacobian[..., axis], slope, rtol=1e-3, atol=1e-6)


def test_keys_matter_more_than_values() -> None:
    for quantizer in QUANTIZERS:
        assert np.all(quantized(2.0, 16.0, quantizer) > quantized(16.0, 2.0, quantizer))


def test_less_careful_quantizers_lose_more_perplexity_below_four_bits() -> None:
    for payload in (3.9, 3.0, 2.5, 2.0):
        careful, grouped, naive = (quantized(payload, payload, name)[PERPLEXITY] for name in QUANTIZERS)
        assert naive > grouped > careful


@pytest.mark.parametrize(
    ("quantizer", "payload", "median"),
    [("structure_aware", 4, 0.0075), ("structure_aware", 3, 0.034), ("structure_aware", 2, 0.24)]
    + [
        ("naive_grouped", 4, 0.015),
        ("naive_grouped", 3, 0.082),
        ("naive", 4, 0.056),
        ("naive", 3, 0.62),
        ("naive", 2, 6.8),
    ],
)
def test_published_perplexity_medians_are_within_a_factor_of_two(quantizer: str, payload: int, median: float) -> None:
    assert median / 2 < quantized(payload, payload, quantizer)[PERPLEXITY] < median * 2


@pytest.mark.parametrize(("payload", "median"), [(8.0, 0.002), (4.15, 0.016), (3.0, 0.07), (2.25, 0.35)])
def test_published_weight_medians_are_within_a_factor_of_two(payload: float, median: float) -> None:
    aggregate = np.asarray(composed_loss(16.0, 16.0, 1.0, payload, PARAMETERS))[0]
    assert median / 2 < aggregate.min() == aggregate.max() < median * 2


def test_eviction_shows_what_an_average_hides() -> None:
    rows = {task: TASKS.index(task) for task in TASKS}
    blind, seeing = evicted(0.5, "query_aware", False), evicted(0.5, "query_aware", True)
    assert np.all(blind[:PERPLEXITY] > seeing[:PERPLEXITY])
    assert seeing[rows["retrieval_hard"]] > 10 * seeing[rows["aggregate"]]
    assert evicted(0.5, "query_agnostic", True)[rows["retrieval_hard"]] > 0.6
    for kept in (0.9, 0.75, 0.5, 0.25):  # position-like eviction keeps a needle where it keeps the token
        assert evicted(kept, "position", True)[rows["retrieval_easy"]] == pytest.approx(1 - kept, abs=0.06)


def test_the_task_retrieval_is_of_both_needle_classes() -> None:
    assert task_rows("retrieval") == (TASKS.index("retrieval_easy"), TASKS.index("retrieval_hard"))


def test_survival_product_predicts_measured_combinations_at_four_bits_and_more() -> None:
    errors = []
    for row in pyarrow.parquet.read_table(ROWS).to_pylist():
        parts = re.match(r"evict_only=([\d.]+);quant_only=([\d.]+)", str(row["notes"]))
        if row["table"] == "kv_combined" and parts and row["bits_k"] >= 4:
            survived = [float(part) / row["baseline"] for part in parts.groups()]
            errors.append(1 - survived[0] * survived[1] - row["relative_loss"])
    assert len(errors) > 20
    assert np.median(np.abs(errors)) < 0.01


def test_composition_multiplies_survivals_and_adds_ln_ratios() -> None:
    whole = np.asarray(composed_loss(3.0, 3.0, 0.5, 3.0, PARAMETERS))
    parts = [
        np.asarray(composed_loss(*setting, PARAMETERS))
        for setting in ((3.0, 3.0, 1.0, 16.0), (16.0, 16.0, 0.5, 16.0), (16.0, 16.0, 1.0, 3.0))
    ]
    accuracy = slice(0, PERPLEXITY)
    survived = np.prod([1 - part[accuracy] for part in parts], axis=0)
    np.testing.assert_allclose(1 - whole[accuracy], survived, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(whole[PERPLEXITY], sum(part[PERPLEXITY] for part in parts), rtol=1e-5)


def test_each_remedys_hazard_is_multiplied_by_its_own_spread() -> None:
    for remedy, setting in {
        "quantizer": (3.0, 3.0, 1.0, 16.0),
        "evictor": (16.0, 16.0, 0.5, 16.0),
        "weight": (16.0, 16.0, 1.0, 3.0),
    }.items():
        spread = getattr(PARAMETERS, remedy).spread
        central = np.asarray(composed_loss(*setting, PARAMETERS), dtype=float)
        upper = np.asarray(composed_loss_upper(*setting, PARAMETERS), dtype=float)
        hazard = np.append(-np.log1p(-central[:PERPLEXITY]), central[PERPLEXITY:], axis=0) * np.asarray(spread)
        expected = np.append(-np.expm1(-hazard[:PERPLEXITY]), hazard[PERPLEXITY:], axis=0)
        np.testing.assert_allclose(upper, expected, rtol=1e-3, atol=1e-6)


def test_every_leaf_of_a_curve_has_its_axes_shape() -> None:
    loaded = CURVES.parameters(0.9)
    shapes = {"quantizer": (7, 3), "evictor": (7, 6, 2), "weight": (7,)}
    for remedy, shape in shapes.items():
        curve = getattr(loaded, remedy)
        assert {getattr(curve, field.name).shape for field in fields(curve)} == {shape}


def test_refit_reproduces_the_record() -> None:
    found = json.loads(quality_fit.record_text(quality_fit.fit_quality(ROWS, CURVES.fitted)))
    assert numbers(found) == pytest.approx(numbers(json.loads(RECORD.read_text())), rel=2e-3, abs=1e-9)


def test_the_comparison_of_records_can_fail() -> None:
    record = json.loads(RECORD.read_text())
    wrong = json.loads(RECORD.read_text())
    wrong["quantizer"]["naive"]["perplexity"]["slope"] *= 1.01
    assert numbers(wrong) != pytest.approx(numbers(record), rel=2e-3, abs=1e-9)


def numbers(record: object, where: str = "") -> dict[str, float]:
    """Every number of a JSON value by its path."""
    if isinstance(record, dict | list):
        items = record.items() if isinstance(record, dict) else enumerate(record)
        return {path: number for key, inner in items for path, number in numbers(inner, f"{where}/{key}").items()}
    return {where: float(record)} if isinstance(record, int | float) else {}


def test_record_text_is_canonical() -> None:
    assert quality_fit.record_text(CURVES) == RECORD.read_text(encoding="utf-8")


def test_fit_recovers_a_known_curve_despite_wild_rows() -> None:
    truth = FittedBits(0.03, 1.6, 0.002, Evidence(0, 0, None))
    rng = np.random.default_rng(1)
    rows = []
    for number, payload in enumerate(np.repeat([8.0, 5.0, 4.0, 3.0, 2.5, 2.0], 30)):
        hazard = bits_hazard(np.array([[payload]]), (1.0,), truth)[0] * np.exp(rng.normal(0, 0.2))
        wild = 20 if number % 20 == 0 else 1
        loss = -np.expm1(-hazard * wild)
        source = f"source {number % 12}"
        rows.append(Row("weight", "", "", "aggregate", (payload,), min(loss, 0.99), source, "a model"))
    found = fit_bits(rows, (1.0,), replace(truth, scale=0.01, slope=1.2), "a generic curve")
    assert found.scale == pytest.approx(truth.scale, rel=0.15)
    assert found.slope == pytest.approx(truth.slope, rel=0.1)
    assert found.evidence == Evidence(180, 12, None)


def test_a_curve_with_too_few_rows_is_its_parents_and_says_so() -> None:
    parent = FittedBits(0.01, 1.5, 0.001, Evidence(40, 5, None))
    row = Row("weight", "", "", "code", (4.0,), 0.5, "one", "a model")
    found = fit_bits([row] * 5, (1.0,), parent, "the parent")
    assert (found.scale, found.slope, found.floor) == (parent.scale, parent.slope, parent.floor)
    assert found.evidence == Evidence(5, 1, "the parent")


def test_held_out_rows_never_meet_a_fit_of_their_own_source() -> None:
    rows = [Row("weight", "", "", "code", (4.0,), 0.1, source, "a model") for source in ("one", "two", "three")]

    def fit(rest: list[Row]) -> Hazard:
        return lambda row: float("nan") if row.source in {each.source for each in rest} else 0.05

    margins = held_out_margins(rows, fit)
    assert [margin.source for margin in margins] == ["one", "three", "two"]
    assert [margin.value for margin in margins] == pytest.approx([np.log(-np.log(0.9) / 0.05)] * 3)


def test_raising_the_level_covers_more_of_a_source_unlike_the_others() -> None:
    margins = [
        Margin("code", (), source, value + (0.5 if source == "odd" else 0.0))
        for source in ("one", "two", "odd")
        for value in np.linspace(-1, 1, 50)
    ]
    held_out = upper_curve(margins, None)
    assert held_out.coverage_unraised < 0.9 <= held_out.coverage
    assert list(held_out.shifts) == sorted(held_out.shifts)


def test_ninety_percent_upper_curves_cover_most_rows_of_left_out_sources() -> None:
    for remedy in CURVES.held_out.values():
        assert remedy["aggregate"].coverage >= 0.9
        assert all(remedy[task].coverage > 0.75 for task in TASKS)


def test_rows_are_parted_by_what_decides_them() -> None:
    rows, excluded = read_rows(ROWS)
    blind = {row.family for row in rows if row.seen == "hidden"}
    assert blind == {"query_aware", "heavy_hitter"}
    assert len(rows) == CURVES.rows
    assert excluded == CURVES.excluded
    assert max(row.loss for row in rows if row.task != "perplexity") <= 0.99
    assert not any(re.match(r"Qwen2\.5-7B", row.model) for row in rows if row.remedy == "quantizer")


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: CURVES.upper_shift("quantiser", "", 0.9), "did you mean quantizer"),
        (lambda: task_rows("retreival"), "did you mean retrieval"),
        (lambda: CURVES.parameters(0.999), "0.5 to 0.99"),
        (lambda: CURVES.parameters(float("nan")), "0.5 to 0.99"),
        (lambda: CURVES.parameters(0.1), "0.5 to 0.99"),
    ],
)
def test_wrong_input_names_the_remedy(call: Callable[[], object], says: str) -> None:
    with pytest.raises(InputError, match=says):
        call()


def test_a_record_with_several_faults_reports_them_all(tmp_path: Path) -> None:
    record = json.loads(RECORD.read_text())
    del record["weight"]["code"], record["quantizer"]["naive"]
    path = tmp_path / "curves.json"
    path.write_text(json.dumps(record))
    with pytest.raises(InputError) as caught:
        load_quality_curves(path)
    assert len(caught.value.faults) == 2
    record["key_share"], record["rows"] = "most", "many"
    path = tmp_path / "other.json"
    path.write_text(json.dumps(record))
    with pytest.raises(InputError, match="key_share") as caught:
        load_quality_curves(path)
    assert len(caught.value.faults) == 2


@pytest.mark.parametrize("text", ["{", "[]"])
def test_a_file_that_is_no_record_is_an_input_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "curves.json"
    path.write_text(text)
    with pytest.raises(InputError):
        load_quality_curves(path)


def test_hazards_stay_finite_in_float32_at_the_edges_of_the_axes() -> None:
    loaded = CURVES.parameters(0.99)
    assert np.all(np.isfinite(loaded.quantizer.spread * quantization_hazard(jnp.float32(1), 1, loaded.quantizer)))
    for kept in (1e-6, 1 - 6e-8):
        assert np.all(np.isfinite(eviction_hazard(jnp.float32(kept), loaded.evictor)))

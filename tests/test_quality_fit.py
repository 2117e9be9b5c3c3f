"""The quality fit: rows are read for what decides them, the record is what the fit says, sources left out stay out."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import jax
import numpy as np
import pytest

from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import RECORD, load_quality_curves
from kvwall.spaces.quality_methods import load_methods
from kvwall.spaces.quality_tasks import TASKS
from kvwall.sweep.quality import held_out as held_out_module
from kvwall.sweep.quality.central import CentralFit, row_weights
from kvwall.sweep.quality.fit import record_text
from kvwall.sweep.quality.held_out import blind_hazards, known_rows
from kvwall.sweep.quality.hierarchy import PRIORS, Hierarchy, hazards, penalty, predicted
from kvwall.sweep.quality.prediction import predict
from kvwall.sweep.quality.rows import Named, Part, Row, read_cells, read_rows, row_of, source_of, unfit
from kvwall.sweep.quality.stamp import stamp
from kvwall.sweep.quality.upper import CONFIDENCES, UpperFit, raised

CURVES = load_quality_curves()


@cache
def shipped() -> tuple[Row, ...]:
    return read_rows()[0]


def cells_of(**changed: Any) -> Any:
    """An eviction row's columns, some changed."""
    plain = next(each for each in read_cells() if each.table == "kv_evict" and each.method == "SnapKV")
    return replace(plain, **changed)


def test_the_shipped_record_is_of_these_rows_and_this_code() -> None:
    assert CURVES.stamp == stamp(), "run: python -m kvwall.sweep.quality.fit"


def test_record_text_is_canonical() -> None:
    assert record_text(CURVES) == RECORD.read_text(encoding="utf-8")


def test_the_record_predicts_what_the_fit_does() -> None:
    rows = shipped()
    with jax.enable_x64(True):
        fit = CentralFit(rows)
        found = fit.hazards(fit.fit(np.ones(len(rows), bool)))
        expected = np.asarray(predicted(sum(found.values()), fit.hierarchy.terms))
    stored = np.array([each.central for each in predict(rows, CURVES)])
    np.testing.assert_allclose(stored, expected, rtol=0.02, atol=1e-4)  # four digits of each parameter are kept


def test_upper_predictions_cover_the_rows_they_were_set_on() -> None:
    found = predict(shipped(), CURVES, 0.9)
    assert 0.9 < np.mean([each.row.loss <= each.upper for each in found]) < 0.99
    assert all(each.central <= each.upper for each in found)


def test_wider_confidence_covers_more() -> None:
    shares = [
        np.mean([each.row.loss <= each.upper for each in predict(shipped(), CURVES, level)]) for level in CONFIDENCES
    ]
    assert shares == sorted(shares)
    assert shares[0] < 0.8 < 0.97 < shares[-1]


def test_a_row_predicts_the_same_alone_and_among_others() -> None:
    some = shipped()[::400]
    together = predict(some, CURVES)
    assert [predict([row], CURVES)[0].upper for row in some] == pytest.approx([each.upper for each in together])
    assert predict([], CURVES) == []


def test_every_published_label_has_the_name_and_the_bits_that_it_states() -> None:
    by_id = {each.id: (each, row_of(each)) for each in read_cells()}
    kivi = [row for cells, row in by_id.values() if cells.method.startswith("KIVI") and "quanto" not in cells.notes]
    assert {row.quantizer.name for row in kivi if row.quantizer} == {"kivi"}
    turbo = [row for cells, row in by_id.values() if cells.method == "q8_0/turbo3"]
    assert {(row.key_bits, row.value_bits) for row in turbo} == {(8.0, 3.0)}  # llama.cpp states bits with scales
    both = [row for cells, row in by_id.values() if cells.method == "SnapKV+KIVI-style 2b"]
    assert {(row.quantizer, row.evictor, row.key_bits) for row in both} == {
        (Named("structure_aware", "kivi"), Named("query_aware", "snapkv"), 2.0)
    }
    qoq = [row for cells, row in by_id.values() if cells.method.startswith("QoQ")]
    assert {(row.activation_bits, row.key_bits) for row in qoq} == {(8.0, 4.0)}
    assert all(row.weight_bits < 5 for row in qoq)


def test_the_question_decides_the_family() -> None:
    hidden = row_of(cells_of(notes="subfamily=query_agnostic_score"))
    seen = row_of(cells_of(notes="subfamily=query_aware_score"))
    assert hidden.evictor == Named("query_agnostic", "snapkv")
    assert (hidden.visible, seen.visible) == (False, True)
    own = row_of(cells_of(notes="", question="hidden"))  # a user's own row says it in words
    assert own.evictor == Named("query_agnostic", "snapkv")
    pair = predict([replace(hidden, parts=seen.parts), seen], CURVES)
    assert pair[0].central > pair[1].central


def test_an_unknown_method_is_its_familys_and_a_neutral_row_loses_nothing() -> None:
    unknown = row_of(cells_of(method="brand new", notes="subfamily=position"))
    assert unknown.evictor == Named("position", "position")
    whole = row_of(cells_of(retention_ratio=1.0))
    assert whole.evictor is None
    assert predict([whole], CURVES)[0].upper == 0.0


def test_rulers_average_is_made_of_its_tiers() -> None:
    average = row_of(cells_of(benchmark="RULER", subtask="average", task_class="aggregate"))
    assert {part.task: round(part.weight * 13) for part in average.parts} == {
        "retrieval_easy": 5, "retrieval_hard": 3, "aggregate": 5,
    }  # fmt: skip
    parts = [replace(average, parts=(replace(part, weight=1.0),)) for part in average.parts]
    losses = [each.central for each in predict(parts, CURVES)]
    mean = sum(part.weight * loss for part, loss in zip(average.parts, losses, strict=True))
    assert predict([average], CURVES)[0].central == pytest.approx(mean)


def test_vetoes_of_rows_are_those_of_designs() -> None:
    plain = row_of(cells_of())
    named = {
        "k_outliers": replace(plain, k_outliers=True, key_bits=4.0, quantizer=Named("structure_aware", "kivi")),
        "naive_low_bits": replace(plain, llama_3=True, value_bits=3.0, quantizer=Named("naive", "naive")),
        "blind_retrieval": replace(plain, task="retrieval_hard", evictor=Named("position", "streaming_llm")),
        "": replace(plain, task="retrieval_hard", evictor=Named("read_sparse", "quest")),
    }
    assert {name: predict([row], CURVES)[0].vetoed for name, row in named.items()} == {name: name for name in named}


def test_rows_beyond_the_evidence_say_so() -> None:
    plain = row_of(cells_of())
    far = replace(plain, key_bits=1.5, kept=0.01, context=200_000.0, quantizer=Named("naive", "naive"))
    assert len(predict([far], CURVES)[0].beyond) == 3
    assert predict([replace(plain, kept=0.5)], CURVES)[0].beyond == ()


def test_marked_rows_are_not_fitted_and_counted_by_reason() -> None:
    rows, excluded = read_rows()
    marked = [each for each in read_cells() if unfit(each)]
    assert sum(excluded.values()) == len(marked) == len(read_cells()) - len(rows)
    assert CURVES.excluded == excluded
    assert CURVES.rows == len(rows)
    assert CURVES.sources == len({source_of(each) for each in read_cells() if not unfit(each)})


def synthetic(source: str, bits: float, loss: float, task: str = "code") -> Row:
    part = Part(1.0, task, f"bench/{task}")
    return Row("x", source, "a model", task, (part,), loss, bits, bits, quantizer=Named("naive", "naive"))


def made_up(seed: int = 1) -> list[Row]:
    """Rows of twenty sources about one curve, every tenth wild."""
    rng, rows = np.random.default_rng(seed), []
    for number, payload in enumerate(np.tile([8.0, 5.0, 4.0, 3.0, 2.5, 2.0], 60)):
        hazard = 0.03 * np.exp(1.6 * (4 - payload)) * np.exp(rng.normal(0, 0.2)) * (8 if number % 10 == 0 else 1)
        rows.append(synthetic(f"source {number % 20}", float(payload), float(-np.expm1(-hazard))))
    return rows


def test_the_fit_recovers_a_known_curve_despite_wild_rows() -> None:
    rows = made_up()
    with jax.enable_x64(True):
        fit = CentralFit(rows)
        found = fit.hazards(fit.fit(np.ones(len(rows), bool)))["quantizer"]
    truth = np.array([0.03 * np.exp(1.6 * (4 - row.key_bits)) for row in rows])
    near = np.array([row.key_bits <= 4 for row in rows])
    np.testing.assert_allclose(found[near], truth[near], rtol=0.35)


def test_rows_left_out_do_not_reach_the_fit() -> None:
    rows = made_up()
    mask = np.array([row.source != "source 3" for row in rows])
    spoilt = [row if keep else replace(row, loss=0.9) for row, keep in zip(rows, mask, strict=True)]
    with jax.enable_x64(True):
        points = [fit.hazards(fit.fit(mask))["quantizer"] for fit in (CentralFit(rows), CentralFit(spoilt))]
    np.testing.assert_array_equal(*points)


def test_a_source_left_out_does_not_decide_its_own_losses() -> None:
    rows = [replace(row, source=f"source {place % 4}") for place, row in enumerate(made_up())]
    spoilt = [replace(row, loss=0.9) if row.source == "source 2" else row for row in rows]
    own = np.array([row.source == "source 2" for row in rows])
    with jax.enable_x64(True):
        found = []
        for some in (rows, spoilt):
            fit = CentralFit(some)
            found.append(held_out_module.held_out(fit, UpperFit(some, fit.hierarchy.terms), [0.9]))
    np.testing.assert_array_equal(found[0].central[own], found[1].central[own])
    np.testing.assert_array_equal(found[0].upper[0.9][own], found[1].upper[0.9][own])
    assert not np.array_equal(found[0].upper[0.9][~own], found[1].upper[0.9][~own])


def test_blind_hazards_are_of_a_fit_without_the_source(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_out_module, "FEWEST_ROWS", 3)
    rows = [*made_up(), synthetic("small", 4.0, 0.1)]
    with jax.enable_x64(True):
        fit = CentralFit(rows)
        found = blind_hazards(fit)
        mask = np.array([row.source != "source 5" for row in rows])
        expected = fit.hazards(fit.fit(mask))["quantizer"]
    np.testing.assert_array_equal(found["quantizer"][~mask], expected[~mask])
    assert list(known_rows(fit, found)) == [row.source != "small" for row in rows]


def test_upper_curves_cover_the_share_asked_for() -> None:
    rows, confidence = made_up(), 0.9
    with jax.enable_x64(True):
        fit = CentralFit(rows)
        upper = UpperFit(rows, fit.hierarchy.terms)
        blind = blind_hazards(fit)
        everything = np.ones(len(rows), bool)
        band = upper.fit(everything, blind, confidence)
        covered = np.mean(np.array([row.loss for row in rows]) <= upper.predict(band, blind))
    assert raised(confidence) - 0.06 < covered < raised(confidence) + 0.06


def test_what_no_source_measured_is_wider() -> None:
    upper = CURVES.upper["weight_quantizer"]["structure_aware"]
    assert upper["retrieval_hard"].log_spread[4] > upper["aggregate"].log_spread[4]


def test_upper_curves_rise_with_confidence_everywhere() -> None:
    for families in CURVES.upper.values():
        for tasks in families.values():
            for upper in tasks.values():
                assert list(upper.log_spread) == sorted(upper.log_spread)
                assert list(upper.noise) == sorted(upper.noise)
                assert upper.log_spread[0] >= 0
                assert upper.noise[0] >= 0


def test_rare_sources_weigh_as_much_as_large_ones_to_the_power() -> None:
    rows = [synthetic("one", 4.0, 0.1)] * 4 + [synthetic("two", 4.0, 0.1)]
    weights = row_weights(rows, np.ones(5, bool), -0.5)
    assert weights.mean() == pytest.approx(1.0)
    assert weights[-1] / weights[0] == pytest.approx(2.0)
    assert list(row_weights(rows, np.array([True] * 4 + [False]), -0.5)) == [1.0] * 4 + [0.0]


def test_every_effect_has_a_prior_and_moves_something() -> None:
    rows = shipped()[::7]
    with jax.enable_x64(True):
        model = Hierarchy(rows)
        effects = model.initial()
        assert effects.keys() == PRIORS.keys()
        assert float(penalty(effects)) == 0.0
        base = sum(np.asarray(each) for each in hazards(effects, model.terms).values())
        for name in effects:
            moved = effects | {name: effects[name] + 0.3}
            assert float(penalty(moved)) > 0
            changed = sum(np.asarray(each) for each in hazards(moved, model.terms).values())
            assert not np.allclose(changed, base, rtol=1e-6), name


def test_what_is_peculiar_to_models_and_sources_is_left_out_of_predictions() -> None:
    rows = shipped()[::50]
    with jax.enable_x64(True):
        model = Hierarchy(rows)
        effects = model.initial()
        moved = effects | {name: effects[name] + 1.0 for name in ("model", "source", "source_task")}
        plain, peculiar = (hazards(each, model.terms, peculiar=False) for each in (effects, moved))
    for name, hazard in plain.items():
        np.testing.assert_array_equal(hazard, peculiar[name])


def test_a_file_of_methods_is_refused_with_every_fault(tmp_path: Any) -> None:
    path = tmp_path / "methods.toml"
    path.write_text(
        '[quantiser]\n[quantizer.families]\na = "x"\n[quantizer.methods]\nb = { family = "c", labels = "b" }\n'
    )
    with pytest.raises(InputError) as error:
        load_methods(path)
    assert len(error.value.faults) == 2


def test_tasks_of_rows_are_those_of_the_record() -> None:
    assert {part.task for row in shipped() for part in row.parts} <= set(TASKS)

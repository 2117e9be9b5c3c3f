"""The fit of estimates: planted numbers come back, own rows help, records are whole and reproduce."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

from kvwall.spaces.calibration import RECORD, Calibration, load_calibration
from kvwall.spaces.errors import InputError
from kvwall.spaces.hardware import load_hardware
from kvwall.spaces.terms import TERMS
from kvwall.sweep.calibration.estimate import rows_to_fit, usable_rows
from kvwall.sweep.calibration.estimate_fit import (
    NOISE,
    Effects,
    Fit,
    StepFitter,
    members_of,
    spoken_of,
    weights_of,
)
from kvwall.sweep.calibration.forms import CHOSEN, FORMS
from kvwall.sweep.calibration.held_out import HeldOut, spread_of
from kvwall.sweep.calibration.record import write_record
from kvwall.sweep.calibration.spreads import COVERED, covered_elsewhere, spreads_of
from kvwall.sweep.calibration.steps import MeasuredSteps, measured_steps
from kvwall.sweep.calibration.update import updated
from kvwall.sweep.measured_rows import read_rows
from kvwall.sweep.speed_prediction import log_seconds

SEED = 7


@cache
def some_steps() -> MeasuredSteps:
    """Every ninth of the stored rows."""
    return rows_to_fit(read_rows()[::9]).steps


@cache
def fitter() -> StepFitter:
    """Compiled once for all tests."""
    return StepFitter(some_steps())


def _planted(effects: Effects) -> np.ndarray:
    drawn = np.random.default_rng(SEED).normal(size=len(effects.names))
    return effects.at(0.7 * drawn)


def _at(values: np.ndarray) -> Fit:
    return replace(fitter().effects.prior, values=values)


def _with_seconds(seconds: np.ndarray) -> StepFitter:
    return StepFitter(replace(some_steps(), seconds=seconds))


def test_planted_effects_are_found() -> None:
    truth = _planted(fitter().effects)
    steps = some_steps()
    noise = np.random.default_rng(SEED).normal(scale=0.02, size=len(steps))
    planted = _with_seconds(steps.seconds * np.exp(fitter().log_ratio(_at(truth)) + noise))
    everything = np.ones(len(steps), bool)
    found = planted.fit(everything)
    before = np.abs(planted.log_ratio(planted.effects.prior))
    after = np.abs(planted.log_ratio(found))
    assert np.median(before) > 0.1
    assert np.median(after) < 0.04
    deviations = (found.values - truth) / np.sqrt(np.diag(found.covariance))
    assert np.mean(np.abs(deviations) < 2) > 0.9


def test_slopes_are_those_of_the_law() -> None:
    values, step = fitter().effects.prior_mean, 1e-5
    slopes = fitter().slopes(_at(values))
    for place in range(0, len(values), 37):
        moved = values.copy()
        moved[place] += step
        difference = (fitter().log_ratio(_at(moved)) - fitter().log_ratio(_at(values))) / step
        np.testing.assert_allclose(slopes[:, place], difference, atol=2e-4)


def test_more_of_every_cost_is_slower() -> None:
    slopes = fitter().of_terms(fitter().effects.prior)
    assert np.all(slopes >= -1e-12)
    assert np.all(np.max(slopes, axis=0) > 0)  # no term is without effect


def test_rows_of_a_group_count_as_the_few_they_are_worth() -> None:
    found = weights_of(["a"] * 101 + ["b"], 0.3)
    assert found[-1] == 1.0
    assert sum(found[:-1]) == pytest.approx(101 / 31)
    assert weights_of(["a"] * 3, 0.0) == pytest.approx([1.0, 1.0, 1.0])


def test_own_rows_bring_the_error_down() -> None:
    """A machine that is 30 % slower than its chip: ten rows tell."""
    steps = some_steps()
    own = np.array([str(usable.axes["hardware"]) == "h100-sxm" for usable in steps.rows]) & ~steps.too_fast
    own &= steps.waves <= 1
    slower = steps.chosen(own)
    slower = replace(slower, seconds=slower.seconds * 1.3)
    ten = slower.chosen(np.arange(0, len(slower), len(slower) // 10)[:10])
    record = load_calibration()
    assert _median_error(updated(record, ten), slower) < 0.7 * _median_error(record, slower)


def _median_error(record: Calibration, steps: MeasuredSteps) -> float:
    with jax.enable_x64(True):
        cells = [record.calibrated(engine, chip).achieved for engine, chip in steps.cells]
        achieved = steps.achieved_of(jax.tree.map(lambda *leaves: np.stack(leaves), *cells))
        predicted = np.asarray(steps.predicted(achieved))
    return float(np.median(np.abs(predicted / steps.seconds - 1)))


def test_an_updated_record_survives_its_file(tmp_path: Path) -> None:
    record = load_calibration()
    steps = some_steps().chosen(np.arange(5))
    new = updated(record, steps)
    assert new.rows == record.rows + 5
    assert new.sources["own"] == 5
    with pytest.raises(InputError, match="told 5 of these rows before"):
        updated(new, steps)
    path = tmp_path / "own.json"
    write_record(new, path)
    read = load_calibration(path)
    assert read.names == new.names
    np.testing.assert_allclose(read.values, new.values, rtol=1e-4, atol=1e-9)
    chip = load_hardware("h100-sxm")
    assert read.calibrated("vllm", chip).achieved.layer == pytest.approx(
        new.calibrated("vllm", chip).achieved.layer, rel=1e-3
    )


def test_nothing_is_calibrated_on_rows_that_cannot_be() -> None:
    steps = some_steps().chosen(np.arange(3))
    with pytest.raises(InputError, match="no row is left"):
        updated(load_calibration(), replace(steps, too_fast=np.ones(3, bool)))


def test_the_shipped_record_is_that_of_the_stored_rows() -> None:
    """A fit from where the record stands stays there."""
    rows = rows_to_fit(read_rows())
    record = load_calibration()
    whole = StepFitter(rows.steps, FORMS[CHOSEN][1])
    assert tuple(whole.effects.names) == record.names
    assert int(np.sum(rows.steps.fitting)) == record.rows
    again = whole.fit(rows.steps.fitting, record.values, rounds=3)
    off = whole.log_ratio(again) - whole.log_ratio(replace(again, values=record.values))
    assert np.max(np.abs(off)) < 0.02


def test_spreads_cover_rows_that_they_were_not_set_on() -> None:
    """Errors drawn as the bands say they are: spreads of one half hold on the other."""
    steps = some_steps()
    of_fit = np.full(len(steps), 0.05)
    total = np.where(steps.routed, np.hypot(0.2, 0.05), np.hypot(0.1, 0.05))
    drawn = HeldOut(np.random.default_rng(SEED).normal(size=len(steps)) * total, of_fit)
    spreads = spreads_of(steps, drawn)
    assert np.median(spreads.total(~steps.routed & False, of_fit)) == pytest.approx(np.hypot(0.1, 0.05), rel=0.2)
    for inside in covered_elsewhere(steps, drawn, drawn):
        assert float(np.mean(inside[~steps.too_fast])) == pytest.approx(COVERED, abs=0.07)
    doubled = replace(drawn, log_ratio=2 * drawn.log_ratio)
    assert float(np.mean(spreads.covered(steps.routed, doubled))) < 0.6


def test_an_unseen_chip_or_engine_borrows_and_is_less_sure() -> None:
    record = load_calibration()
    seen, relative = record.unseen("vllm", "h100-sxm"), record.unseen("vllm", "h20")
    stranger, engine = record.unseen("vllm", "wse-3"), record.unseen("a new engine", "h100-sxm")
    assert np.all(seen <= 1e-12)
    assert np.all(relative <= stranger)
    assert np.sum(relative) > 0
    assert np.sum(stranger) > np.sum(relative)
    assert np.sum(engine) > np.sum(relative)


def test_bands_are_those_of_the_whole_covariance() -> None:
    """What a record says of a cell is what the fit's own covariance says of its rows."""
    record, steps = load_calibration(), some_steps()
    whole = replace(record, model_spread=1e-9, expert_spread=1e-9)
    _, shipped = log_seconds(steps, whole)
    fit = Fit(_effects_of(record), record.values, np.array(record.covariance))
    np.testing.assert_allclose(shipped, spread_of(fitter(), fit), rtol=1e-3)


def _effects_of(record: Calibration) -> Effects:
    members = [members_of(engine, chip.name) for engine, chip in some_steps().cells]
    empty = np.zeros(len(record.names))
    return Effects(record.names, empty, empty, spoken_of(record.names, tuple(TERMS), members))


def test_rows_all_alike_are_predicted_like_each_of_them() -> None:
    """Also of a model whose layers keep KV in more than one way."""
    rows, model = read_rows(), {"openai/gpt-oss-120b", "meta-llama/Meta-Llama-3.1-8B"}
    usable, _ = usable_rows(rows[::9])
    for one in {each.model: each for each in usable if each.model in model}.values():
        alone, _ = measured_steps([one])
        three, _ = measured_steps([one] * 3)
        other, _ = measured_steps([one, usable[0]])
        assert alone is not None
        assert three is not None
        assert other is not None
        expected = log_seconds(alone, load_calibration())[0][0]
        assert log_seconds(three, load_calibration())[0] == pytest.approx([expected] * 3, rel=1e-9)
        assert log_seconds(other, load_calibration())[0][0] == pytest.approx(expected, rel=1e-9)


def test_files_that_do_not_belong_together_are_refused(tmp_path: Path) -> None:
    path, record = tmp_path / "record.json", load_calibration()
    write_record(record, path)
    assert load_calibration(path).rows == record.rows
    other = tmp_path / "other.json"
    write_record(replace(record, covariance=tuple(map(tuple, (-np.array(record.covariance)).tolist()))), other)
    with pytest.raises(InputError, match="is not its own"):
        load_calibration(other)
    path.with_suffix(".parquet").unlink()
    load_calibration.cache_clear()
    with pytest.raises(InputError, match="no such file"):
        load_calibration(path)


def test_wrong_records_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "estimate.json"
    with pytest.raises(InputError, match="no such file"):
        load_calibration(path)
    path.write_text(
        RECORD.read_text(encoding="utf-8").replace('"model_spread": ', '"model_spread": -'), encoding="utf-8"
    )
    path.with_suffix(".parquet").write_bytes(RECORD.with_suffix(".parquet").read_bytes())
    with pytest.raises(InputError, match="model_spread = -.* must be above 0"):
        load_calibration(path)
    path.write_text(RECORD.read_text(encoding="utf-8").replace('"weights_8"', '"weights_9"'), encoding="utf-8")
    with pytest.raises(InputError, match="terms are not those of this version"):
        load_calibration(path)


def test_every_term_says_what_it_is() -> None:
    record = load_calibration()
    for name, term in TERMS.items():
        assert record.terms[name].meaning == term.meaning
        assert record.terms[name].unit == term.unit
    assert NOISE > 0

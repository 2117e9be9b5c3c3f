"""[quality] of a study: vetoes allowed, budgets by task and confidence, what they impose, and where they are told."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import jax
import numpy as np
import pytest
import xarray as xr

import kvwall as kv
from kvwall.objectives.register import LABELS, evaluate
from kvwall.spaces.confidence import by_row
from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import load_quality_curves
from kvwall.spaces.quality_record_columns import quality_parameters
from kvwall.spaces.quality_tasks import TASKS
from kvwall.sweep.objective import Constraint
from kvwall.sweep.quality_budget import Budget, asks_for_hard_retrieval, confidence_with
from kvwall.sweep.report.data import read_results
from kvwall.sweep.report.page import page
from kvwall.sweep.report.remarks import remarks
from kvwall.sweep.study import Study

SPACE = """\
[study]
name = "small"
mode = "ceiling"

[space]
model = ["Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen3-8B"]
hardware = "h100-sxm"
batch = [1, 32]
context = 4096
key_bits = [16, 8, 4]
value_bits = "key_bits"
retention = [1, 0.9, 0.5]
evictor = ["query_aware", "random"]
"""
QUALITY = """
[quality]
confidence = 0.8
allow_veto = ["naive_low_bits", "k_outliers"]

[quality.budget]
retrieval = { max = 0.3, confidence = 0.95 }
reasoning = 0.4
"""
KEPT = """
[sweep]
keep = ["veto", "tokens_per_second", "quality_loss_upper_retrieval", "quality_loss_upper_reasoning"]
"""
FULL = SPACE + QUALITY + KEPT


def test_a_study_holds_its_budgets_and_vetoes() -> None:
    study = Study.from_text(FULL)
    assert study.allow_veto == ("k_outliers", "naive_low_bits"), "in the order of the label"
    assert study.budgets == (Budget("retrieval", 0.3, 0.95), Budget("reasoning", 0.4))
    assert study.constraints == (
        Constraint("quality_loss_upper_retrieval", None, 0.3),
        Constraint("quality_loss_upper_reasoning", None, 0.4),
    )
    assert study.stated_constraints == ()
    assert study.vetoes.hard_retrieval


def test_a_study_without_them_is_as_before() -> None:
    study = Study.from_text(SPACE)
    assert (study.budgets, study.allow_veto, study.constraints) == ((), (), ())
    assert not study.vetoes.hard_retrieval
    assert "budget" not in study.resolved()
    assert "allow_veto" not in study.resolved()


@pytest.mark.parametrize("quality", [QUALITY, QUALITY + "\n[constraints]\nquality_loss_upper_code = { max = 0.9 }\n"])
def test_the_resolved_file_reads_back(quality: str) -> None:
    study = Study.from_text(SPACE + quality)
    again = Study.from_text(study.resolved())
    assert dataclasses.replace(again, text=study.text, space=study.space) == study
    assert again.spec_hash == study.spec_hash
    assert again.resolved() == study.resolved()


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('["naive_low_bits", "k_outliers"]', '["k_outliers"]'),
        ("reasoning = 0.4", "reasoning = 0.5"),
        ("reasoning = 0.4", "reasoning = { max = 0.4, confidence = 0.81 }"),
        ("reasoning = 0.4", ""),
    ],
)
def test_the_hash_changes_with_them(old: str, new: str) -> None:
    assert Study.from_text(FULL.replace(old, new)).spec_hash != Study.from_text(FULL).spec_hash


def test_the_hash_does_not_change_with_the_order_of_vetoes() -> None:
    swapped = FULL.replace('["naive_low_bits", "k_outliers"]', '["k_outliers", "naive_low_bits"]')
    assert Study.from_text(swapped).spec_hash == Study.from_text(FULL).spec_hash


FAULTS = [
    ('"naive_low_bits", ', '"naive_low_bit", ', "did you mean naive_low_bits"),
    ('"naive_low_bits", ', '"k_outliers", ', '"k_outliers" is named twice in allow_veto'),
    ('["naive_low_bits", "k_outliers"]', '"k_outliers"', "write a list"),
    ("reasoning = 0.4", "reasonin = 0.4", "did you mean reasoning"),
    ("reasoning = 0.4", "reasoning = 40", "40 % is 0.4"),
    ("reasoning = 0.4", "reasoning = -0.4", "out of range"),
    ("reasoning = 0.4", "reasoning = nan", "out of range"),
    ("reasoning = 0.4", "reasoning = true", "write a number, or { max = 0.03"),
    ("reasoning = 0.4", 'reasoning = "40 %"', "write a number, or { max = 0.03"),
    ("reasoning = 0.4", "reasoning = { mx = 0.4, max = 0.4 }", '"mx" is no key of [quality.budget.reasoning] (did'),
    ("reasoning = 0.4", "reasoning = { confidence = 0.9 }", "max is missing"),
    ("reasoning = 0.4", "reasoning = { max = 0.4, confidence = 1 }", "outside 0.5 to 0.99"),
    ("reasoning = 0.4", 'reasoning = { max = 0.4, confidence = "high" }', "write a number"),
    ("reasoning = 0.4", "retrieval_hard = { max = 0.4, confidence = 0.9 }", "retrieval asks for confidence 0.95 and"),
    ("reasoning = 0.4", "retrieval_hard = 0.4", "retrieval_hard for 0.8, but they share a curve"),
    ("confidence = 0.8", "confidence = 0.8\nbuget = 3", "did you mean budget"),
]


@pytest.mark.parametrize(("old", "new", "says"), FAULTS)
def test_one_fault_is_one_sentence_with_its_line(old: str, new: str, says: str) -> None:
    assert FULL.count(old) == 1
    text = FULL.replace(old, new)
    with pytest.raises(InputError) as raised:
        Study.from_text(text, "small.toml")
    (fault,) = raised.value.faults
    planted = new.split("\n")[-1]
    line = next(number for number, content in enumerate(text.split("\n"), 1) if planted in content)
    assert fault.startswith(f"small.toml: line {line}: ")
    assert says in fault


@pytest.mark.parametrize(
    ("task", "metric"), [("aggregate", "quality_loss_upper_reasoning"), ("reasoning", "quality_loss_upper")]
)
def test_a_budget_and_a_constraint_on_the_same_loss_are_a_fault(task: str, metric: str) -> None:
    text = FULL.replace("[quality]\n", f'[quality]\ntask = "{task}"\n') + f"\n[constraints]\n{metric} = {{ max = 1 }}\n"
    with pytest.raises(InputError, match=f"bounds {metric}, which is the same: keep one"):
        Study.from_text(text)


def test_a_budget_that_is_no_table_is_a_fault() -> None:
    with pytest.raises(InputError, match="budget = 3: write a table"):
        Study.from_text(SPACE + "\n[quality]\nbudget = 3\n")


def test_all_faults_come_together() -> None:
    text = FULL.replace("reasoning = 0.4", "reasoning = 4\ncode = 5\nchess = 0.1").replace('"k_outliers"', '"k"')
    with pytest.raises(InputError) as raised:
        Study.from_text(text)
    assert len(raised.value.faults) == 4


def test_a_study_made_in_python_imposes_its_budgets() -> None:
    study = dataclasses.replace(Study.from_text(SPACE), budgets=(Budget("code", 0.1),))
    assert study.constraints == (Constraint("quality_loss_upper_code", None, 0.1),)
    assert dataclasses.replace(study, name="other").constraints == study.constraints
    with pytest.raises(InputError, match="keep one"):
        dataclasses.replace(study, constraints=(Constraint("quality_loss_upper_code", None, 0.2),))


@pytest.mark.parametrize(
    ("text", "hard"),
    [
        ('[quality]\ntask = "retrieval"', True),
        ('[quality]\ntask = "retrieval_hard"', True),
        ('[quality]\ntask = "retrieval_easy"', False),
        ("[quality.budget]\nretrieval_hard = 0.1", True),
        ("[quality.budget]\nretrieval_easy = 0.1", False),
        ("[constraints]\nquality_loss_retrieval = { max = 0.1 }", True),
        ('[objectives]\nminimize = ["quality_loss_upper_retrieval_hard"]', True),
        ('[objectives]\nminimize = ["quality_loss_upper"]', False),
    ],
)
def test_what_puts_hard_retrieval_into_the_workload(text: str, hard: bool) -> None:
    study = Study.from_text(f"{SPACE}\n{text}\n")
    assert study.vetoes.hard_retrieval == hard
    assert study.catalogue.vetoes == study.vetoes
    asked = [one.metric for one in (*study.objectives, *study.constraints)]
    assert asks_for_hard_retrieval(study.task, asked) == hard


# Confidence by task


def test_a_confidence_by_task_sets_its_rows_only() -> None:
    curves = load_quality_curves()
    mixed = quality_parameters(curves, {"default": 0.8, "retrieval": 0.95, "code": 0.6})
    by_level = {level: quality_parameters(curves, level) for level in (0.8, 0.95, 0.6)}
    levels = {"retrieval_easy": 0.95, "retrieval_hard": 0.95, "code": 0.6}
    for row, task in enumerate(TASKS):
        expected = by_level[levels.get(task, 0.8)]
        for leaf, other in zip(jax.tree.leaves(mixed), jax.tree.leaves(expected), strict=True):
            np.testing.assert_array_equal(leaf[row], other[row], err_msg=task)


def test_one_confidence_for_all_is_the_number() -> None:
    curves = load_quality_curves()
    for other in ({"default": 0.9}, {}, {"code": 0.9}):
        mixed, plain = quality_parameters(curves, other), quality_parameters(curves, 0.9)
        for leaf, other_leaf in zip(jax.tree.leaves(mixed), jax.tree.leaves(plain), strict=True):
            np.testing.assert_array_equal(leaf, other_leaf)


@pytest.mark.parametrize("wrong", [{"retrieval": 0.95, "retrieval_hard": 0.9}, {"code": 0.999}, {"default": 0.1}])
def test_a_confidence_that_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError):
        quality_parameters(load_quality_curves(), wrong)


def test_the_same_confidence_twice_is_no_conflict() -> None:
    rows = {"easy": (0,), "hard": (1,), "both": (0, 1)}
    assert by_row({"both": 0.95, "hard": 0.95}, rows) == (0.95, 0.95)
    assert confidence_with(0.9, [Budget("code", 0.1)]) == 0.9


def test_a_study_judges_each_task_at_its_own_confidence() -> None:
    study = Study.from_text(FULL)
    point = {"model": "Qwen/Qwen3-8B", "hardware": "h100-sxm", "context": 4096, "key_bits": 4, "value_bits": 4,
             "mode": "ceiling"}  # fmt: skip
    index = study.space.index({**point, "batch": 1, "retention": 1.0, "evictor": "query_aware"})
    design = study.columns().design(
        dict(zip(study.space.dims, np.unravel_index(index, study.space.shape), strict=True))
    )
    found = evaluate(design, study.task).metrics
    for task, level in (("retrieval", 0.95), ("reasoning", 0.8), ("code", 0.8)):
        expected = kv.evaluate(**point, confidence=level).metrics[f"quality_loss_upper_{task}"]
        assert float(found[f"quality_loss_upper_{task}"]) == pytest.approx(expected, rel=1e-5)
    assert study.task_confidence == 0.8
    assert Study.from_text(FULL.replace("[quality]\n", '[quality]\ntask = "retrieval"\n')).task_confidence == 0.95


# What a sweep makes of them


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out") / "small"
    kv.sweep(Study.from_text(FULL), out=out)
    return out


def test_the_front_never_holds_a_vetoed_design_and_keeps_every_budget(swept: Path) -> None:
    ok = LABELS["status"].meanings.index("ok")
    with xr.open_dataset(swept / "front.nc") as front:
        assert np.all(front["status"].values == ok)
        assert np.all(front["quality_loss_upper_retrieval"].values <= 0.3 * (1 + 1e-5))
        assert np.all(front["quality_loss_upper_reasoning"].values <= 0.4 * (1 + 1e-5))
        assert "blind_retrieval" not in {LABELS["veto"].meanings[code] for code in front["veto"].values}
        assert front.attrs["allowed_vetoes"] == '["k_outliers", "naive_low_bits"]'
        assert front.attrs["quality_budgets"] == '["retrieval at most 0.3 at 95 % confidence", "reasoning at most 0.4"]'
        assert front.attrs["quality_confidence"] == 0.8


def test_the_grid_holds_vetoed_designs_with_their_numbers(swept: Path) -> None:
    grid = kv.open(swept)
    vetoed = grid["status"].values == LABELS["status"].meanings.index("veto")
    blind = grid["veto"].values == LABELS["veto"].meanings.index("blind_retrieval")
    outliers = grid["veto"].values == LABELS["veto"].meanings.index("k_outliers")
    assert vetoed.any()
    assert np.all(np.isfinite(grid["tokens_per_second"].values[np.broadcast_to(vetoed, grid["status"].shape)]))
    assert np.all(vetoed[blind & (grid["status"].values != 2)])
    assert np.any(outliers & (grid["status"].values == 1)), "allowed ones are judged like others"
    with xr.open_dataset(swept / "summary.nc") as summary:
        words = list(map(str, summary["status"].values))
        assert int(summary["status_count"].values[words.index("veto")]) == vetoed.sum()


def test_without_the_override_the_front_is_free_of_it(tmp_path: Path) -> None:
    text = FULL.replace('allow_veto = ["naive_low_bits", "k_outliers"]\n', "")
    kv.sweep(Study.from_text(text), out=tmp_path / "strict")
    with xr.open_dataset(tmp_path / "strict" / "front.nc") as front:
        assert np.all(front["veto"].values == 0)


def test_the_report_tells_of_both(swept: Path) -> None:
    told = remarks(read_results(swept))
    assert any(one.startswith("Veto k_outliers is allowed") and "on the front" in one for one in told)
    text = page(read_results(swept))
    assert "retrieval: at most 30 %, 95 % confidence; reasoning: at most 40 %, 80 % confidence" in text
    assert "k_outliers and naive_low_bits" in text
    assert "known to collapse" in text

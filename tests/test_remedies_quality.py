"""Remedies under vetoes and several budgets: nothing vetoed is offered, every budget holds, and it is said why."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kvwall as kv
from kvwall.spaces.errors import InputError
from kvwall.sweep.cli import run
from kvwall.sweep.remedies.answer import RemediesReport, remedies
from kvwall.sweep.remedies.budget import stated_budgets, task_of
from kvwall.sweep.remedies.choose import best_place
from kvwall.sweep.remedies.outcome import Outcomes
from kvwall.sweep.remedies.page import page
from kvwall.sweep.remedies.rows import Row

QWEN: dict[str, Any] = {
    "model": "Qwen/Qwen2.5-7B-Instruct", "hardware": "h100-sxm", "batch": 32, "context": 32_768, "mode": "ceiling",
}  # fmt: skip
BOTH = {"retrieval": 0.3, "reasoning": 0.25}
NO_LIMIT = {"retrieval": 1.0, "reasoning": 1.0}


@pytest.fixture(scope="module")
def strict() -> RemediesReport:
    """Two budgets, and an evictor that is blind to the question."""
    four = {"key_bits": 4, "value_bits": 4}
    return remedies(**QWEN, evictor="random", quality_budget=BOTH, settings=[four])


@pytest.fixture(scope="module")
def loose() -> RemediesReport:
    """The same with both vetoes allowed."""
    return remedies(**QWEN, evictor="random", quality_budget=BOTH, allow_veto=["k_outliers", "blind_retrieval"])


def row(report: RemediesReport, family: str) -> Row:
    """A family's row."""
    return next(each for each in report.rows if each.family == family)


def vetoed(setting: dict[str, Any]) -> bool:
    """Whether a single design says so."""
    found = kv.evaluate(**QWEN | {"evictor": "random", "task": "retrieval"} | setting)
    return found.labels["veto"] != "none"


def test_nothing_vetoed_is_offered(strict: RemediesReport) -> None:
    assert strict.best is not None
    for each in (*strict.rows, strict.best):
        if each.after is not None:
            assert not vetoed(dict(each.setting)), each.family
    assert row(strict, "quantization").setting["key_bits"] == 8
    offered = [setting for rows in strict.map.to_json()["setting"] for setting in rows]
    assert all(one.get("key_bits", 16) >= 8 and one.get("retention", 1) == 1 for one in offered)


def test_a_family_says_that_a_veto_refused_it(strict: RemediesReport) -> None:
    found = row(strict, "eviction")
    assert (found.status, found.after) == ("veto", None)
    assert found.why.startswith("every setting is vetoed: 10 % of the tokens are dropped by evictor random")
    assert "--allow-veto blind_retrieval" in found.why
    assert {one["status"] for one in found.tried} == {"veto"}
    told = row(remedies(**QWEN, quality_budget=NO_LIMIT), "quantization").why
    assert "a veto forbids more" in told
    assert "use key_bits >= 8" in told
    assert "eviction" in json.dumps(strict.to_json())


def test_a_setting_of_ones_own_that_is_vetoed_says_so(strict: RemediesReport) -> None:
    (stated,) = strict.stated
    assert stated.status == "veto"
    assert stated.speedup is not None
    assert "vetoed: 4-bit keys on Qwen/Qwen2.5-7B-Instruct" in stated.why
    assert "does not fit" not in stated.why


def test_a_family_whose_settings_in_budget_are_all_vetoed_says_so() -> None:
    found = row(remedies(**QWEN, value_bits=8, key_bits=8, quality_budget={"perplexity": 1.0}), "quantization")
    assert found.setting == {"key_bits": 8, "value_bits": 4}
    only_low = row(remedies(**QWEN, value_bits=4, key_bits=8, quality_budget=1), "quantization")
    assert only_low.status == "veto"
    assert only_low.why.startswith("every setting is vetoed: 4-bit keys on Qwen/Qwen2.5-7B-Instruct")


def test_an_override_offers_them_and_says_so(loose: RemediesReport) -> None:
    unlimited = remedies(**QWEN, quality_budget=NO_LIMIT, allow_veto=["k_outliers"])
    assert row(unlimited, "quantization").setting["key_bits"] < 8
    assert "k_outliers is allowed" in " ".join(unlimited.best.flags if unlimited.best else ())
    assert row(loose, "eviction").status == "budget", "random eviction loses too much by its curve as well"
    told = [remark for remark in loose.remarks if remark.startswith("Veto")]
    assert len(told) == 2
    assert loose.best is not None
    assert loose.baseline.to_json()["allow_veto"] == ["k_outliers", "blind_retrieval"]


def test_every_budget_holds_for_everything_offered(strict: RemediesReport, loose: RemediesReport) -> None:
    for report in (strict, loose):
        assert report.best is not None
        for each in (*report.rows, report.best):
            losses = each.to_json()["quality_losses"]
            if each.after is None:
                assert losses == {}
                continue
            assert losses.keys() == BOTH.keys()
            design = kv.evaluate(**QWEN | {"evictor": "random", "task": "retrieval"} | {**each.against, **each.setting})
            for task, most in BOTH.items():
                assert losses[task] <= most * (1 + 1e-9)
                assert losses[task] == pytest.approx(design.metrics[f"quality_loss_upper_{task}"], rel=1e-12)


def test_the_answer_names_every_budget(strict: RemediesReport) -> None:
    found = strict.to_json()
    assert found["quality_budgets"] == BOTH
    assert (found["quality_budget"], found["task"]) == (0.3, "retrieval"), "the first one's"
    text = page(strict)
    assert "30 % on retrieval and 25 % on reasoning at most" in text
    assert "vetoed" in text


def test_a_number_alone_is_about_the_task() -> None:
    one = remedies(**QWEN, quality_budget=0.3, task="reasoning").to_json()
    other = remedies(**QWEN, quality_budget={"reasoning": 0.3}).to_json()
    assert one == other
    assert one["quality_budgets"] == {"reasoning": 0.3}
    assert [each["quality_losses"].get("reasoning") for each in one["remedies"]] == [
        each["quality_loss_upper"] for each in one["remedies"]
    ]


def test_a_task_beside_the_budgets() -> None:
    found = remedies(**QWEN, quality_budget=BOTH, task="code").to_json()
    assert (found["task"], found["quality_budget"]) == ("code", None)
    assert found["best"]["quality_losses"].keys() == BOTH.keys()


def test_a_vetoed_design_has_no_best() -> None:
    found = remedies(**QWEN, key_bits=4, value_bits=4, quality_budget=1)
    assert found.baseline.status == "veto"
    assert found.best is None
    assert any("is vetoed" in remark for remark in found.remarks)
    assert {cell for cells in found.map.to_json()["answer"] for cell in cells} <= {"none_pays", "does_not_fit"}


def test_of_designs_that_do_not_fit_none_vetoed_is_chosen() -> None:
    """Their status is memory, so that only the veto itself tells them apart."""
    arrays = {
        "tokens_per_second": np.array([9.0, 5.0]), "quality_loss_upper": np.zeros(2), "status": np.array([2, 2]),
        "quality_loss_upper_aggregate": np.zeros(2), "device_margin": np.array([-1e9, -9e9]),
        "vetoed": np.array([True, False]),
    }  # fmt: skip
    assert best_place(Outcomes(arrays), stated_budgets(1, None)) == 1
    assert best_place(Outcomes({name: array[:1] for name, array in arrays.items()}), stated_budgets(1, None)) is None


def test_hard_retrieval_is_what_a_budget_is_about() -> None:
    blind = QWEN | {"evictor": "random", "retention": 0.9}
    assert remedies(**blind, quality_budget=1, task="code").baseline.status == "ok"
    assert remedies(**blind, quality_budget={"code": 1, "retrieval_hard": 1}).baseline.status == "veto"


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ({}, "names no task"),
        ({"retreival": 0.1}, "did you mean retrieval"),
        ({"retrieval": 3}, "3 % is 0.03"),
        ({"retrieval": "x"}, "quality_budget retrieval = 'x' is not a number"),
        ({"retrieval": None}, "quality_budget retrieval is missing"),
    ],
)
def test_budgets_that_cannot_be(budget: dict[str, Any], said: str) -> None:
    with pytest.raises(InputError, match=said):
        stated_budgets(budget, None)
    assert task_of(budget, None) in {"aggregate", "retrieval"}


def test_all_faults_of_budgets_come_together() -> None:
    with pytest.raises(InputError) as raised:
        remedies(**QWEN, quality_budget={"retreival": 0.1, "code": 7}, allow_veto=["x"], confidence=2)
    assert len(raised.value.faults) == 4


def arguments(**axes: object) -> list[str]:
    """A command line."""
    return [part for name, value in axes.items() for part in (f"--{name.replace('_', '-')}", str(value))]


def test_the_command_takes_budgets_by_task(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    budgets = ["--quality-budget", "retrieval=0.3", "--quality-budget", "reasoning=0.25"]
    assert run(["remedies", *arguments(**QWEN), *budgets, "--allow-veto", "k_outliers", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["quality_budgets"] == BOTH
    assert any("Veto k_outliers is allowed" in remark for remark in found["remarks"])
    assert run(["remedies", *arguments(**QWEN), *budgets, "--map", str(tmp_path / "map.html")]) == 0
    shown = capsys.readouterr().out
    assert "At most 30 % on retrieval and 25 % on reasoning may be lost" in shown
    assert "reasoning 0 %" in shown


def test_a_number_and_a_task_mix(capsys: pytest.CaptureFixture[str]) -> None:
    mixed = ["--quality-budget", "0.3", "--quality-budget", "reasoning=0.25", "--task", "code"]
    assert run(["remedies", *arguments(**QWEN), *mixed, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["quality_budgets"], found["quality_budget"]) == ({"code": 0.3, "reasoning": 0.25}, 0.3)


def test_the_command_names_faults_of_budgets(capsys: pytest.CaptureFixture[str]) -> None:
    wrong = ["--quality-budget", "retrieval=0.1", "--quality-budget", "retrieval=0.2", "--allow-veto", "k"]
    assert run(["remedies", *arguments(**QWEN), *wrong]) == 2
    said = capsys.readouterr().err
    assert "--quality-budget retrieval is given twice" in said
    assert 'veto "k" is unknown' in said
    assert run(["remedies", *arguments(**QWEN), "--quality-budget", "chess=x"]) == 2
    assert "chess" in capsys.readouterr().err


def test_the_command_leaves_with_3_where_the_design_is_vetoed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["remedies", *arguments(**QWEN, key_bits=4), "--quality-budget", "1"]) == 3
    shown = " ".join(capsys.readouterr().out.split())
    assert "Vetoed: 4-bit keys on Qwen/Qwen2.5-7B-Instruct" in shown
    assert "within the budget and the memory and not vetoed" in shown

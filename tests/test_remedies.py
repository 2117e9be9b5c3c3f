"""Remedies: the paper's figures, agreement with single designs, exact choice, the map, the page, what is refused."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

import kvwall as kv
from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import InputError
from kvwall.sweep.cli import run
from kvwall.sweep.quality_budget import checked_most
from kvwall.sweep.remedies import combine, remedies
from kvwall.sweep.remedies.answer import _tried
from kvwall.sweep.remedies.budget import stated_budgets
from kvwall.sweep.remedies.choose import best_place
from kvwall.sweep.remedies.map import ANSWERS
from kvwall.sweep.remedies.outcome import METRICS, Evaluator, Outcome, Outcomes
from kvwall.sweep.remedies.page import page
from kvwall.sweep.remedies.register import FAMILIES
from kvwall.sweep.remedies.sentences import memory_clause, traffic_sentence
from kvwall.sweep.single import single_design
from tests.page import Elements

PAPER = {"model": "paper/llama-3-70b", "hardware": "paper/b200"}
TOO_MUCH = {
    "model": "meta-llama/Llama-3.3-70B-Instruct", "hardware": "h100-sxm", "tensor_parallel": 8, "batch": 32,
    "context": 131_072,
}  # fmt: skip
SMALL = {
    "model": "Qwen/Qwen3-8B", "hardware": "h100-sxm", "batch": 8, "context": 8192, "reservation": "contiguous",
    "max_model_length": 40_960, "prefix_share": 0.25,
}  # fmt: skip


def budgets(most):
    return stated_budgets(most, "aggregate")


def single(**axes):
    return single_design(axes, task="aggregate", confidence=0.9, mode="ceiling", assume={})


@pytest.fixture(scope="module")
def short():
    return remedies(mode="ceiling", **PAPER, context=128_000, quality_budget=1)


@pytest.fixture(scope="module")
def too_much():
    return remedies(mode="ceiling", **TOO_MUCH, task="retrieval", quality_budget=0.1)


@pytest.fixture(scope="module")
def small():
    return remedies(mode="ceiling", **SMALL, quality_budget=0.02)


def row(report, family):
    return next(each for each in report.rows if each.family == family)


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_the_papers_speedups(short):
    assert f"{row(short, 'quantization').speedup:.2f}" == "1.25"
    assert row(short, "quantization").setting == {"key_bits": 2, "value_bits": 2}
    both = {"key_bits": 2, "value_bits": 2, "retention": 0.5}
    long = remedies(mode="ceiling", **PAPER, context=512_000, quality_budget=1, settings=[both])
    assert f"{row(long, 'quantization').speedup:.2f}" == "1.91"
    assert f"{long.stated[0].speedup:.2f}" == "2.05"
    assert any("does not fit: speedups are against" in remark for remark in long.remarks)


def test_a_row_says_what_the_changed_design_does(small):
    found = row(small, "quantization")
    before, after = kv.evaluate(mode="ceiling", **SMALL), kv.evaluate(mode="ceiling", **{**SMALL, **found.setting})
    for name in METRICS:
        assert found.after[name] == pytest.approx(after.metrics[name], rel=1e-12), name
    speeds = [one.metrics["tokens_per_second"] for one in (before, after)]
    assert found.speedup == pytest.approx(speeds[1] / speeds[0], rel=1e-12)
    freed = after.metrics["memory_margin"] - before.metrics["memory_margin"]
    assert found.to_json()["memory_freed"] == pytest.approx(freed, rel=1e-9)
    assert found.to_json()["phase_after"] == after.labels["phase"]
    largest = kv.evaluate(mode="ceiling", **{**SMALL, **found.setting, "batch": int(after.metrics["max_batch"])})
    own = kv.evaluate(mode="ceiling", **{**SMALL, "batch": int(before.metrics["max_batch"])})
    ratio = largest.metrics["tokens_per_second"] / own.metrics["tokens_per_second"]
    assert found.speedup_at_max_batch == pytest.approx(ratio, rel=1e-12)


def test_nothing_beyond_the_budget_is_offered(too_much, small):
    for report in (too_much, small):
        for each in (*report.rows, report.best):
            assert each.after is None or each.after["quality_loss_upper"] <= report.quality_budget + 1e-12
    strict = row(remedies(mode="ceiling", **TOO_MUCH, task="retrieval", quality_budget=0.001), "eviction")
    assert strict.status == "budget"
    assert "every setting breaks the budget of 0.1 %" in strict.why


def test_each_familys_setting_is_the_fastest_of_those_that_fit(small):
    for each in small.rows:
        allowed = [one["speedup"] for one in each.tried if one["status"] == "ok" and one["quality_loss_upper"] <= 0.02]
        if allowed:
            assert each.speedup == pytest.approx(max(allowed), rel=1e-8), each.family


def test_memory_decides_where_the_design_does_not_fit(too_much):
    assert too_much.baseline.status == "memory"
    quantized, parked = row(too_much, "quantization"), row(too_much, "parking")
    assert quantized.status == "memory"
    assert not quantized.makes_it_fit
    assert quantized.after["memory_margin"] == max(
        too_much_margin(too_much, one["setting"]) for one in quantized.tried if one["quality_loss_upper"] <= 0.1
    )
    assert parked.makes_it_fit
    assert "makes it fit" in parked.why
    assert too_much.best.makes_it_fit


def too_much_margin(report, setting):
    return kv.evaluate(mode="ceiling", **{**TOO_MUCH, **setting}).metrics["memory_margin"]


def test_paging_is_against_contiguous_reservation(small, short):
    found = row(small, "paging")
    assert found.against == {}
    assert found.combines
    before, after = (kv.evaluate(mode="ceiling", **{**SMALL, **change}) for change in ({}, found.setting))
    freed = before.metrics["kv_bytes_reserved"] - after.metrics["kv_bytes_reserved"]
    assert found.to_json()["memory_freed"] == pytest.approx(freed, rel=1e-9)
    assert found.speedup == 1
    assert found.after["quality_loss_upper"] == 0
    already = row(remedies(mode="ceiling", **{**SMALL, "reservation": "paged"}, quality_budget=0.02), "paging")
    assert already.against == {"reservation": "contiguous", "max_model_length": 40_960}
    assert not already.combines
    assert already.to_json()["memory_freed"] == pytest.approx(found.to_json()["memory_freed"], rel=1e-9)


def test_what_the_user_has_not_stated_is_not_combined(too_much, small):
    assert not row(too_much, "prefix_sharing").combines
    assert "prefix_share" not in too_much.best.setting
    assert row(small, "prefix_sharing").combines
    assert small.best.setting["prefix_share"] == 0.25


def test_offloading_moves_the_wall_to_the_link(small):
    found = row(small, "tiering")
    assert found.after.labels["regime"] == "tier_link"
    assert found.speedup < 1
    assert "moves the wall to PCIe 5.0 x16 at 64 GB/s" in found.why


def test_an_unsourced_link_is_named_with_the_remedy(short):
    found = row(short, "tiering")
    assert found.status == "unsourced_input"
    assert '--assume host_link_bandwidth="64 GB/s"' in found.why
    assumed = remedies(
        mode="ceiling", **PAPER, context=128_000, quality_budget=1, assume={"host_link_bandwidth": "64 GB/s"}
    )
    assert row(assumed, "tiering").status == "ok"


# --- the best combination --------------------------------------------------------------------------------------------


def subset(evaluator, names):
    return [one for one in _tried(evaluator) if one.family.name in names]


@pytest.mark.parametrize("budget", [0.0, 0.01, 1.0])
def test_the_best_combination_is_the_optimum_of_all(budget):
    evaluator = Evaluator(single(**SMALL), budgets(budget))
    tried = subset(evaluator, {"quantization", "eviction", "weight_quantization", "paging"})
    found, admissible = combine.best_combination(evaluator, tried, budgets(budget))
    assert admissible
    lists = [[{}, *(setting.change for setting in one.settings)] for one in tried]
    merged = [{k: v for part in parts for k, v in part.items()} for parts in itertools.product(*lists)]
    outcomes = evaluator(merged)
    allowed = outcomes.fits & (outcomes["quality_loss_upper"] <= budget + 1e-12)
    best = evaluator([found.change]).at(0)
    assert best["quality_loss_upper"] <= budget + 1e-12
    assert best["tokens_per_second"] == pytest.approx(outcomes["tokens_per_second"][allowed].max(), rel=1e-8)
    assert found.evaluated <= len(merged)
    assert found.admissible == allowed.sum()


def test_more_devices_only_where_the_designs_own_have_no_answer():
    report = remedies(mode="ceiling", model=TOO_MUCH["model"], hardware="h100-sxm", context=8192, quality_budget=0)
    assert report.baseline.status == "memory"
    assert report.best.after["devices"] == 2
    assert "2 devices instead of 1" not in report.best.why
    assert report.best.to_json()["devices"] == 2


def test_too_many_combinations_are_thinned_out_and_it_is_said(monkeypatch):
    monkeypatch.setattr(combine, "MOST", 100)
    evaluator = Evaluator(single(**SMALL), budgets(0.02))
    found, admissible = combine.best_combination(evaluator, _tried(evaluator), budgets(0.02))
    assert admissible
    assert not found.exhaustive
    assert found.evaluated <= 100


def test_of_equally_fast_settings_the_least_lossy_is_chosen():
    arrays = {
        "tokens_per_second": np.array([5.0, 5.0, 4.0, 9.0, 9.0]),
        "quality_loss_upper": np.array([0.01, 0.005, 0.0, 0.5, 0.0]),
        "device_margin": np.array([1.0, 1.0, 1.0, 1.0, -1.0]),
        "vetoed": np.zeros(5, bool),
        "status": np.array([1, 1, 1, 1, 2]),
    }
    arrays["quality_loss_upper_aggregate"] = arrays["quality_loss_upper"]
    assert best_place(Outcomes(arrays), budgets(0.02)) == 1
    assert best_place(Outcomes(arrays), budgets(1.0)) == 3
    assert best_place(Outcomes({name: array[4:] for name, array in arrays.items()}), budgets(0.02)) == 0
    assert best_place(Outcomes({name: array[3:4] for name, array in arrays.items()}), budgets(0.02)) is None


# --- families --------------------------------------------------------------------------------------------------------

DESIGNS = {
    "dense": SMALL,
    "latents and experts": {"model": "deepseek-ai/DeepSeek-V3", "hardware": "h200-sxm", "context": 4096, "batch": 2},
    "states": {"model": "mistralai/Mamba-Codestral-7B-v0.1", "hardware": "h100-sxm", "context": 4096},
}


def test_families_have_names_and_letters_of_their_own():
    assert all(name == family.name for name, family in FAMILIES.items())
    letters = [family.letter for family in FAMILIES.values()]
    assert len(set(letters)) == len(letters)
    assert all(letter.isupper() and len(letter) == 1 for letter in letters)


@pytest.mark.parametrize("name", DESIGNS)
def test_every_family_says_something_of_every_layout(name):
    design = single(**DESIGNS[name])
    for one in _tried(Evaluator(design)):
        assert one.settings or one.family.nothing(design), one.family.name
        for place, setting in enumerate(one.settings):
            assert all(AXES[axis].check(value) == value for axis, value in setting.change.items())
            assert one.family.phrase(setting.change)
            after = one.outcomes.at(place)
            if after.known:
                said = one.family.sentence(design, setting.change, one.before, after)
                assert not {"nan", "inf", "nanx"} & set(said.split()), said


# --- the map ---------------------------------------------------------------------------------------------------------


def test_the_map_at_the_design_says_what_the_rows_say(small):
    found, shown = small.map, small.map.to_json()
    assert np.shape(shown["family"]) == (len(shown["context"]), len(shown["batch"]))
    where = found.contexts.index(SMALL["context"]), found.batches.index(SMALL["batch"])
    for name, grid in found.by_family.items():
        alone = row(small, name)
        if alone.status == "ok" and alone.after["devices"] == 1:
            assert grid[where] == pytest.approx(alone.speedup, rel=1e-8), name
    best = max(
        (each for each in small.rows if not FAMILIES[each.family].lever and each.speedup), key=lambda e: e.speedup
    )
    assert shown["family"][where[0]][where[1]] == best.family


def test_the_map_tells_the_weight_phase_from_the_kv_phase(small, too_much):
    shown = small.map.to_json()
    assert shown["answer"][0][0] == "none_pays"
    assert shown["family"][0][0] is None
    assert set(itertools.chain(*shown["answer"])) <= set(ANSWERS)
    crowded = too_much.map.to_json()
    assert crowded["answer"][-1][-1] == "does_not_fit"
    assert "makes_it_fit" in set(itertools.chain(*crowded["answer"]))


# --- page and command ------------------------------------------------------------------------------------------------


def test_the_page_asks_nothing_of_a_network(too_much):
    elements = Elements()
    elements.feed(page(too_much))
    assert not [tag for tag, attributes in elements.elements if {"src", "action"} & attributes.keys()]
    assert all((attributes.get("href") or "#").startswith("#") for _, attributes in elements.elements)
    figure = elements.figures["map"]
    assert figure["config"]["showSendToCloud"] is False
    views = {trace["meta"]["view"] for trace in figure["data"]}
    assert views == {"remedies", "levers", *too_much.map.by_family}
    assert too_much.best.why in " ".join(" ".join(elements.text).split())


def arguments(design):
    return [word for name, value in design.items() for word in (f"--{name.replace('_', '-')}", str(value))]


def test_the_command_prints_one_object_and_writes_the_page(capsys, tmp_path):
    path = tmp_path / "map.html"
    code = run(
        ["remedies", "--mode", "ceiling", *arguments(SMALL), "--quality-budget", "0.02", "--json", "--map", str(path)]
    )
    printed = json.loads(capsys.readouterr().out, parse_constant=lambda text: pytest.fail(text))
    assert code == 0
    assert [each["family"] for each in printed["remedies"]] == list(FAMILIES)
    assert printed["baseline"]["axes"]["batch"] == 8
    assert printed["best"]["quality_loss_upper"] <= 0.02
    assert path.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")


def test_nothing_admissible_leaves_with_3(capsys):
    code = run(
        [
            "remedies",
            "--mode",
            "ceiling",
            "--model",
            "paper/llama-3-70b",
            "--hardware",
            "l4",
            "--context",
            "8192",
            "--quality-budget=0",
        ]
    )
    assert code == 3
    assert "No combination is admissible" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("budget", "said"),
    [
        ("x", "quality_budget = 'x' is not a number"),
        (True, "is not a number"),
        (-0.1, "out of range"),
        (float("nan"), "out of range"),
        (2, "2 % is 0.02"),
        (None, "quality_budget is missing"),
    ],
)
def test_a_budget_is_a_share(budget, said):
    with pytest.raises(InputError) as caught:
        checked_most(budget, "aggregate")
    assert said in caught.value.faults[0]


def test_a_command_line_names_all_its_faults(capsys):
    faults = {
        "--quality-budget=x": "quality_budget = 'x' is not a number",
        "--task=chess": 'task "chess" is unknown',
        "--batch=1,2": "batch = 1,2: one design is asked about",
        "--confidence=high": '--confidence "high" is not a number',
        "--try=key_bits": "write AXIS=VALUE",
        "--try=key_bits=99": "key_bits = 99 is out of range",
        "--try=keybits=2": 'axis "keybits" is unknown (did you mean key_bits',
        "--map=no/such/map.png": "there is no folder no/such",
        "--assume=speed": "--assume speed: write FIGURE",
        "--retension=1": "--retension is no option (did you mean --retention",
    }
    assert run(["remedies", "--mode", "ceiling", *arguments(PAPER), "--context", "8192", *faults]) == 2
    printed = capsys.readouterr()
    assert not printed.out
    for argument, said in faults.items():
        assert said in printed.err, argument


def test_all_faults_come_together():
    with pytest.raises(InputError) as caught:
        remedies(
            mode="ceiling", **PAPER, context=0, task="chess", quality_budget=3, settings=[{"model": "x", "key_bits": 0}]
        )
    assert len(caught.value.faults) == 5


def test_a_budget_of_perplexity_may_exceed_one():
    assert checked_most(1.5, "perplexity") == 1.5
    with pytest.raises(InputError, match="more than all"):
        checked_most(1.5, "retrieval")


# --- sentences -------------------------------------------------------------------------------------------------------


def outcome(speed, bound_by="hbm", weights=70e9, kv_read=30e9, spare=1e9, compute=1.0, status="ok"):
    figures = {
        "tokens_per_second": speed, "weight_bytes_read": weights, "kv_bytes_read": kv_read, "device_margin": spare,
        "memory_margin": spare, "max_batch": 4.0, "hbm_time": 1.0, "compute_time": compute,
    }  # fmt: skip
    return Outcome(figures, {"status": status, "bound_by": bound_by})


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (outcome(100.0), outcome(125.0), "2-bit KV gives 1.25x: weights are 70 % of the traffic"),
        (outcome(100.0, kv_read=210e9), outcome(190.0), "2-bit KV gives 1.90x: KV is 75 % of the traffic"),
        (outcome(100.0, kv_read=0.7e9), outcome(100.2), "2-bit KV gains nothing: KV is only 0.99 % of the traffic"),
        (
            outcome(100.0, "compute", compute=1.5),
            outcome(100.0, "compute", compute=1.5),
            "2-bit KV changes no speed: the step waits for compute, 1.50x the time of memory traffic",
        ),
        (
            outcome(100.0),
            outcome(50.0, "compute", compute=2.0),
            "2-bit KV slows the step to 0.50x: it then waits for compute, 2.00x the time of memory traffic",
        ),
        (
            outcome(100.0),
            outcome(120.0, "compute", compute=1.1),
            "2-bit KV gives 1.20x, then the step waits for compute: weights are 70 % of the traffic",
        ),
    ],
)
def test_why_a_step_is_faster_or_not(before, after, said):
    assert traffic_sentence("2-bit KV", "KV", before.kv_share, before, after) == said


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (outcome(1.0, spare=-5e9, status="memory"), outcome(1.0), "makes it fit"),
        (
            outcome(1.0, spare=-5e9, status="memory"),
            outcome(1.0, spare=-1e9, status="memory"),
            "frees 4 GB a device, but it is still 1 GB short",
        ),
        (outcome(1.0), outcome(1.0, spare=-1e9, status="memory"), "then it does not fit: 1 GB short"),
        (outcome(1.0), outcome(1.0, spare=3e9), "frees 2 GB a device"),
        (outcome(1.0), outcome(1.0), ""),
    ],
)
def test_what_becomes_of_memory(before, after, said):
    assert memory_clause(before, after).partition(" (")[0] == said

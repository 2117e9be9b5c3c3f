"""The report's figures of losses: curves are the laws', and every published row is drawn or counted."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from kvwall.spaces.quality import load_quality_curves
from kvwall.spaces.quality_methods import load_methods
from kvwall.spaces.quality_tasks import TASKS, task_rows
from kvwall.sweep.evaluate import evaluate
from kvwall.sweep.quality.fit import record_text
from kvwall.sweep.quality.nearness import used_by
from kvwall.sweep.quality.rows import read_rows
from kvwall.sweep.report.laws import Laws
from kvwall.sweep.report.loss_asked import MOST_NAMES, remedies_of, shown_tasks, tasks_of
from kvwall.sweep.report.loss_points import points_of
from kvwall.sweep.report.loss_scale import LINEAR, LOWEST, across, scaled
from kvwall.sweep.report.losses import kinds_of, loss_sections
from kvwall.sweep.report.parts import Panel, Plot, Section, section_html
from kvwall.sweep.study import Study
from tests.finished_sweeps import ONE_DESIGN, TWO_CHIPS
from tests.page import Elements, numbers

LLAMA, QWEN = "meta-llama/Meta-Llama-3.1-8B", "Qwen/Qwen2.5-7B-Instruct"
HEAD = """
[study]
name = "losses"
mode = "ceiling"
[space]
hardware = "h100-sxm"
context = 32768
"""
BOTH = f"""{HEAD}
model = "{LLAMA}"
key_bits = [16, 8, 4, 3, 2]
value_bits = "key_bits"
quantizer = ["kivi", "naive"]
retention = [0.1, 0.25, 0.5, 1.0]
evictor = ["snapkv", "streaming_llm"]
question_visible = [true, false]
sink_tokens = 128
[quality]
task = "code"
[quality.budget]
aggregate = 0.02
perplexity = {{ max = 0.05, confidence = 0.95 }}
"""
KINDS = f"""{HEAD}
model = ["{QWEN}", "{LLAMA}"]
key_bits = [16, 8, 3]
quantizer = ["spinquant", "naive_grouped"]
weight_bits = ["native", 4, 3]
read_fraction = [0.1, 1.0]
evictor = ["tova", "quest"]
[quality]
task = "retrieval"
[constraints]
quality_loss_upper_retrieval = {{ max = 0.05 }}
"""


def section_of(study: str | Study) -> Section:
    (section,) = loss_sections(Laws(Study.from_text(study) if isinstance(study, str) else study))
    return section


@pytest.fixture(scope="module")
def both() -> Section:
    return section_of(BOTH)


@pytest.fixture(scope="module")
def kinds() -> Section:
    return section_of(KINDS)


def plots(section: Section) -> dict[str, Plot]:
    return {plot.name: plot for panel in section.blocks if isinstance(panel, Panel) for plot in panel.plots}


def traces(plot: Plot, name: str, **meta: str) -> list[Any]:
    """Traces of a name that carry these selector values."""
    return [
        each for each in plot.figure.data
        if each.name == name and all((each.meta or {}).get(key) == value for key, value in meta.items())
    ]  # fmt: skip


def drawn_rows(plot: Plot) -> set[str]:
    return {row for trace in plot.figure.data if trace.name.startswith("published") for row in trace.customdata}


FIGURES = [
    ("loss-kv", "kivi", {"key_bits": "bits", "value_bits": "bits", "quantizer": "kivi"}),
    ("loss-kv", "naive", {"key_bits": "bits", "value_bits": "bits", "quantizer": "naive"}),
    ("loss-kept-visible", "snapkv", {"retention": "share", "evictor": "snapkv"}),
    ("loss-kept-hidden", "snapkv", {"retention": "share", "evictor": "snapkv", "question_visible": False}),
    ("loss-kept-visible", "streaming_llm", {"retention": "share", "evictor": "streaming_llm"}),
]


@pytest.mark.parametrize(("figure", "method", "axes"), FIGURES)
@pytest.mark.parametrize(("task", "confidence"), [("code", 0.9), ("aggregate", 0.9), ("perplexity", 0.95)])
def test_curves_at_the_study_s_settings_are_those_of_evaluate(
    both: Section, figure: str, method: str, axes: dict[str, Any], task: str, confidence: float
) -> None:
    plot = plots(both)[f"{figure}{'-ln' if task == 'perplexity' else ''}"]
    (own,) = traces(plot, f"study {method}", task=task)
    (central,), (upper,) = (traces(plot, f"{kind} {method}", task=task) for kind in ("central", "upper"))
    assert len(own.x) == (2 if method == "naive" else 4 if figure == "loss-kv" else 3)  # naive below 4 bits is vetoed
    for x, y, (expected, most, setting) in zip(own.x, own.y, own.customdata, strict=True):
        stated = {name: setting if value in {"bits", "share"} else value for name, value in axes.items()}
        report = evaluate(
            model=LLAMA, hardware="h100-sxm", context=32768, task=task, confidence=confidence, mode="ceiling", **stated
        )
        found = [report.metrics[name] for name in ("quality_loss", "quality_loss_upper")]
        assert [expected, most] == pytest.approx(found, rel=1e-5)
        assert y == pytest.approx(np.arcsinh(expected / LINEAR))
        place = int(np.flatnonzero(np.isclose(central.x, x))[0])
        assert [central.y[place], upper.y[place]] == pytest.approx(scaled(found), rel=1e-4)


def test_the_study_s_settings_are_marked_on_the_axis(both: Section) -> None:
    for remedy in remedies_of(Study.from_text(BOTH)):
        plot = plots(both)[remedy.plot]
        (marks,) = traces(plot, "settings")
        np.testing.assert_allclose(marks.x, across(remedy, remedy.settings))
        low, high = plot.figure.layout.xaxis.range
        assert low < min(marks.x)
        assert max(marks.x) < high
        for trace in plot.figure.data:
            assert low <= min(trace.x)
            assert max(trace.x) <= high
            assert np.nanmin(np.array(trace.y, float)) >= plot.figure.layout.yaxis.range[0]
            assert np.nanmax(np.array(trace.y, float)) <= plot.figure.layout.yaxis.range[1]


def test_a_curve_is_not_drawn_as_one_where_a_veto_says_that_none_holds(both: Section) -> None:
    (central,) = traces(plots(both)["loss-kv"], "central naive", task="code")
    (vetoed,) = traces(plots(both)["loss-kv"], "vetoed naive", task="code")
    settings = central.customdata[:, 2]
    shown = ~np.isnan(np.array(central.y, float))
    assert settings[shown].min() >= 4
    assert settings[~shown].max() < 4
    assert vetoed.line.dash == "dot"
    assert not traces(plots(both)["loss-kv"], "vetoed kivi")


def test_an_allowed_veto_leaves_the_curve_as_it_is() -> None:
    study = replace(Study.from_text(BOTH), allow_veto=("naive_low_bits",))
    plot = plots(section_of(study))["loss-kv"]
    assert not traces(plot, "vetoed naive")
    (own,) = traces(plot, "study naive", task="code")
    assert len(own.x) == 4


@pytest.mark.parametrize("text", [BOTH, KINDS], ids=["both", "kinds"])
def test_every_published_row_of_the_families_and_tasks_is_drawn_or_counted(
    text: str, request: pytest.FixtureRequest
) -> None:
    study = Study.from_text(text)
    section: Section = request.getfixturevalue("both" if text is BOTH else "kinds")
    classes = {TASKS[row] for task in tasks_of(study) for row in task_rows(task)}
    concerned = {
        row.id for row in read_rows()[0] for remedy in remedies_of(study)
        if remedy.remedy in used_by(row) and used_by(row)[remedy.remedy].named.family in remedy.families
        and any(part.task in classes for part in row.parts)
    }  # fmt: skip
    drawn = set[str]().union(*(drawn_rows(plot) for plot in plots(section).values()))
    (tally,) = (note for note in section.notes if "published results are drawn" in note)
    shown, whole, *others, unfit = (int(each.replace(",", "")) for each in re.findall(r"\d[\d,]*", tally))
    assert drawn <= concerned
    assert shown == len(drawn) > 50
    assert whole == len(concerned) == shown + sum(others)
    assert unfit == sum(read_rows()[1].values())


def test_points_are_where_the_rows_say(both: Section) -> None:
    rows = {row.id: row for row in read_rows()[0]}
    (points,) = traces(plots(both)["loss-kept-hidden"], "published snapkv", task="aggregate")
    assert len(points.x) > 20
    kept = next(each for each in remedies_of(Study.from_text(BOTH)) if each.plot == "loss-kept-hidden")
    for x, y, text, name in zip(points.x, points.y, points.text, points.customdata, strict=True):
        row = rows[name]
        assert (row.evictor and row.evictor.family) == "query_agnostic"
        assert y == pytest.approx(scaled(max(row.loss, LOWEST)))
        assert x == pytest.approx(across(kept, row.kept), abs=0.1)  # moved a little aside
        assert row.model in text.replace("<br>", " ")
        assert f"lost {100 * row.loss:.3g} %" in text.replace("<br>", " ")


def test_rows_of_several_remedies_are_in_no_figure(both: Section) -> None:
    rows = {row.id: row for row in read_rows()[0]}
    for plot in plots(both).values():
        assert all(len(used_by(rows[name])) == 1 for name in drawn_rows(plot))
    assert "one remedy, the others neutral" in both.lead[0]


def test_a_method_without_rows_shows_those_of_its_family() -> None:
    study = Study.from_text(BOTH.replace('"kivi", "naive"', '"quarot", "kivi"'))
    remedy = remedies_of(study)[0]
    found = points_of(remedy, "code", (), load_quality_curves()).drawn
    assert {point.name for point in found} == {"kivi", ""}
    of_family = [point.row for point in found if not point.name]
    assert of_family
    assert all(row.quantizer and row.quantizer.family == "structure_aware" for row in of_family)
    measured = points_of(replace(remedy, names=("kivi",)), "code", (), load_quality_curves())
    assert {point.name for point in measured.drawn} == {"kivi"}
    assert set(measured.left_out.values()) >= {"family"}


def test_vetoed_results_have_a_marker_of_their_own() -> None:
    section = section_of(BOTH.replace('task = "code"', 'task = "retrieval"'))
    rows = {row.id: row for row in read_rows()[0]}
    blind = 0
    for trace in plots(section)["loss-kept-hidden"].figure.data:
        if trace.name.startswith("published"):
            for name, symbol in zip(trace.customdata, trace.marker.symbol, strict=True):
                vetoed = rows[name].task == "retrieval_hard"  # neither method knows the question
                assert (symbol == "x-thin-open") == vetoed
                blind += vetoed
    assert blind > 10


def test_kinds_of_models_that_lose_differently_have_curves_of_their_own(kinds: Section) -> None:
    study = Study.from_text(KINDS)
    assert [kind.models for kind in kinds_of(study)] == [(QWEN,), (LLAMA,)]
    plot = plots(kinds)["loss-kv"]
    own, other = (traces(plot, "central naive_grouped", task="retrieval", kind=kind.key)[0] for kind in kinds_of(study))
    assert np.isnan(np.array(own.y, float)).sum() > np.isnan(np.array(other.y, float)).sum()  # K outliers, vetoed
    panel = kinds.blocks[0]
    assert isinstance(panel, Panel)
    assert [selector.key for selector in panel.selectors] == ["task", "kind"]
    assert not any("kind" in (trace.meta or {}) for trace in plots(kinds)["loss-weights"].figure.data)


def test_a_task_of_several_classes_can_be_seen_class_by_class(kinds: Section) -> None:
    assert shown_tasks(Study.from_text(KINDS)) == ("retrieval", "retrieval_easy", "retrieval_hard")
    plot = plots(kinds)["loss-weights"]
    whole, *classes = (
        traces(plot, "central structure_aware", task=task)[0].customdata[:, 0]
        for task in ("retrieval", "retrieval_easy", "retrieval_hard")
    )
    np.testing.assert_allclose(whole, np.maximum(*classes))
    limits = [trace.meta["task"] for trace in plot.figure.data if trace.name == "limit"]
    assert limits == ["retrieval", "retrieval_easy", "retrieval_hard"]


def test_what_is_not_read_is_told_by_the_curve_of_a_reader(kinds: Section) -> None:
    names = {trace.name for trace in plots(kinds)["loss-read"].figure.data}
    assert {"central read_sparse", "central quest"} <= names
    assert load_methods()["evictor"].family("tova") == "query_aware"


def test_the_budget_is_a_line_at_its_height(both: Section) -> None:
    (limit,) = traces(plots(both)["loss-kv"], "limit")
    assert limit.meta["task"] == "aggregate"
    assert list(limit.y) == pytest.approx([scaled(0.02)] * 2)
    (ratio,) = traces(plots(both)["loss-kv-ln"], "limit")
    assert list(ratio.y) == pytest.approx([scaled(0.05)] * 2)
    assert any("0.05" in trace.hovertemplate for trace in plots(both)["loss-kv-ln"].figure.data)


def test_perplexity_has_figures_in_its_own_unit(both: Section) -> None:
    share, ratio = plots(both)["loss-kv"].figure.layout.yaxis, plots(both)["loss-kv-ln"].figure.layout.yaxis
    assert "100 %" in share.ticktext
    assert not any("%" in text for text in ratio.ticktext)
    assert list(share.tickvals) == pytest.approx(scaled([float(each.strip(" %")) / 100 for each in share.ticktext]))


@pytest.mark.parametrize("text", [ONE_DESIGN, TWO_CHIPS], ids=["nothing compressed", "compressed"])
def test_only_a_study_that_compresses_has_the_section(text: str) -> None:
    study = Study.from_text(text)
    assert bool(remedies_of(study)) == (text is TWO_CHIPS)
    if text is ONE_DESIGN:
        assert loss_sections(Laws(study)) == ()


def test_neutral_settings_are_no_remedy() -> None:
    plain = f'{HEAD}model = "{LLAMA}"\nkey_bits = 16\nretention = 1.0\nweight_bits = ["native", 16]\n'
    assert remedies_of(Study.from_text(plain)) == ()
    assert [each.axis for each in remedies_of(Study.from_text(plain.replace("key_bits = 16", "value_bits = [16, 4]")))]


def test_evictors_that_do_not_mind_the_question_have_one_figure() -> None:
    text = f'{HEAD}model = "{LLAMA}"\nretention = [0.5, 1.0]\nevictor = "knorm"\nquestion_visible = [true, false]\n'
    assert [each.title for each in remedies_of(Study.from_text(text))] == ["Tokens kept"]


def test_more_methods_than_a_figure_shows_are_told() -> None:
    names = ", ".join(f'"{name}"' for name in load_methods()["evictor"].all[: MOST_NAMES + 2])
    study = Study.from_text(f'{HEAD}model = "{LLAMA}"\nretention = [0.5, 1.0]\nevictor = [{names}]\n')
    section = section_of(study)
    assert len(remedies_of(study)[0].names) == MOST_NAMES
    assert any(f"first {MOST_NAMES} of {MOST_NAMES + 2} methods" in note for note in section.notes)


def test_curves_are_of_the_study_s_own_record(tmp_path: Path, both: Section) -> None:
    curves = load_quality_curves()
    kivi = {task: replace(each, scale=2 * each.scale) for task, each in curves.quantizer["kivi"].items()}
    path = tmp_path / "own.json"
    path.write_text(record_text(replace(curves, version="mine", quantizer=curves.quantizer | {"kivi": kivi})))
    section = section_of(replace(Study.from_text(BOTH), quality_curves=str(path)))
    shipped, own = (
        traces(plots(each)["loss-kv-ln"], "study kivi", task="perplexity")[0].customdata[:, 0]
        for each in (both, section)
    )
    assert own[0] > 1.5 * shipped[0]
    assert any(f"of {path}, version mine" in note for note in section.notes)


def test_the_figures_are_offline_and_small(both: Section) -> None:
    html = section_html(both)
    read = Elements()
    read.feed(html)
    assert set(read.figures) == set(plots(both))
    for figure in read.figures.values():
        assert figure["config"]["showSendToCloud"] is False
        assert all(len(numbers(trace["x"])) == len(numbers(trace["y"])) for trace in figure["data"])
    assert len(html) < 1.5e6
    assert "http" not in re.sub(r'<script type="application/json".*?</script>', "", html, flags=re.DOTALL)
    assert "NaN" not in json.dumps(read.figures)

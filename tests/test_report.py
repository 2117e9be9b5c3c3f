"""The HTML page: it asks nothing of the network, is the same numbers as `evaluate`, and degrades with a sentence."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from plotly.offline import get_plotlyjs

from kvwall.objectives.register import evaluate as evaluate_laws
from kvwall.spaces.errors import InputError
from kvwall.spaces.hardware import hardware_names
from kvwall.spaces.quality import load_quality_curves
from kvwall.sweep.evaluate import evaluate
from kvwall.sweep.kernel import Problem
from kvwall.sweep.points import evaluate_designs
from kvwall.sweep.progress import Silent
from kvwall.sweep.report import write_report
from kvwall.sweep.report.best import best_designs
from kvwall.sweep.report.caveats import caveats
from kvwall.sweep.report.choices import Choices
from kvwall.sweep.report.data import read_results
from kvwall.sweep.report.front_plot import _hues
from kvwall.sweep.report.header import answer, chip_answers
from kvwall.sweep.report.laws import Laws
from kvwall.sweep.report.left_out import chip_counts
from kvwall.sweep.report.parts import Items
from kvwall.sweep.report.remarks import _quality
from kvwall.sweep.report.style import chip_places
from kvwall.sweep.report.wording import metric_value
from kvwall.sweep.store import open_front
from kvwall.sweep.study import Study
from tests.finished_sweeps import NOTHING, ONE_DESIGN, TWO_CHIPS, TWO_MODELS, swept, swept_single
from tests.page import Elements, numbers, read, text_of

ASSUME = {"host_link_bandwidth": "64 GB/s"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(TWO_CHIPS, tmp_path_factory.mktemp("report") / "two-chips")


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    return write_report(folder)


@pytest.fixture(scope="module")
def elements(page: Path) -> Elements:
    return read(page)


def test_the_page_lies_in_the_folder_and_is_small_enough_to_mail(folder: Path, page: Path) -> None:
    assert page == folder / "report.html"
    assert page.stat().st_size < 8e6


def test_nothing_on_the_page_points_to_a_network(elements: Elements) -> None:
    for tag, attributes in elements.elements:
        for name in ("src", "href", "action", "data", "poster", "srcset"):
            target = attributes.get(name) or ""
            assert not target or target.startswith("#"), (tag, name, target)
        assert tag not in {"link", "iframe", "img", "object", "embed", "base"}


def test_the_browser_is_told_to_refuse_every_request(elements: Elements) -> None:
    policies = [a["content"] for tag, a in elements.elements if a.get("http-equiv") == "Content-Security-Policy"]
    assert len(policies) == 1
    assert "default-src 'none'" in str(policies[0])
    assert "http" not in str(policies[0])


def test_styles_fetch_nothing(page: Path) -> None:
    style = re.search(r"<style>(.*?)</style>", page.read_text(encoding="utf-8"), re.DOTALL)
    assert style is not None
    assert "url(" not in style[1]
    assert "@import" not in style[1]


def test_no_figure_offers_to_upload_its_data(elements: Elements) -> None:
    assert len(elements.figures) > 10
    for name, figure in elements.figures.items():
        assert figure["config"]["showSendToCloud"] is False, name
        assert figure["config"]["displaylogo"] is False, name


def test_the_plotting_library_is_embedded_once(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert text.count(get_plotlyjs()) == 1
    assert len(re.findall(r"<script>", text)) == 2  # the library, and the page's own


def test_every_figure_has_its_place_and_its_data(elements: Elements) -> None:
    places = {a["id"] for tag, a in elements.elements if tag == "div" and a.get("class") == "plot"}
    assert places == set(elements.figures)
    chips = {"roofline", "phase", "speedup"}
    for kind in chips:
        assert {f"{kind}-0", f"{kind}-1"} <= places
    assert {"front", "contexts", "margin-context", "share-regime-context", "share-regime-batch"} <= places


def test_the_page_says_that_speeds_are_ceilings_and_what_is_assumed(elements: Elements) -> None:
    text = text_of(elements)
    assert "Derived ceilings, not measured speeds" in text
    assert "Assumed: host link bandwidth of b200-sxm is 64 GB/s." in text
    for grade in ("derived", "calibrated", "reported"):
        assert grade in text


def test_the_answer_is_the_front_s_best_by_the_first_objective(folder: Path, elements: Elements) -> None:
    front = open_front(folder)
    best = float(front["tokens_per_second_per_device"].max())
    assert f"{best:,.0f} tok/s" in text_of(elements)


def test_best_designs_are_the_best_of_a_brute_force_search(folder: Path) -> None:
    study = Study.load(folder / "study.toml")
    found = best_designs(study)
    assert found is not None
    every = evaluate_designs(Problem(study.columns(), study.task, (), ()), np.arange(study.space.size))
    admissible = (every["status"] == 1) & (every["quality_loss_upper"] <= 0.1)
    points = [study.space.point(index) for index in range(study.space.size)]
    for chip, name in enumerate(study.space.values("hardware")):
        for place, context in enumerate(study.space.values("context")):
            own = [
                index
                for index, point in enumerate(points)
                if admissible[index] and point["hardware"] == name and point["context"] == context
            ]
            index = int(found.index[0, chip, place])
            assert index in own
            most = max(every["tokens_per_second_per_device"][own])
            assert every["tokens_per_second_per_device"][index] == pytest.approx(most, rel=2e-6)
            tied = [i for i in own if every["tokens_per_second_per_device"][i] >= most * (1 - 1e-7)]
            assert every["quality_loss_upper"][index] <= min(every["quality_loss_upper"][tied]) + 1e-6


def test_nothing_admissible_is_not_a_best_design() -> None:
    found = best_designs(Study.from_text(NOTHING))
    assert found is not None
    assert (found.index == -1).all()
    assert np.isnan(found.value).all()


def test_speedups_are_those_of_evaluate(elements: Elements) -> None:
    curves = [
        trace
        for trace in elements.figures["speedup-1"]["data"]
        if trace.get("meta", {}).get("remedy") == "KV 4 bit" and trace["meta"]["batch"] == "32"
    ]
    contexts, speedups = numbers(curves[-1]["x"]), numbers(curves[-1]["y"])
    axes: dict[str, object] = {
        "model": "meta-llama/Meta-Llama-3-70B", "hardware": "b200-sxm", "batch": 32, "tensor_parallel": 8,
    }  # fmt: skip
    for place in (0, len(contexts) // 3):
        plain = evaluate(mode="ceiling", **axes, context=int(contexts[place]), assume=ASSUME)
        treated = evaluate(
            mode="ceiling", **axes, context=int(contexts[place]), key_bits=4, value_bits=4, assume=ASSUME
        )
        step, faster = (one.metrics["time_per_output_token"] for one in (plain, treated))
        assert step is not None
        assert faster is not None
        assert speedups[place] == pytest.approx(step / faster, rel=1e-6)


def test_speed_that_cannot_be_had_is_thin_and_dotted(elements: Elements) -> None:
    """Eight H100 hold 256 sequences of 8-bit KV at a short context only."""
    curves = [
        trace
        for trace in elements.figures["speedup-0"]["data"]
        if trace.get("meta", {}).get("remedy") == "KV 8 bit" and trace["meta"]["batch"] == "256"
    ]
    dotted, solid = curves
    assert dotted["line"]["dash"] == "dot"
    assert "does not fit" in dotted["hovertemplate"]
    values = numbers(solid["y"])
    assert np.isfinite(values[0])
    assert np.isnan(values[-1])


def test_phase_maps_are_those_of_evaluate(elements: Elements) -> None:
    maps = [
        trace
        for trace in elements.figures["phase-0"]["data"]
        if trace["type"] == "heatmap" and trace["meta"]["devices"] == "8" and trace["meta"]["format"] == "16-1"
    ]
    assert len(maps) == 1
    words, told = maps[0]["meta"]["words"], {"weight traffic": "weight", "KV traffic": "kv", "compute": "compute"}
    batches, contexts = maps[0]["meta"]["batches"], maps[0]["meta"]["contexts"]
    for row, column in ((0, 0), (0, len(contexts) - 1), (len(batches) - 1, 0), (len(batches) - 1, len(contexts) - 1)):
        report = evaluate(mode="ceiling",
            model="meta-llama/Meta-Llama-3-70B", hardware="h100-sxm", tensor_parallel=8, batch=batches[row],
            context=contexts[column],
        )  # fmt: skip
        word = words[maps[0]["z"][row][column]]
        if report.labels["phase"] == "capacity":
            assert word == "does not fit in memory"
        else:
            assert told[word] == report.labels["regime"]


def test_the_laws_of_the_page_are_the_laws(folder: Path) -> None:
    study = Study.load(folder / "study.toml")
    found = Laws(study).grid(hardware=["h100-sxm", "b200-sxm"], batch=[1, 64], context=[4096, 131072])
    assert found.shape == (2, 2, 2)
    design = evaluate(mode="ceiling", model="meta-llama/Meta-Llama-3-70B", hardware="b200-sxm", batch=64, context=4096)
    assert found["time_per_output_token"][1, 1, 0] == pytest.approx(design.metrics["time_per_output_token"], rel=1e-12)
    assert found.words("status")[1, 1, 0] == design.status
    assert set(found.arrays) >= set(evaluate_laws(study.columns().design({d: np.array([0]) for d in study.space.dims}),
                                                  study.task).metrics)  # fmt: skip


def test_two_models_and_a_chip_without_a_price(tmp_path: Path) -> None:
    elements = read(write_report(swept(TWO_MODELS, tmp_path / "two-models")))
    text = text_of(elements)
    assert "no source states what cost per million tokens needs" in text
    assert "paper/b200: no source states cloud_price, so designs that need it have no cost per million tokens" in text
    assert ("select", {"data-key": "model"}) in elements.elements
    assert "The study has few values of context and batch" in text


def test_answers_of_the_front_are_its_pairs_of_model_and_chip_best_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    results = read_results(folder)
    chips = np.where(np.isin(np.arange(len(results.order)), results.order[:3]), "h100-sxm", "b200-sxm")
    both = replace(results, front=results.front.assign_coords(hardware=("point", chips)))
    told = list(chip_answers(Choices(both, Laws(results.study), None)))
    assert [line.partition(":")[0] for line in told] == ["h100-sxm", "b200-sxm"]
    rates = [float(line.split(": ")[1].split(" tok/s")[0].replace(",", "")) for line in told]
    assert rates[0] > rates[1]
    one = list(chip_answers(Choices(results, Laws(results.study), None)))
    assert len(one) == 2
    assert one[1].startswith("Of 1 pair no design is on the front")
    monkeypatch.setattr("kvwall.sweep.report.choices.MOST_CHIPS", 1)
    for shown, chip in ((both, "h100-sxm"), (results, "b200-sxm")):
        found = Choices(shown, Laws(results.study), None)
        assert found.chips == [chip]
        assert found.cut == ("Figures show 1 of 2 chips: those of the front's best designs, then the study's first.",)


def test_chips_that_lack_a_figure_say_so_in_answers_of_the_front(unsourced: Path) -> None:
    results = read_results(unsourced)
    found = Choices(results, Laws(results.study), None)
    remarks = [one.ranked_on() for one in found.chip_counts if one.unsourced]
    assert remarks
    told = [*chip_answers(found), *answer(found)]
    for one in found.chip_counts:
        if one.unsourced:
            assert any(one.ranked_on() in line or line == one.sentence() for line in told), one.chip


def test_parts_of_the_page_are_told_as_they_are_drawn(folder: Path) -> None:
    told: list[tuple[str, int]] = []

    class Watch(Silent):
        def stage(self, name: str, total: int, unit: str, done: int = 0) -> None:
            told.append((name, total))

        def update(self, done: int) -> None:
            told.append((told[-1][0], done))

    write_report(folder, Watch())
    drawn = [count for name, count in told if name == "drawing"]
    assert drawn[1:] == list(range(1, drawn[0] + 1))


def test_colours_of_a_wide_metric_are_logarithmic(folder: Path, elements: Elements) -> None:
    results = read_results(folder)
    scale = elements.figures["front"]["layout"]["coloraxis"]
    times = results.front["time_per_output_token"].values
    assert (scale["cmin"], scale["cmax"]) == pytest.approx(np.log10([times.min(), times.max()]))
    bar = scale["colorbar"]
    ends = [metric_value(results.study, "time_per_output_token", float(end)) for end in (times.min(), times.max())]
    assert [bar["ticktext"][0], bar["ticktext"][-1]] == ends
    assert bar["tickvals"] == pytest.approx(np.linspace(scale["cmin"], scale["cmax"], len(bar["ticktext"])))
    values = np.asarray(results.front["time_per_output_token"].values, dtype=np.float64)
    assert values.max() > 5 * values.min()
    shades = _hues(results, "time_per_output_token", np.arange(len(values)))
    assert shades == pytest.approx(np.log10(values))
    narrow = _hues(results, "quality_loss_upper", np.arange(len(values)))
    assert narrow == pytest.approx(results.front["quality_loss_upper"].values)  # has zeros


def test_an_empty_front_is_said_and_explained(tmp_path: Path) -> None:
    elements = read(write_report(swept(NOTHING, tmp_path / "nothing")))
    text = text_of(elements)
    assert "No design is admissible." in text
    assert "time per output token at most 1 us" in text
    assert "alone rejects 100 % of the feasible designs" in text
    assert "front" not in elements.figures
    assert "phase-0" in elements.figures


def test_a_study_of_one_design_has_a_page(tmp_path: Path) -> None:
    elements = read(write_report(swept_single(ONE_DESIGN, tmp_path / "one")))
    text = text_of(elements)
    assert "The study is one design" in text
    assert {"roofline-0", "phase-0", "speedup-0"} <= set(elements.figures)


def test_without_a_summary_the_margins_are_said_to_be_unknown(tmp_path: Path) -> None:
    folder = swept(NOTHING, tmp_path / "nothing")
    (folder / "summary.nc").unlink()
    assert "holds no summary.nc" in text_of(read(write_report(folder)))


def test_a_grid_too_large_to_search_again_is_told_from_its_front(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvwall.sweep.report.best.MOST_POINTS", 10)
    copy = shutil.copytree(folder, tmp_path / "copy")
    text = text_of(read(write_report(copy)))
    assert "too many to search again" in text
    assert "of the front only" in text


def test_a_catalogue_that_has_changed_is_said(folder: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    spec = json.loads((copy / "spec.json").read_text())
    spec["catalogue"]["hardware"]["b200-sxm"] = "0" * 64
    (copy / "spec.json").write_text(json.dumps(spec))
    assert read_results(copy).changes
    assert "Changed since the sweep" in text_of(read(write_report(copy)))


def test_names_from_files_are_escaped(tmp_path: Path) -> None:
    chip = tmp_path / "<img src=x>.toml"
    source = Path(evaluate_laws.__code__.co_filename).parents[1] / "spaces/catalog/hardware/mi300x.toml"
    shutil.copy(source, chip)
    text = NOTHING.replace('"mi300x"', f"'{chip}'")
    elements = read(write_report(swept(text, tmp_path / "out")))
    assert not [tag for tag, _ in elements.elements if tag == "img"]


UNSOURCED = """
[study]
name = "unsourced"
mode = "ceiling"
[space]
model = "meta-llama/Meta-Llama-3-70B"
hardware = ["mi350x", "h100-sxm"]
batch = [1, 8]
context = [4096, 16384]
key_bits = [16, 1]
value_bits = "key_bits"
retention = [1.0, 0.05]
evictor = ["position", "heavy_hitter"]
placement_host = [0.0, 0.25, 0.5]
tensor_parallel = [1, 3, 8]
[objectives]
maximize = ["tokens_per_second_per_device"]
"""
"""No source states the scale-up bandwidth of the first chip."""


@pytest.fixture(scope="module")
def unsourced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return swept(UNSOURCED, tmp_path_factory.mktemp("report") / "unsourced")


@pytest.fixture(scope="module")
def unsourced_text(unsourced: Path) -> str:
    return text_of(read(write_report(unsourced)))


def test_a_chip_ranked_on_a_part_of_its_designs_says_so_beside_its_number(unsourced: Path, unsourced_text: str) -> None:
    study = Study.from_text(UNSOURCED)
    found = evaluate_designs(Problem(study.columns(), study.task, (), ()), np.arange(study.space.size))
    chips = np.array([study.space.point(index)["hardware"] for index in range(study.space.size)])
    lost = int(np.sum((found["status"] == 4) & (chips == "mi350x")))
    own = int(np.sum(chips == "mi350x"))
    assert 0 < lost < own
    ranked = f"among {own - lost} of its {own} designs: the others have no speed, as scale_up_bandwidth has no source"
    assert f"tok/s ({ranked})" in unsourced_text
    assert f"mi350x: {lost} of {own} designs" in unsourced_text
    assert "scale_up_bandwidth (needed where tensor_parallel is above 1)" in unsourced_text
    assert '"mi350x".scale_up_bandwidth = "' in unsourced_text
    assert "h100-sxm (" not in unsourced_text
    counts = {one.chip: one for one in chip_counts(read_results(unsourced))}
    assert counts["mi350x"].unsourced == lost
    for status, word in enumerate(("not_computed", "ok", "memory", "layout")):
        for chip, one in counts.items():
            assert one.statuses.get(word, 0) == np.sum((found["status"] == status) & (chips == chip))


def choices_of(folder: Path) -> Choices:
    results = read_results(folder)
    return Choices(results, Laws(results.study), None)


def test_a_study_of_one_chip_that_lacks_a_figure_says_it_in_the_answer(tmp_path: Path) -> None:
    told = answer(choices_of(swept(UNSOURCED.replace('["mi350x", "h100-sxm"]', '"mi350x"'), tmp_path / "one-chip")))
    assert "have no speed and are not ranked: no source states scale_up_bandwidth" in told[-1]


def test_flags_of_evaluate_are_told_of_the_study_with_the_front_s_designs(unsourced: Path, unsourced_text: str) -> None:
    front = open_front(unsourced)
    rows = front.sizes["point"]

    def counted(mask: Any) -> str:
        return f"({int(np.sum(np.broadcast_to(mask, rows))):,} of the {rows:,} designs on the front)"

    low, evicts = front["key_bits"].values < 16, front["retention"].values < 1
    for sentence, mask in (
        ("Contexts above 8,192 exceed what Meta-Llama-3-70B states", front["context"].values > 8192),
        ("Memory of the host tier is not limited", front["placement_host"].values > 0),
        ("Loss of quality depends on neither the model's size nor the context's length", low | evicts),
        ("Losses of KV bits and tokens dropped together are composed", low & evicts),
        ("kv_group_size 0 counts low-bit KV without scales", low),
        ("Below 2 bits of keys or values the quality curves are extrapolated", low),
    ):
        told = re.search(rf"{re.escape(sentence)}[^(]*(\([^)]*\))", unsourced_text)
        assert told is not None, sentence
        assert told[1] == counted(mask), sentence
    assert "No assumption was made" not in unsourced_text


def test_weak_curves_are_named() -> None:
    curves = load_quality_curves()
    weak = {
        name
        for name in ("position", "heavy_hitter", "random", "reconstruction")
        for evidence in [curves.evictor[name]["reasoning"].evidence]
        if evidence.borrowed_from is not None or evidence.sources == 1
    }
    assert weak
    study = Study.from_text(UNSOURCED.replace('["position", "heavy_hitter"]', '["position", "heavy_hitter", "random"]')
                            + '[quality]\ntask = "reasoning"\n')  # fmt: skip
    told = " ".join(remark.text for remark in _quality(study))
    for name in ("position", "heavy_hitter", "random"):
        seen = ", question visible" if name == "heavy_hitter" else ""
        assert (f"Quality: evictor {name}{seen}, task reasoning," in told) == (name in weak)


@pytest.mark.parametrize(
    ("more", "clean"), [("", True), ("placement_host = 0.5\n", False), ("retention = 0.9\n", False)]
)
def test_only_a_study_without_remarks_says_that_there_are_none(tmp_path: Path, more: str, clean: bool) -> None:
    text = ONE_DESIGN + "batch = 1\n" + more
    section = caveats(choices_of(swept_single(text, tmp_path / "one")))
    assert (section.lead == ("No assumption was made, and no best design goes beyond what its data cover.",)) == clean
    assert any(isinstance(block, Items) for block in section.blocks) != clean


def test_margins_are_the_best_admissible_values_of_a_brute_force_search(folder: Path, elements: Elements) -> None:
    study = Study.load(folder / "study.toml")
    first = "tokens_per_second_per_device"
    found = best_designs(study)
    assert found is not None
    assert set(found.margins) == set(study.space.dims)
    every = evaluate_designs(Problem(study.columns(), study.task, (), ()), np.arange(study.space.size))
    admissible = (every["status"] == 1) & (every["quality_loss_upper"] <= 0.1)
    rates = np.where(admissible, every[first], -np.inf).reshape(study.space.shape)
    for place, dim in enumerate(study.space.dims):
        most = rates.max(axis=tuple(other for other in range(rates.ndim) if other != place))
        np.testing.assert_allclose(found.margins[dim], np.where(most > 0, most, np.nan), rtol=2e-6)
    feasible, best = elements.figures["margin-retention"]["data"]
    assert "feasible" in feasible["hovertemplate"]
    np.testing.assert_allclose(numbers(best["y"]), found.margins["retention"], rtol=2e-6)
    assert max(numbers(feasible["y"])) >= max(numbers(best["y"]))
    text = text_of(elements)
    assert "best feasible design, constraints ignored" in text
    assert "1 of the 2 values of placement_host move KV out of device memory" in text


def test_a_chip_has_one_colour_in_every_report_and_no_two_share_it() -> None:
    alone = chip_places(["mi300x"])["mi300x"]
    for others in (["h100-sxm", "b200-sxm"], ["h200-sxm", "gb200-nvl72", "mi355x"], ["my/chip.toml", "l4"]):
        found = chip_places([*others, "mi300x"])
        assert found["mi300x"] == alone
        assert len(set(found.values())) == len(found)
        assert chip_places(reversed([*others, "mi300x"])) == found
    crowd = chip_places(hardware_names()[:12])
    assert len(crowd) == 12
    assert set(crowd.values()) == set(range(9))


def test_a_marker_at_no_loss_is_not_cut(elements: Elements) -> None:
    figure = elements.figures["front"]
    losses = [loss for trace in figure["data"] for loss in numbers(trace["x"])]
    low, high = figure["layout"]["xaxis"]["range"]
    assert min(losses) == 0
    assert low < 0
    assert high > max(losses)


def test_every_table_scrolls_sideways_and_may_say_so(page: Path, elements: Elements) -> None:
    tables = sum(tag == "table" for tag, _ in elements.elements)
    boxes = [place for place, (_, a) in enumerate(elements.elements) if a.get("class") == "scroll"]
    assert len(boxes) == tables > 4
    for place in boxes:
        assert elements.elements[place - 1] == ("p", {"class": "hint"})
        assert elements.elements[place + 1][0] == "table"
    assert "local" in page.read_text(encoding="utf-8").split(".scroll {")[1].split("}")[0]


@pytest.mark.parametrize("missing", ["front.nc", "study.toml"])
def test_a_folder_without_results_is_refused(folder: Path, tmp_path: Path, missing: str) -> None:
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / missing).unlink()
    with pytest.raises(InputError, match=missing):
        write_report(copy)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such folder"):
        write_report(tmp_path / "nowhere")


@pytest.mark.browser
def test_a_browser_draws_every_figure_without_a_complaint(page: Path, elements: Elements, tmp_path: Path) -> None:
    browser = next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )
    if browser is None:
        pytest.skip("no Chromium on the PATH")
    command = [
        browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
        "--disable-background-networking", f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1400,6000",
        "--virtual-time-budget=20000", "--enable-logging=stderr", "--dump-dom", page.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr
    for name in elements.figures:
        drawn = re.search(rf'<div class="plot js-plotly-plot" id="{name}".*?</script>', done.stdout, re.DOTALL)
        assert drawn is not None, name
        assert 'class="main-svg"' in drawn[0], name

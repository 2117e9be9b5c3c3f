"""The published rows nearest to a design: their order, the words of their distance, and when there are none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kvwall.spaces.quality import load_quality_curves
from kvwall.sweep.cli import run
from kvwall.sweep.explain import explain
from kvwall.sweep.quality.nearest import TITLE, Published, asked_of, nearest_results, nearest_rows, text_lines
from kvwall.sweep.quality.nearness import Asked, Used, gaps, setting_text, used_by
from kvwall.sweep.quality.prediction import predict
from kvwall.sweep.quality.rows import ROWS, Named, read_cells, read_rows, row_of, write_cells
from kvwall.sweep.quality_results.cells import QualityCells
from kvwall.sweep.single import SingleDesign, single_design

LLAMA = "meta-llama/Meta-Llama-3.1-8B"
KIVI, SNAPKV = Named("structure_aware", "kivi"), Named("query_aware", "snapkv")
CELLS = QualityCells(
    id="", method="KIVI-4", family="structure_aware", model="Mistral-7B", model_size_b=7, benchmark="LongBench",
    subtask="avg", task_class="aggregate", context_tokens=8192, bits_k=4, bits_v=4, bits_effective=None,
    group_size=None, residual_tokens=None, retention_ratio=None, baseline=50, score=49, higher_is_better=True,
    relative_loss=0.02, source="made up", notes="", table="kv_quant",
)  # fmt: skip
EVICTED = replace(CELLS, method="SnapKV", bits_k=None, bits_v=None, retention_ratio=0.5, table="kv_evict")
ASKED = Asked("Mistral-7B", "aggregate", 8192, {"quantizer": Used(KIVI, (4.0, 4.0))})


def cells(**changes: Any) -> QualityCells:
    return replace(CELLS, **changes)


def found(folder: Path, asked: Asked, *rows: QualityCells, **options: Any) -> tuple[Published, ...]:
    """What is listed of some rows, each of a source of its own unless it says otherwise."""
    named = [
        replace(each, id=f"R{place}", source=f"S{place} x" if each.source == "made up" else each.source)
        for place, each in enumerate(rows)
    ]
    path = folder / f"rows-{len(list(folder.iterdir()))}.parquet"  # a file is read once
    write_cells(named, path)
    return nearest_rows(asked, load_quality_curves(), 0.9, path=path, **options)


def ids(listed: tuple[Published, ...]) -> list[str]:
    return [each.id for each in listed]


def design(**axes: Any) -> SingleDesign:
    more = {name: axes.pop(name) for name in ("task", "allow_veto") if name in axes}
    whole = {"model": LLAMA, "hardware": "h100-sxm", "context": 32768, **axes}
    return single_design(whole, mode="ceiling", assume={}, confidence=0.9, **{"task": "aggregate", **more})


def words(asked: Asked, each: QualityCells) -> str:
    return ", ".join(gap.words for gap in gaps(asked, row_of(each), each.context_tokens) if gap.words)


def size(asked: Asked, each: QualityCells) -> float:
    return sum(gap.size for gap in gaps(asked, row_of(each), each.context_tokens))


CLOSER = [
    (cells(), cells(bits_k=2, bits_v=2)),
    (cells(bits_k=3, bits_v=3), cells(bits_k=2, bits_v=2)),
    (cells(bits_k=3, bits_v=4), cells(bits_k=3, bits_v=3)),
    (cells(), cells(method="KVQuant nuq4-1%")),
    (cells(method="KVQuant nuq4-1%"), cells(method="int4 per-token", family="naive")),
    (cells(), cells(task_class="reasoning")),
    (cells(task_class="reasoning"), cells(task_class="perplexity")),
    (cells(), cells(model="Gemma-7B")),
    (cells(model="Gemma-7B"), cells(model="Llama-3-8B")),
    (cells(model="Llama-3-8B"), cells(model="Qwen2.5-7B-Instruct")),
    (cells(), cells(context_tokens=131072)),
    (cells(context_tokens=16384), cells(context_tokens=None)),
    (cells(method="KVQuant nuq2-1%", bits_k=2, bits_v=2),
     replace(EVICTED, method="SnapKV+KIVI-4", table="kv_combined", bits_k=4, bits_v=4)),
]  # fmt: skip


@pytest.mark.parametrize(("near", "far"), CLOSER)
def test_the_nearer_row_comes_first(tmp_path: Path, near: QualityCells, far: QualityCells) -> None:
    assert size(ASKED, near) < size(ASKED, far)
    assert ids(found(tmp_path, ASKED, far, near)) == ["R1", "R0"]


def test_the_share_kept_is_compared_by_what_is_dropped_for_each_token_kept() -> None:
    asked = Asked("Mistral-7B", "aggregate", 8192, {"evictor": Used(SNAPKV, (0.1,))})
    shares = [0.1, 0.08, 0.2, 0.5, 0.9]
    sizes = [size(asked, replace(EVICTED, retention_ratio=share)) for share in shares]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert size(asked, replace(EVICTED, retention_ratio=0.2)) == pytest.approx(0.7 * 0.8109302)  # ln(9/4)


def test_the_same_method_with_the_question_hidden_lies_between_the_same_and_another_method() -> None:
    asked = Asked("Mistral-7B", "aggregate", 8192, {"evictor": Used(SNAPKV, (0.5,))})
    hidden, kin = replace(EVICTED, question="hidden"), replace(EVICTED, method="PyramidKV")
    strange = replace(EVICTED, method="StreamingLLM")
    assert size(asked, EVICTED) < size(asked, kin) < size(asked, hidden) < size(asked, strange)
    assert "same method (snapkv), question hidden instead of visible" in words(asked, hidden)
    blind = replace(asked, used={"evictor": Used(Named("query_agnostic", "snapkv"), (0.5,))}, visible=False)
    assert "question visible instead of hidden" in words(blind, EVICTED)
    assert size(blind, hidden) < size(blind, EVICTED)


WORDS = [
    (cells(), "same method (kivi), same bits, same model"),
    (cells(bits_k=3.5, bits_v=3.5), "same method (kivi), 3.5 instead of 4 bits, same model"),
    (cells(bits_k=4, bits_v=2), "same method (kivi), K 4, V 2 instead of 4 bits, same model"),
    (cells(method="QuaRot", model="Gemma-7B"), "quarot of the same family instead of kivi, same bits, another model"),
    (cells(method="int4 per-token", model="Llama-3-8B"),
     "int_per_token of another family instead of kivi, same bits, another model like Llama-3"),
    (cells(model="Qwen2.5-3B"), "same method (kivi), same bits, another model whose keys have outliers"),
    (cells(task_class="code", context_tokens=32768),
     "same method (kivi), same bits, task code instead of aggregate, same model, "
     "at 32.8k tokens instead of 8,192 tokens"),
    (cells(context_tokens=None), "same method (kivi), same bits, same model, context not stated"),
    (replace(EVICTED, method="SnapKV+KIVI-4", table="kv_combined", bits_k=4, bits_v=4),
     "same method (kivi), same bits, with 50 % of the tokens kept besides, same model"),
    (EVICTED, "without KV bits, with 50 % of the tokens kept besides, same model"),
]  # fmt: skip


@pytest.mark.parametrize(("each", "told"), WORDS)
def test_the_distance_in_words(each: QualityCells, told: str) -> None:
    assert words(ASKED, each) == told


def test_a_family_asked_for_takes_the_methods_of_it() -> None:
    family = replace(ASKED, used={"quantizer": Used(Named("structure_aware", "structure_aware"), (4.0, 4.0))})
    assert words(family, CELLS) == "kivi of the family asked for, same bits, same model"
    assert size(family, CELLS) < size(replace(family, used={"quantizer": Used(Named("naive", "naive"), (4, 4))}), CELLS)


def test_ties_are_listed_by_their_id(tmp_path: Path) -> None:
    assert ids(found(tmp_path, ASKED, *[CELLS] * 3)) == ["R0", "R1", "R2"]


def test_of_rows_that_are_about_as_near_those_of_other_sources_come_before_more_of_one(tmp_path: Path) -> None:
    one, near = cells(source="one table"), cells(context_tokens=16384, source="other table")
    far = cells(bits_k=2, bits_v=2, source="other table")
    assert ids(found(tmp_path, ASKED, one, one, one, near, most=2)) == ["R0", "R3"]
    assert ids(found(tmp_path, ASKED, one, one, one, far, most=2)) == ["R0", "R1"]


def test_retrieval_and_ruler_take_rows_of_all_their_classes() -> None:
    easy, hard = cells(task_class="retrieval_easy"), cells(task_class="retrieval_hard")
    retrieval, ruler = replace(ASKED, task="retrieval"), replace(ASKED, task="ruler")
    assert size(retrieval, easy) == size(retrieval, hard) == 0
    average = next(each for each in read_cells() if each.tier == "average_of_tiers" and each.retention_ratio)
    of_ruler = Asked(average.model, "ruler", average.context_tokens or 1, used_by(row_of(average)))
    assert size(of_ruler, average) == 0
    assert size(ruler, easy) == 0.5
    assert "one class (retrieval_easy) of ruler" in words(ruler, easy)


def test_nothing_is_listed_where_nothing_is_compressed(capsys: pytest.CaptureFixture[str]) -> None:
    assert nearest_results(design()) == ()
    assert nearest_rows(replace(ASKED, used={}), load_quality_curves(), 0.9) == ()
    assert text_lines(()) == []
    run(["evaluate", "--mode", "ceiling", "--model", LLAMA, "--hardware", "h100-sxm", "--context", "4096", "--explain"])
    assert TITLE not in capsys.readouterr().out


def test_rows_carry_the_table_s_words_and_what_the_curves_say_of_them() -> None:
    single = design(key_bits=4, value_bits=4, quantizer="kivi", task="retrieval")
    listed = nearest_results(single)
    assert len(listed) == 6
    assert len(nearest_results(single, most=2)) == 2
    own = {each.id: each for each in read_cells()}
    rows = {row.id: row for row in read_rows()[0]}
    for each in listed:
        cell = own[each.id]
        assert (each.source, each.method, each.model) == (cell.source, cell.method, cell.model)
        assert (each.benchmark, each.subtask) == (cell.benchmark, cell.subtask)
        (told,) = predict([rows[each.id]], single.catalogue.curves, 0.9)
        assert (each.observed, each.predicted, each.upper) == (rows[each.id].loss, told.central, told.upper)
        assert each.task in {"retrieval_easy", "retrieval_hard"}
    assert listed[0].distance.startswith("same method (kivi), same bits")
    assert len({each.source for each in listed}) > 2


def test_the_nearest_rows_are_the_nearest_of_all() -> None:
    asked = asked_of(design(retention=0.5, evictor="snapkv"))
    listed = nearest_rows(asked, load_quality_curves(), 0.9, most=1)
    own = {each.id: each for each in read_cells()}
    sizes = {row.id: size(asked, own[row.id]) for row in read_rows()[0] if "evictor" in used_by(row)}
    assert sizes[listed[0].id] == min(sizes.values())


def test_remedies_measured_together_are_listed_together() -> None:
    axes = {"key_bits": 4, "value_bits": 4, "quantizer": "kivi", "retention": 0.25, "evictor": "streaming_llm"}
    listed = nearest_results(design(**axes))
    assert {each.about for each in listed} == {"all remedies together"}
    assert all(each.setting.count(",") >= 1 for each in listed)


def test_remedies_that_no_row_combines_are_listed_apart() -> None:
    axes = {"key_bits": 8, "value_bits": 8, "quantizer": "fp8", "retention": 0.25, "evictor": "kvzip", "weight_bits": 4}
    listed = nearest_results(design(**axes))
    assert [each.about for each in listed] == [
        *["quantizer fp8"] * 2, *["evictor kvzip"] * 2, *["weight quantizer structure_aware"] * 2,
    ]  # fmt: skip
    assert all("fp8" in each.distance for each in listed[:2])
    assert all(each.setting.endswith("of the tokens kept") for each in listed[2:4])


def test_a_sparse_read_is_compared_with_what_readers_lose() -> None:
    listed = nearest_results(design(read_fraction=0.1, evictor="quest"))
    assert {each.about for each in listed} == {"evictor quest (tokens not read)"}
    assert all("% of the tokens read" in each.setting for each in listed)


def test_a_method_without_rows_takes_those_of_its_family() -> None:
    lonely = Used(Named("query_aware", "not_measured"), (0.5,))
    listed = nearest_rows(Asked(LLAMA, "aggregate", 8192, {"evictor": lonely}), load_quality_curves(), 0.9)
    assert all("of the same family instead of not_measured" in each.distance for each in listed)


def test_a_vetoed_design_lists_what_the_veto_rests_on() -> None:
    single = design(model="Qwen/Qwen2.5-7B-Instruct", key_bits=3, value_bits=3, task="perplexity")
    listed = nearest_results(single)
    assert [each.about for each in listed] == ["veto k_outliers"] * 3 + ["quantizer structure_aware"] * 3
    assert {each.vetoed for each in listed[:3]} == {"k_outliers"}
    assert max(each.observed for each in listed[:3]) > 1
    assert len(set(ids(listed))) == 6
    assert ids(nearest_results(design(key_bits=3, value_bits=3)))  # no veto
    blind = nearest_results(design(retention=0.5, evictor="random", task="retrieval_hard"))
    assert {each.vetoed for each in blind if each.about == "veto blind_retrieval"} == {"blind_retrieval"}


def test_an_allowed_veto_still_lists_its_rows() -> None:
    axes = {"model": "Qwen/Qwen2.5-7B-Instruct", "key_bits": 3, "value_bits": 3}
    assert nearest_results(design(**axes, allow_veto=["k_outliers"]))[0].about == "veto k_outliers"


def test_the_settings_of_every_row_have_words() -> None:
    rows, _ = read_rows(ROWS)
    texts = {setting_text(row) for row in rows}
    assert "nothing" not in texts
    assert any(text.startswith("K ") for text in texts)
    assert {"4 bits", "50 % of the tokens kept, question hidden", "50 % of the tokens kept"} <= texts


def test_evaluate_explains_with_the_nearest_rows(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "--model", LLAMA, "--hardware", "h100-sxm", "--context", "32768", "--retention", "0.5",
                 "--evictor", "snapkv", "--task", "retrieval", "--explain"]  # fmt: skip
    run([*arguments, "--json"])
    listed = json.loads(capsys.readouterr().out)["explain"]["nearest"]
    assert {"id", "about", "source", "method", "model", "benchmark", "subtask", "setting", "observed", "predicted",
            "upper", "distance"} <= listed[0].keys()  # fmt: skip
    run(arguments)
    told = capsys.readouterr().out.split(TITLE)[1]
    for each in listed:
        assert each["id"] in told
        assert each["source"] in told
    assert explain(design(retention=0.5)).nearest

"""Evaluation results as quality rows: each format gives exactly its rows, and each fault is named."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kvwall.spaces.errors import InputError
from kvwall.spaces.quality import TASKS
from kvwall.sweep.quality_results import COLUMNS, FORMATS, OPTIONS, QualityCells, Refusal, read_results
from kvwall.sweep.quality_results.document import read_document
from kvwall.sweep.quality_results.formats import format_of
from tests.evaluated import MODEL, ROW, RULER, harness, kvpress, table, write_json

INT4 = {"method": "our int4", "bits_k": "4", "bits_v": "4"}
GSM8K = {
    "gsm8k": {
        "alias": "gsm8k", "exact_match,strict-match": 0.5, "exact_match_stderr,strict-match": 0.01,
        "exact_match,flexible-extract": 0.8, "exact_match_stderr,flexible-extract": 0.01,
    }
}  # fmt: skip
WORSE = {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": 0.4, "exact_match,flexible-extract": 0.6}}


def snap(path: Path) -> dict[str, Any]:
    """Scores of `RULER` at a half."""
    values = {"niah_single_1": 90.0, "niah_single_3": 49.0, "vt": 60.0}
    kvpress(path, {task: {"string_match": value} for task, value in values.items()}, "snapkv", 0.5)
    return values


def refusals(paths: list[Path], stated: Mapping[str, str]) -> list[str]:
    rows, refused = read_results(paths, stated)
    assert not rows
    return [reason for each in refused for reason in each.reasons]


MAKERS: dict[str, Callable[[Path], tuple[list[Path], dict[str, str]]]] = {
    "quality table": lambda folder: ([table(folder / "mine.csv", {})], {}),
    "lm-evaluation-harness": lambda folder: (
        [harness(folder / "results_1.json", WORSE)],
        {**INT4, "baseline": str(harness(folder / "results_0.json", GSM8K))},
    ),
    "kvpress": lambda folder: ([kvpress(folder, RULER), kvpress(folder, RULER, "snapkv", 0.5)], {}),
}


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_keeps_the_contract(tmp_path: Path, name: str) -> None:
    """Its files are of it alone; rows are whole, refer to the file, and come but once; a fault names the file."""
    paths, stated = MAKERS[name](tmp_path)
    files = [path / "metrics.json" if path.is_dir() else path for path in paths]
    for path in files:
        document = read_document(path)
        assert (
            [other for other, each in FORMATS.items() if each.recognises(document)] == [name] == [format_of(document)]
        )
    rows, refused = read_results(paths, stated)
    assert rows
    assert not refused
    assert read_results([*paths, *paths], stated) == (rows, refused)
    for row in rows:
        assert tuple(row.columns()) == COLUMNS
        assert row.task_class in TASKS
        assert row.table
        assert row.relative_loss == pytest.approx((row.baseline - row.score) / row.baseline)
        assert any(str(path) in row.source for path in files) or name == "quality table"
    copy = tmp_path / "copy" / files[-1].parent.name / files[-1].name
    copy.parent.mkdir(parents=True, exist_ok=True)
    copy.write_bytes(files[-1].read_bytes())
    for beside in files[-1].parent.glob("config.yaml"):
        copy.with_name(beside.name).write_bytes(beside.read_bytes())
    again, twice = read_results([*paths, copy], stated)
    assert again == rows
    assert len(twice) == len([row for row in rows if row.score])
    assert all("there already" in each.reasons[0] and str(copy) in each.name for each in twice)
    for value in (b"", b"{", b"[", b"\xff\xfe{", b"{}", b"[1, 2]"):
        files[-1].write_bytes(value)
        with pytest.raises(InputError) as error:
            read_results(paths, stated)
        assert all(fault.startswith(str(files[-1])) for fault in error.value.faults)


def test_every_format_has_a_file_here() -> None:
    assert MAKERS.keys() == FORMATS.keys()


# --- tables ---


def test_a_table_gives_its_rows(tmp_path: Path) -> None:
    ((row,), refused) = read_results([table(tmp_path / "mine.csv", {})], {})
    assert not refused
    numbers = ("model_size_b", "context_tokens", "bits_k", "bits_v", "bits_effective", "group_size", "residual_tokens")
    expected: dict[str, Any] = {name: float(ROW[name]) if name in numbers else ROW[name] for name in COLUMNS}
    expected |= {"task_class": "retrieval_hard", "retention_ratio": None, "baseline": 98.0, "score": 73.5}
    assert row.columns() == expected | {"higher_is_better": 1, "relative_loss": 0.25}
    assert (row.tier, row.table, row.question, row.metric) == ("hard", "kv_quant", "", "")


def test_optional_columns_may_be_missing_or_blank(tmp_path: Path) -> None:
    few = ("model", "method", "benchmark", "bits_k", "bits_v", "baseline", "score", "task_class")
    path = table(tmp_path / "few.csv", {"task_class": "reasoning", "benchmark": "our sums"}, columns=few)
    ((row,), _) = read_results([path], {"context": "8192", "notes": "mine"})
    assert (row.id, row.subtask, row.context_tokens, row.notes) == (f"{path}, line 2", "our sums", 8192, "mine")
    assert (row.relative_loss, row.model_size_b, row.source) == (0.25, 8, f"{path}, line 2")
    ((row,), _) = read_results([table(tmp_path / "b.csv", {"relative_loss": "", "model": ""})], {"model": "Other-70B"})
    assert (row.relative_loss, row.model) == (0.25, "Other-70B")


def test_perplexity_rises(tmp_path: Path) -> None:
    rise = {"benchmark": "WikiText2", "subtask": "ppl", "task_class": "perplexity", "baseline": "5", "score": "6"}
    for changed in ({"higher_is_better": "0"}, {"higher_is_better": ""}):
        ((row,), _) = read_results([table(tmp_path / "a.csv", rise | changed | {"relative_loss": ""})], {})
        assert (row.task_class, row.relative_loss, row.higher_is_better) == ("perplexity", pytest.approx(0.2), False)
    assert "its class is perplexity" in refusals([table(tmp_path / "b.csv", rise | {"relative_loss": ""})], {})[0]


def test_a_row_without_baseline_takes_that_of_an_uncompressed_row(tmp_path: Path) -> None:
    blank = {"baseline": "", "relative_loss": ""}
    full = {"id": "F", "bits_k": "16", "bits_v": "16", "bits_effective": "", "score": "98"} | blank
    other = {"id": "A2", "retention_ratio": "0.5", "score": "49"} | blank
    rows, refused = read_results([table(tmp_path / "a.csv", blank, other), table(tmp_path / "b.csv", full)], {})
    assert not refused
    assert [(row.id, row.baseline, row.relative_loss, row.table) for row in rows] == [
        ("A1", 98, 0.25, "kv_quant"), ("A2", 98, 0.5, "kv_combined")
    ]  # fmt: skip
    assert f"baseline={tmp_path / 'b.csv'}, line 2" in rows[0].notes
    stated = {"baseline": str(tmp_path / "b.csv")}
    assert read_results([tmp_path / "a.csv"], stated)[0] == rows


def test_what_was_compressed_and_whether_the_question_was_known(tmp_path: Path) -> None:
    columns = (*COLUMNS, "question_visible")
    evicted = {"bits_k": "", "bits_v": "", "bits_effective": "", "retention_ratio": "0.5", "question_visible": "no"}
    noted = evicted | {"id": "A2", "question_visible": "", "notes": "subfamily=query_aware_score;question=visible"}
    rows, _ = read_results([table(tmp_path / "a.csv", evicted, noted, columns=columns)], {})
    assert [(row.table, row.question) for row in rows] == [("kv_evict", "hidden"), ("kv_evict", "visible")]
    effective = {"bits_k": "", "bits_v": ""}
    assert read_results([table(tmp_path / "a.csv", effective)], {})[0][0].table == "weight_quant"
    assert read_results([tmp_path / "a.csv"], {"table": "kv_quant"})[0][0].table == "kv_quant"
    assert read_results([table(tmp_path / "kv_quant.csv", effective)], {})[0][0].table == "kv_quant"
    assert read_results([table(tmp_path / "a.csv", {})], {"question_visible": "yes"})[0][0].question == "visible"


ROW_FAULTS: list[tuple[dict[str, str], str]] = [
    ({"score": "nan"}, "not a finite number"),
    ({"score": "inf"}, "not a finite number"),
    ({"score": "many"}, 'score is "many": give a number'),
    ({"score": ""}, 'score is "": give a number'),
    ({"score": "-1"}, "score is -1: it must be from 0"),
    ({"score": "735"}, "score is 735"),
    ({"baseline": "0", "relative_loss": ""}, "baseline is 0: a task that the uncompressed model cannot do"),
    ({"baseline": "-3", "relative_loss": ""}, "baseline is -3"),
    ({"baseline": "nan", "relative_loss": ""}, "baseline is not a finite number"),
    ({"baseline": "all"}, 'baseline is "all": give a number'),
    ({"baseline": ""}, "it has no baseline"),
    ({"relative_loss": "0.5"}, "relative_loss is 0.5, but 0.25 follows"),
    ({"score": "0.735", "relative_loss": ""}, "two scales"),
    ({"baseline": "0.98", "relative_loss": ""}, "two scales"),
    ({"bits_k": "0"}, "bits_k is \"0\": it must be a number from 1 to 32"),
    ({"bits_v": ""}, "bits_k and bits_v are not both stated"),
    ({"bits_k": "16", "bits_v": "16", "bits_effective": ""}, "nothing is compressed"),
    ({"bits_k": "", "bits_v": "", "bits_effective": ""}, "how much was compressed is not stated"),
    ({"retention_ratio": "50"}, "retention_ratio is"),
    ({"method": ""}, "method is not stated: give it with --method"),
    ({"model": ""}, "model is not stated: give it with --model"),
    ({"benchmark": ""}, "benchmark is blank"),
    ({"benchmark": "our tickets", "task_class": ""}, "is unknown"),
    ({"task_class": "speed"}, 'task_class "speed" is unknown'),
    ({"higher_is_better": "2"}, 'higher_is_better is "2"'),
    ({"higher_is_better": "0", "relative_loss": ""}, "its class is retrieval_hard"),
]  # fmt: skip


@pytest.mark.parametrize(("changed", "reason"), ROW_FAULTS)
def test_a_row_that_cannot_be_used_is_refused_and_others_stay(
    tmp_path: Path, changed: dict[str, str], reason: str
) -> None:
    good = {"id": "good", "benchmark": "GSM8K", "subtask": "CoT", "task_class": "reasoning"}
    path = table(tmp_path / "a.csv", changed, good)
    rows, refused = read_results([path], {})
    assert [row.id for row in rows] == ["good"]
    assert [each.name for each in refused] == [f"{path}, line 2"]
    assert any(reason in each for each in refused[0].reasons), refused


def test_a_collapse_is_no_other_scale(tmp_path: Path) -> None:
    """A score below 1 beside one of the same task above 1, or far from a hundredth of the baseline, is a score."""
    low = {"score": "0.98", "relative_loss": ""}
    rows, _ = read_results([table(tmp_path / "a.csv", low, {"id": "A2", "bits_k": "8"})], {})
    assert [row.score for row in rows] == [0.98, 73.5]
    ((row,), _) = read_results([table(tmp_path / "a.csv", low | {"score": "0"})], {})
    assert row.relative_loss == 1


def test_rows_that_are_there_already(tmp_path: Path) -> None:
    path = table(tmp_path / "a.csv", {}, {}, {"score": "70", "relative_loss": ""}, {"id": "A2", "notes": "seed 2"})
    rows, refused = read_results([path], {})
    assert [row.id for row in rows] == ["A1", "A2"]
    assert "it is there already" in refused[0].reasons[0]
    assert "an earlier row has the id A1" in refused[1].reasons[0]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("benchmark,model,method\nRULER,a,b\n", r"column score is missing.*give the columns"),
        ("scores,model,method,subtask\n1,a,b,c\n", r"column score is missing \(did you mean scores"),
        ("a,b\n1,2\n", "format is not known"),
        ("id,model,benchmark,score\n", "no lines below its first"),
        ("", "is empty"),
        ("words and nothing else", "no lines below"),
    ],
)
def test_a_table_that_is_none(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(InputError, match=fault) as error:
        read_results([path], {})
    assert all(each.startswith(str(path)) for each in error.value.faults)


def test_a_table_of_latin_1_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("benchmark,score,model,größe\n".encode("latin-1"))
    with pytest.raises(InputError, match="no UTF-8 text"):
        read_results([path], {})
    path.write_bytes(b"\xef\xbb\xbf" + table(tmp_path / "b.csv", {}).read_bytes())
    assert read_results([path], {})[0]


# --- lm-evaluation-harness ---


def test_one_configuration_and_its_baseline(tmp_path: Path) -> None:
    baseline = harness(tmp_path / "results_0.json", GSM8K)
    path = harness(tmp_path / "results_1.json", WORSE)
    stated = {**INT4, "baseline": str(baseline), "family": "naive", "context": "2048", "group_size": "32"}
    ((row,), refused) = read_results([path, baseline], stated)
    assert not refused
    assert row == QualityCells(
        id=f"{path}: gsm8k", method="our int4", family="naive", model=MODEL, model_size_b=8, benchmark="gsm8k",
        subtask="gsm8k", task_class="reasoning", context_tokens=2048, bits_k=4, bits_v=4, bits_effective=None,
        group_size=32, residual_tokens=None, retention_ratio=None, baseline=0.8, score=0.6, higher_is_better=True,
        relative_loss=pytest.approx(0.25), source=str(path), notes=f"baseline={baseline}: gsm8k",
        metric="exact_match,flexible-extract", table="kv_quant",
    )  # fmt: skip
    ((row,), _) = read_results([path], {**stated, "metric": "exact_match,strict-match"})
    assert (row.metric, row.relative_loss) == ("exact_match,strict-match", pytest.approx(0.2))


def test_the_type_of_a_served_cache_is_read_and_the_file_without_one_is_the_baseline(tmp_path: Path) -> None:
    paths = [harness(tmp_path / "results_0.json", GSM8K, {"pretrained": MODEL, "kv_cache_dtype": "auto"})]
    paths.append(harness(tmp_path / "results_1.json", WORSE, f"pretrained={MODEL},kv_cache_dtype=fp8_e5m2,tp=1"))
    ((row,), _) = read_results(paths, {})
    assert (row.method, row.bits_k, row.bits_v, row.baseline) == ("fp8_e5m2", 8, 8, 0.8)
    ((row,), _) = read_results(paths, {"method": "KV fp8", "baseline": str(paths[0])})
    assert (row.method, "its file says method=fp8_e5m2" in row.notes) == ("KV fp8", True)
    assert "bits_k is 8.0 in the file and 4.0 by --bits-k" in refusals(
        paths, {"bits_k": "4", "bits_v": "4", "baseline": str(paths[0])}
    )[0]  # fmt: skip
    assert "named as baseline, but method=fp8_e5m2" in refusals(paths, {"baseline": str(paths[1])})[0]


def test_ruler_by_length_and_its_group(tmp_path: Path) -> None:
    def ruler(score: float) -> dict[str, object]:
        lengths = {"4096,none": score, "4096_stderr,none": "N/A", "8192,none": -1, "16384,none": score / 2}
        names = ("niah_single_1", "niah_multikey_3", "ruler_vt", "ruler_qa_hotpot", "ruler")
        return {name: {"alias": name, **lengths} for name in names}

    members = {"ruler": ["niah_single_1", "niah_multikey_3", "ruler_vt", "ruler_qa_hotpot"]}
    baseline = harness(tmp_path / "b.json", ruler(1.0), group_subtasks=members)
    path = harness(tmp_path / "a.json", ruler(0.5), group_subtasks=members)
    rows, refused = read_results([path], {"baseline": str(baseline), "method": "SnapKV", "retention": "0.25"})
    assert not refused
    found = [(row.benchmark, row.subtask, row.context_tokens, row.task_class, row.tier) for row in rows]
    expected = [
        ("niah_single_1", "retrieval_easy", "easy"), ("niah_multikey_3", "retrieval_hard", "hard"),
        ("vt", "retrieval_easy", "tracing"), ("qa_2", "aggregate", ""),
    ]  # fmt: skip
    assert found == [
        ("RULER", name, length, task, within) for name, task, within in expected for length in (4096, 16384)
    ]
    assert {(row.retention_ratio, row.table, row.relative_loss) for row in rows} == {(0.25, "kv_evict", 0.5)}


def test_a_group_of_one_class_stands_for_its_tasks(tmp_path: Path) -> None:
    names = ("mmlu", "mmlu_stem", "mmlu_physics", "longbench", "longbench_lcc", "longbench_qmsum")
    scores = {name: {"alias": name, "acc,none" if "mmlu" in name else "score,none": 0.5} for name in names}
    members = {
        "mmlu": ["mmlu_stem"], "mmlu_stem": ["mmlu_physics"], "longbench": ["longbench_lcc", "longbench_qmsum"]
    }  # fmt: skip
    baseline = harness(tmp_path / "b.json", scores, group_subtasks=members)
    path = harness(tmp_path / "a.json", scores, group_subtasks=members)
    rows, _ = read_results([path], {**INT4, "baseline": str(baseline)})
    assert [(row.benchmark, row.subtask, row.task_class) for row in rows] == [
        ("mmlu", "mmlu", "aggregate"), ("LongBench", "lcc", "code"), ("LongBench", "qmsum", "summarisation")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("task", "metrics", "metric", "higher"),
    [
        ("hellaswag", {"acc,none": 0.5, "acc_norm,none": 0.6, "acc_norm_stderr,none": 0.1}, "acc_norm,none", True),
        ("wikitext", {"word_perplexity,none": 9.0, "byte_perplexity,none": 1.5}, "word_perplexity,none", False),
        ("lambada_openai", {"perplexity,none": 3.0, "acc,none": 0.7}, "acc,none", True),
        ("humaneval", {"pass@1,create_test": 0.4}, "pass@1,create_test", True),
        ("longbench_qasper", {"qa_f1_score,none": 0.4}, "qa_f1_score,none", True),
        ("hellaswag", {"acc": 0.5, "acc_norm": 0.6, "acc_norm_stderr": 0.1}, "acc_norm,none", True),
        ("drop", {"odd_score,none": 0.3, "alias": "x"}, "odd_score,none", True),
    ],
)
def test_one_metric_of_each_task(
    tmp_path: Path, task: str, metrics: dict[str, object], metric: str, higher: bool
) -> None:
    direction = {task: {"odd_score": True}}
    files = [harness(tmp_path / f"{i}.json", {task: metrics}, higher_is_better=direction) for i in (0, 1)]
    ((row,), _) = read_results(files[:1], {**INT4, "baseline": str(files[1])})
    assert (row.metric, row.higher_is_better) == (metric, higher)


HARNESS_FAULTS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    ({"results": {"gsm8k": {"exact_match,none": math.nan}}}, {}, "not a finite number"),
    ({"results": {"gsm8k": {"exact_match,none": "N/A"}}}, {}, "not a finite number"),
    ({"results": {"gsm8k": {"exact_match,none": [1]}}}, {}, "not a finite number"),
    ({"results": {"gsm8k": {"alias": "gsm8k"}}}, {}, "it has no metric: groups"),
    ({"results": {"gsm8k": {"odd,none": 1, "other,none": 2}}}, {}, "state one of odd,none, other,none"),
    ({"results": {"gsm8k": {"exact_match,none": 0.1}}}, {"metric": "acc"}, "it has no metric acc: it has exact_match"),
    ({"results": {"gsm8k": 0.5}}, {}, "it is 0.5, not an object"),
    ({"results": {"niah_single_1": {"4096,none": -1}}}, {}, "no context length was run"),
    ({"results": {"our_task": {"acc,none": 0.5}}}, {}, "it has no baseline"),
    ({"n-samples": {"gsm8k": {"original": 1319, "effective": 100}}}, {}, "samples 100, the baseline 1319"),
    ({"n-shot": {"gsm8k": 0}}, {}, "few-shot examples 0, the baseline 5"),
    ({"chat_template_sha": "abc"}, {}, "chat template abc, the baseline none"),
    ({"config": {"model_args": f"pretrained={MODEL},quantization=awq"}}, {}, "weights quantization=awq, the base"),
    ({"config": {"model_args": "pretrained=mine/Llama-8B-AWQ"}}, {}, f"there is one of model {MODEL.lower()}"),
]


@pytest.mark.parametrize(("changed", "stated", "reason"), HARNESS_FAULTS)
def test_results_that_are_refused(tmp_path: Path, changed: dict[str, Any], stated: dict[str, str], reason: str) -> None:
    baseline = harness(tmp_path / "b.json", GSM8K)
    path = harness(tmp_path / "a.json", **{"results": WORSE, **changed})
    assert any(reason in each for each in refusals([path], {**INT4, "baseline": str(baseline), **stated}))


def test_weights_may_differ_from_the_baseline_where_they_are_what_was_compressed(tmp_path: Path) -> None:
    baseline = harness(tmp_path / "b.json", GSM8K)
    path = harness(tmp_path / "a.json", WORSE, "pretrained=mine/Llama-8B-AWQ,quantization=awq")
    stated = {"method": "AWQ", "bits_effective": "4.25", "model": MODEL, "baseline": str(baseline)}
    ((row,), _) = read_results([path], stated)
    assert (row.table, row.model, "its file says model=mine/Llama-8B-AWQ" in row.notes) == ("weight_quant", MODEL, True)


def test_unknown_tasks_need_a_class(tmp_path: Path) -> None:
    files = [harness(tmp_path / f"{i}.json", {"our_task": {"acc,none": 0.5}}) for i in (0, 1)]
    stated = {**INT4, "baseline": str(files[1])}
    assert "known are tasks of RULER" in refusals(files[:1], stated)[0]
    assert read_results(files[:1], {**stated, "task_class": "aggregate"})[0][0].task_class == "aggregate"


def test_nothing_stated_of_two_harness_files_is_a_fault(tmp_path: Path) -> None:
    files = [harness(tmp_path / "a.json", GSM8K), harness(tmp_path / "b.json", GSM8K)]
    with pytest.raises(InputError, match="no file holds a compressed result.*--bits-k.*--baseline"):
        read_results(files, {})
    assert "how much was compressed is not stated" in " ".join(refusals(files, {"method": "int4"}))


def test_an_empty_result_of_the_harness(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="results is empty"):
        read_results([harness(tmp_path / "a.json", {})], INT4)


# --- kvpress ---


def test_a_press_beside_no_press(tmp_path: Path) -> None:
    kvpress(tmp_path, RULER)
    scores = snap(tmp_path)
    rows, refused = read_results([tmp_path], {})
    assert not refused
    assert {row.subtask: row.score for row in rows} == scores
    hard = rows[1]
    assert (hard.method, hard.model, hard.context_tokens, hard.retention_ratio) == ("snapkv", MODEL, 4096, 0.5)
    assert (hard.task_class, hard.relative_loss, hard.question, hard.table) == (
        "retrieval_hard",
        0.5,
        "hidden",
        "kv_evict",
    )
    assert read_results([tmp_path], {"bits_k": "4", "bits_v": "4"}) != (rows, [])


def test_a_question_that_was_compressed_too_was_visible(tmp_path: Path) -> None:
    kvpress(tmp_path, RULER)
    kvpress(tmp_path, RULER, "snapkv", 0.9, query_aware="true")
    rows, _ = read_results([tmp_path], {})
    assert {(row.question, round(row.retention_ratio or 0, 9)) for row in rows} == {("visible", 0.1)}


def test_the_folder_name_is_enough_and_a_config_is_more_exact(tmp_path: Path) -> None:
    full, path = kvpress(tmp_path, RULER), kvpress(tmp_path, RULER, "snapkv", 0.875)
    rows, _ = read_results([path, full], {})
    assert {row.retention_ratio for row in rows} == {0.125}
    for each in (full, path):
        (each / "config.yaml").unlink()
    named = path.rename(path.with_name(path.name + "__query_aware"))
    rows, _ = read_results([named, full], {})
    assert {(row.retention_ratio, row.question, row.context_tokens) for row in rows} == {(0.12, "visible", 4096)}
    bare = write_json(tmp_path / "elsewhere" / "metrics.json", RULER)
    with pytest.raises(InputError, match="neither config.yaml beside it nor its folder's name"):
        read_results([bare], {})


def test_a_repeated_run_lies_within_and_is_there_already(tmp_path: Path) -> None:
    kvpress(tmp_path, RULER)
    snap(tmp_path)
    again = kvpress(tmp_path, RULER, "snapkv", 0.5)
    assert again.name == "1"
    rows, refused = read_results([tmp_path], {})
    assert len(rows) == len(refused) == 3
    other = kvpress(tmp_path, {"niah_single_1": {"string_match": 50.0}})
    _, refused = read_results([tmp_path], {})
    assert any("a second baseline" in reason and str(other) in each.name for each in refused for reason in each.reasons)


def test_single_files_of_the_first_versions(tmp_path: Path) -> None:
    name = MODEL.replace("/", "--")
    full = write_json(tmp_path / f"ruler__4096__{name}__snapkv__0.0.json", RULER)
    path = write_json(tmp_path / f"ruler__4096__{name}__snapkv__0.25__compressed_questions.json", RULER)
    rows, _ = read_results([path, full], {})
    assert {(row.method, row.retention_ratio, row.question) for row in rows} == {("snapkv", 0.75, "visible")}
    loogle = {"shortdep_qa": {"bleu1": 0.2, "rouge-1": 0.4}}
    files = [write_json(tmp_path / f"loogle____{name}__{press}.json", loogle) for press in ("knorm__0.5", "knorm__0")]
    ((row,), _) = read_results(files, {})
    assert (row.benchmark, row.subtask, row.score) == ("LooGLE", "shortdep_qa", pytest.approx(0.3))


ROUGE = {"rouge-1": {"r": 1.0, "p": 0.5, "f": 0.5}}
SHAPES: list[tuple[str, str, object, list[tuple[str, str, float]]]] = [
    ("longbench", "qasper", 41.5, [("LongBench", "qasper", 41.5)]),
    (
        "longbench-e", "qasper_e", {"0-4k": 41.5, "4-8k": 38.0},
        [("LongBench-E", "qasper_e 0-4k", 41.5), ("LongBench-E", "qasper_e 4-8k", 38.0)],
    ),
    ("longbench-v2", "", {"average": 0.31, "easy": 0.4, "long": 0.2}, [("LongBench-v2", "average", 0.31)]),
    ("longbench-v2", "", 0.31, [("LongBench-v2", "LongBench-v2", 0.31)]),
    ("infinitebench", "kv_retrieval", 0.53, [("InfiniteBench", "kv_retrieval", 0.53)]),
    ("loogle", "longdep_qa", {"longdep_qa": {"bleu1": 0.1, "bert": 0.9}}, [("LooGLE", "longdep_qa", 0.5)]),
    ("aime25", "", {"correct": 12, "answered": 28, "accuracy": 0.4, "total": 30}, [("AIME25", "AIME25", 0.4)]),
    ("math500", "", {"correct": 1, "answered": 2, "accuracy": 0.5, "total": 2}, [("MATH-500", "MATH-500", 0.5)]),
    ("needle_in_haystack", "", [ROUGE, ROUGE], [("NIAH", "single", 0.5)]),
]  # fmt: skip


@pytest.mark.parametrize(("dataset", "data_dir", "metrics", "expected"), SHAPES)
def test_metrics_of_each_dataset(
    tmp_path: Path, dataset: str, data_dir: str, metrics: object, expected: list[tuple[str, str, float]]
) -> None:
    kvpress(tmp_path, metrics, dataset=dataset, data_dir=data_dir)
    kvpress(tmp_path, metrics, "knorm", 0.5, dataset=dataset, data_dir=data_dir)
    rows, refused = read_results([tmp_path], {})
    assert not refused
    assert [(row.benchmark, row.subtask, row.score) for row in rows] == expected
    assert {row.relative_loss for row in rows} == {0}


def test_ratios_that_are_known_after_the_run(tmp_path: Path) -> None:
    kvpress(tmp_path, RULER)
    path = kvpress(tmp_path, RULER, "kvzap_mlp", 0.5)
    config = (path / "config.yaml").read_text().replace("compression_ratio: 0.5\n", "threshold: -4.0\n", 1)
    (path / "config.yaml").write_text(config)
    (path / "predictions.csv").write_text('predicted_answer,compression_ratio\n"a\nb",0.6\nc,0.8\n')
    rows, _ = read_results([tmp_path], {})
    assert {round(row.retention_ratio or 0, 9) for row in rows} == {0.3}
    (path / "predictions.csv").write_text("predicted_answer\na\n")
    assert "keep predictions.csv beside it, or state the retention" in refusals([tmp_path], {})[0]
    rows, _ = read_results([tmp_path], {"retention": "0.4"})
    assert {row.retention_ratio for row in rows} == {0.4}


KVPRESS_REFUSALS: list[tuple[str, float, dict[str, Any], dict[str, str], str]] = [
    ("think", 0.5, {"channels": 0.5}, {}, "channels of the keys were removed"),
    ("snap_think", 0.5, {"channels": 0.5}, {}, "channels of the keys were removed"),
    ("decoding_knorm", 0.0, {}, {}, "decoding_knorm keeps a number of tokens"),
    ("snapkv", 0.5, {"fraction": 0.1}, {}, "fraction 0.1, the baseline 1"),
    ("snapkv", 0.5, {"fp8": "true"}, {}, "weights fp8, the baseline as they are"),
    ("snapkv", 0.5, {"data_dir": "8192"}, {}, "there are some of context 4096.0, this has 8192.0"),
    ("snapkv", 0.5, {}, {"retention": "0.4"}, "retention_ratio is 0.5 in the file and 0.4 by --retention"),
]


@pytest.mark.parametrize(("press", "ratio", "changed", "stated", "reason"), KVPRESS_REFUSALS)
def test_runs_that_are_refused(
    tmp_path: Path, press: str, ratio: float, changed: dict[str, Any], stated: dict[str, str], reason: str
) -> None:
    kvpress(tmp_path, RULER)
    kvpress(tmp_path, RULER, press, ratio, **changed)
    assert all(reason in each for each in refusals([tmp_path], stated))


@pytest.mark.parametrize(
    ("metrics", "changed", "fault"),
    [
        ({}, {"dataset": "zero_scrolls"}, "holds no score of zero_scrolls"),
        ({}, {}, "holds no score of ruler"),
        (RULER, {"dataset": "mine"}, 'dataset "mine" is unknown'),
        (41.0, {"dataset": "longbench", "data_dir": ""}, "which task of longbench"),
        (RULER, {"ratio": 1.5}, 'compression_ratio is "1.5"'),
        (RULER, {"ratio": -0.5}, 'compression_ratio is "-0.5"'),
        (RULER, {"model": "null"}, "model is not stated in config.yaml"),
    ],
)
def test_a_run_that_is_none(tmp_path: Path, metrics: object, changed: dict[str, Any], fault: str) -> None:
    path = kvpress(tmp_path, metrics, **{"press": "snapkv", "ratio": 0.5, **changed})
    with pytest.raises(InputError, match=fault) as error:
        read_results([path], {})
    assert all(each.startswith(str(path)) for each in error.value.faults)


def test_a_press_on_a_quantized_cache_is_both_and_no_press_is_quantized(tmp_path: Path) -> None:
    folder = tmp_path / "int4"
    kvpress(folder, RULER)
    snap(folder)
    stated = {"method": "int4", "bits_k": "4", "bits_v": "4", "baseline": str(kvpress(tmp_path / "full", RULER))}
    rows, refused = read_results([folder], stated)
    assert not refused
    assert [(row.table, row.retention_ratio, row.bits_k) for row in rows[::3]] == [
        ("kv_quant", None, 4), ("kv_combined", 0.5, 4)
    ]  # fmt: skip
    assert "its file says method=snapkv" in rows[-1].notes


# --- whatever the format ---


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        ({"bits": "4"}, r'"bits" cannot be stated \(did you mean bits_'),
        ({"bits_k": "four", "bits_v": "4"}, '--bits-k is "four": it must be a number from 1 to 32'),
        ({"bits_k": "4"}, "state bits_k and bits_v together"),
        ({"retention": "50"}, "--retention is"),
        ({"retention": "nan"}, "--retention is"),
        ({"question_visible": "maybe"}, "question_visible is .maybe.: write yes or no"),
        ({"table": "kv"}, "--table is .kv.: use one of kv_quant"),
    ],
)
def test_a_statement_that_says_nothing_is_refused(tmp_path: Path, stated: dict[str, str], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        read_results([table(tmp_path / "a.csv", {})], stated)


def test_statements_of_every_option_are_taken(tmp_path: Path) -> None:
    words = {name: "4" for name in OPTIONS} | {
        "table": "kv_quant", "question_visible": "no", "baseline": str(table(tmp_path / "b.csv", {})),
        "retention": "0.5", "task_class": "code", "metric": "acc",
    }  # fmt: skip
    columns = ("benchmark", "score", "baseline", "relative_loss", "higher_is_better")
    rows, _ = read_results([table(tmp_path / "a.csv", {}, columns=columns)], words)
    assert [(row.method, row.question, row.retention_ratio) for row in rows] == [("4", "hidden", 0.5)]


def test_files_that_are_not_there_and_faults_of_all_files(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    broken = tmp_path / "results_1.json"
    broken.write_text('{"results": ')
    paths = [tmp_path / "empty", tmp_path / "none.csv", Path("a\0b"), broken]
    with pytest.raises(InputError) as error:
        read_results(paths, {})
    words = ("folder without results", "no such file", "\0", "broken JSON")
    assert all(any(word in fault for fault in error.value.faults) for word in words)
    with pytest.raises(InputError, match="no file is named"):
        read_results([], {})
    with pytest.raises(InputError, match="no such file"):
        read_results([table(tmp_path / "a.csv", {})], {"baseline": str(tmp_path / "none")})


ODD_VALUES = [None, "", "x\0", [], {}, [[]], True, -1, 0, 1e308, math.nan, 10**400]


def mangled(fields: Any, value: object) -> Iterator[Any]:
    """Copies of a result with one of its values, at any depth, changed."""
    places = fields.items() if isinstance(fields, dict) else enumerate(fields) if isinstance(fields, list) else ()
    for place, inner in places:
        for other in (value, *mangled(inner, value)):
            copy = fields.copy()
            copy[place] = other
            yield copy


@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: repr(value)[:9])
def test_no_value_of_no_field_is_a_traceback(tmp_path: Path, value: object) -> None:
    members = {"group_subtasks": {"mmlu": ["mmlu_stem"], "gsm8k": []}}
    results = {**WORSE, "mmlu": {"acc,none": 0.5}, "mmlu_stem": {"acc,none": 0.5}, "niah_single_1": {"4096,none": 1}}
    good = json.loads(harness(tmp_path / "good.json", results, **members).read_text())
    path, baseline = tmp_path / "a.json", str(harness(tmp_path / "b.json", results))
    for fields in mangled(good, value):
        path.write_text(json.dumps(fields))
        outcome(path, {**INT4, "baseline": baseline}, path)
    folder = kvpress(tmp_path, RULER, "snapkv", 0.5)
    full = str(kvpress(tmp_path, RULER))
    for metrics in (value, *mangled(RULER, value), *mangled([ROUGE], value)):
        write_json(folder / "metrics.json", metrics)
        outcome(folder, {"baseline": full}, folder)


def outcome(path: Path, stated: Mapping[str, str], named: Path) -> None:
    try:
        rows, refused = read_results([path], stated)
    except InputError as error:
        rows, refused = [], []
        faults = error.faults
    else:
        faults = ()
    assert all(fault.startswith(str(named)) or "no file holds" in fault for fault in faults)
    assert all(math.isfinite(row.relative_loss) for row in rows)
    assert all(isinstance(each, Refusal) and each.reasons for each in refused)

"""`kvwall validate ROWS.csv --capacity` on rows of real start-up logs, copied by hand, and on broken files.

`tests/data/engine_rows.csv`: facts posted publicly; each row names its source.
"""

from __future__ import annotations

import csv
import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from kvwall.spaces.errors import Faults, InputError, NothingAdmissible
from kvwall.sweep import capacity_cells
from kvwall.sweep.capacity_law import predict
from kvwall.sweep.capacity_rows import read_rows, row_of
from kvwall.sweep.cli import run
from kvwall.sweep.validate_capacity import compare, validate_capacity

ROWS = Path(__file__).parent / "data" / "engine_rows.csv"
GIB = 2**30


def cells_of(name):
    with ROWS.open(newline="") as stream:
        return next(row for row in csv.DictReader(stream) if row["id"] == name)


def written(path, rows, columns=None):
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, columns or rows[0].keys(), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.fixture(scope="module")
def report():
    return validate_capacity(ROWS)


def found(report, name, quantity):
    return next(each for each in report.predictions if (each.id, each.quantity) == (name, quantity))


def test_bytes_per_token_come_from_the_layout(report):
    counted = [each for each in report.predictions if each.quantity == "bytes_per_token" and each.counted]
    assert len(counted) >= 20
    assert all(abs(each.relative) < 0.005 for each in counted)
    assert found(report, "LP10", "bytes_per_token").predicted == 70 * 8192
    assert found(report, "SG25", "bytes_per_token").predicted == 61_464
    assert found(report, "LC12", "bytes_per_token").predicted == 61 * 576 * 34 / 32
    assert found(report, "LC01", "bytes_per_token").predicted == found(report, "LC02", "bytes_per_token").predicted
    assert found(report, "TR09", "bytes_per_token").predicted == 73_728
    assert found(report, "CB02", "bytes_per_token").predicted == pytest.approx(24_875.2, abs=0.1)


def test_pools_from_logged_parts_close(report):
    closed = [each for each in report.predictions if each.quantity == "kv_pool_bytes_given_parts"]
    assert {each.labels["engine"] for each in closed} == {"vLLM", "SGLang", "TensorRT-LLM"}
    assert all(abs(each.predicted - each.measured) < 0.05 * GIB for each in closed)


def test_pools_from_what_is_known_beforehand_are_near(report):
    names = "LP02 LP10 LP18 LP21 LP26 LP27 LP56 LB05 VD001 VD006 VD025 VD078 VD117 VD121 CB03 SG01 TR03"
    for name in names.split():
        assert abs(found(report, name, "kv_pool_bytes").relative) < 0.04, name


def test_concurrency_is_blocks_over_blocks_of_a_request(report):
    counted = [each for each in report.predictions if each.quantity == "max_concurrency" and each.counted]
    assert len(counted) >= 15
    assert all(abs(each.relative) < 0.01 for each in counted)


def test_starts_that_failed_are_refused(report):
    verdicts = [each for each in report.predictions if each.quantity == "refusal"]
    assert {each.id for each in verdicts if each.predicted} == {"VI02", "VI20", "VI21"}
    assert all(each.measured == each.predicted for each in verdicts)


def test_a_negative_pool_is_no_pool_to_compare(report):
    assert [each.quantity for each in report.predictions if each.id == "VI21"] == ["refusal"]


def test_rows_meant_as_context_or_of_trust_c_are_not_counted(report):
    with ROWS.open(newline="") as stream:
        weak = {row["id"] for row in csv.DictReader(stream) if row["trust"] == "C" or row["usable_for"] == "context"}
    assert weak
    assert not any(each.counted for each in report.predictions if each.id in weak)


def test_rows_left_out_say_why(report):
    reasons = {each["id"]: each["reason"] for each in report.refused}
    assert "is not in the catalogue" in reasons["VX21"]
    assert "posts no pool" in reasons["VX28"]


def test_the_summary_has_errors_by_quantity(report):
    answer = report.to_json()
    assert set(answer["overall"]) >= {"n", "mape", "median_ape", "bias", "coverage"}
    by = {group["by"]["quantity"]: group for group in answer["groups"] if set(group["by"]) == {"quantity"}}
    assert by["refusal"]["caught"] == by["refusal"]["refused"] == 3
    assert by["kv_pool_bytes_given_parts"]["largest_gap"] < 0.05 * GIB
    assert answer["overall"]["n"] == sum(group["n"] for name, group in by.items() if name != "refusal")
    assert 0 < answer["overall"]["coverage"] < 1


def test_a_wrong_pool_is_noticed(tmp_path):
    cells = cells_of("LP18") | {"kv_pool_GiB": "70"}
    report = validate_capacity(written(tmp_path / "rows.csv", [cells]))
    assert found(report, "LP18", "kv_pool_bytes_given_parts").relative < -0.1
    assert found(report, "LP18", "bytes_per_token").predicted == 131_072
    assert found(report, "LP18", "bytes_per_token").measured > 150_000


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"tp": "two"}, "tp = 'two' is not a finite number"),
        ({"tp": "0"}, "tp = 0 is no whole number from 1"),
        ({"tp": "1.5"}, "tp = 1.5 is no whole number"),
        ({"mem_fraction": "1.7"}, "mem_fraction = 1.7 is above 1"),
        ({"mem_fraction": "nan"}, "mem_fraction = 'nan' is not a finite number"),
        ({"weights_GiB": "-3"}, "weights_GiB = -3 is not above zero"),
        ({"kv_tokens": "inf"}, "kv_tokens = 'inf' is not a finite number"),
        ({"engine": "vlm"}, 'engine "vlm" is unknown (did you mean vllm'),
        ({"engine_version": "fork"}, "rules of a fork are not known"),
        ({"engine": ""}, 'engine "" is unknown'),
        ({"model": ""}, "model is blank"),
        ({"model": "Qwen3-Giant"}, 'model "Qwen3-Giant" is not in the catalogue'),
        ({"model": "deepseek-ai/DeepSeek-V4-Pro", "weight_dtype": ""}, "compressed caches is not modelled"),
        ({"weight_dtype": "ternary"}, 'weight format "ternary" is not known'),
        ({"kv_cache_dtype": "fp6"}, 'kv_cache_dtype "fp6" is not known'),
        ({"id": ""}, "id is blank"),
        ({"max_concurrency": "1e-308"}, "max_concurrency = 1e-308 is not from 1e-06 to 1e+09"),
        ({"kv_pool_GiB": "1e-308"}, "kv_pool_GiB = 1e-308 is not from 1e-06 to 1e+06"),
        ({"kv_pool_GiB": "-1e300"}, "kv_pool_GiB = -1e+300 is not from 1e-06 to 1e+06 without its sign"),
        ({"max_model_len": "0.5"}, "max_model_len = 0.5 is not from 1 to"),
        ({"gpu": "H100 (0 GiB)"}, "0 GiB is no memory of a device"),
        ({"draft_tokens": "-3"}, "draft_tokens = -3 is no whole number from 0 to 64"),
        ({"draft_tokens": "1.5"}, "draft_tokens = 1.5 is no whole number"),
        ({"draft_tokens": "nan"}, "draft_tokens = 'nan' is not a finite number"),
        ({"draft_tokens": "three"}, "draft_tokens = 'three' is not a finite number"),
        ({"draft_tokens": "9" * 5000}, "is not a finite number"),
        ({"notes": "MTP " + "9" * 400}, "draft tokens in notes = inf is no whole number"),
        ({"model": "meta-llama/Meta-Llama-3.1-8B (sliding layers)"}, "it has no sliding layers: leave out"),
        ({"model": "mistralai/Mamba-Codestral-7B-v0.1 (full layers)"}, "it has no full layers: leave out"),
    ],
)
def test_a_row_that_cannot_be_used_says_why(tmp_path, change, reason):
    _, refused = read_rows(written(tmp_path / "rows.csv", [cells_of("LP18") | change]))
    assert len(refused) == 1
    assert reason in refused[0]["reason"]


def test_all_faults_of_a_row_are_named_at_once():
    wrong = {"tp": "x", "model": "Qwen3-Giant", "engine": "vlm", "gpu": "H100 (0 GiB)", "draft_tokens": "-1"}
    with pytest.raises(InputError) as caught:
        row_of(cells_of("LP18") | wrong)
    assert len(caught.value.faults) == 5


NUMERIC = (
    *("tp", "pp", "dp", "dcp", "mem_fraction", "max_model_len", "block_size", "max_num_seqs", "max_num_batched_tokens"),
    *("device_total_GiB", "avail_before_GiB", "avail_after_GiB", "weights_GiB", "activation_peak_GiB", "non_torch_GiB"),
    *("cuda_graph_GiB", "kv_pool_GiB", "kv_tokens", "max_concurrency", "bytes_per_token", "kv_elem_bytes"),
    "draft_tokens",
)
EXTREMES = (
    *("1e308", "-1e308", "1e-308", "5e-324", "inf", "nan"),
    *("1e18", "1e6", "4096", "64", "1", "0.5", "1e-6", "1e-9", "0", "-1"),
)


def test_no_number_of_a_cell_gives_an_infinity_or_a_warning(tmp_path, capsys):
    cells = cells_of("LP18")
    rows = [cells | {"id": f"{name} {text}", name: text} for name in NUMERIC for text in EXTREMES]
    file = written(tmp_path / "rows.csv", rows, dict.fromkeys([*cells, *NUMERIC]))
    assert run(["validate", str(file), "--capacity", "--json"]) == 0  # pytest makes a warning an error
    answer = json.loads(capsys.readouterr().out)
    assert all(math.isfinite(each["predicted"]) for each in answer["predictions"])
    assert math.isfinite(answer["overall"]["mape"])
    refused, used = ({each["id"] for each in answer[key]} for key in ("refused", "predictions"))
    for name in NUMERIC:
        assert {f"{name} 1e308", f"{name} -1e308", f"{name} 5e-324", f"{name} inf"} <= refused - used


def test_a_quantity_that_is_not_finite_is_left_out_with_a_reason():
    row = row_of(cells_of("LP18"))
    compared, reasons = compare(replace(row, logged=replace(row.logged, bytes_per_token=math.inf)))
    assert reasons == ["bytes_per_token: no finite number to compare"]
    assert "kv_pool_bytes" in {each.quantity for each in compared}
    assert "bytes_per_token" not in {each.quantity for each in compared}


def test_padding_a_model_changes_no_prediction():
    row = row_of(cells_of("LP18"))
    longer = replace(row.model, groups=(*row.model.groups, *[replace(row.model.groups[0], layers=0)] * 5))
    assert predict(row) == predict(replace(row, model=longer))


def test_a_repeated_id_is_used_once(tmp_path):
    rows, refused = read_rows(written(tmp_path / "rows.csv", [cells_of("LP18"), cells_of("LP18")]))
    assert len(rows) == 1
    assert "stands in an earlier row" in refused[0]["reason"]


def test_few_columns_are_enough(tmp_path):
    columns = ("id", "engine", "model", "kv_pool_GiB", "kv_tokens")
    report = validate_capacity(written(tmp_path / "rows.csv", [cells_of("LP18")], columns))
    assert {each.quantity for each in report.predictions} == {"bytes_per_token"}
    assert found(report, "LP18", "bytes_per_token").counted
    assert 'memory of the device "blank" is not known' in report.refused[0]["reason"]


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path):
    file = tmp_path / "rows.csv"
    file.write_bytes(b"\xef\xbb\xbf" + ROWS.read_bytes())
    assert len(read_rows(file)[0]) == len(read_rows(ROWS)[0])


@pytest.mark.parametrize("text", ["", "id\n", "a,b\n1,2\n", "id,engine\nX1,vLLM\n"])
def test_a_file_without_usable_rows_exits_3(tmp_path, text, capsys):
    file = tmp_path / "rows.csv"
    file.write_text(text)
    with pytest.raises(NothingAdmissible):
        validate_capacity(file)
    assert run(["validate", str(file), "--capacity"]) == 3
    assert "no row can be used" in capsys.readouterr().err


@pytest.mark.parametrize("content", [b"id,engine\n\xff\xfe,x\n", b'id,engine\n"a\x00b",vLLM\n'])
def test_a_file_of_bytes_is_a_message(tmp_path, content, capsys):
    file = tmp_path / "rows.csv"
    file.write_bytes(content)
    assert run(["validate", str(file), "--capacity"]) in (2, 3)
    assert "Traceback" not in capsys.readouterr().err


def test_a_missing_file_exits_2(tmp_path, capsys):
    assert run(["validate", str(tmp_path / "none.csv"), "--capacity"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_start_up_figures_are_not_taken_for_speeds(capsys):
    assert run(["validate", str(ROWS)]) == 2
    assert "give --capacity" in capsys.readouterr().err


def test_the_command_prints_one_object_or_a_table(capsys):
    assert run(["validate", str(ROWS), "--capacity", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"overall", "groups", "refused", "predictions"}
    assert {"id", "quantity", "measured", "predicted"} <= set(answer["predictions"][0])
    assert run(["validate", str(ROWS), "--capacity"]) == 0
    table = capsys.readouterr().out
    assert "kv_pool_bytes_given_parts" in table
    assert "Not used" in table


@pytest.mark.parametrize(
    ("words", "element", "weights", "bits"),
    [
        ("fp8", None, "", 8),
        ("bf16/fp16 (auto)", 2, "", 16),
        ("fp32 (auto)", 4, "float32", 32),
        ("auto", None, "float32", 32),
        ("auto", None, "nvfp4", 8),
        ("", None, "", 16),
        ("not seen", 1, "", 8),
        ("q8_0", 1.0625, "", 8.5),
        ("fp8 attention, fp16 recurrent", 1, "", 8),
        ("bf16 (auto), recurrent state fp16", 2, "", 16),
    ],
)
def test_cache_formats_in_words(words, element, weights, bits):
    assert capacity_cells.cache_bits(words, element, weights) == bits


def test_settings_in_columns_go_before_those_in_notes():
    cells = {"notes": "MTP 3 inferred; eager", "draft_tokens": "1", "enforce_eager": "false"}
    faults = Faults()
    assert capacity_cells.draft_tokens(cells, faults) == 1
    assert capacity_cells.draft_tokens({"notes": "MTP 3 inferred"}, faults) == 3
    assert capacity_cells.draft_tokens({"notes": "MTP 3", "draft_tokens": "2.0"}, faults) == 2
    assert not faults
    assert not capacity_cells.says(cells, "enforce_eager", r"\beager\b")
    assert capacity_cells.says({"notes": "eager"}, "enforce_eager", r"\beager\b")


def test_a_version_that_is_not_stated_is_told_by_its_count():
    cells = cells_of("CB02")
    assert row_of(cells).engine.name == "vllm-0.21"
    assert row_of(cells | {"kv_tokens": "46000"}).engine.name == "vllm-0.20"

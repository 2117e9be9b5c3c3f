"""Results of benchmark programs as measured rows: each sample gives exactly its rows, and each fault is named."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from kvwall.spaces.aliases import load_aliases
from kvwall.spaces.errors import InputError
from kvwall.sweep.measured import usable_row
from kvwall.sweep.measured_rows import METRIC_UNITS, MeasuredRow, read_rows
from kvwall.sweep.runs import OPTIONS, Runs, read_runs
from kvwall.sweep.runs.formats import FORMATS, format_of
from tests.counted_work import lines_run

SAMPLES = Path(__file__).parent / "samples" / "runs"
CHIP = {"hardware": "h100-sxm", "tp": "1"}
LLAMA, QWEN = "meta-llama/Llama-3.1-8B-Instruct", "Qwen/Qwen3-32B"
DEFAULTS = {
    "model": LLAMA, "hardware": "h100-sxm", "n_devices": 1, "tp": 1, "pp": None, "ep": None, "weight_precision": "",
    "kv_precision": "", "framework": "vLLM", "framework_version": "", "batch_kind": "concurrency", "notes": "",
}  # fmt: skip
LAW = "from completed requests, their latency and the duration"
BENCH = {
    "model": "Llama-3.1-8B-Instruct", "hardware": "NVIDIA GeForce RTX 4090", "weight_precision": "Q4_K_M",
    "kv_precision": "f16", "framework": "llama.cpp", "framework_version": "b6000", "batch_kind": "static_batch",
    "notes": "n_gpu_layers=-1",
}  # fmt: skip
PAIR = {**BENCH, "n_devices": 2, "notes": "n_gpu_layers=-1; layer split across GPUs"}
DEEPSEEK = {
    "model": "deepseek-ai/DeepSeek-R1", "n_devices": 8, "tp": 8, "pp": 1, "ep": 1, "weight_precision": "fp8",
    "framework": "SGLang", "framework_version": "0.5.3", "notes": "dp_attention=True",
}  # fmt: skip
LITTLE = {"n_devices": 2, "tp": 2, "framework_version": "0.11.0", "notes": f"mean concurrency 14.4, {LAW}"}
ROW = {"n_devices": None, "tp": None, "framework": "", "batch_kind": "", "model": "Llama-3.1-8B"}

Expected = tuple[str, str, float, tuple[int, int, int], Mapping[str, object]]
"""Place in the file, metric, value, (batch, input, output), and what differs from DEFAULTS."""

CASES: dict[str, tuple[dict[str, str], list[Expected], dict[str, str]]] = {
    "vllm_serve.json": (
        CHIP,
        [("", "tpot_ms", 36.0, (16, 1024, 256), {}), ("", "output_tokens_per_s_total", 409.6, (16, 1024, 256), {})],
        {},
    ),
    "vllm_serve_appended.json": (
        {"hardware": "h100-sxm", "tp": "2"},
        [
            ("#1", "tpot_ms", 36.0, (14, 1024, 256), LITTLE),
            ("#1", "output_tokens_per_s_total", 409.6, (14, 1024, 256), LITTLE),
        ],
        {"#2": "speculated", "#3": "ran at once is not known"},
    ),
    "vllm_latency.json": (
        {**CHIP, "model": LLAMA, "batch": "8", "input_tokens": "32", "output_tokens": "128"},
        [
            (
                "", "e2e_latency_ms", 2500.0, (8, 32, 128),
                {"batch_kind": "static_batch", "notes": "prefill time included"},
            )
        ],
        {},
    ),
    "sglang_serving.jsonl": (
        {"hardware": "NVIDIA H200", "tp": "8", "model": "deepseek-ai/DeepSeek-R1"},
        [
            ("#1", "tpot_ms", 44.0, (8, 2048, 128), {**DEEPSEEK, "hardware": "NVIDIA H200"}),
            ("#1", "output_tokens_per_s_total", 170.67, (8, 2048, 128), {**DEEPSEEK, "hardware": "NVIDIA H200"}),
            *(
                (
                    "#2", metric, value, (6, 2048, 128),
                    {
                        "model": "deepseek-ai/DeepSeek-R1", "hardware": "NVIDIA H200", "n_devices": 8, "tp": 8,
                        "framework": "SGLang", "notes": f"mean concurrency 6.4, {LAW}",
                    },
                )
                for metric, value in (("tpot_ms", 44.0), ("output_tokens_per_s_total", 170.67))
            ),
        ],
        {"#3": "accept_length"},
    ),
    "sglang_batch.jsonl": (
        {**CHIP, "model": LLAMA},
        [("#1", "tpot_ms", 12.5, (4, 1024, 128), {"framework": "SGLang", "batch_kind": "static_batch"})],
        {"#2": "no step of decode"},
    ),
    "aiperf.json": (
        CHIP,
        [
            ("", "tpot_ms", 15.0, (8, 1024, 256), {"model": QWEN, "framework": ""}),
            ("", "output_tokens_per_s_total", 510.0, (8, 1024, 256), {"model": QWEN, "framework": ""}),
        ],
        {},
    ),
    "genai_perf.json": (
        {**CHIP, "framework": "NVIDIA NIM", "kv_precision": "fp8"},
        [
            (
                "", metric, value, (8, 1024, 256),
                {
                    "model": QWEN, "framework": "NVIDIA NIM", "kv_precision": "fp8",
                    "notes": "mean concurrency 8, from the rate of requests and their latency",
                },
            )
            for metric, value in (("tpot_ms", 15.0), ("output_tokens_per_s_total", 510.0))
        ],
        {},
    ),
    "llama_bench.json": (
        {},
        [
            ("#2", "decode_tokens_per_s_per_user", 151.25, (1, 1, 128), PAIR),
            ("#3", "decode_tokens_per_s_per_user", 132.5, (1, 4096, 128), {**PAIR, "kv_precision": "q8_0"}),
        ],
        {"#1": "a test of a prompt"},
    ),
    "llama_bench.jsonl": (
        {},
        [
            (
                "", "decode_tokens_per_s_per_user", 20.5, (1, 1, 128),
                {**BENCH, "weight_precision": "Q8_0", "notes": "n_gpu_layers=20"},
            )
        ],
        {},
    ),
    "llama_bench.csv": (
        {},
        [("#2", "decode_tokens_per_s_per_user", 151.25, (1, 1, 128), BENCH)],
        {"#1": "a test of a prompt"},
    ),
    "rows.csv": (
        {"hardware": "h100-sxm"},
        [
            ("a-1", "tpot_ms", 12.5, (16, 1024, 256), ROW),
            ("a-2", "output_tokens_per_s_total", 1800.0, (32, 1024, 256), ROW),
        ],
        {"a-3": "prefill only"},
    ),
}  # fmt: skip


def expected_row(path: Path, case: Expected) -> MeasuredRow:
    place, metric, value, (batch, prompt, output), changed = case
    table = path.name == "rows.csv"
    return MeasuredRow(
        **{
            **DEFAULTS,
            **changed,
            "id": place if table else f"{path}{place} {metric}",
            "metric": metric,
            "value": value,
            "unit": METRIC_UNITS[metric],
            "batch_or_concurrency": batch,
            "input_tokens": prompt,
            "output_tokens": output,
            "source": "",
        }
    )


@pytest.mark.parametrize("name", CASES)
def test_each_sample_gives_exactly_its_rows(name: str) -> None:
    stated, rows, refused = CASES[name]
    path = SAMPLES / name
    found = read_runs([path], stated)
    assert [replace(row, source="") for row in found.rows] == [expected_row(path, case) for case in rows]
    assert all(row.source.startswith(str(path)) for row in found.rows if name != "rows.csv")
    prefix = "" if name == "rows.csv" else str(path)
    assert found.refused.keys() == {f"{prefix}{place}" for place in refused}
    for place, reason in refused.items():
        assert reason in " ".join(found.refused[f"{prefix}{place}"])


def test_every_sample_is_of_one_format_and_every_format_has_a_sample() -> None:
    assert {path.name for path in SAMPLES.glob("*.*") if path.suffix != ".md"} == set(CASES)
    seen = set()
    for path in SAMPLES.glob("*.json*"):
        text = path.read_text()
        fields = json.JSONDecoder().raw_decode(text)[0]
        fields = fields[0] if isinstance(fields, list) else fields
        assert [name for name, each in FORMATS.items() if each.keys <= fields.keys()] == [format_of(fields)]
        seen.add(format_of(fields))
    assert seen == set(FORMATS)


def test_rows_of_samples_are_designs_unless_something_is_amiss() -> None:
    aliases = load_aliases()
    for name, (stated, *_) in CASES.items():
        for row in read_runs([SAMPLES / name], {**stated, **({"n_devices": "1"} if name == "rows.csv" else {})}).rows:
            if name == "llama_bench.jsonl":
                with pytest.raises(InputError, match="only 20 of 32 layers"):
                    usable_row(row, aliases)
                continue
            usable = usable_row(row, aliases)
            assert usable.axes["batch"] == row.batch_or_concurrency
    deep = read_runs([SAMPLES / "llama_bench.json"], {}).rows[1]
    axes = usable_row(deep, aliases).axes
    assert axes == {
        "hardware": "rtx-4090", "model": "meta-llama/Meta-Llama-3.1-8B", "weight_bits": 4.8, "activation_bits": 16,
        "key_bits": 8.5, "value_bits": 8.5, "batch": 1, "context": 4096, "output_tokens": 128,
        "pipeline_parallel": 2,
    }  # fmt: skip
    shared = read_runs([SAMPLES / "sglang_serving.jsonl"], CASES["sglang_serving.jsonl"][0]).rows[0]
    axes = usable_row(shared, aliases).axes
    assert (axes["attention_data_parallel"], axes["weight_bits"], axes["activation_bits"]) == (8, "native", 8)


def test_formats_can_be_mixed() -> None:
    stated = {"hardware": "h100-sxm", "tp": "1", "model": "Llama-3.1-8B"}
    paths = [SAMPLES / name for name in ("vllm_serve.json", "sglang_batch.jsonl", "vllm_serve.json")]
    found = read_runs(paths, stated)
    assert [row.metric for row in found.rows] == ["tpot_ms", "output_tokens_per_s_total", "tpot_ms"]
    assert {row.model for row in found.rows} == {"Llama-3.1-8B"}


def test_everything_that_is_missing_is_named_with_its_option() -> None:
    with pytest.raises(InputError) as error:
        read_runs([SAMPLES / "vllm_latency.json", SAMPLES / "aiperf.json"], {})
    assert [fault.split("with ")[-1] for fault in error.value.faults] == [
        "--hardware", "--model", "--batch", "--input-tokens", "--output-tokens", "--n-devices or --tp",
        "--hardware", "--n-devices or --tp",
    ]  # fmt: skip
    assert "vllm_latency.json" in error.value.faults[0]
    assert "aiperf.json" in error.value.faults[-1]


@pytest.mark.parametrize(
    ("name", "stated", "both"),
    [
        ("vllm_serve.json", {"batch": "32"}, ("16", "32", "--batch")),
        ("vllm_serve.json", {"model": QWEN}, (LLAMA, QWEN, "--model")),
        ("llama_bench.json", {"hardware": "h100-sxm"}, ("NVIDIA GeForce RTX 4090", "h100-sxm", "--hardware")),
        ("llama_bench.json", {"kv_precision": "q4_0"}, ("f16", "q4_0", "--kv-precision")),
        ("llama_bench.json", {"weight_precision": "Q8_0"}, ("Q4_K_M", "Q8_0", "--weight-precision")),
        ("rows.csv", {"hardware": "l40s"}, ("row a-2", "h100-sxm", "l40s")),
    ],
)
def test_a_statement_against_the_file_names_both(name: str, stated: dict[str, str], both: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as error:
        read_runs([SAMPLES / name], {**({} if name.startswith(("llama", "rows")) else CHIP), **stated})
    assert any(all(word in fault for word in (name, *both)) for fault in error.value.faults)


def test_names_of_the_same_thing_do_not_contradict(tmp_path: Path) -> None:
    assert read_runs([SAMPLES / "llama_bench.json"], {"hardware": "rtx-4090", "kv_precision": ""}).rows
    assert read_runs([SAMPLES / "vllm_serve.json"], {**CHIP, "model": "meta-llama/Meta-Llama-3.1-8B"}).rows
    unknown = serve(tmp_path, model_id="our-assistant")
    (first, _) = read_runs([unknown], {**CHIP, "model": LLAMA}).rows
    assert first.model == LLAMA


@pytest.mark.parametrize(
    ("stated", "fault"),
    [
        ({"hardware": "h100sxm"}, "did you mean h100-sxm"),
        ({"model": "meta-llama/Llama-3.3-70B-Instrukt"}, "did you mean meta-llama/Llama-3.3-70B-Instruct"),
        ({"batch": "many"}, '--batch is "many"'),
        ({"tp": "0"}, '--tp is "0"'),
        ({"gpu": "x"}, '"gpu" cannot be stated'),
    ],
)
def test_a_statement_that_says_nothing_is_refused(stated: dict[str, str], fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        read_runs([SAMPLES / "vllm_serve.json"], stated)


def serve(folder: Path, **changed: Any) -> Path:
    """A copy of the sample of `vllm bench serve` with other fields; None leaves a field out."""
    fields = json.loads((SAMPLES / "vllm_serve.json").read_text()) | changed
    path = folder / "changed.json"
    path.write_text(json.dumps({name: value for name, value in fields.items() if value is not None}))
    return path


BROKEN: dict[str, tuple[bytes, str]] = {
    "broken JSON": (b'{"model_id": "x", ', "broken JSON"),
    "text after JSON": (b'{"model_id": "x"} and more', "broken JSON"),
    "empty": (b" \n", "is empty"),
    "empty list": (b"[]", "holds no result"),
    "a list of numbers": (b"[1, 2]", "not an object"),
    "UTF-16": ('{"model_id": "x"}'.encode("utf-16"), "no UTF-8 text"),
    "Latin-1 rows": ("id,metric,value,unit,größe\n".encode("latin-1"), "no UTF-8 text"),
    "deep": (b"[" * 200_000, "nested too deeply"),
    "long number": (b'{"model_id": ' + b"9" * 10_000 + b"}", "broken JSON"),
    "unknown": (b'{"throughput": 3}', "format is not known"),
    "prose": (b"Serving benchmark result\nTPOT 3 ms\n", "format is not known"),
    "header only": (b"id,metric,value,unit\n", "no lines"),
    "rows without columns": (b"id,metric,value,unit\n1,tpot_ms,3,ms\n", "column model is missing"),
    "torn Parquet": (b"PAR1 and nothing of it", "give the columns"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_file_is_named_beside_good_ones(tmp_path: Path, what: str) -> None:
    content, fault = BROKEN[what]
    path = tmp_path / "broken.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=fault) as error:
        read_runs([SAMPLES / "vllm_serve.json", path, SAMPLES / "sglang_batch.jsonl"], {**CHIP, "model": LLAMA})
    assert all(fault.startswith(str(path)) for fault in error.value.faults)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"median_tpot_ms": float("nan")}, "median_tpot_ms is nan"),
        ({"output_throughput": float("inf")}, "output_throughput is inf"),
        ({"median_tpot_ms": -1.0}, "median_tpot_ms is -1"),
        ({"output_throughput": 10**400}, "output_throughput is int"),
        ({"total_input_tokens": 1e300}, "total_input_tokens is 1e"),
        ({"max_concurrency": 2.5}, "must be a whole number"),
        ({"completed": "all"}, 'completed is "all"'),
        ({"completed": True}, "completed is True"),
        ({"total_input_tokens": [1]}, "total_input_tokens is list"),
        ({"median_tpot_ms": None, "mean_tpot_ms": None, "output_throughput": None}, "no speed of decode"),
        ({"total_input_tokens": None, "input_lens": [3]}, "format is not known"),
    ],
)
def test_numbers_that_are_none_are_named(tmp_path: Path, changed: dict[str, Any], fault: str) -> None:
    path = serve(tmp_path, **changed)
    with pytest.raises(InputError, match=fault) as error:
        read_runs([path], CHIP)
    assert all(each.startswith(str(path)) for each in error.value.faults)


ODD_VALUES = [None, "", "x\0", [], {}, [[]], True, -1, 0, 1e308, float("nan"), 10**400]


def faults_of(path: Path, stated: Mapping[str, str]) -> tuple[str, ...]:
    try:
        read_runs([path], stated)
    except InputError as error:
        return error.faults
    return ()


def mangled(fields: Any, value: object) -> Iterator[Any]:
    """Copies of a result with one of its values, at any depth, changed."""
    places = fields.items() if isinstance(fields, dict) else enumerate(fields) if isinstance(fields, list) else ()
    for place, inner in places:
        for other in (value, *mangled(inner, value)):
            copy = fields.copy()
            copy[place] = other
            yield copy


@pytest.mark.parametrize("name", [name for name in CASES if "json" in name])
@pytest.mark.parametrize("value", ODD_VALUES, ids=lambda value: repr(value)[:9])
def test_no_value_of_no_field_is_a_traceback(tmp_path: Path, name: str, value: object) -> None:
    first = json.JSONDecoder().raw_decode((SAMPLES / name).read_text())[0]
    for number, fields in enumerate(mangled(first[1] if isinstance(first, list) else first, value)):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(fields))
        assert all(fault.startswith(str(path)) for fault in faults_of(path, CASES[name][0]))


def test_a_folder_a_missing_file_and_no_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError) as error:
        read_runs([tmp_path, tmp_path / "none.json", Path("a\0b")], CHIP)
    assert [word in fault for word, fault in zip(("folder", "no such file", "\0"), error.value.faults, strict=True)]
    with pytest.raises(InputError, match="no file is named"):
        read_runs([], CHIP)


def refusal(path: Path, **stated: str) -> str:
    found = read_runs([path], {**CHIP, **stated})
    assert not found.rows
    ((reason,),) = found.refused.values()
    return reason


def test_runs_that_are_no_decode_are_refused(tmp_path: Path) -> None:
    assert "no request was completed" in refusal(serve(tmp_path, completed=0))
    assert "fewer than two tokens" in refusal(serve(tmp_path, total_output_tokens=64))
    assert "speculated" in refusal(serve(tmp_path, spec_decode_acceptance_length=2.0))


def test_how_many_run_at_once(tmp_path: Path) -> None:
    """The limit; fewer where there are fewer requests; Little's law where arrivals are paced or nothing limits them."""

    def batch(**changed: Any) -> int | None:
        return read_runs([serve(tmp_path, **changed)], CHIP).rows[0].batch_or_concurrency

    assert batch(max_concurrency=500) == 64
    assert batch(max_concurrency=None) == 15  # 64 requests of 180 + 255 x 36.5 ms in 40 s
    assert batch(request_rate=1.0, mean_e2el_ms=5000.0) == 8
    assert batch(request_rate=1.0, mean_ttft_ms=None) == 16


def test_requests_are_divided_among_replicas(tmp_path: Path) -> None:
    row = read_runs([serve(tmp_path)], {"hardware": "h100-sxm", "n_devices": "8", "tp": "2"}).rows[1]
    assert (row.n_devices, row.tp, row.batch_or_concurrency) == (8, 2, 4)
    assert row.notes == "16 requests over 4 replicas"
    assert usable_row(row, load_aliases()).replicas == 4
    static = read_runs(
        [SAMPLES / "sglang_batch.jsonl"], {"hardware": "l4", "n_devices": "2", "tp": "1", "model": LLAMA}
    )
    assert static.rows[0].batch_or_concurrency == 4


BENCH_REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"n_prompt": 512}, "in one time"),
    ({"type_v": "q8_0"}, "different types"),
    ({"n_gpu_layers": 0}, "on the processor"),
    ({"gpu_info": ""}, "on the processor"),
    ({"n_cpu_moe": 12}, "n_cpu_moe"),
    ({"no_kv_offload": True}, "no_kv_offload"),
    ({"tensor_buft_overrides": "exps=CPU"}, "tensor_buft_overrides"),
    ({"gpu_info": "NVIDIA L4, NVIDIA A10G"}, "several kinds"),
]


def bench(folder: Path, **changed: Any) -> Runs:
    path = folder / "bench.json"
    path.write_text(json.dumps([json.loads((SAMPLES / "llama_bench.jsonl").read_text()) | changed]))
    return read_runs([path], {})


@pytest.mark.parametrize(("changed", "reason"), BENCH_REFUSALS)
def test_llama_bench_beside_the_devices_is_refused(tmp_path: Path, changed: dict[str, Any], reason: str) -> None:
    found = bench(tmp_path, **changed)
    assert not found.rows
    assert reason in " ".join(*found.refused.values())


@pytest.mark.parametrize(
    ("mode", "named", "devices", "tensor"),
    [("layer", "auto", 2, 1), ("row", "auto", 2, 2), ("none", "auto", 1, 1), ("layer", "CUDA0", 1, 1)],
)
def test_devices_of_llama_bench(tmp_path: Path, mode: str, named: str, devices: int, tensor: int) -> None:
    (row,) = bench(tmp_path, gpu_info="NVIDIA L4, NVIDIA L4", split_mode=mode, devices=named).rows
    assert (row.n_devices, row.tp, row.hardware) == (devices, tensor, "NVIDIA L4")
    assert ("layer split" in row.notes) == (devices > tensor)


@pytest.mark.parametrize(
    ("described", "label"),
    [
        ("llama 8B Q8_0", "Q8_0"),
        ("llama 70B Q3_K - Large", "Q3_K_L"),
        ("llama 8B Q2_K - Medium", "Q2_K"),
        ("llama 8B IQ3_S mix - 3.66 bpw", "IQ3_M"),
        ("llama 7B mostly Q4_0", "Q4_0"),
        ("gpt-oss 20B MXFP4 MoE", "MXFP4"),
        ("llama 8B (guessed)", ""),
    ],
)
def test_weight_labels_of_llama_bench(tmp_path: Path, described: str, label: str) -> None:
    (row,) = bench(tmp_path, model_type=described).rows
    assert row.weight_precision == label
    assert load_aliases().weight_format(label).activation_bits == 16


def test_labels_stand_for_themselves() -> None:
    aliases = load_aliases()
    assert aliases.hardware_name("paper/h100") == "paper/h100"
    assert aliases.hardware_name("NVIDIA H100 80GB HBM3") == "h100-sxm"
    assert aliases.model_name("/models/Mistral-7B-Instruct-v0.3/") == "mistralai/Mistral-7B-v0.3"
    assert aliases.model_name("paper/llama-3-70b") == "paper/llama-3-70b"
    assert aliases.model_name("NousResearch/Meta-Llama-3-70B") == "meta-llama/Meta-Llama-3-70B"
    name, weights = aliases.weights_of("openai/gpt-oss-120b", "MXFP4")
    assert (name, weights.weight_bits, weights.activation_bits) == ("openai/gpt-oss-120b", "native", 16)
    name, weights = aliases.weights_of("nvidia/Llama-3.1-70B-Instruct-FP8", "fp8")
    assert (name, weights.weight_bits, weights.activation_bits) == ("nvidia/Llama-3.1-70B-Instruct-FP8", "native", 8)
    assert aliases.weights_of(LLAMA, "FP8")[1].weight_bits == 8
    for unknown in ("", "Llama-9", "deepseek-ai/DeepSeek-R1-Distill-Llama-8B", "org/Llama-3.1-8B-Instruct-AWQ"):
        with pytest.raises(InputError, match="not in the catalogue"):
            aliases.model_name(unknown)
    for unknown in ("", "nothing.toml", "a\0.toml"):
        with pytest.raises(InputError, match="not in the catalogue"):
            aliases.hardware_name(unknown)


def test_a_users_own_records_stand_for_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    catalogue = Path(__file__).parent.parent / "spaces" / "catalog"
    chip, model = tmp_path / "chip.toml", tmp_path / "config.json"
    chip.write_text((catalogue / "hardware" / "l4.toml").read_text())
    model.write_text((catalogue / "models" / "Qwen--Qwen3-8B.json").read_text())
    stated = {"hardware": str(chip), "model": str(model), "tp": "1"}
    (row, _) = read_runs([serve(tmp_path, model_id="ours")], stated).rows
    axes = usable_row(row, load_aliases()).axes
    assert (axes["hardware"], axes["model"]) == (str(chip), str(model))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="not in the catalogue"):
        load_aliases().model_name("")


def test_tables_may_be_parquet_and_lack_what_is_optional(tmp_path: Path) -> None:
    rows = read_runs([SAMPLES / "rows.csv"], {"hardware": "h100-sxm"}).rows
    path = tmp_path / "rows.data"
    names = (
        "id",
        "model",
        "hardware",
        "batch_or_concurrency",
        "input_tokens",
        "output_tokens",
        "metric",
        "value",
        "unit",
    )
    pa.parquet.write_table(pa.table({name: [getattr(row, name) for row in rows] for name in names}), path)
    assert read_runs([path], {}).rows == rows == read_rows(path)
    (tmp_path / "excel.csv").write_bytes(
        "\ufeff".encode() + (SAMPLES / "rows.csv").read_bytes().replace(b"\n", b"\r\n")
    )
    assert read_runs([tmp_path / "excel.csv"], {"hardware": "h100-sxm"}).rows == rows


def test_options_fill_fields_of_rows() -> None:
    assert set(OPTIONS.values()) <= set(MeasuredRow.__dataclass_fields__)


def test_the_work_of_many_results_is_that_of_each_and_they_share_their_faults(tmp_path: Path) -> None:
    line = (SAMPLES / "sglang_batch.jsonl").read_text().splitlines()[0] + "\n"
    path = tmp_path / "many.jsonl"
    work = {}
    for results in (1, 1, 1001, 2001):  # the first reads catalogues too
        path.write_text(line * results)
        with lines_run(results * 5000 + 1_000_000) as lines:
            found = read_runs([path], {**CHIP, "model": LLAMA})
        assert len({row.id for row in found.rows}) == results
        work[results] = lines.run
    assert work[2001] - work[1001] < 1.1 * (work[1001] - work[1])
    with pytest.raises(InputError) as error:
        read_runs([path], {"model": LLAMA})
    assert len(error.value.faults) == 2

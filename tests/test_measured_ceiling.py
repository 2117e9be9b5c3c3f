"""No published decode speed beats the ceiling, but for listed rows with a cause; and the comparison can fail."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path

import pytest

from kvwall.spaces.aliases import RECORD, Aliases, load_aliases
from kvwall.spaces.axes import AXES
from kvwall.spaces.errors import InputError
from kvwall.spaces.hardware import load_hardware
from kvwall.spaces.models.load import load_model
from kvwall.sweep.ceiling_check import (
    CeilingCheck,
    ceiling_check,
    load_causes,
    outdated,
    unexplained,
)
from kvwall.sweep.evaluate import evaluate
from kvwall.sweep.measured import usable_row
from kvwall.sweep.measured_rows import COLUMNS, MeasuredRow, keep_calibration_rows, read_rows

DOCS = Path(__file__).parent.parent / "docs" / "ceiling.py"
DENSE = MeasuredRow(
    id="made-1",
    model="Llama-3.1-70B",
    hardware="H100-SXM5-80GB",
    n_devices=8,
    tp=4,
    pp=1,
    ep=1,
    weight_precision="bf16",
    kv_precision="fp16",
    framework="vLLM",
    framework_version="",
    batch_or_concurrency=16,
    batch_kind="static_batch",
    input_tokens=1000,
    output_tokens=101,
    metric="tpot_ms",
    value=20.0,
    unit="ms",
    source="made up",
    notes="",
)


@pytest.fixture(scope="module")
def aliases() -> Aliases:
    return load_aliases()


@pytest.fixture(scope="module")
def check() -> CeilingCheck:
    return ceiling_check(read_rows())


def test_no_row_beats_the_ceiling_but_for_listed_causes(check: CeilingCheck) -> None:
    assert unexplained(check, load_causes()) == ()


def test_every_listed_row_beats_the_ceiling(check: CeilingCheck) -> None:
    assert outdated(check, load_causes()) == ()


def test_every_row_is_compared_or_refused_with_a_reason(check: CeilingCheck) -> None:
    ids = {row.id for row in read_rows()}
    assert {each.id for each in check.compared} | check.refused.keys() == ids
    assert {each.id for each in check.compared} & check.refused.keys() == set()
    assert all(check.refused.values())
    assert len(check.compared) > 4000
    assert len(check.refused) < 0.05 * len(ids)


def test_a_speed_above_the_ceiling_is_found(check: CeilingCheck) -> None:
    """Of every metric, the row that is nearest to its ceiling, twice as fast."""
    nearest = {each.usable.row.metric: each for each in sorted(check.fastest, key=lambda each: each.ratio)}
    assert len(nearest) == 6
    planted = []
    for each in nearest.values():
        row, factor = each.usable.row, 2.0 / min(each.ratio, 1)
        value = row.value / factor if row.unit == "ms" else row.value * factor
        planted.append(replace(row, id=f"planted {row.metric}", value=value))
    found = ceiling_check(planted)
    assert set(unexplained(found, load_causes())) == {row.id for row in planted}


def test_a_listed_row_that_is_slower_is_found(check: CeilingCheck) -> None:
    rows = [replace(each.usable.row, value=each.usable.row.value * 10) for each in check.beating]
    slower = ceiling_check([row for row in rows if row.unit == "ms"])
    assert "aicsil-02917" in outdated(slower, load_causes())


def test_ceiling_is_that_of_the_single_design() -> None:
    """Each metric against `evaluate` of the same design; the measured value is 20 throughout."""
    design = {
        "model": "meta-llama/Meta-Llama-3.1-70B", "hardware": "h100-sxm", "tensor_parallel": 4, "batch": 16,
        "context": 1000, "output_tokens": 101, "weight_bits": 16,
    }  # fmt: skip
    metrics = evaluate(mode="ceiling", **design).metrics
    step = metrics["time_per_output_token"]
    assert step is not None
    expected = {
        ("tpot_ms", "ms"): 1e3 * step,
        ("itl_ms", "ms"): 1e3 * step,
        ("e2e_latency_ms", "ms"): 1e3 * step * 100,
        ("decode_tokens_per_s_per_user", "tok/s"): 1 / step,
        ("output_tokens_per_s_total", "tok/s"): 2 * 16 / step,  # two replicas of four devices
        ("output_tokens_per_s_per_gpu", "tok/s/gpu"): metrics["tokens_per_second_per_device"],
    }
    rows = [replace(DENSE, id=metric, metric=metric, unit=unit) for metric, unit in expected]
    found = ceiling_check(rows)
    assert found.refused == {}
    for each in found.compared:
        unit = each.usable.row.unit
        assert each.ceiling == pytest.approx(expected[each.id, unit], rel=1e-9)
        assert each.ratio == pytest.approx(each.ceiling / 20.0 if unit == "ms" else 20.0 / each.ceiling, rel=1e-9)


def test_every_row_that_states_too_little_is_refused_with_all_reasons(aliases: Aliases) -> None:
    row = replace(
        DENSE, model="Llama-9", hardware="H900", tp=None, batch_or_concurrency=None, input_tokens=None,
        weight_precision="fp3", kv_precision="fp2", metric="e2e_latency_ms", output_tokens=None,
    )  # fmt: skip
    with pytest.raises(InputError) as fault:
        usable_row(row, aliases)
    text = str(fault.value)
    for reason in ("H900", "Llama-9", "fp2", "batch not", "input length", "how the devices", "number of tokens"):
        assert reason in text
    assert len(fault.value.faults) == 7


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"weight_precision": "fp3"}, '"fp3" is unknown'),
        ({"metric": "ttft_ms"}, '"ttft_ms" is unknown'),
        ({"unit": "s"}, 'unit "s"'),
        ({"value": 0.0}, "not above 0"),
        ({"n_devices": None}, "devices not stated"),
        ({"tp": None, "framework": "llama.cpp", "framework_version": "b2000"}, "how the devices split"),
        ({"n_devices": 6}, "no whole number of replicas"),
        ({"model": "DeepSeek-V4"}, "Pro or Flash is not stated"),
    ],
)
def test_refusals(aliases: Aliases, changed: dict[str, object], reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        usable_row(replace(DENSE, **changed), aliases)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changed", "axis", "degree"),
    [
        ({"ep": 4}, "expert_parallel", 4),
        ({"tp": None, "notes": "llama-bench; layer split across GPUs"}, "pipeline_parallel", 8),
        ({"tp": None, "framework": "llama.cpp", "framework_version": "2023-11"}, "tensor_parallel", 8),
        ({"notes": "x; dp_attention=True; y"}, "attention_data_parallel", 4),
        ({"tp": 1, "notes": "x; attention_dp=8; y"}, "attention_data_parallel", 8),
        ({"n_devices": 2, "tp": 2, "notes": "x; moe_tp=4; y"}, "attention_data_parallel", 2),
    ],
)
def test_other_kinds_of_parallelism(aliases: Aliases, changed: dict[str, object], axis: str, degree: int) -> None:
    """They are refused by name until they are axes, and an axis of the design from then on."""
    row = replace(DENSE, **changed)  # type: ignore[arg-type]
    if axis in AXES:
        assert usable_row(row, aliases).axes[axis] == degree
    else:
        with pytest.raises(InputError, match=f"^{axis} is no axis yet$"):
            usable_row(row, aliases)


def test_a_row_that_counts_the_devices_of_attention_only_is_one_replica(aliases: Aliases) -> None:
    row = replace(DENSE, n_devices=1, tp=1, notes="silicon_concurrency=8; moe_tp=2; mean TPOT")
    usable = usable_row(row, aliases)
    assert (usable.replica_devices, usable.replicas) == (2, 1.0)


def test_a_batch_that_does_not_fit_has_no_time_per_token_but_a_throughput() -> None:
    large = replace(DENSE, batch_or_concurrency=10_000)
    rate = replace(large, id="made-2", metric="output_tokens_per_s_total", unit="tok/s")
    found = ceiling_check([large, rate])
    assert [each.id for each in found.compared] == ["made-2"]
    assert "does not fit" in found.refused["made-1"][0]
    assert [each.id for each in found.too_large] == ["made-1"]


def test_no_rows_are_no_comparison() -> None:
    assert ceiling_check([]) == CeilingCheck((), {}, ())


def test_blank_kv_precision_has_documented_defaults(aliases: Aliases) -> None:
    blank = replace(DENSE, kv_precision="")
    assert usable_row(blank, aliases).axes["key_bits"] == 16
    assert usable_row(replace(blank, notes="InferenceX; ..."), aliases).axes["value_bits"] == 8
    assert all(default.because for default in aliases.kv_default)


def test_weight_labels(aliases: Aliases) -> None:
    def bits(**labels: str) -> tuple[object, ...]:
        axes = usable_row(replace(DENSE, **labels), aliases).axes
        return axes["model"], axes["weight_bits"], axes["activation_bits"]

    assert bits(weight_precision="fp8") == ("nvidia/Llama-3.1-70B-Instruct-FP8", "native", 8)
    assert bits(weight_precision="nvfp4") == ("meta-llama/Meta-Llama-3.1-70B", 4, 4)
    assert bits(weight_precision="") == ("meta-llama/Meta-Llama-3.1-70B", "native", 16)
    assert bits(model="DeepSeek-R1", weight_precision="fp8") == ("deepseek-ai/DeepSeek-R1", "native", 8)


def test_aliases_name_what_the_catalogue_has(aliases: Aliases) -> None:
    for alias in aliases.model.values():
        for name in filter(None, (alias.name, *(alias.checkpoints or {}).values())):
            assert load_model(name).name == name
    for alias in aliases.hardware.values():
        if alias.name:
            assert load_hardware(alias.name).memory_bandwidth.value > 0


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"A10G" = { name = "a10g" }', '"A10G" = { }', "either name or refused"),
        ('native = ["mxfp4"]', 'native = ["mxfp5"]', 'has no "mxfp5"'),
        ("]]\nbits = 16\nbecause", ']]\nbits = 16\ntext = "x"\nbecause', "must hold for every row"),
        ("]]\nbits = 16", ']]\nbits = "many"', "bits"),
        ("]]\nbits = 16", "]]\nbytes = 2\nbits = 16", "bytes"),
        ("[kv]", "[kv", "no TOML"),
    ],
)
def test_a_faulty_record_of_aliases_is_refused(tmp_path: Path, old: str, new: str, fault: str) -> None:
    text = RECORD.read_text()
    assert old in text
    file = tmp_path / "aliases.toml"
    file.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=fault):
        load_aliases(file)


def test_rows_are_kept_from_a_csv_file(tmp_path: Path) -> None:
    cells = {name: "" for name in (*COLUMNS, "use")} | {
        "id": "a-1", "tp": "8(?)", "n_devices": "8", "value": "2.5", "use": "calibrate", "notes": '"one, two"',
    }  # fmt: skip
    file = tmp_path / "rows.csv"
    line = ",".join(cells.values())
    file.write_text(",".join(cells) + f"\n{line}\n{line.replace('calibrate', 'coarse_check')}\n")
    kept = tmp_path / "rows.parquet"
    assert keep_calibration_rows(file, kept) == 1
    (row,) = read_rows(kept)
    assert (row.id, row.tp, row.n_devices, row.value, row.notes, row.model) == ("a-1", None, 8, 2.5, "one, two", "")
    assert read_rows(file)[0] == row


def test_a_file_without_its_columns_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_text("id,model\n1,x\n")
    with pytest.raises(InputError, match="column hardware is missing"):
        read_rows(file)
    with pytest.raises(InputError, match="cannot be read"):
        read_rows(tmp_path / "none.csv")


def test_the_page_is_up_to_date(check: CeilingCheck) -> None:
    spec = importlib.util.spec_from_file_location("ceiling_page", DOCS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.page(check, load_causes()) == module.PAGE.read_text(encoding="utf-8"), "run: python docs/ceiling.py"

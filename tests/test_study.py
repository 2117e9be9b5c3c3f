from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import tomllib
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwall.objectives.register import evaluate, label_register, metric_register
from kvwall.spaces.errors import InputError
from kvwall.sweep.objective import Constraint, Objective
from kvwall.sweep.study import DEFAULT_OBJECTIVES, SHIPPED, Study, study_names
from kvwall.sweep.study_file import space as study_space
from kvwall.sweep.study_file.lines import find_lines

SMALL = """\
[study]
name = "small"
mode = "ceiling"

[space]
model = "meta-llama/Meta-Llama-3-70B"
hardware = ["h100-sxm", "b200-sxm"]
batch = [1, 8, 32]
context = { geom = [4096, 65536, 5] }
key_bits = [16, 4]
value_bits = "key_bits"
"""
FULL = (
    SMALL
    + """
[assume]
"b200-sxm".host_link_bandwidth = "64 GB/s"

[quality]
task = "retrieval"
confidence = 0.8

[objectives]
minimize = ["quality_loss_upper"]
maximize = ["tokens_per_second", "max_batch"]

[constraints]
quality_loss_upper = { max = 0.1 }
time_per_output_token = { max = "50 ms" }
memory_margin = { min = "2 GB", max = 1e12 }

[sweep]
keep = ["tokens_per_second", "regime", "status"]
slice = { context = [65536, 4096], hardware = "b200-sxm" }

[optimize]
trials = 50
continuous = true
"""
)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("50 ms", 0.05), ("50000 µs", 0.05), ("5e4us", 0.05), (" .05 seconds ", 0.05), ("1 min", 60.0), ("+2E-1 s", 0.2)],
)
def test_a_bound_is_a_quantity_in_a_usual_unit(written, seconds):
    study = Study.from_text(FULL.replace('"50 ms"', f'"{written}"'))
    bounds = {constraint.metric: constraint.high for constraint in study.constraints}
    assert bounds["time_per_output_token"] == pytest.approx(seconds, rel=1e-12)


def faults_of(text: str) -> tuple[str, ...]:
    with pytest.raises(InputError) as raised:
        Study.from_text(text, "small.toml")
    assert raised.value.exit_code == 2
    return raised.value.faults


def replaced(old: str, new: str, text: str = FULL) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


# What a file states


def test_a_study_holds_what_its_file_states() -> None:
    study = Study.from_text(FULL)
    assert study.space.dims == ("hardware", "batch", "context", "key_bits")
    assert study.assume == {"b200-sxm": {"host_link_bandwidth": "64 GB/s"}}
    assert (study.task, study.confidence) == ("retrieval", 0.8)
    assert study.objectives == (
        Objective("quality_loss_upper", "minimize"),
        Objective("tokens_per_second", "maximize"),
        Objective("max_batch", "maximize"),
    ), "the first one named in the file is the first"
    assert study.constraints == (
        Constraint("quality_loss_upper", None, 0.1),
        Constraint("time_per_output_token", None, 0.05),
        Constraint("memory_margin", 2e9, 1e12),
    )
    assert study.keep == ("tokens_per_second", "regime"), "the status is stored anyway"
    assert study.slice == {"context": (4096, 65536), "hardware": ("b200-sxm",)}, "in grid order"
    assert (study.trials, study.continuous, study.text) == (50, True, FULL)


def test_defaults_where_a_file_is_silent() -> None:
    study = Study.from_text(SMALL)
    assert (study.mode, study.task, study.confidence) == ("ceiling", "aggregate", 0.9)
    assert study.objectives == DEFAULT_OBJECTIVES
    assert study.keep == ("tokens_per_second_per_device", "quality_loss_upper")
    assert (study.assume, study.constraints, study.slice) == ({}, (), {})
    assert (study.trials, study.continuous) == (2000, False)


def test_a_single_design_is_a_study() -> None:
    space = '[space]\nmodel = "paper/llama-3-70b"\nhardware = "paper/b200"\ncontext = 1000\n'
    text = f'[study]\nname = "one"\nmode = "ceiling"\n{space}'
    study = Study.from_text(text)
    assert (study.space.dims, study.space.size) == ((), 1)
    found = evaluate(study.columns().design({}), study.task)
    assert np.shape(found.metrics["tokens_per_second"]) == ()


def test_a_file_may_have_a_byte_order_mark_and_windows_line_ends(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_bytes(b"\xef\xbb\xbf" + FULL.replace("\n", "\r\n").encode())
    assert Study.load(file) == Study.from_text(FULL)


# Shipped studies


@pytest.mark.parametrize("name", study_names())
def test_a_shipped_study_loads_and_is_named_as_its_file(name: str) -> None:
    study = Study.load(name)
    assert study.name == name
    assert study.catalogue.models


def test_memory_wall_is_the_size_it_says() -> None:
    study = Study.load("memory-wall")
    stored = math.prod(len(study.slice.get(dim, study.space.values(dim))) for dim in study.space.dims)
    assert 0.8e9 < study.space.size < 1.3e9
    assert 5e6 < stored < 2e7
    assert f"{study.space.size:.1e}".replace("e+09", "e9") in study.text
    assert f"{stored:.1e}".replace("e+06", "e6") in study.text


def test_the_paper_study_holds_the_reference_values() -> None:
    study = Study.load("paper")
    with jax.enable_x64(True):
        shape = dict(zip(study.space.dims, np.indices(study.space.shape), strict=True))
        found = evaluate(study.columns().design(shape), study.task).metrics
    crossover, speed = (np.asarray(found[name]) for name in ("crossover_context_bytes", "tokens_per_second"))

    def at(table: np.ndarray, **chosen: object) -> float:
        return float(np.broadcast_to(table, study.space.shape).flat[study.space.index(chosen)])  # type: ignore[arg-type]

    base = {"hardware": "paper/b200", "batch": 1, "context": 512000, "key_bits": 16, "retention": 1.0}
    assert round(at(crossover, **base)) == 427246
    assert round(at(crossover, **base | {"batch": 32})) == 13351
    for context, retention, speedup in ((128000, 1.0, 1.25), (512000, 1.0, 1.91), (512000, 0.5, 2.05)):
        fast = at(speed, **base | {"context": context, "key_bits": 2, "retention": retention})
        assert round(fast / at(speed, **base | {"context": context}), 2) == speedup


# The resolved file and the hash


@pytest.mark.parametrize("text", [SMALL, FULL, *(file.read_text() for file in sorted(SHIPPED.glob("*.toml")))])
def test_the_resolved_file_reads_back_as_the_same_study(text: str) -> None:
    study = Study.from_text(text)
    again = Study.from_text(study.resolved())
    assert dataclasses.replace(again, text=text, space=study.space) == study
    assert (again.space.dims, again.space.point(7)) == (study.space.dims, study.space.point(7))
    assert again.spec_hash == study.spec_hash
    assert again.resolved() == study.resolved()


def test_the_resolved_file_states_every_axis_expanded() -> None:
    study = Study.from_text(FULL)
    stated = tomllib.loads(study.resolved())["space"]
    assert stated.keys() == {entry.axis.name for entry in study.space.axes}
    assert stated["context"] == [4096, 8192, 16384, 32768, 65536]
    assert stated["value_bits"] == "key_bits"
    assert stated["retention"] == 1


def test_the_spec_is_json_and_does_not_depend_on_spelling() -> None:
    study = Study.from_text(FULL)
    assert json.loads(json.dumps(study.spec(), allow_nan=False)) == study.spec()
    spelled = FULL.replace("{ geom = [4096, 65536, 5] }", "[4096, 8192, 16384, 32768, 65536]").replace(
        "50 ms", "0.05 s"
    )
    spelled = replaced("key_bits = [16, 4]", "key_bits = [16.0, 4.0]\nretention = 1\nactivation_bits = 16.0", spelled)
    assert Study.from_text(spelled).spec_hash == study.spec_hash


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("batch = [1, 8, 32]", "batch = [1, 8, 64]"),
        ("batch = [1, 8, 32]", "batch = [8, 1, 32]"),
        ('value_bits = "key_bits"', "value_bits = [16, 4]"),
        ('hardware = ["h100-sxm", "b200-sxm"]', 'hardware = ["mi300x", "b200-sxm"]'),
        ("64 GB/s", "128 GB/s"),
        ('task = "retrieval"', 'task = "code"'),
        ("confidence = 0.8", "confidence = 0.9"),
        ('minimize = ["quality_loss_upper"]', 'minimize = ["quality_loss"]'),
        ("max = 0.1 ", "max = 0.2 "),
        ('"regime", ', '"phase", '),
        ("[65536, 4096]", "[65536]"),
    ],
)
def test_the_hash_changes_with_what_decides_the_results(old: str, new: str) -> None:
    assert Study.from_text(replaced(old, new)).spec_hash != Study.from_text(FULL).spec_hash


def test_the_order_of_dimensions_changes_the_hash_as_it_changes_the_grid_index() -> None:
    batch = "batch = [1, 8, 32]\n"
    moved = replaced(batch, "").replace("[space]\n", f"[space]\n{batch}")
    assert Study.from_text(moved).spec_hash != Study.from_text(FULL).spec_hash


def test_the_hash_covers_the_records_behind_the_names(tmp_path: Path) -> None:
    chip = tmp_path / "chip.toml"
    figure = '[memory_capacity]\nvalue = "80 GB"\n[memory_bandwidth]\nvalue = "{} TB/s"\n'
    text = replaced('"h100-sxm", "b200-sxm"', f'"{chip}"', SMALL)
    hashes = []
    for bandwidth in (2, 3):
        chip.write_text(figure.format(bandwidth))
        hashes.append(Study.from_text(text).spec_hash)
    assert hashes[0] != hashes[1]


def test_comments_name_and_search_settings_do_not_change_the_hash() -> None:
    other = replaced("trials = 50", "trials = 60 # more").replace('name = "small"', 'name = "other"')
    assert Study.from_text(other).spec_hash == Study.from_text(FULL).spec_hash


# Faults

FAULTS = [
    ('name = "small"', 'name = "../small"', "cannot name a results folder"),
    ('name = "small"', 'name = ""', "cannot name a results folder"),
    ('name = "small"', 'name = "."', "cannot name a results folder"),
    ('name = "small"', 'name = "a/b"', "cannot name a results folder"),
    ('name = "small"', 'name = "a."', "cannot name a results folder"),
    ('name = "small"', "name = 3", "name = 3: write text in quotes"),
    ('name = "small"', 'name = "s"\nmde = "ceiling"', '"mde" is no key of [study] (did you mean mode?)'),
    ('mode = "ceiling"', "mode = 3", "use estimate"),
    ('mode = "ceiling"', 'mode = "celing"', "did you mean ceiling"),
    ("[quality]", "[qualty]", '"qualty" is no section of a study (did you mean quality?)'),
    ("[study]", "batch = 3\n[study]", "write it under [space]"),
    ('"meta-llama/Meta-Llama-3-70B"', '"meta-llama/Meta-Llama-3-7B"', "did you mean meta-llama/Meta-Llama-3-70B"),
    ('["h100-sxm", "b200-sxm"]', '["h100sxm", "b200-sxm"]', "did you mean h100-sxm"),
    ("batch = [1, 8, 32]", "batch = [1, 8, 0.5]", "batch = 0.5"),
    ("batch = [1, 8, 32]", "batch = []", "at least one value"),
    ("batch = [1, 8, 32]", "batch = [1, 8, 8]", "twice"),
    ("batch = [1, 8, 32]", "batch = nan", "batch = nan"),
    ("batch = [1, 8, 32]", "batch = 1979-05-27", "batch = datetime.date(1979, 5, 27) is not a number"),
    ("batch = [1, 8, 32]", "bacth = [1, 8, 32]", "did you mean batch"),
    ("batch = [1, 8, 32]", "read_fraction = [0.5, 2]", "read_fraction = 2 is out of range"),
    ("batch = [1, 8, 32]", 'max_model_length = ["native", 8]', "max_model_length = 'native' is not a number"),
    ("batch = [1, 8, 32]", 'access = "park"', "use one of streamed, parked"),
    ("batch = [1, 8, 32]", "placement_host = { range = [0, 1e308, 1e-300] }", "shorten the range"),
    ("batch = [1, 8, 32]", "batch = 99999999999999999999", "64 bits"),
    ('value_bits = "key_bits"', 'value_bits = "scale_bits"', "needs a leader"),
    ('value_bits = "key_bits"', "value_bits = [0]", "value_bits = 0 is out of range"),
    ('host_link_bandwidth = "64 GB/s"', 'host_link_bandwidth = "64 GB"', "not a quantity in B/s"),
    ('host_link_bandwidth = "64 GB/s"', 'host_link_bandwith = "64 GB/s"', "did you mean host_link_bandwidth"),
    ('host_link_bandwidth = "64 GB/s"', "host_link_bandwidth = 64e9", "write a quantity in quotes"),
    ('"b200-sxm".host_link_bandwidth = "64 GB/s"', '"b200-sxm" = 3', '"b200-sxm".figure = "quantity"'),
    ('"b200-sxm".host', '"b300-sxm".host', "not on the hardware axis (did you mean b200-sxm"),
    ('task = "retrieval"', 'task = "retreival"', "did you mean retrieval"),
    ("confidence = 0.8", "confidence = 0.999", "outside 0.5 to 0.99"),
    ("confidence = 0.8", "confidence = nan", "outside 0.5 to 0.99"),
    ("confidence = 0.8", 'confidence = "high"', "write a number"),
    ('minimize = ["quality_loss_upper"]', 'minimize = ["quality_los_upper"]', "did you mean quality_loss_upper"),
    ('minimize = ["quality_loss_upper"]', 'minimize = ["phase"]', '"phase" is a label'),
    ('minimize = ["quality_loss_upper"]', 'minimize = ["crossover_context_time"]', "is one of estimates"),
    ('minimize = ["quality_loss_upper"]', 'minimise = ["quality_loss_upper"]', "did you mean minimize"),
    ('minimize = ["quality_loss_upper"]', 'minimize = "quality_loss_upper"', "write a list"),
    ('minimize = ["quality_loss_upper"]', 'minimize = ["max_context", "max_context"]', "named twice"),
    ("quality_loss_upper = { max = 0.1 }", "quality_loss_upper = {}", "neither min nor max"),
    ("max = 0.1 ", "max = 0.1, min = 0.2 ", "min = 0.2 is above max = 0.1"),
    ("max = 0.1 ", "max = nan ", "write a finite number"),
    ("max = 0.1 ", "max = inf ", "write a finite number"),
    ("max = 0.1 ", "mx = 0.1 ", "did you mean max"),
    ("max = 0.1 ", 'max = "10 %" ', "write a number in its unit, which is none"),
    ("max = 0.1 ", "max = true ", "write a number"),
    ("quality_loss_upper = { max", "quality_loss_uper = { max", "did you mean quality_loss_upper"),
    ("quality_loss_upper = { max = 0.1 }", "quality_loss_upper = 0.1", "{ max = ... }"),
    ('max = "50 ms"', 'max = "50 GB"', 'such as "50 ms"'),
    ('max = "50 ms"', 'max = "50"', 'such as "50 ms"'),
    ('max = "50 ms"', 'max = "2**99 s"', 'such as "50 ms"'),
    ('min = "2 GB"', 'min = "2 radian"', 'such as "8 GB"'),
    ('min = "2 GB"', 'min = "2e GB"', 'such as "8 GB"'),
    ('min = "2 GB"', 'min = "nan GB"', 'such as "8 GB"'),
    ('"regime", ', '"regme", ', '"regme" is neither a metric nor a label (did you mean regime?)'),
    ('"regime", ', '"token_per_second", ', "did you mean tokens_per_second"),
    ('"regime", ', "7, ", "keep[1] = 7: write text in quotes"),
    ('"regime", ', '"status", ', '"status" is named twice'),
    ("context = [65536, 4096]", "context = [65536, 5000]", "5000 is not on the grid: it holds 4096, 8192"),
    ("context = [65536, 4096]", "contxt = [65536]", "did you mean context"),
    ("context = [65536, 4096]", "value_bits = [4]", "value_bits moves with key_bits: slice that axis"),
    ("context = [65536, 4096]", "retention = [1]", "holds one value on this grid"),
    ("context = [65536, 4096]", "context = []", "at least one value"),
    ('{ context = [65536, 4096], hardware = "b200-sxm" }', "3", "slice = 3: write a table"),
    ("trials = 50", "trials = 0", "at least 1"),
    ("trials = 50", "trials = 2.5", "write a whole number"),
    ("continuous = true", 'continuous = "yes"', "write true or false"),
]


@pytest.mark.parametrize(("old", "new", "says"), FAULTS)
def test_one_fault_is_one_sentence_with_its_line(old: str, new: str, says: str) -> None:
    text = replaced(old, new)
    (fault,) = faults_of(text)
    line = max(number for number, content in enumerate(text.split("\n"), 1) if new.split("\n")[-1] in content)
    if "\n" in new and "[study]" in new:
        line -= 1  # the planted line stands above the one it was planted at
    assert fault.startswith(f"small.toml: line {line}: ")
    assert says in fault


def test_every_fault_is_reported_in_the_order_of_the_file() -> None:
    lines = FULL.split("\n")
    planted: dict[int, str] = {}
    for old, new, says in FAULTS:
        number = next((number for number, line in enumerate(lines) if old in line and number not in planted), None)
        if number is not None and not new.startswith(("[", '"b300')) and "\n" not in new and "64 bits" not in says:
            lines[number] = lines[number].replace(old, new)
            planted[number] = says
    found = faults_of("\n".join(lines))
    assert len(planted) > 12
    assert len(found) == len(planted)
    for fault, number in zip(found, sorted(planted), strict=True):
        assert fault.startswith(f"small.toml: line {number + 1}: ")
        assert planted[number] in fault


def test_a_section_is_a_table() -> None:
    (fault,) = faults_of("quality = 3\n" + SMALL)
    assert fault == "small.toml: line 1: quality = 3: it is a section, [quality] with keys below it"


def test_sections_and_axes_that_are_missing_are_named() -> None:
    found = "\n".join(faults_of("[quality]\ntask = 'code'\n"))
    for name in ("name", "model", "hardware", "context"):
        assert f"{name} is missing" in found


@pytest.mark.parametrize("section", ["[objectives]\n", "[objectives]\nmaximize = []\nminimize = []\n"])
def test_objectives_must_name_one(section: str) -> None:
    (fault,) = faults_of(SMALL + section)
    assert fault.startswith("small.toml: line 12: no objective")


def test_a_metric_is_not_both_maximized_and_minimized() -> None:
    (fault,) = faults_of(replaced('"max_batch"]', '"quality_loss_upper"]'))
    assert fault.endswith('line 22: "quality_loss_upper" is both maximized and minimized: choose one')


def test_a_grid_beyond_a_64_bit_index_is_refused() -> None:
    wide = "{ linear = [0.001, 1.0, 900] }"
    axes = ["retention", "placement_host", "outlier_fraction", "utilisation", "weight_bits", "scale_bits", "zero_bits"]
    text = SMALL + "".join(
        f"{axis} = {wide.replace('0.001, 1.0', '1, 16') if 'bits' in axis else wide}\n" for axis in axes
    )
    (fault,) = faults_of(text)
    assert "shorten an axis" in fault


def test_more_dimensions_than_a_file_holds_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(study_space, "MOST_DIMENSIONS", 3)
    (fault,) = faults_of(SMALL)
    assert "4 axes are stored with several values, the most is 3" in fault
    assert Study.from_text(SMALL + '[sweep.slice]\nhardware = "h100-sxm"\n').slice


# Files that are no study at all


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("[study]\nname = \n", 2),
        ("[study]\nname = 'a'\nname = 'b'\n", 3),
        ("[study]\n[space\n", 2),
        ("[study]\nname = 'a", 2),
        ("[study]\nname = [1,\n", 2),
        ("[study]\nname = 2020-13-45\n", 2),
        ("[study]\n\n\n!\n", 4),
    ],
)
def test_a_fault_of_syntax_is_named_with_its_line(text: str, line: int) -> None:
    (fault,) = faults_of(text)
    assert fault.startswith(f"small.toml: line {line}: not valid TOML: ")


@pytest.mark.parametrize("text", ["x = " + "[" * 5000 + "]" * 5000, "x = " + "9" * 5000])
def test_monstrous_toml_is_refused(text: str) -> None:
    assert len(faults_of(text)) == 1


def test_a_file_that_is_not_utf_8_is_refused_with_the_line(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_bytes(SMALL.encode() + b"# caf\xe9\n")
    with pytest.raises(InputError, match="line 12: not UTF-8"):
        Study.load(file)


def test_files_that_are_not_there_or_no_files_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "missing.toml", tmp_path, f"{tmp_path}/missing", "a\0b.toml"):
        with pytest.raises(InputError, match="cannot be read"):
            Study.load(path)


@pytest.mark.parametrize(
    ("name", "says"), [("memory-wal", "did you mean memory-wall"), ("", "give"), ("x" * 5000, "give")]
)
def test_an_unknown_shipped_study_is_refused(name: str, says: str) -> None:
    with pytest.raises(InputError, match=says):
        Study.load(name)


def test_a_plain_name_is_a_file_when_one_is_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine").write_text(SMALL)
    assert Study.load("mine").name == "small"


STRANGE = [
    "1979-05-27T07:32:00Z", "07:32:00", "[]", "{}", "[[1]]", "[{}]", "{ a = { b = 1 } }", "nan", "-inf", '""', "true",
    "9223372036854775807", "-1", '"\\u0000"', '"key_bits"', "[1, 'a', 1979-05-27]", "{ geom = [1, 2, 1979-05-27] }",
    "{ linear = [1, 2, 9223372036854775807] }", "{ range = [1, 2] }", '"/"', "'''\n\n'''", "1e400",
]  # fmt: skip


@pytest.mark.parametrize("value", STRANGE)
def test_strange_values_are_refused_or_taken_but_never_crash(value: str) -> None:
    taken = 0
    lines = FULL.split("\n")
    for number, line in enumerate(lines):
        key = line.partition(" = ")[0]
        if key == line:
            continue
        text = "\n".join([*lines[:number], f"{key} = {value}", *lines[number + 1 :]])
        with contextlib.suppress(InputError):
            Study.from_text(text)
            taken += 1
    assert taken < len(lines) / 2


# Lines


STRINGS = st.sampled_from(
    ['"a # b"', "'[x]'", '"""x\n= [3]\n"""', "'''\n]'''", '"\\"]"', "1.5", "1979-05-27T07:32:00Z"]
)
VALUES = st.recursive(
    STRINGS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda entries: "[ # c ]\n" + "".join(f"  {e}, # ,\n" for e in entries) + "]"),
        inner.filter(lambda one: "\n" not in one).map(lambda one: f"{{ k = {one}, 'q.r' = 2 }}"),
    ),
    max_leaves=5,
)


@given(st.lists(st.tuples(st.sampled_from(["", "# [no]\n", "\n", "[t{}]\n", "[t{}.'a.b']\n"]), VALUES), max_size=6))
def test_every_key_is_found_on_its_line(parts: list[tuple[str, str]]) -> None:
    text, expected, section = "", {}, ()
    for number, (above, value) in enumerate(parts):
        header = above.format(number)
        if header.startswith("["):
            section = (f"t{number}", "a.b") if "'" in header else (f"t{number}",)
        text += header
        expected[(*section, f"key{number}")] = text.count("\n") + 1
        text += f"key{number} = {value} # end\n"
    tomllib.loads(text)
    lines = find_lines(text)
    assert {path: lines.of(path) for path in expected} == expected
    assert {path[-1] for path in lines.by_path if str(path[-1]).startswith("key")} == {path[-1] for path in expected}


def test_entries_of_lists_and_inline_tables_have_lines_of_their_own() -> None:
    lines = find_lines("a = [\n 1,\n [2,\n 3]]\nb.c = { d = 4, e.f = 5 }\n[[g]]\nh = 6\n")
    wanted = {("a", 0): 2, ("a", 1, 1): 4, ("b", "c", "e", "f"): 5, ("g", "h"): 7, ("b", "x"): 5}
    assert {path: lines.of(path) for path in wanted} == wanted
    assert lines.of(("none",)) is None


def test_shipped_studies_keep_only_known_results() -> None:
    known = {*metric_register("aggregate", "ceiling"), *label_register("ceiling")}
    for name in study_names():
        assert set(Study.load(name).keep) <= known


def test_keys_of_very_many_parts_are_refused():
    with pytest.raises(InputError, match="nested too deeply"):
        Study.from_text(".".join(["a"] * 3000) + " = 1")

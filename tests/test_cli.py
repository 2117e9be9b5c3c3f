"""The command line on single designs and the catalogue: what is asked for, what is refused, and how it ends."""

from __future__ import annotations

import io
import json

import pytest
from rich.console import Console

from kvwall.objectives.register import metric_register, not_built
from kvwall.spaces.axes import AXES
from kvwall.spaces.hardware import hardware_names
from kvwall.spaces.models.load import loadable_model_names, model_names
from kvwall.sweep.cli import run
from tests.ceiling_mode import in_ceiling_mode

LLAMA = "meta-llama/Meta-Llama-3-70B"
BASE = ("evaluate", "--model", LLAMA, "--hardware", "h100-sxm", "--tensor-parallel", "8", "--batch", "4")
FITS = (*BASE, "--context", "4096")


def reject_constant(text: str) -> float:
    raise AssertionError(f"{text} is no JSON number")


@pytest.fixture
def kvwall(capsys):
    """Run a command line in this process: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = run(in_ceiling_mode(arguments))
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def answer(kvwall):
    """Run with --json and parse strictly: one object, no NaN, nothing else on standard output."""

    def call(*arguments: str, code: int = 0) -> dict:
        ended, out, err = kvwall(*arguments, "--json")
        assert ended == code, err
        return json.loads(out, parse_constant=reject_constant)

    return call


# --- evaluate -------------------------------------------------------------------------------------


def test_evaluate_answers_every_metric_of_the_contract(answer):
    found = answer(*FITS)
    assert set(found["metrics"]) == {*metric_register("aggregate", "ceiling"), *not_built("ceiling")}
    assert set(found["units"]) == set(found["metrics"])
    assert set(found["labels"]) == {"phase", "regime", "bound_by", "status", "veto"}
    assert set(found["evidence"].values()) <= {"derived", "calibrated", "reported"}
    assert set(found["inputs"]) == set(AXES)
    nulls = {name for name, value in found["metrics"].items() if value is None}
    assert nulls == set(not_built("ceiling"))
    assert nulls <= set(found["reasons"])


def test_every_null_has_a_reason_and_every_reason_a_null(answer):
    found = answer(*FITS, "--placement-host", "1")
    assert found["metrics"]["max_context"] is None
    assert "no limit" in found["reasons"]["max_context"]
    assert {name for name, value in found["metrics"].items() if value is None} == set(found["reasons"])


def test_what_does_not_fit_is_told_in_full_and_exits_3(answer, kvwall):
    found = answer(*BASE, "--context", "1000000", code=3)
    assert found["labels"]["status"] == "memory"
    assert found["labels"]["phase"] == "capacity"
    assert found["metrics"]["memory_margin"] < 0
    assert found["metrics"]["tokens_per_second"] > 0
    code, out, _ = kvwall(*BASE, "--context", "1000000")
    assert code == 3
    assert "Does not fit" in out
    assert "tokens_per_second" in out


def test_missing_figure_makes_times_and_what_binds_null_and_names_the_remedy(answer):
    on_b200 = ("evaluate", "--model", LLAMA, "--hardware", "b200-sxm", "--context", "4096", "--placement-host", "0.5")
    found = answer(*on_b200, code=3)
    assert found["labels"] == {
        "phase": None,
        "regime": None,
        "bound_by": None,
        "status": "unsourced_input",
        "veto": "none",
    }
    for name in ("tokens_per_second", "time_per_output_token", "phase", "regime", "bound_by"):
        assert '--assume host_link_bandwidth="64 GB/s"' in found["reasons"][name]
    assert found["metrics"]["weight_bytes_read"] > 0
    mended = answer(*on_b200, "--assume", "host_link_bandwidth=64 GB/s")
    assert mended["labels"]["status"] == "ok"
    assert any("assumed: host_link_bandwidth = 64 GB/s" in flag for flag in mended["flags"])


def test_impossible_layout_is_explained(answer):
    on_three = ("--tensor-parallel", "3", "--context", "4096")
    found = answer("evaluate", "--model", LLAMA, "--hardware", "h100-sxm", *on_three, code=3)
    assert found["labels"] == {"phase": None, "regime": None, "bound_by": None, "status": "layout", "veto": "none"}
    for told in (found["why"], *(found["reasons"][name] for name in ("phase", "regime", "bound_by"))):
        assert "does not divide 64 query heads" in told
    assert "phase" not in found["why"]
    assert "Bound by" not in found["why"]


def test_energy_needs_no_time_and_its_reason_names_no_link_and_no_peak(answer, tmp_path):
    chip = tmp_path / "mine.toml"
    chip.write_text('[memory_capacity]\nvalue = "80 GiB"\n[memory_bandwidth]\nvalue = "3 TB/s"\n')
    found = answer("evaluate", "--model", LLAMA, "--hardware", str(chip), "--context", "4096", "--tensor-parallel", "8",
                   "--placement-host", "0.5", code=3)  # fmt: skip
    reasons = found["reasons"]["energy_per_token"].split("; ")
    assert [reason.split(" of ")[0] for reason in reasons] == ["memory_energy", "link_energy"]
    assert "scale_up_bandwidth" in found["reasons"]["time_per_output_token"]


def test_dashes_and_underscores_are_one_option(answer):
    assert answer(*FITS, "--key-bits", "8") == answer(*FITS, "--key_bits=8")


def test_whole_numbers_may_be_written_with_exponents(answer):
    assert answer(*BASE, "--context", "1e4")["inputs"]["context"] == 10_000


def test_a_tied_axis_follows_its_leader(answer):
    assert answer(*FITS, "--key-bits", "4", "--value-bits", "key_bits")["inputs"]["value_bits"] == 4


@pytest.mark.parametrize(
    ("arguments", "flag"),
    [
        (("--context", "8193"), "context 8,193 exceeds the model's stated 8,192"),
        (("--context", "8192"), None),
        (("--context", "8000", "--output-tokens", "500"), "context 8,000 with 500 output tokens exceeds"),
        (("--context", "4096", "--placement-host", "0.1"), "host memory capacity is not limited"),
        (("--context", "4096", "--key-bits", "1.5"), "key_bits below 2 extrapolates"),
        (("--context", "4096", "--retention", "0.01"), "0.01 of the tokens kept, below 0.016, extrapolates"),
        (("--context", "200000", "--value-bits", "4"), "context beyond 128k tokens extrapolates"),
        (("--context", "4096", "--price-basis", "list"), "written off over 4 years"),
        (("--context", "4096", "--weight-bits", "4", "--task", "retrieval_hard"), "borrowed from"),
    ],
)
def test_flags(answer, kvwall, arguments, flag):
    _, out, _ = kvwall(*BASE, *arguments, "--json")
    flags = json.loads(out)["flags"]
    assert (flags == []) if flag is None else any(flag in one for one in flags)


def test_announced_hardware_is_flagged(answer):
    found = answer("evaluate", "--model", LLAMA, "--hardware", "ascend-960", "--context", "100", code=3)
    assert "ascend-960: announced: vendor target, not a product" in found["flags"]


def test_quality_is_of_the_asked_task_and_confidence(answer):
    design = (*FITS, "--key-bits", "2", "--value-bits", "2")
    easy, hard = (answer(*design, "--task", "retrieval", "--confidence", level)["metrics"] for level in ("0.5", "0.99"))
    assert easy["quality_loss"] == easy["quality_loss_retrieval"] == hard["quality_loss"]
    assert hard["quality_loss_upper"] > easy["quality_loss_upper"]


# --- refusals -------------------------------------------------------------------------------------


def test_all_faults_are_reported_together_without_output(kvwall):
    code, out, err = kvwall(
        "evaluate", "--model", "meta-llama/Meta-Llama-3-70", "--hadware", "h100-sxm", "--hardware", "h100",
        "--batch", "0.5 batch", "--context", "-1", "--key-bits", "nan", "--read-fraction", "2", "--assume", "tdp",
        "--task", "agregate", "--confidence", "2", "--mode", "estimat", "stray", "--json",
    )  # fmt: skip
    assert code == 2
    assert out == ""
    for fault in (
        "did you mean meta-llama/Meta-Llama-3-70B",
        "--hadware is no option (did you mean --hardware?)",
        '"h100" is no hardware of the catalogue',
        "batch = '0.5 batch' is not a number",
        "context = -1 is out of range",
        "key_bits = nan is out of range",
        "read_fraction = 2 is out of range",
        "--assume tdp: write FIGURE=",
        'task "agregate" is unknown (did you mean aggregate',
        "confidence 2.0 is outside 0.5 to 0.99",
        "mode = 'estimat' is unknown (did you mean estimate",
        '"stray" belongs to no option',
    ):
        assert fault in err
    assert len(err.splitlines()) == 12
    assert "Traceback" not in err


def test_every_axis_is_an_option_that_is_checked_and_never_ignored(kvwall):
    for axis in AXES.values():
        wrong = "no-such-thing" if axis.kind in {"name", "flag"} else "-1"
        design = [] if axis.name in {"model", "hardware", "batch", "context", "tensor_parallel"} else list(FITS[1:])
        code, out, err = kvwall("evaluate", *design, f"--{axis.name.replace('_', '-')}", wrong)
        assert (code, out) == (2, ""), axis.name
        fault = "no-such-thing" if axis.kind in {"name", "flag"} else f"{axis.name} = -1 is out of range"
        assert fault in err, axis.name


@pytest.mark.parametrize(
    ("axis", "word", "number"), [("weight-bits", "native", "8"), ("max-model-length", "context", "8192"),
                                 ("utilisation", "engine", "0.9")],
)  # fmt: skip
def test_words_of_axes_stand_for_their_neutral_values(answer, axis, word, number):
    plain, worded = answer(*FITS), answer(*FITS, f"--{axis}", word)
    assert worded == plain
    assert plain["inputs"][axis.replace("-", "_")] == word
    assert answer(*FITS, f"--{axis}", number)["inputs"][axis.replace("-", "_")] == float(number)


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--batch", "1", "--batch", "2"), "batch is given 3 times (4, 1, 2): give it once"),
        (("--context", "1.5"), "context = 1.5 is not whole"),
        (("--context", "1e400"), "context = inf is out of range"),
        (("--context", "9" * 400), "context = inf is out of range"),
        (("--context", "1,2"), "context = '1,2' is not a number"),
        (("--context", "5", "--question-visible", "maybe"), "question_visible = 'maybe': it is true or false"),
        (("--context", "5", "--quantizer", "naiv"), 'quantizer "naiv" is unknown (did you mean naive'),
        (("--context", "5", "--assume", 'memory_bandwidth="3.35 GB/s"'), "did you mean TB/s?"),
        (("--context", "5", "--assume", "memory_bandwith=3 TB/s"), '"memory_bandwith" is no figure (did you mean'),
        (("--context", "5", "--confidence", "x"), '--confidence "x" is not a number'),
        (("--context",), "requires an argument"),
        ((), "context is missing"),
    ],
)
def test_wrong_values_are_named_with_what_is_allowed(kvwall, arguments, fault):
    code, out, err = kvwall(*BASE, *arguments)
    assert code == 2
    assert fault in err
    assert out == ""


@pytest.mark.parametrize("content", ["", "[", "[]", '{"model_type": "llama"}', '{"model_type": "mixtral"}', "\x00"])
def test_a_bad_model_file_is_no_traceback(kvwall, tmp_path, content):
    file = tmp_path / "config.json"
    file.write_text(content)
    code, _, err = kvwall("evaluate", "--model", str(file), "--hardware", "h100-sxm", "--context", "100")
    assert code == 2
    assert str(file) in err


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("evaluat",), '"evaluat" is no command (did you mean evaluate'),
        (("catalog", "hardwar"), 'no section "hardwar" (did you mean hardware?)'),
        (("catalog", "tier"), 'no section "tier" (did you mean tiers?)'),
        (("catalog", "hardware", "h100"), "did you mean h100-sxm"),
        (("catalog", "metrics", "tokens"), 'metric "tokens" is unknown'),
        (("catalog", "axes", "read_fracton"), "did you mean read_fraction"),
        (("catalog", "engines", "vlm"), 'engine "vlm" is unknown (did you mean vllm'),
        (("catalog", "--jsn"), "--jsn"),
        (("--jsn",), "--jsn"),
    ],
)
def test_wrong_commands_exit_2_with_a_sentence(kvwall, arguments, fault):
    code, out, err = kvwall(*arguments)
    assert code == 2
    assert fault in err
    assert out == ""


def test_interrupt_exits_130(kvwall, monkeypatch):
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("kvwall.sweep.commands.evaluate.single_design", interrupted)
    code, out, _ = kvwall(*FITS)
    assert code == 130
    assert out == ""


# --- crossover ------------------------------------------------------------------------------------


def test_crossover_lists_the_product_of_its_lists(answer):
    rows = answer("crossover", "--model", f"{LLAMA},paper/llama-3-70b", "--hardware", "h100-sxm", "--batch", "1,32")
    assert [(row["model"], row["batch"]) for row in rows["rows"]] == [
        (LLAMA, 1), (LLAMA, 32), ("paper/llama-3-70b", 1), ("paper/llama-3-70b", 32),
    ]  # fmt: skip
    for row in rows["rows"]:
        assert row["crossover_context_time"] is None
        assert "estimate" in row["reason"]


def test_crossover_agrees_with_evaluate(answer):
    remedy = ("--key-bits", "4", "--value-bits", "2", "--kv-group-size", "64", "--residual-window", "128",
              "--retention", "0.5", "--sink-tokens", "4", "--tensor-parallel", "16")  # fmt: skip
    design = ("--model", LLAMA, "--hardware", "gb200-nvl72", "--batch", "8")
    row = answer("crossover", *design, *remedy)["rows"][0]
    single = answer("evaluate", *design, *remedy, "--context", "4096")
    assert row["crossover_context_bytes"] == pytest.approx(single["metrics"]["crossover_context_bytes"], rel=1e-12)


def test_crossover_beyond_the_stated_context_is_flagged(answer, kvwall):
    design = ("crossover", "--model", LLAMA, "--hardware", "h100-sxm", "--batch", "1,1024")
    far, near = answer(*design)["rows"]
    assert far["flags"] == ["beyond the model's stated context of 8,192"]
    assert near["flags"] == []
    assert "8,192" in kvwall(*design)[1]


def test_crossover_takes_no_context(kvwall):
    design = ("crossover", "--model", LLAMA, "--hardware", "h100-sxm")
    for words in (("--context", "4096"), ("--context=4096",)):
        code, out, err = kvwall(*design, *words)
        assert (code, out) == (2, "")
        assert err.splitlines() == [
            "kvwall: context: the answer is a context, and does not depend on one: leave it out"
        ]
    code, _, err = kvwall(*design, "--context", "--batch", "x")
    assert code == 2
    assert len(err.splitlines()) == 2
    help_text = " ".join(kvwall("crossover", "--help")[1].split())
    assert "--context" not in help_text.split()
    assert "--context-parallel" in help_text.split()
    assert "not the crossover in bytes" in help_text
    assert "--context" in kvwall("evaluate", "--help")[1].split()


def test_crossover_reports_faults_of_every_list(kvwall):
    code, _, err = kvwall("crossover", "--model", "q", "--hardware", "h100-sxm", "--batch", "1,x,0", "--foo", "1")
    assert code == 2
    for fault in ("batch = 'x' is not a number", "batch = 0 is out of range", "model 'q' is not", "--foo is no option"):
        assert fault in err
    assert len(err.splitlines()) == 4


# --- catalog --------------------------------------------------------------------------------------


def test_catalog_model_has_the_contract_s_shape(answer):
    found = answer("catalog", "models", LLAMA)
    assert found["parameters_total"] == found["parameters_active"] == 70_553_706_496
    assert found["kv_bytes_per_token_growing"] == found["kv_bytes_per_token_all_layers"] == 327_680
    assert found["state_bytes_per_sequence"] == 0
    assert found["weight_bits"] == 16
    assert sum(group["layers"] for group in found["layers"]) == 80


def test_catalog_marks_models_whose_layout_is_not_supported(answer):
    models = {entry["name"]: entry for entry in answer("catalog", "models")["models"]}
    assert set(models) == set(model_names())
    assert {name for name, entry in models.items() if entry["supported"]} == set(loadable_model_names())
    assert all(entry["reason"] for entry in models.values() if not entry["supported"])


def test_catalog_axes_say_what_they_take(answer):
    axes = {entry["name"]: entry for entry in answer("catalog", "axes")["axes"]}
    assert list(axes) == list(AXES)
    keys = {"name", "kind", "neutral", "required", "allowed", "meaning"}
    assert all(set(entry) == keys for entry in axes.values())
    assert axes["max_model_length"]["neutral"] == "context"
    assert '(or "context")' in axes["max_model_length"]["allowed"]
    assert axes["access"]["allowed"] == "streamed, parked"
    assert answer("catalog", "axes", "prefix-share") == axes["prefix_share"]


def test_catalog_hardware_shows_value_unit_source_and_gaps(answer):
    found = answer("catalog", "hardware", "b200-sxm")
    bandwidth = found["figures"]["memory_bandwidth"]
    assert (bandwidth["value"], bandwidth["unit"], bandwidth["shown"]) == (7.7e12, "byte/s", "7.7 TB/s")
    assert bandwidth["source"]
    assert found["figures"]["host_link_bandwidth"] is None
    assert {entry["name"] for entry in answer("catalog", "hardware")["hardware"]} == set(hardware_names())


@pytest.fixture
def at_80_columns(kvwall, monkeypatch):
    """A catalogue section as a terminal of 80 columns shows it."""

    def call(section: str) -> list[str]:
        narrow = Console(width=80, force_terminal=True, color_system=None, file=io.StringIO())
        with monkeypatch.context() as patch:
            patch.setattr("kvwall.sweep.commands.catalog.terminal", lambda: narrow)
            assert kvwall("catalog", section)[0] == 0
        return narrow.file.getvalue().splitlines()

    return call


SECTIONS = ["hardware", "models", "tiers", "engines", "studies", "axes", "metrics"]


@pytest.mark.parametrize("section", SECTIONS)
def test_catalog_lists_break_no_word_in_a_terminal_of_80_columns(kvwall, at_80_columns, section):
    lines = at_80_columns(section)
    assert max(map(len, lines)) <= 80
    if section == "models":  # has more columns than fit
        assert "No room for state MB/sequence, context tokens, bits" in " ".join(lines)
        return
    in_full = kvwall("catalog", section)[1]  # 120 columns
    assert {word for word in in_full.split() if word.strip("-+|")} <= set(" ".join(lines).split())


def test_catalog_tables_have_one_line_for_every_chip_and_model(at_80_columns):
    for section, names in (("hardware", hardware_names()), ("models", loadable_model_names())):
        first = {line.split()[0]: len(line.split()) for line in at_80_columns(section) if line.strip()}
        assert all(first[name] >= 4 for name in names)


def test_catalog_reads_a_file_of_one_s_own(answer, tmp_path):
    chip = tmp_path / "mine.toml"
    chip.write_text('[memory_capacity]\nvalue = "80 GiB"\n[memory_bandwidth]\nvalue = "3 TB/s"\n')
    assert answer("catalog", "hardware", str(chip))["figures"]["memory_bandwidth"]["value"] == 3e12


@pytest.mark.parametrize("section", SECTIONS)
def test_catalog_lists_are_ascii_where_there_is_no_terminal(kvwall, section):
    code, out, _ = kvwall("catalog", section)
    assert code == 0
    assert out.isascii()
    assert len(out.splitlines()) > 2

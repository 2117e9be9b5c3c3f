"""Vetoes: which models and methods, in what order, never a change of a number, grid as single, words, exit code."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kvwall as kv
from kvwall.objectives.register import LABELS, evaluate
from kvwall.objectives.status import STATUSES, computed, status
from kvwall.objectives.veto import VETOES
from kvwall.spaces.columns import Columns, load_catalogue
from kvwall.spaces.errors import InputError
from kvwall.spaces.models.load import CATALOGUE, load_model, loadable_model_names
from kvwall.spaces.quality import EVICTORS, QUANTIZERS
from kvwall.spaces.space import make_space
from kvwall.spaces.vetoes import (
    VETO_NAMES,
    VetoRules,
    checked_vetoes,
    is_naive,
    load_traits,
    scores_blindly,
    smallest_key_bits,
    smallest_naive_bits,
)
from kvwall.sweep.cli import run
from kvwall.sweep.single import single_design
from tests.oracle_veto import BY_QUESTION, LIKE_LLAMA_3, NAIVE, NEVER_SEE, OUTLIERS_IN_KEYS

QWEN, LLAMA, OTHER = "Qwen/Qwen2.5-7B-Instruct", "meta-llama/Meta-Llama-3-8B", "Qwen/Qwen3-8B"
HALF: dict[str, object] = {"model": OTHER, "retention": 0.5, "evictor": "random"}
LOW_KEYS: dict[str, object] = {"model": QWEN, "key_bits": 4}
BLIND = ("veto", "blind_retrieval")
BASE = {"hardware": "h100-sxm", "context": 8192, "mode": "ceiling"}


def labels(**axes: object) -> tuple[str | None, str | None]:
    """Status and veto of a design."""
    found = kv.evaluate(**BASE | axes).labels
    return found["status"], found["veto"]


# Which models


@pytest.mark.parametrize("trait", ["k_outliers", "llama_3"])
def test_names_and_shapes_agree_on_the_catalogue(trait: str) -> None:
    """The nominal model has no shape of its own; every other is known by either."""
    known, expected = load_traits()[trait], {"k_outliers": OUTLIERS_IN_KEYS, "llama_3": LIKE_LLAMA_3}[trait]
    models = [load_model(name) for name in loadable_model_names()]
    assert {model.name for model in models if known.holds(model)} == expected
    shaped = {model.name for model in models if any(shape.fits(model) for shape in known.shapes)}
    assert shaped == expected - {"paper/llama-3-70b"}
    only_named = replace(known, shapes=())
    assert {model.name for model in models if only_named.holds(model)} == expected


@pytest.mark.parametrize(("name", "bits", "naive"), [(QWEN, 8, 0), (LLAMA, 0, 4), (OTHER, 0, 0)])
def test_a_config_json_is_known_by_its_shape(tmp_path: Path, name: str, bits: float, naive: float) -> None:
    file = tmp_path / "config.json"
    file.write_text((CATALOGUE / f"{name.replace('/', '--')}.json").read_text(encoding="utf-8"))
    for path in (file, tmp_path):
        model = load_model(str(path))
        assert (smallest_key_bits(model), smallest_naive_bits(model, "naive")) == (bits, naive)
        assert smallest_naive_bits(model, "structure_aware") == 0


def test_another_shape_is_another_model(tmp_path: Path) -> None:
    config = json.loads((CATALOGUE / f"{LLAMA.replace('/', '--')}.json").read_text(encoding="utf-8"))
    folder = tmp_path / "meta-llama" / "Llama-3-8B"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config | {"vocab_size": 32000}))
    assert smallest_naive_bits(load_model(str(folder)), "naive") == 0, "the words of a path say nothing"


def test_names_of_methods() -> None:
    assert {name for name in QUANTIZERS if is_naive(name)} == NAIVE
    blind = {(name, seen) for name in EVICTORS for seen in (True, False) if scores_blindly(name, seen)}
    assert blind == {(name, seen) for name in NEVER_SEE for seen in (True, False)} | {
        (name, False) for name in BY_QUESTION
    }


def test_every_trait_has_its_source() -> None:
    for trait in load_traits().values():
        assert len(trait.source) > 20
        assert trait.smallest_key_bits or trait.smallest_naive_bits


def test_a_bad_file_of_traits_is_an_input_error(tmp_path: Path) -> None:
    file = tmp_path / "traits.toml"
    file.write_text('[x]\nmeaning = 3\nsource = "s"\nnames = []\nshapes = []\n')
    with pytest.raises(InputError, match=r"x\.meaning"):
        load_traits(file)


# When


@pytest.mark.parametrize(
    ("axes", "expected"),
    [
        ({"model": QWEN, "key_bits": 8, "value_bits": 2}, ("ok", "none")),
        ({"model": QWEN, "key_bits": 7}, ("veto", "k_outliers")),
        ({"model": OTHER, "key_bits": 2, "quantizer": "naive"}, ("ok", "none")),
        ({"model": LLAMA, "key_bits": 4, "value_bits": 4, "quantizer": "naive"}, ("ok", "none")),
        ({"model": LLAMA, "key_bits": 3, "quantizer": "naive"}, ("veto", "naive_low_bits")),
        ({"model": LLAMA, "value_bits": 2, "quantizer": "naive"}, ("veto", "naive_low_bits")),
        ({"model": LLAMA, "value_bits": 2, "quantizer": "naive_grouped"}, ("ok", "none")),
        ({"model": LLAMA, "quantizer": "naive"}, ("ok", "none")),
        (HALF, ("ok", "none")),
        (HALF | {"task": "retrieval"}, ("veto", "blind_retrieval")),
        (HALF | {"task": "retrieval_hard"}, ("veto", "blind_retrieval")),
        (HALF | {"task": "retrieval_easy"}, ("ok", "none")),
        (HALF | {"task": "retrieval", "retention": 1}, ("ok", "none")),
        (HALF | {"task": "retrieval", "recent_tokens": 8192}, ("ok", "none")),
        (HALF | {"task": "retrieval", "evictor": "query_aware"}, ("ok", "none")),
        (HALF | {"task": "retrieval", "evictor": "reconstruction", "question_visible": False}, ("ok", "none")),
        (HALF | {"task": "retrieval", "evictor": "query_aware", "question_visible": False}, BLIND),
        (LOW_KEYS | {"batch": 4096}, ("memory", "k_outliers")),
        (LOW_KEYS | {"pipeline_parallel": 200}, ("layout", "k_outliers")),
        (LOW_KEYS | {"hardware": "b200-sxm", "placement_host": 0.5}, ("unsourced_input", "k_outliers")),
        (LOW_KEYS | {"retention": 0.5, "evictor": "random", "task": "retrieval"}, ("veto", "k_outliers")),
    ],
)  # fmt: skip
def test_a_design_and_its_veto(axes: dict[str, object], expected: tuple[str, str]) -> None:
    assert labels(**axes) == expected


def test_the_order_of_reasons() -> None:
    reasons = [
        ((False, False, -1.0, True), "layout"), ((True, False, -1.0, True), "unsourced_input"),
        ((True, True, -1.0, True), "memory"), ((True, True, 1.0, True), "veto"), ((True, True, 1.0, False), "ok"),
    ]  # fmt: skip
    for (layout, sourced, margin, vetoed), name in reasons:
        assert STATUSES[int(status(layout, sourced, margin, vetoed))] == name
    assert [bool(computed(code)) for code in range(len(STATUSES))] == [False, True, True, False, False, True]
    assert ("none", *VETO_NAMES) == VETOES


# Overrides


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    model=st.sampled_from([QWEN, LLAMA, OTHER]), key_bits=st.sampled_from([16, 8, 4, 3]),
    value_bits=st.sampled_from([16, 4, 2]), quantizer=st.sampled_from(QUANTIZERS), evictor=st.sampled_from(EVICTORS),
    visible=st.booleans(), retention=st.sampled_from([1, 0.5]), batch=st.sampled_from([1, 8, 4096]),
    allowed=st.sets(st.sampled_from(VETO_NAMES)), task=st.sampled_from(["aggregate", "retrieval"]),
)  # fmt: skip
def test_an_override_changes_the_status_and_nothing_else(
    model: str, key_bits: float, value_bits: float, quantizer: str, evictor: str, visible: bool, retention: float,
    batch: int, allowed: set[str], task: str,
) -> None:  # fmt: skip
    axes = {
        "model": model, "key_bits": key_bits, "value_bits": value_bits, "quantizer": quantizer, "evictor": evictor,
        "question_visible": visible, "retention": retention, "batch": batch, "task": task,
    }  # fmt: skip
    strict, loose = (kv.evaluate(**BASE | axes, allow_veto=names) for names in ((), allowed))
    assert loose.metrics == strict.metrics
    assert loose.boundaries == strict.boundaries
    assert loose.labels | {"status": ""} == strict.labels | {"status": ""}
    assert loose.labels["status"] in {strict.labels["status"], "ok"}
    if allowed == set(VETO_NAMES):
        assert loose.status != "veto"
    if strict.labels["veto"] == "none":
        assert loose.labels == strict.labels
        assert not any("veto" in flag for flag in loose.flags)


def test_an_override_lifts_only_what_it_names() -> None:
    both = {"model": QWEN, "key_bits": 4, "retention": 0.5, "evictor": "random", "task": "retrieval"}
    assert labels(**both, allow_veto=["k_outliers"]) == ("veto", "k_outliers")
    assert labels(**both, allow_veto=["blind_retrieval"]) == ("veto", "k_outliers")
    assert labels(**both, allow_veto=["blind_retrieval", "k_outliers"]) == ("ok", "k_outliers")


@pytest.mark.parametrize("wrong", ["k_outliers", 3, ["k_outlier"], [7]])
def test_what_is_no_veto_is_an_input_error(wrong: object) -> None:
    with pytest.raises(InputError):
        checked_vetoes(wrong)
    with pytest.raises(InputError):
        kv.evaluate(**BASE, model=QWEN, allow_veto=wrong)


# Grid and single


def test_a_grid_says_what_single_designs_say() -> None:
    axes = {
        "model": [QWEN, LLAMA, OTHER], "hardware": "h100-sxm", "context": 4096, "batch": [1, 4096],
        "key_bits": [16, 3], "quantizer": ["naive", "structure_aware"], "evictor": ["random", "query_aware"],
        "question_visible": [True, False], "retention": [1, 0.5],
    }  # fmt: skip
    space = make_space(axes)
    for rules in (VetoRules(hard_retrieval=True), VetoRules(("k_outliers",), hard_retrieval=True), VetoRules()):
        columns = Columns(space, load_catalogue(space, vetoes=rules))
        found = evaluate(columns.design(dict(zip(space.dims, np.indices(space.shape), strict=True))), "aggregate")
        codes = {name: np.broadcast_to(found.labels[name], space.shape).ravel() for name in ("status", "veto")}
        for index in range(0, space.size, 7):
            single = single_design(
                space.point(index), task="aggregate", confidence=0.9, mode="ceiling", assume={},
                allow_veto=rules.allowed, budgeted=("retrieval",) if rules.hard_retrieval else (),
            )  # fmt: skip
            for name, code in codes.items():
                assert code[index] == int(single.evaluation.labels[name]), (name, space.point(index))
        assert len(set(codes["veto"])) > 2


def test_columns_stay_concrete_where_nothing_can_be_vetoed() -> None:
    axes = {"model": [OTHER, "Qwen/Qwen3-14B"], "hardware": "h100-sxm", "context": 4096, "key_bits": [16, 2],
            "evictor": list(EVICTORS), "quantizer": list(QUANTIZERS)}  # fmt: skip
    space = make_space(axes)
    traced: list[bool] = []

    def look(positions: dict[str, object]) -> object:
        limits = Columns(space, load_catalogue(space)).design(positions).veto.imposed  # type: ignore[arg-type]
        columns = (limits.smallest_key_bits, limits.smallest_naive_bits, limits.blind)
        traced.extend(isinstance(column, np.ndarray) for column in columns)
        return 0

    import jax

    jax.eval_shape(look, {name: jax.ShapeDtypeStruct((4,), np.int32) for name in space.dims})
    assert traced == [True] * 3


# Words


def test_the_reason_names_values_limit_and_remedy() -> None:
    found = kv.evaluate(**BASE, model=QWEN, key_bits=4)
    said = (
        "4-bit keys on Qwen/Qwen2.5-7B-Instruct, whose keys have outliers: published low-bit K collapses; use "
        "key_bits >= 8, or allow it with --allow-veto k_outliers"
    )
    assert found.why.startswith(f"Vetoed: {said}.")
    assert f"vetoed: {said}" in found.flags
    assert found.metrics["tokens_per_second"] is not None
    assert found.labels["phase"] is not None
    allowed = kv.evaluate(**BASE, model=QWEN, key_bits=4, allow_veto=["k_outliers"])
    assert any(flag.startswith("veto k_outliers is allowed") for flag in allowed.flags)
    assert allowed.to_json()["allow_veto"] == ["k_outliers"]
    naive = kv.evaluate(**BASE, model=LLAMA, key_bits=3, value_bits=2, quantizer="naive")
    assert "3-bit keys and 2-bit values by quantizer naive" in naive.why
    assert "key_bits and value_bits >= 4" in naive.why
    blind = kv.evaluate(**BASE, model=OTHER, retention=0.25, evictor="position", task="retrieval")
    assert "75 % of the tokens are dropped by evictor position with the question visible" in blind.why


def test_a_vetoed_design_that_does_not_fit_still_carries_the_flag() -> None:
    found = kv.evaluate(**BASE, model=QWEN, key_bits=4, batch=4096)
    assert found.why.startswith("Does not fit")
    assert any(flag.startswith("vetoed: 4-bit keys") for flag in found.flags)


def test_the_command_leaves_with_3_and_the_whole_answer(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", "--mode", "ceiling", "--model", QWEN, "--hardware", "h100-sxm", "--context", "8192",
                 "--key-bits", "4", "--json"]  # fmt: skip
    assert run(arguments) == 3
    found = json.loads(capsys.readouterr().out)
    assert (found["labels"]["status"], found["labels"]["veto"]) == ("veto", "k_outliers")
    assert run([*arguments, "--allow-veto", "k_outliers", "--allow-veto", "naive_low_bits"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["labels"]["status"], found["labels"]["veto"]) == ("ok", "k_outliers")
    assert run([*arguments, "--allow-veto", "outliers", "--task", "chess"]) == 2
    said = capsys.readouterr().err
    assert 'veto "outliers" is unknown (did you mean k_outliers?)' in said
    assert "chess" in said


def test_the_label_has_a_meaning_for_readers() -> None:
    assert LABELS["veto"].meanings == ("none", "k_outliers", "naive_low_bits", "blind_retrieval")

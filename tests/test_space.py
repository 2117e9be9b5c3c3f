from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvwall.spaces.axes import AXES, NATIVE, axis_named
from kvwall.spaces.errors import InputError
from kvwall.spaces.space import Space, make_space
from kvwall.spaces.values import axis_values

FIXED = {"model": "m", "hardware": "h", "context": 1024}


def faults_of(stated: dict[str, object]) -> tuple[str, ...]:
    with pytest.raises(InputError) as raised:
        make_space(stated)
    return raised.value.faults


def expanded(axis: str, stated: object) -> tuple[object, ...]:
    return axis_values(AXES[axis], stated).values


# Axes


@pytest.mark.parametrize(
    "axis", [axis for axis in AXES.values() if axis.neutral is not None], ids=lambda axis: axis.name
)
def test_the_neutral_value_of_an_axis_is_one_it_takes(axis: object) -> None:
    assert axis.check(axis.neutral) == axis.neutral  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("axis", "value", "says"),
    [
        ("batch", 0, "at least 1"),
        ("batch", -3, "at least 1"),
        ("batch", 0.5, "out of range"),
        ("batch", 1.5, "not whole"),
        ("batch", math.nan, "out of range"),
        ("batch", math.inf, "out of range"),
        ("batch", True, "not a number"),
        ("batch", "8", "not a number"),
        ("retention", 0, "at least 1e-06"),
        ("retention", 1.0001, "at most 1"),
        ("placement_host", -0.1, "at least 0"),
        ("placement_host", 1.1, "at most 1"),
        ("key_bits", 0.5, "at least 1"),
        ("question_visible", 1, "true or false"),
        ("quantizer", "naiv", "did you mean naive"),
        ("engine", "vlm", "use one of ideal"),
        ("reservation", "page", "did you mean paged"),
        ("access", "streaming", "use one of streamed, parked"),
        ("die_placement", "pined", "did you mean pinned"),
        ("serving_mode", "dynamic", "use one of static, continuous"),
        ("prefix_aware_attention", "yes", "true or false"),
        ("prefix_group", 0, "at least 1"),
        ("prefix_share", 1.1, "at most 1"),
        ("read_fraction", 0, "at least 1e-06"),
        ("pipeline_parallel", 0, "at least 1"),
        ("expert_parallel", 2.5, "not whole"),
        ("expert_skew", -1, "at least 0"),
        ("draft_tokens", 65, "at most 64"),
        ("acceptance_rate", 1.1, "at most 1"),
        ("model", 70, "a name in quotes"),
        ("model", "", "a name in quotes"),
        ("weight_bits", "fp8", '"native"'),
        ("weight_bits", 0, "at least 1"),
        ("weight_bits", "engine", "not a number"),
        ("max_model_length", "model", '"context"'),
        ("max_model_length", 0, "at least 1"),
        ("utilisation", "full", '"engine"'),
        ("utilisation", 0, "above 0"),
        ("utilisation", 1.01, "at most 1"),
        ("batch", "native", "not a number"),
    ],
)
def test_a_value_an_axis_does_not_take_is_refused_saying_what_it_takes(axis: str, value: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        AXES[axis].check(value)


def test_whole_reals_become_integers_on_integer_axes() -> None:
    value = AXES["batch"].check(32.0)
    assert value == 32
    assert isinstance(value, int)


def test_weight_bits_take_native_beside_numbers() -> None:
    assert expanded("weight_bits", [NATIVE, 16, 4]) == (NATIVE, 16.0, 4.0)


WORDS = {"weight_bits": "native", "max_model_length": "context", "utilisation": "engine"}


def test_three_axes_take_a_word_and_it_is_their_neutral_value() -> None:
    assert {axis.name: axis.word for axis in AXES.values() if axis.word} == WORDS
    for name, word in WORDS.items():
        assert AXES[name].check(word) == AXES[name].neutral == word
        assert f'(or "{word}")' in AXES[name].allowed


@pytest.mark.parametrize(("name", "numbers"), [("max_model_length", [8192, 4096]), ("utilisation", [0.5, 0.9])])
def test_a_word_stands_beside_numbers_in_a_list_but_bounds_no_form(name: str, numbers: list[float]) -> None:
    word = WORDS[name]
    assert expanded(name, [word, *numbers]) == (word, *numbers)
    assert expanded(name, word) == (word,)
    with pytest.raises(InputError, match="twice"):
        expanded(name, [word, *numbers, word])
    with pytest.raises(InputError, match="three finite numbers"):
        expanded(name, {"linear": [word, numbers[0], 3]})


def test_a_word_wins_over_the_axis_of_that_name() -> None:
    """`context` is at once the word of `max_model_length` and an axis that others may be tied to."""
    space = make_space({**FIXED, "context": [1024, 4096], "max_model_length": "context", "recent_tokens": "context"})
    assert [space.point(index)["max_model_length"] for index in (0, 1)] == ["context", "context"]
    assert [space.point(index)["recent_tokens"] for index in (0, 1)] == [1024, 4096]


def test_an_unknown_axis_is_refused_with_the_nearest_names() -> None:
    with pytest.raises(InputError, match="did you mean retention"):
        axis_named("retentoin")


CONTRACT = (
    "model hardware engine batch context output_tokens weight_bits activation_bits key_bits value_bits kv_group_size "
    "scale_bits zero_bits residual_window outlier_fraction quantizer retention sink_tokens recent_tokens evictor "
    "question_visible read_fraction block_size reservation max_model_length prefix_share prefix_group "
    "prefix_aware_attention prefix_hit_rate placement_host placement_cxl placement_nvme placement_remote access "
    "link_overlap tensor_parallel pipeline_parallel context_parallel attention_data_parallel expert_parallel "
    "expert_skew draft_tokens acceptance_rate die_placement utilisation serving_mode price_basis"
)


def test_the_axes_are_the_contracts() -> None:
    more = ["weight_quantizer"]  # CHANGELOG.md
    assert sorted(AXES) == sorted([*CONTRACT.split(), *more])


# Values


def test_forms_expand_to_their_values() -> None:
    assert expanded("batch", {"geom": [1, 512, 10]}) == tuple(2**i for i in range(10))
    assert expanded("retention", {"linear": [0.1, 1.0, 10]}) == tuple(round(0.1 * i, 1) for i in range(1, 11))
    assert expanded("batch", {"range": [1, 10, 3]}) == (1, 4, 7, 10)
    assert expanded("batch", {"range": [10, 1, -4]}) == (10, 6, 2)
    assert expanded("placement_host", {"range": [0, 0.3, 0.1]}) == (0.0, 0.1, 0.2, 0.3)
    assert expanded("batch", {"linear": [7, 7, 1]}) == (7,)
    assert expanded("batch", 3) == (3,)


def test_integers_that_fall_together_on_rounding_are_dropped_with_a_notice() -> None:
    values = axis_values(AXES["batch"], {"geom": [1, 4, 9]})
    assert values.values == (1, 2, 3, 4)
    assert values.notices == ("batch: 5 values fell together on rounding and were dropped",)
    assert axis_values(AXES["batch"], {"geom": [1, 4, 3]}).notices == ()


@pytest.mark.parametrize(
    ("axis", "stated", "says"),
    [
        ("batch", [], "at least one value"),
        ("batch", [1, 2, 1], "twice"),
        ("batch", [1, 1.0], "twice"),
        ("batch", {}, "write a list"),
        ("batch", {"log": [1, 2, 3]}, "write a list"),
        ("batch", {"geom": [1, 2, 3], "linear": [1, 2, 3]}, "write a list"),
        ("batch", {"geom": [1, 2]}, "three finite numbers"),
        ("batch", {"geom": 3}, "three finite numbers"),
        ("batch", {"geom": [1, "2", 3]}, "three finite numbers"),
        ("batch", {"geom": [1, math.nan, 3]}, "three finite numbers"),
        ("batch", {"geom": [0, 8, 3]}, "above 0"),
        ("batch", {"geom": [1, 8, 2.5]}, "whole number"),
        ("batch", {"geom": [1, 8, 0]}, "whole number"),
        ("batch", {"linear": [1, 8, 1]}, "at least 2"),
        ("batch", {"range": [1, 8, 0]}, "never arrives"),
        ("batch", {"range": [1, 8, -1]}, "never arrives"),
        ("placement_host", {"range": [0, 1, 1e-9]}, "the most is"),
        ("retention", {"linear": [0.0, 1.0, 11]}, "at least 1e-06"),
        ("model", {"linear": [1, 2, 2]}, "list its values"),
    ],
)
def test_a_form_that_states_no_axis_is_refused(axis: str, stated: object, says: str) -> None:
    with pytest.raises(InputError, match=says):
        expanded(axis, stated)


def test_every_fault_of_a_list_is_reported() -> None:
    with pytest.raises(InputError) as raised:
        expanded("batch", [0, 1.5, 2, 2])
    assert len(raised.value.faults) == 3


@given(
    st.integers(1, 1000),
    st.integers(1, 1000),
    st.integers(2, 60),
    st.sampled_from(["geom", "linear"]),
)
def test_spaced_values_are_unique_monotone_and_keep_their_ends(first: int, last: int, count: int, form: str) -> None:
    values = np.array(expanded("batch", {form: [first, last, count]}))
    assert values[0] == first
    assert values[-1] == last
    steps = np.sign(last - first) * np.diff(values)
    assert len(values) <= count
    assert (steps > 0).all()


# Space

AXIS_LISTS = {
    "hardware": st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True),
    "batch": st.lists(st.integers(1, 1000), min_size=1, max_size=4, unique=True),
    "key_bits": st.lists(st.sampled_from([16.0, 8.0, 4.0, 3.0, 2.0]), min_size=1, max_size=5, unique=True),
    "retention": st.lists(st.floats(0.01, 1), min_size=1, max_size=4, unique=True),
    "question_visible": st.lists(st.booleans(), min_size=1, max_size=2, unique=True),
}


@st.composite
def spaces(draw: st.DrawFn) -> tuple[Space, dict[str, object]]:
    names = draw(st.permutations(sorted(AXIS_LISTS)))
    stated = {name: draw(AXIS_LISTS[name]) for name in names[: draw(st.integers(0, len(names)))]}
    tie = {"value_bits": "key_bits"} if "key_bits" in stated and draw(st.booleans()) else {}
    fixed = {name: value for name, value in FIXED.items() if name not in stated}
    return make_space({**stated, **tie, **fixed}), {**stated, **tie}


@given(spaces(), st.data())
def test_index_and_point_are_inverse(made: tuple[Space, dict[str, object]], data: st.DataObject) -> None:
    space, _ = made
    index = data.draw(st.integers(0, space.size - 1))
    assert space.index(space.point(index)) == index


@given(spaces())
def test_points_are_the_product_of_the_stated_lists_in_their_order(made: tuple[Space, dict[str, object]]) -> None:
    space, stated = made
    lists = {name: values for name, values in stated.items() if isinstance(values, list)}
    found = [tuple(space.point(index)[name] for name in lists) for index in range(space.size)]
    assert found == list(product(*lists.values()))


@given(spaces())
def test_a_tied_axis_moves_with_its_leader_and_is_no_dimension(made: tuple[Space, dict[str, object]]) -> None:
    space, stated = made
    points = [space.point(index) for index in range(space.size)]
    followed = [point["value_bits"] == point["key_bits"] for point in points]
    neutral = [point["value_bits"] == 16 for point in points]
    assert all(followed if "value_bits" in stated else neutral)
    assert "value_bits" not in space.dims
    dimension = "key_bits" if "value_bits" in stated and "key_bits" in space.dims else None
    assert space.dimension_of("value_bits") == dimension


def test_a_single_design_is_a_space_without_dimensions() -> None:
    space = make_space(FIXED)
    assert (space.dims, space.shape, space.size) == ((), (), 1)
    point = space.point(0)
    assert point == {**{axis.name: axis.neutral for axis in AXES.values()}, **FIXED}
    assert space.index(point) == 0


def test_an_index_outside_the_grid_is_refused() -> None:
    space = make_space({**FIXED, "batch": [1, 2]})
    for index in (-1, 2):
        with pytest.raises(IndexError, match="outside 0 to 1"):
            space.point(index)


def test_a_value_off_the_grid_is_refused_naming_those_on_it() -> None:
    space = make_space({**FIXED, "batch": [1, 2], "key_bits": [16, 8]})
    with pytest.raises(InputError) as raised:
        space.index({"batch": 3})
    assert raised.value.faults == (
        "batch = 3 is not on the grid: 1, 2",
        "key_bits = None is not on the grid: 16.0, 8.0",
    )


def test_dimensions_keep_the_stated_order_and_fixed_axes_are_none() -> None:
    stated = {"retention": [1, 0.5], "batch": [4], "context": [1, 2], "model": "m", "hardware": "h"}
    assert make_space(stated).dims == ("retention", "context")


@pytest.mark.parametrize(
    ("stated", "says"),
    [
        ({"value_bits": "key_bits"}, "needs a leader that states its own values"),
        ({"value_bits": "key_bits", "key_bits": "scale_bits", "scale_bits": 16}, "needs a leader"),
        ({"value_bits": "key_bits", "key_bits": "value_bits"}, "needs a leader"),
        ({"batch": "retention", "retention": [0.5, 1]}, 'batch = "retention": batch = 0.5 is out of range'),
        ({"tensor_parallel": "tensor_parallel"}, "not a number"),
    ],
)
def test_a_tie_that_cannot_hold_is_refused(stated: dict[str, object], says: str) -> None:
    assert says in "\n".join(faults_of({**FIXED, **stated}))


def test_every_fault_of_a_space_is_reported_missing_axes_too() -> None:
    found = faults_of({"batch": 0, "retentoin": 1, "hardware": []})
    assert [fault.split()[0] for fault in found] == ["batch", "axis", "hardware", "model", "context"]

"""Bounds of JSON are checked on its text, and agree with what a decoder makes of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from conversations.payloads import bounds, jsontext
from conversations.payloads.bounds import Shape, TooDeep, TooManyValues

SLICE = bounds.LIGHT_MAX_CHARACTERS

pytestmark = pytest.mark.one_engine

tricky = st.text(alphabet='[]{},:"\\ \n\ta1é\ud800😀', max_size=30)
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | tricky
)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(tricky, inner, max_size=6),
    max_leaves=60,
)
spaces = st.sampled_from(["", " ", "\n\t \r"])


class Pairs(list[tuple[str, Any]]):
    """An object with all its members, also those of the same name."""


def shape_of(text: str) -> Shape:
    *_, shape = bounds._shapes(text, 0)
    return shape


def decoded_shape(value: Any) -> Shape:
    """Return the shape of a value that a decoder has made, objects as Pairs."""
    inner = [each for _, each in value] if isinstance(value, Pairs) else value
    if not isinstance(inner, list):
        return Shape(0, 0)
    shapes = [decoded_shape(each) for each in inner]
    return Shape(
        len(inner) + sum(shape.values for shape in shapes),
        1 + max((shape.depth for shape in shapes), default=0),
    )


def is_refused(text: str, values_max: int, depth_max: int) -> bool:
    try:
        bounds.require_bounded(text, values_max=values_max, depth_max=depth_max)
    except (TooManyValues, TooDeep):
        return True
    return False


@given(values, st.booleans(), spaces, st.integers(0, 30))
def test_the_shape_of_a_text_is_that_of_its_value(
    value: Any, is_ascii: bool, space: str, padding: int
) -> None:
    text = json.dumps(value, ensure_ascii=is_ascii, separators=(f"{space},{space}", f":{space}"))
    # Somewhere in it a slice of the scan ends.
    text = f"{' ' * (SLICE - padding)}{text}{space}"
    shape = decoded_shape(json.loads(text, object_pairs_hook=Pairs))
    assert shape_of(text) == shape
    assert not is_refused(text, shape.values, shape.depth)
    if shape.values:
        assert is_refused(text, shape.values - 1, shape.depth)
    if shape.depth:
        assert is_refused(text, shape.values, shape.depth - 1)


@given(st.lists(st.sampled_from(["\\", '"', "[", "{", "]", "}", ",", " ", "a", '"a"', "\\u005b", "é"])))
@example(["[", '"', "\\", '"', ",", '"', ",", "1", "]"])
def test_whatever_a_decoder_takes_within_the_bounds_is_not_refused(parts: Sequence[str]) -> None:
    text = "".join(parts)
    try:
        value = json.loads(text, object_pairs_hook=Pairs)
    except ValueError:
        is_refused(text, 3, 3)  # it is over, somehow: the decoder says what is wrong
        return
    shape = decoded_shape(value)
    assert is_refused(text, 3, 2) is (shape.values > 3 or shape.depth > 2)


def test_escapes_are_followed_from_one_slice_to_the_next(subtests: pytest.Subtests) -> None:
    for offset in range(-3, 4):
        for run in [1, 2, 3, 4, SLICE - 1, SLICE, SLICE + 1]:
            with subtests.test(offset=offset, run=run):
                string = "x" * (SLICE - run + offset) + "\\" * (2 * run)
                text = f'["{string}",["{string}' + r'\"],[[\\",1]]'
                assert shape_of(text) == decoded_shape(json.loads(text))


def test_a_list_that_opens_where_a_slice_ends_counts_only_if_it_is_not_empty() -> None:
    for inner, values in (("[]", 1), ("[1]", 2), ("[ ]", 1)):
        text = " " * (SLICE - 2) + f"[{inner}]"
        assert shape_of(text).values == values
        assert not is_refused(text, values, 2)


@pytest.mark.parametrize(
    "text",
    ["[" * 50_000, '{"a":' * 50_000, "[1," * 50_000, '["' + "[" * 100 + '",' + "[" * 501],
)
def test_what_nests_too_deeply_is_refused_before_it_is_known_to_be_json(text: str) -> None:
    with pytest.raises(TooDeep, match="at most 500 lists and objects"):
        bounds.require_bounded(text)


def test_a_refusal_says_the_bound_and_what_to_do() -> None:
    with pytest.raises(TooManyValues) as refusal:
        bounds.require_bounded("[" + "1," * 100_000 + "1]")
    assert str(refusal.value) == (
        "it has more than 100,000 values (members of objects and items of lists): split it, or put "
        "large data into strings"
    )


@pytest.mark.parametrize("many", [SLICE - 1, SLICE, SLICE + 1, 3 * SLICE])
def test_values_are_counted_over_all_slices_of_a_text(many: int) -> None:
    text = "[" + "1," * (many - 1) + "1]"
    assert not is_refused(text, many, 1)
    assert is_refused(text, many - 1, 1)


def test_large_strings_are_not_bounded() -> None:
    text = json.dumps({"args": {"content": '[{",}]\\' * 300_000}})
    bounds.require_bounded(text)
    assert shape_of(text) == Shape(2, 2)


@given(values)
def test_a_value_is_light_where_its_text_is(value: Any) -> None:
    assert bounds.is_light_value(value)
    assert bounds.is_light(json.dumps(value))


@pytest.mark.parametrize(
    "value",
    [
        [1] * 2_000,
        {"a": [[1] * 500] * 4},
        dict.fromkeys(map(str, range(1_500))),
        "x" * 70_000,
        {"x" * 70_000: 1},
        ["x" * 10_000] * 7,
    ],
)
def test_what_is_large_is_not_light(value: object) -> None:
    assert not bounds.is_light_value(value)
    assert not bounds.is_light(json.dumps(value))


def test_splitting_stops_at_the_limit() -> None:
    endless = "[1,2,3," + "x" * 10  # beyond the limit it is not looked at
    with pytest.raises(jsontext.TooManyItems, match="more than 3 items"):
        jsontext.items(endless, at_most=3)
    with pytest.raises(jsontext.TooManyItems, match="more than 1 items"):
        jsontext.objects("[{},{", at_most=1)
    with pytest.raises(jsontext.TooManyItems, match="more than 1 members"):
        jsontext.members('{"a":1,"b":x', at_most=1)
    assert len(jsontext.items("[1,2,3]", at_most=3)) == 3
    assert jsontext.members('{"a":1,"a":2}', at_most=1)["a"].value == 2


@pytest.mark.parametrize("digits", [640, 641, 4_300, 4_301, 5_000])
def test_a_long_text_is_read_like_a_short_one(digits: int) -> None:
    number = "9" * digits
    short, long = f"[{number},1.5,-0]", f"[{number},1.5,-0{' ' * jsontext.LONG_CHARACTERS}]"
    assert [item.text for item in jsontext.items(long)] == [item.text for item in jsontext.items(short)]
    if digits <= 4_300:
        assert jsontext.loads(long) == jsontext.loads(short)
    else:
        for text in (short, long):
            with pytest.raises(ValueError, match="Exceeds the limit"):
                jsontext.loads(text)

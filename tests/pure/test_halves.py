"""Halves of surrogate pairs: joined across pieces, and never left alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conversations.payloads import halves

UNITS = st.text(alphabet='a\\"u\ud83c\udf27\ud800\udfff🌧é\n', max_size=12)
VALUES = st.recursive(
    UNITS | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(UNITS, inner, max_size=3),
    max_leaves=6,
)


def as_read(text: str) -> str:
    """Return what a reader of UTF-16 that replaces errors sees."""
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def pieces_of(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[start:end] for start, end in pairwise(places)]


@given(text=UNITS, cuts=st.lists(st.integers(0, 12), max_size=4))
@settings(derandomize=True, max_examples=300)
def test_a_text_in_pieces_is_the_same_as_in_one(text: str, cuts: list[int]) -> None:
    joined = halves.WholeText()
    shown = [*map(joined.add, pieces_of(text, cuts)), joined.rest()]
    assert "".join(shown) == halves.whole(text) == as_read(text)
    assert all(part.encode() is not None for part in shown)


@given(value=VALUES, cuts=st.lists(st.integers(0, 200), max_size=6), ascii_only=st.booleans())
@settings(derandomize=True, max_examples=300)
def test_json_in_pieces_has_no_lone_half_and_is_otherwise_the_same(
    value: Any, cuts: list[int], ascii_only: bool
) -> None:
    text = halves.whole(json.dumps(value, ensure_ascii=ascii_only))
    mended = halves.WholeJson()
    whole = "".join([*map(mended.add, pieces_of(text, cuts)), mended.rest()])
    assert whole == halves.whole_json(text)
    assert json.loads(whole) == json.loads(json.dumps(halves.whole_value(value)))
    json.dumps(json.loads(whole), ensure_ascii=False).encode()


def test_what_is_no_half_stays_as_it_is(subtests: pytest.Subtests) -> None:
    for text in (
        r'{"a": "\\ud83d"}',
        r'{"a": "\ud83c\udf27 \u00e9"}',
        '{"a": 1.10, "b": 1E400}',
        r'"C:\\udesk"',
    ):
        with subtests.test(text):
            assert halves.whole_json(text) == text

"""Cursors: each is read as it was written, and no other text is one."""

from __future__ import annotations

from base64 import urlsafe_b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conversations.cursors import DirectedCursor, InvalidCursor, PlaceCursor

SEQS_END = 2**63
SEQS = st.integers(0, 2**63 - 2)


def as_page_id(text: str) -> str:
    return urlsafe_b64encode(text.encode()).decode().rstrip("=")


@given(pk=SEQS, seq=SEQS, newest_first=st.booleans())
def test_a_cursor_of_a_page_of_events_is_read_as_it_was_written(
    pk: int, seq: int, newest_first: bool
) -> None:
    place, directed = PlaceCursor(pk, seq), DirectedCursor(seq, newest_first)
    assert PlaceCursor.decode(place.encode()) == place
    assert DirectedCursor.decode(directed.encode(), newest_first=newest_first) == directed
    with pytest.raises(InvalidCursor):
        DirectedCursor.decode(directed.encode(), newest_first=not newest_first)
    with pytest.raises(InvalidCursor):
        PlaceCursor.decode(directed.encode())


WRITTEN = st.text("ad.-+_ 0123456789é٣", max_size=24)


@given(st.text() | WRITTEN.map(as_page_id), st.booleans())
def test_any_other_text_is_no_cursor_of_a_page_of_events(text: str, newest_first: bool) -> None:
    with suppress(InvalidCursor):
        assert SEQS_END > PlaceCursor.decode(text).seq >= 0
    with suppress(InvalidCursor):
        assert SEQS_END > DirectedCursor.decode(text, newest_first=newest_first).seq >= 0


@pytest.mark.parametrize(
    "text", ["-1.0", "0.-1", f"{2**63}.0", f"0.{2**63}", "1", "", "1.2.3", " 1.2", "1_0.2"]
)
def test_a_place_beyond_the_numbers_of_the_database_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        PlaceCursor.decode(as_page_id(text))


@pytest.mark.parametrize("text", [f"a{2**63 - 1}", "a-1", "b1", "a", "a٣"])
def test_a_direction_or_a_seq_that_no_page_has_is_refused(text: str) -> None:
    with pytest.raises(InvalidCursor):
        DirectedCursor.decode(as_page_id(text), newest_first=False)

"""Frames of text that the server makes itself: as the library would make and read them."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import example, given
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, Protocol

from sessions_app.live.text_frames import CHUNK_BYTES, frame_of, in_chunks, text_of

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=300)


@given(texts)
@example("")
@example("a" * 125)
@example("a" * 126)
@example("a" * 65_535)
@example("a" * 65_536)
def test_a_frame_is_the_one_that_the_library_makes(text: str) -> None:
    frame = frame_of(text)
    assert frame == Frame(Opcode.TEXT, text.encode()).serialize(mask=False)
    assert text_of(frame) == text


@given(st.lists(texts, max_size=20))
def test_frames_that_are_written_together_are_read_one_by_one(sent: list[str]) -> None:
    client = Protocol(CLIENT)
    client.receive_data(b"".join(map(frame_of, sent)))
    read = [bytes(event.data).decode() for event in client.events_received() if isinstance(event, Frame)]
    assert read == sent


@given(st.lists(st.integers(1, 3 * CHUNK_BYTES), max_size=12))
def test_chunks_hold_all_events_in_order_and_end_with_the_one_that_fills_them(sizes: list[int]) -> None:
    events: Any = [{"payload": "x" * size} for size in sizes]
    chunks = list(in_chunks(events))
    assert [event for chunk in chunks for event in chunk] == events
    assert all(chunks)
    for chunk in chunks:
        assert sum(len(event["payload"]) for event in chunk[:-1]) < CHUNK_BYTES
    for chunk in chunks[:-1]:
        assert sum(len(event["payload"]) for event in chunk) >= CHUNK_BYTES

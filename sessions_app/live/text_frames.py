"""Text frames of WebSockets as bytes, made once for all readers, and written many at a time.

A server neither masks nor compresses its frames, so every socket gets the same bytes. To write them
itself, a socket needs the extension that the server adds to its scope; without it, as in tests, each
frame is sent as an ASGI message.
"""

from __future__ import annotations

import struct
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple

from conversations.events import EventEnvelope

EXTENSION = "convserver.text_frames"
"""In the scope: a Writer."""

# A transport takes as much before it waits.
CHUNK_BYTES = 64 * 1024
"""About this much, or one long frame, is written at a time."""

_FINAL_TEXT = 0x81
_SHORT_MAX, _MEDIUM_MAX = 125, 0xFFFF
_MEDIUM, _LONG = 126, 127


def frame_of(text: str) -> bytes:
    """Return the frame of a text: final, not masked (RFC 6455, section 5.2)."""
    data = text.encode()
    length = len(data)
    if length <= _SHORT_MAX:
        return bytes((_FINAL_TEXT, length)) + data
    if length <= _MEDIUM_MAX:
        return struct.pack("!BBH", _FINAL_TEXT, _MEDIUM, length) + data
    return struct.pack("!BBQ", _FINAL_TEXT, _LONG, length) + data


def text_of(frame: bytes) -> str:
    head = {_MEDIUM: 4, _LONG: 10}.get(frame[1], 2)
    return frame[head:].decode()


class Writer(NamedTuple):
    write: Callable[[bytes], Awaitable[None]]
    """Returns once the client has room; raises OSError if it has left."""
    write_at_once: Callable[[bytes], bool]
    """Writes if there is room now, and returns whether it did."""


def writer_of(scope: Any) -> Writer | None:
    """Return the writer of this socket; None if its server has none."""
    writer: Writer | None = (scope.get("extensions") or {}).get(EXTENSION)
    return writer


def in_chunks(events: Sequence[EventEnvelope]) -> Iterator[Sequence[EventEnvelope]]:
    """Divide events into runs of about CHUNK_BYTES, each of at least one event."""
    if len(events) == 1:  # the usual case of a live event
        yield events
        return
    start = size = 0
    for end, event in enumerate(events, 1):
        size += len(event["payload"])
        if size >= CHUNK_BYTES:
            yield events[start:end]
            start, size = end, 0
    if start < len(events):
        yield events[start:]

"""WebSocket frames as bytes, as few operations as possible: the client must not be what is measured."""

from __future__ import annotations

import base64
import os
import struct
from collections.abc import Iterator

from benchmarks.clients.exchanges import authorization

_TEXT, _CLOSE = 0x81, 0x88


class ClosedEarly(Exception):
    """The server closed the socket; the text holds its code and reason."""


def upgrade(path: str, port: int, token: str = "") -> bytes:
    """Return the request that opens a socket."""
    key = base64.b64encode(os.urandom(16)).decode()
    return (
        f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"{authorization(token)}"
        f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n"
    ).encode()


def text_frame(text: bytes) -> bytes:
    """Return a client's frame; its mask is four zero bytes, which leave the text as it is."""
    size = len(text)
    if size < 126:
        return bytes((_TEXT, 0x80 | size)) + b"\0\0\0\0" + text
    if size < 65536:
        return struct.pack("!BBH", _TEXT, 0x80 | 126, size) + b"\0\0\0\0" + text
    return struct.pack("!BBQ", _TEXT, 0x80 | 127, size) + b"\0\0\0\0" + text


def texts(received: bytearray) -> Iterator[bytes]:
    """Take the whole frames off the front and yield the text of each; pings are passed over.

    Raise ClosedEarly for a close frame.
    """
    at, end = 0, len(received)
    while at + 2 <= end:
        first, size, start = received[at], received[at + 1], at + 2
        if size == 126 and at + 4 <= end:
            size, start = int.from_bytes(received[at + 2 : at + 4], "big"), at + 4
        elif size == 127 and at + 10 <= end:
            size, start = int.from_bytes(received[at + 2 : at + 10], "big"), at + 10
        elif size > 125:
            break
        if start + size > end:
            break
        at = start + size
        if first == _TEXT:
            yield bytes(received[start:at])
        elif first == _CLOSE:
            raise ClosedEarly(
                f"{int.from_bytes(received[start : start + 2], 'big')} {received[start + 2 : at]!r}"
            )
    del received[:at]

"""HTTP/1.1 on a kept connection as bytes, as few operations as possible, like `frames`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

_LENGTH = b"content-length:"


class Answer(NamedTuple):
    """What came back to one request."""

    status: int
    body: bytes


def get(path: str, port: int, token: str = "") -> bytes:
    """Return the request that reads."""
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{authorization(token)}\r\n".encode()


def head(method: str, path: str, port: int, token: str = "", kind: str = "application/json") -> bytes:
    """Return what every request with a body of this kind begins with at this place; `with_body` ends it."""
    return (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{authorization(token)}"
        f"Content-Type: {kind}\r\nContent-Length: "
    ).encode()


def authorization(token: str) -> str:
    """Return the header line of an API token; nothing without one."""
    return f"Authorization: Bearer {token}\r\n" if token else ""


def with_body(head: bytes, body: bytes) -> bytes:
    """Return the whole request."""
    return b"%b%d\r\n\r\n%b" % (head, len(body), body)


def answers(received: bytearray) -> Iterator[Answer]:
    """Take the whole answers off the front and yield them; each must say its length."""
    while (head_end := received.find(b"\r\n\r\n")) >= 0:
        head = bytes(received[:head_end]).lower()
        length_at = head.index(_LENGTH) + len(_LENGTH)
        end = head_end + 4 + int(head[length_at:].split(b"\r\n", 1)[0])
        if len(received) < end:
            break
        body = bytes(received[head_end + 4 : end])
        del received[:end]
        yield Answer(int(head[9:12]), body)  # of HTTP/1.1 200 OK

"""Lists of what was asked for one by one: whole, in order, and never held at once where they are long."""

from __future__ import annotations

from functools import partial

from django.http import StreamingHttpResponse

from convserver.api.v1 import batches


async def test_what_is_far_is_read_when_its_turn_comes() -> None:
    read: list[str] = []

    def deferred(name: str) -> str:
        read.append(name)
        return f'"{name}"'

    unread = {name: partial(deferred, name) for name in ("b", "c")}
    response = batches.in_order(["b", "x", "a", "b"], {"a": '"a"'}, unread)
    assert isinstance(response, StreamingHttpResponse)
    found = [(piece, len(read)) async for piece in response]
    assert found == [(b'["b"', 1), (b",null", 1), (b',"a"', 1), (b',"b"', 2), (b"]", 2)]


async def test_what_is_near_but_asked_for_again_and_again_is_sent_piece_by_piece() -> None:
    response = batches.in_order(["a"] * 50, {"a": "1" * 100_000}, {})
    assert isinstance(response, StreamingHttpResponse)
    assert max([len(piece) async for piece in response]) <= 100_001


async def test_what_was_purged_meanwhile_is_null() -> None:
    response = batches.in_order(["a"], {}, {"a": lambda: None})
    assert isinstance(response, StreamingHttpResponse)
    assert b"".join([piece async for piece in response]) == b"[null]"

"""Batches: a list in the requested order, of which only a part is in memory at a time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from django.http import HttpResponse, StreamingHttpResponse
from django.http.response import HttpResponseBase

from conversations.log.reads import PAGE_MAX_BYTES
from sessions_app import astore

NOTHING = "null"

Read = Callable[[], str | None]
"""Reads one thing as JSON; None if it was deleted meanwhile."""


def in_order(ids: Sequence[str], loaded: Mapping[str, str], deferred: Mapping[str, Read]) -> HttpResponseBase:
    """Return a JSON list of the things with these ids, null for those in neither mapping.

    A long list is streamed: each of `deferred` is read when its turn comes.
    """
    size = sum(len(loaded.get(each, NOTHING)) for each in ids)
    # A repeated id counts each time, since each is written.
    if size <= PAGE_MAX_BYTES and not any(each in deferred for each in ids):
        text = ",".join(loaded.get(each, NOTHING) for each in ids)
        return HttpResponse(f"[{text}]", content_type="application/json")
    return StreamingHttpResponse(_pieces(ids, loaded, deferred), content_type="application/json")


async def _pieces(
    ids: Sequence[str], loaded: Mapping[str, str], deferred: Mapping[str, Read]
) -> AsyncIterator[bytes]:
    for number, each in enumerate(ids):
        text = await astore.call(deferred[each]) if each in deferred else loaded.get(each)
        yield f"{',' if number else '['}{text or NOTHING}".encode()
    yield b"]"

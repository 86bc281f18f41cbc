"""One conversation as a file that is sent while it is read, with one page of its log in memory."""

from __future__ import annotations

import asyncio
import re
import unicodedata
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from django.http import StreamingHttpResponse
from django.utils.http import content_disposition_header

from conversations.events import EventEnvelope
from conversations.log import reads
from conversations.models import Conversation, ConversationRef, Event
from conversations.transcripts import jsonl, markdown
from convserver.rendering import document
from sessions_app import astore
from sessions_app.live import ratings
from sessions_app.live.status import iso, states_of

T = TypeVar("T")

NAME_MAX_LENGTH = 80
# This many events are rendered together, so that results are placed in their calls.
EVENTS_AT_ONCE = 50

_NOT_IN_NAMES = re.compile(r'[\\/:*?"<>|%\s]+')
_UNSAFE_CATEGORIES = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


class Format(StrEnum):
    JSONL = "jsonl"
    MARKDOWN = "md"
    HTML = "html"


CONTENT_TYPES = {
    Format.JSONL: "application/x-ndjson",
    Format.MARKDOWN: "text/markdown; charset=utf-8",
    Format.HTML: "text/html; charset=utf-8",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Source:
    """A conversation when its export began, so that its metadata and its events agree."""

    conversation: ConversationRef
    title: str
    facts: dict[str, object]
    carried: dict[str, object]  # what another server needs, besides the facts, to store it unchanged
    through: int
    head_digest: str


def source(row: Conversation) -> Source:
    """Return the facts that an export needs of a conversation."""
    title = states_of([row.pk])[row.pk]["title"]
    facts: dict[str, object] = {
        "id": row.public_id,
        "version": row.version,
        "repository": row.repository,
        "branch": row.branch,
        "model": row.llm_model,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
    }
    carried: dict[str, object] = {
        "tags": row.tags,
        "accumulated_cost": row.accumulated_cost,
        "prompt_tokens": row.prompt_tokens,
        "completion_tokens": row.completion_tokens,
        "last_message_at": iso(row.last_message_at) if row.last_message_at else None,
        "parent": row.parent.public_id if row.parent else None,
        "forked_from": row.forked_from.public_id if row.forked_from else None,
        "forked_at": row.forked_at,
        "feedback": ratings.exported(row.ref),
    }
    return Source(
        conversation=row.ref,
        title=title,
        facts=facts,
        carried=carried,
        through=row.next_seq - 1,
        head_digest=row.head_digest,
    )


def download(row: Conversation, wanted: Format) -> StreamingHttpResponse:
    """Return a conversation as a file that is named after its title."""
    found = source(row)
    match wanted:
        case Format.JSONL:
            texts = in_threads(row.owner_id, json_lines(found))
        case Format.MARKDOWN:
            texts = _markdown(found)
        case Format.HTML:
            texts = _html(found)
    name = f"{file_name(found.title) or 'conversation-' + safe_name(row.public_id)}.{wanted}"
    return StreamingHttpResponse(
        # A stored text may have lone surrogates, which UTF-8 cannot have.
        (text.encode(errors="replace") async for text in texts),
        content_type=CONTENT_TYPES[wanted],
        headers={
            "Content-Disposition": content_disposition_header(True, name),
            # A browser that shows the file all the same treats it as one of no site.
            "Content-Security-Policy": "sandbox; default-src 'none'",
            "X-Content-Type-Options": "nosniff",
        },
    )


def safe_name(public_id: str) -> str:
    """Return an id as a part of a file name."""
    return re.sub(r"[^A-Za-z0-9_-]+", "-", public_id)[:NAME_MAX_LENGTH].strip("-") or "unnamed"


def file_name(title: str) -> str:
    """Return a title as a file name that every system accepts, in any script; empty if nothing is left."""
    seen = "".join(" " if unicodedata.category(each) in _UNSAFE_CATEGORIES else each for each in title)
    return _NOT_IN_NAMES.sub(" ", seen)[:NAME_MAX_LENGTH].strip(" .-~")


async def pages(conversation: ConversationRef, *, through: int) -> AsyncIterator[list[EventEnvelope]]:
    """Return a log up to a seq, oldest first, by pages."""
    seq = -1
    while seq < through:
        page = [event for event in await astore.read_after(conversation, seq) if event["seq"] <= through]
        if not page:  # a purge has removed the others
            break
        yield page
        seq = page[-1]["seq"]


def json_lines(found: Source) -> Iterator[str]:
    """Yield the conversation as JSON lines: the first, one text for each page of its log, and the last."""
    about = {"title": found.title, **found.facts, **found.carried}
    yield jsonl.manifest(conversation=about, events=found.through + 1, head_digest=found.head_digest)
    lines = jsonl.Lines()
    for page in read_pages(found.conversation, through=found.through):
        beside = _beside(found.conversation, [event["seq"] for event in page])
        yield lines.write([(event, beside[event["seq"]]) for event in page])
    yield lines.end()


def read_pages(conversation: ConversationRef, *, through: int) -> Iterator[list[EventEnvelope]]:
    """Yield a log up to a seq, oldest first, by pages, from the thread that asks."""
    seq = -1
    while seq < through:
        page = [event for event in reads.read_after(conversation, seq) if event["seq"] <= through]
        if not page:  # a purge has removed the others
            break
        yield page
        seq = page[-1]["seq"]


def _beside(conversation: ConversationRef, seqs: list[int]) -> dict[int, jsonl.Beside]:
    rows = Event.objects.of(conversation).with_seqs(seqs)
    columns = rows.values_list("seq", "received_at", "epoch", "is_input", "wire_id")
    return {row[0]: jsonl.Beside(*row[1:]) for row in columns}


async def in_threads(user_pk: int, pieces: Iterator[T]) -> AsyncIterator[T]:
    """Yield what an iterator yields that reads the database, each piece from a thread of the user's share."""
    while (piece := await astore.database().read(user_pk, lambda: next(pieces, None))) is not None:
        yield piece


async def _markdown(found: Source) -> AsyncIterator[str]:
    yield markdown.head(title=found.title, facts=_named(found.facts))
    async for page in pages(found.conversation, through=found.through):
        yield "".join(await asyncio.to_thread(list, map(markdown.section, page)))


def _named(facts: dict[str, object]) -> dict[str, object]:
    """Return facts under names for people."""
    return {name.removesuffix("_at").replace("_", " "): value for name, value in facts.items()}


async def _html(found: Source) -> AsyncIterator[str]:
    yield document.beginning(title=found.title, facts=_named(found.facts))
    async for page in pages(found.conversation, through=found.through):
        for at in range(0, len(page), EVENTS_AT_ONCE):
            events = page[at : at + EVENTS_AT_ONCE]
            # Rendering takes time, so it runs in a thread: other connections continue.
            yield await asyncio.to_thread(document.articles, events, found.conversation.public_id)
    yield document.end()

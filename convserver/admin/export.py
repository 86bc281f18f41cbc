"""Conversations as one JSON document, streamed: never more of one in memory than a page of its log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import Any, NamedTuple

from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header

from conversations.models import Conversation, ConversationRef
from convserver.admin.base import record_act
from convserver.admin.parameters import shown_parameters
from convserver.exports.conversation import pages, safe_name
from sessions_app.live.status import iso
from sessions_app.sockets.native import frames

_PLAIN_FACTS = (
    *("version", "title", "repository", "branch", "provider", "trigger", "pr_number", "llm_model"),
    *("accumulated_cost", "prompt_tokens", "completion_tokens", "total_tokens", "tags", "forked_at"),
    "head_digest",
)
"""The columns that are exported as they are."""


class ExportPart(NamedTuple):
    """One conversation of an export: its facts, and the end of its log."""

    conversation: ConversationRef
    facts: str  # JSON text
    # The last seq when the export began, so that facts and events agree.
    through: int


def exported(request: HttpRequest, conversations: Sequence[Conversation]) -> StreamingHttpResponse:
    """Return a download of {conversation, events}, or of a list of them for more than one."""
    # Before the first byte: an export that was begun was read.
    record_act(request, conversations, "Exported as JSON")
    name = f"conversations-{len(conversations)}.json"
    if len(conversations) == 1:
        name = f"conversation-{safe_name(conversations[0].public_id)}.json"
    parts = [ExportPart(row.ref, json.dumps(_facts(row)), row.next_seq - 1) for row in conversations]
    return StreamingHttpResponse(
        _documents(parts),
        content_type="application/json",
        headers={"Content-Disposition": content_disposition_header(True, name)},
    )


async def _documents(parts: Sequence[ExportPart]) -> AsyncIterator[bytes]:
    """Write the documents, a page of a log at a time; payloads are spliced in as they were received."""
    is_list = len(parts) > 1
    before = "[" if is_list else ""
    for part in parts:
        yield f'{before}{{"conversation":{part.facts},"events":['.encode()
        before, comma = ",\n", ""
        async for page in pages(part.conversation, through=part.through):
            yield (comma + ",\n".join(map(frames.envelope_json, page))).encode()
            comma = ",\n"
        yield b"]}"
    if is_list:
        yield b"]\n"


def _facts(row: Conversation) -> dict[str, Any]:
    """Return the columns of the row: times as every door writes them, secrets masked."""
    return {
        "id": row.public_id,
        "owner": row.owner.get_username(),
        **{name: getattr(row, name) for name in _PLAIN_FACTS},
        "parent": row.parent.public_id if row.parent else None,
        "forked_from": row.forked_from.public_id if row.forked_from else None,
        "last_seq": row.next_seq - 1,
        "created_at": iso(row.created_at),
        "updated_at": iso(row.updated_at),
        "deleted_at": row.deleted_at and iso(row.deleted_at),
        "creation_parameters": shown_parameters(row),
    }

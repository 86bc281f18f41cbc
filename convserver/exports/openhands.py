"""Conversations in the layouts that OpenHands keeps on disk, which the importers here read again.

Every event is as that wire shows it: those of V1 byte for byte, those of V0 with the number and the time that
its files have, and those of the other wire translated.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import Any, NamedTuple
from uuid import UUID, uuid5

from conversations.dialects import v0, v1
from conversations.events import EventEnvelope
from conversations.models import Conversation
from convserver.exports.conversation import read_pages, safe_name
from sessions_app.live.status import iso
from sessions_app.openhands_v1 import information

_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,99}")
_EVENT_ID = re.compile(r"[0-9a-fA-F-]{8,64}")
# The namespace of ids that are made where the stored id does not fit the layout of V1: an export that is
# repeated has the same ids.
_IDS = UUID("6c1d9b0e-52ce-5a3c-9a0e-2f6a4a8f1d77")
_OF_META = frozenset({"title", "metrics", "created_at", "updated_at"})
# Members about this server and about other conversations.
_NOT_KEPT = frozenset({"persistence_dir", "sub_conversation_ids", "runtime_info"})


class Layout(StrEnum):
    V0 = "openhands-v0"
    V1 = "openhands-v1"


class File(NamedTuple):
    """One file of a layout; the path has `/` on every system."""

    path: str
    text: str


def files(row: Conversation, layout: Layout) -> Iterator[File]:
    """Yield the files of a conversation, with one page of its log in memory."""
    if layout is Layout.V1:
        yield from _v1_files(row)
        return
    name = row.public_id if _FILE_NAME.fullmatch(row.public_id) else f"{safe_name(row.public_id)}-{row.pk}"
    folder = f"sessions/{name}"
    yield File(f"{folder}/metadata.json", json.dumps(_metadata(row, name)))
    for event in _events(row):
        yield File(f"{folder}/events/{event['seq']}.json", v0.shown(event))


def _metadata(row: Conversation, name: str) -> dict[str, Any]:
    return {
        "conversation_id": name,
        "selected_repository": row.repository,
        "user_id": None,
        "selected_branch": row.branch,
        "git_provider": row.provider,
        "title": row.title,
        "last_updated_at": iso(row.updated_at),
        "trigger": row.trigger,
        "pr_number": row.pr_number,
        "created_at": iso(row.created_at),
        "llm_model": row.llm_model,
        "accumulated_cost": row.accumulated_cost,
        "prompt_tokens": row.prompt_tokens,
        "completion_tokens": row.completion_tokens,
        "total_tokens": row.total_tokens,
        "conversation_version": "V0",
    }


def _v1_files(row: Conversation) -> Iterator[File]:
    try:
        public_id = UUID(row.public_id)
    except ValueError:
        public_id = uuid5(_IDS, row.public_id)
    told = information.information_of([row.pk], deleted=True)[row.pk]
    meta = {name: told[name] for name in sorted(_OF_META)}
    state = {name: value for name, value in told.items() if name not in _OF_META | _NOT_KEPT}
    folder = public_id.hex
    yield File(f"{folder}/meta.json", json.dumps({"id": folder, **meta}))
    yield File(f"{folder}/base_state.json", json.dumps({**state, "id": str(public_id)}))
    for event in _events(row):
        event_id = v1.shown_id(event, row.public_id)
        shown = event_id if _EVENT_ID.fullmatch(event_id) else str(uuid5(_IDS, event_id))
        name = f"event-{event['seq']:05d}-{shown}.json"
        yield File(f"{folder}/events/{name}", v1.shown(event, row.public_id))


def _events(row: Conversation) -> Iterable[EventEnvelope]:
    for page in read_pages(row.ref, through=row.next_seq - 1):
        yield from page

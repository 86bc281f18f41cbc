"""What a conversation is like right now, beside its log: what readers and lists are shown of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any, TypedDict

from conversations.models import Conversation, ConversationQuerySet
from sessions_app.models import ExecutionStatus, LoopStatus


class LoopState(TypedDict):
    """The agent loop as a client sees it."""

    status: str
    execution_status: str
    agent: str
    error: str
    ended_by: str
    """Why the loop is not there any more (LoopEnd); empty while it is."""


class ConversationState(TypedDict):
    """What is shown of one conversation."""

    id: str
    title: str
    version: str
    repository: str | None
    branch: str | None
    trigger: str | None
    pr_number: list[int]
    tags: dict[str, str]
    last_seq: int
    last_message: str
    last_message_at: str | None
    created_at: str
    updated_at: str
    loop: LoopState
    deleted: bool


_COLUMNS = (
    "pk",
    "public_id",
    "title",
    "version",
    "repository",
    "branch",
    "trigger",
    "pr_number",
    "tags",
    "next_seq",
    "last_message",
    "last_message_at",
    "created_at",
    "updated_at",
    "deleted_at",
    "loop__status",
    "loop__execution_status",
    "loop__agent",
    "loop__error",
    "loop__ended_by",
)


def states_of(pks: Iterable[int]) -> dict[int, ConversationState]:
    """Return the states of these conversations, deleted ones too, by one query."""
    return states(Conversation.objects.filter(pk__in=list(pks)))


def states(rows: ConversationQuerySet) -> dict[int, ConversationState]:
    """Return the states of the rows in their order, by one query."""
    return {row["pk"]: _state(row) for row in rows.values(*_COLUMNS)}


def _state(row: dict[str, Any]) -> ConversationState:
    return {
        "id": row["public_id"],
        "title": row["title"] or f"Conversation {row['public_id'][:5]}",
        "version": row["version"],
        "repository": row["repository"],
        "branch": row["branch"],
        "trigger": row["trigger"],
        "pr_number": row["pr_number"],
        "tags": row["tags"],
        "last_seq": row["next_seq"] - 1,
        "last_message": row["last_message"],
        "last_message_at": row["last_message_at"] and iso(row["last_message_at"]),
        "created_at": iso(row["created_at"]),
        "updated_at": iso(row["updated_at"]),
        "loop": {
            "status": row["loop__status"] or LoopStatus.STOPPED,
            "execution_status": row["loop__execution_status"] or ExecutionStatus.IDLE,
            "agent": row["loop__agent"] or "",
            "error": row["loop__error"] or "",
            "ended_by": row["loop__ended_by"] or "",
        },
        "deleted": row["deleted_at"] is not None,
    }


def iso(moment: datetime) -> str:
    """Return a time as every door of this server writes it: UTC, six fraction digits, `Z`."""
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")

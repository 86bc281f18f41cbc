"""A conversation in the form of the V0 wire (spec V0 §4.2), V1 ones too (spec V1 §6.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Any
from urllib.parse import quote

from django.db.models import OuterRef, QuerySet
from pydantic import BaseModel

from conversations.models import Conversation, ConversationQuerySet, Version, children_in
from convserver.api.addresses import conversation_url, shown_key
from convserver.api.openhands.metadata import whole_numbers
from sessions_app.identity import conversation_keys
from sessions_app.models import Connection, ExecutionStatus, LoopStatus, LoopWork
from sessions_app.openhands_v1 import sandboxes
from sessions_app.openhands_v1.sandboxes import SandboxStatus


class ConversationStatus(StrEnum):
    """Whether the agent can be reached now (spec V0 §3.5)."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    STOPPED = "STOPPED"
    ARCHIVED = "ARCHIVED"
    ERROR = "ERROR"


class ConversationInfo(BaseModel):
    """One conversation; trigger and provider are texts, because old rows may have values that are unknown
    now."""

    conversation_id: str
    title: str
    last_updated_at: datetime | None
    status: ConversationStatus
    runtime_status: str | None
    selected_repository: str | None
    selected_branch: str | None
    git_provider: str | None
    trigger: str | None
    num_connections: int
    url: str | None
    session_api_key: str | None
    created_at: datetime
    pr_number: list[int]
    conversation_version: str
    sub_conversation_ids: list[str]


class ConversationInfoResultSet(BaseModel):
    """One page of a list; `next_page_id` is null on the last one."""

    results: list[ConversationInfo]
    next_page_id: str | None


_STATUS_OF_V1 = {
    SandboxStatus.STARTING: ConversationStatus.STARTING,
    SandboxStatus.RUNNING: ConversationStatus.RUNNING,
    SandboxStatus.PAUSED: ConversationStatus.STOPPED,
    SandboxStatus.ERROR: ConversationStatus.ERROR,
    SandboxStatus.MISSING: ConversationStatus.ARCHIVED,
}

_COLUMNS = (
    "pk",
    "title",
    "version",
    "repository",
    "branch",
    "provider",
    "trigger",
    "pr_number",
    "created_at",
    "updated_at",
    *sandboxes.STATUS_COLUMNS,
    "loop__runtime_status",
    "child_ids",
    "connection_count",
    *conversation_keys.COLUMNS,
)


def infos_of(
    pks: Sequence[int], *, origin: str, connections: Mapping[int, int] | None = None
) -> list[ConversationInfo]:
    """Return these conversations in the requested order, without those deleted meanwhile; one query.

    `origin` is the server's origin as its client knows it; `connections` are the numbers of connections by
    the same keys, if they have been counted.
    """
    rows = {row["pk"]: row for row in info_rows(Conversation.objects.with_pks(pks))}
    found = [rows[pk] for pk in pks if pk in rows]
    counted = (
        row["connection_count"] if connections is None else connections.get(row["pk"], 0) for row in found
    )
    return [info_in(row, origin=origin, connections=count) for row, count in zip(found, counted, strict=True)]


def infos_with_ids(public_ids: Sequence[str], *, origin: str) -> list[ConversationInfo]:
    """Return the conversations with these ids like `infos_of`."""
    found = info_rows(Conversation.objects.with_public_ids(public_ids))
    rows = {row["public_id"]: row for row in found}
    return [info_in(rows[public_id], origin=origin) for public_id in public_ids if public_id in rows]


def info_rows(conversations: ConversationQuerySet) -> QuerySet[Conversation, dict[str, Any]]:
    """Return the query for `info_in` of each that exists."""
    others = Conversation.objects.active()
    rows = conversation_keys.keyed(conversations.active()).with_children(others)
    connected = Connection.objects.present().count_of(OuterRef("pk"))
    found: QuerySet[Conversation, dict[str, Any]] = rows.annotate(connection_count=connected).values(
        *_COLUMNS
    )
    return found


def info_in(row: Mapping[str, Any], *, origin: str, connections: int | None = None) -> ConversationInfo:
    """Return a row of `info_rows` in the form of this wire.

    `origin` is the server's origin as its client knows it; `connections` the number of connections, if they
    have been counted in another way.
    """
    status = status_of(row)
    is_v1 = row["version"] == Version.V1
    return ConversationInfo(
        conversation_id=row["public_id"],
        title=row["title"] or _default_title(row),
        last_updated_at=row["updated_at"],
        status=status,
        runtime_status=_runtime_status(row, status),
        selected_repository=row["repository"],
        selected_branch=row["branch"],
        git_provider=row["provider"],
        trigger=row["trigger"],
        num_connections=row["connection_count"] if connections is None else connections,
        url=conversation_url(row["public_id"], origin=origin) if is_v1 else _own_url(row, status),
        session_api_key=shown_key(row) if is_v1 else None,
        created_at=row["created_at"],
        pr_number=whole_numbers(row["pr_number"]),
        conversation_version=row["version"],
        sub_conversation_ids=children_in(row),
    )


def _own_url(row: Mapping[str, Any], status: ConversationStatus) -> str | None:
    """Return a V0 conversation's address on its client's own origin, while its agent can be reached."""
    # Relative, which web clients read as their own origin; null keeps them from opening a socket.
    is_there = status in (ConversationStatus.STARTING, ConversationStatus.RUNNING)
    return f"/api/conversations/{quote(row['public_id'], safe='')}" if is_there else None


def status_of(row: Mapping[str, Any]) -> ConversationStatus:
    """Return the status of a row: if it waits for its loop to start, it is starting."""
    if row["version"] == Version.V1:
        return _STATUS_OF_V1[sandboxes.status_of(row)]
    match row["loop__status"]:
        case LoopStatus.STARTING:
            return ConversationStatus.STARTING
        case LoopStatus.RUNNING:
            return ConversationStatus.RUNNING
        case LoopStatus.ERROR:
            return ConversationStatus.ERROR
    return ConversationStatus.STARTING if LoopWork.of(row).is_asked else ConversationStatus.STOPPED


def _runtime_status(row: Mapping[str, Any], status: ConversationStatus) -> str | None:
    if status is ConversationStatus.RUNNING and row["version"] == Version.V1:
        failed = row["loop__execution_status"] in (ExecutionStatus.ERROR, ExecutionStatus.STUCK)
        return "STATUS$ERROR" if failed else "STATUS$READY"
    if status is ConversationStatus.RUNNING:
        return row["loop__runtime_status"] or "STATUS$READY"
    return None if row["version"] == Version.V1 else row["loop__runtime_status"]


def _default_title(row: Mapping[str, Any]) -> str:
    public_id: str = row["public_id"]
    if row["version"] == Version.V1 and (short := sandboxes.id_of(public_id)):
        return f"Conversation {short}"
    return f"Conversation {public_id[:5]}"

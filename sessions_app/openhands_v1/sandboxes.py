"""Sandboxes, which the V1 wire requires and agents here do not have: one for each family of conversations.

None is stored. A sandbox's id contains that of its root conversation, and its status is derived from the
loops (spec V1 §1.5).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

import base62

from conversations import families
from conversations.models import Conversation, ConversationQuerySet, ConversationRef
from sessions_app.identity import conversation_keys
from sessions_app.models import WORK_COLUMNS, LoopEnd, LoopStatus, LoopWork


class SandboxStatus(StrEnum):
    """Whether its conversations accept messages (spec V1 §1.1)."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    ERROR = "ERROR"
    MISSING = "MISSING"


_BUSIEST_FIRST = (SandboxStatus.RUNNING, SandboxStatus.STARTING, SandboxStatus.ERROR, SandboxStatus.PAUSED)

STATUS_COLUMNS = ("deleted_at", "loop__status", "loop__ended_by", *WORK_COLUMNS)
"""The columns of a conversation that decide the status."""

# After any other end, such as a restart of the server, the next message starts a loop.
_PARKED_BY = (LoopEnd.STOPPED, LoopEnd.EVICTED, LoopEnd.IDLE)


@dataclass(frozen=True, kw_only=True, slots=True)
class V1Sandbox:
    id: str
    owner_id: int
    status: SandboxStatus
    key: str
    created_at: datetime


def status_of(row: Mapping[str, Any]) -> SandboxStatus:
    """Return the status for STATUS_COLUMNS of one conversation."""
    if row["deleted_at"] is not None:
        return SandboxStatus.MISSING
    match row["loop__status"]:
        case LoopStatus.ERROR:
            return SandboxStatus.ERROR
        case LoopStatus.STOPPED if row["loop__ended_by"] in _PARKED_BY:
            return SandboxStatus.STARTING if LoopWork.of(row).is_asked else SandboxStatus.PAUSED
    # Also without a loop: a conversation accepts messages from the beginning.
    return SandboxStatus.RUNNING


def id_of(public_id: str) -> str | None:
    """Return a UUID's 16 bytes in base 62, with a prefix for each leading zero byte; None for another id."""
    try:
        return str(base62.encodebytes(UUID(public_id).bytes))
    except ValueError:
        return None


def public_id_in(sandbox_id: str) -> str | None:
    """Return the id of the conversation in a sandbox's id; None if it is not a sandbox's id."""
    # Longer than 16 bytes in base 62; the time of decoding grows with the square of the length.
    if len(sandbox_id) > 24:
        return None
    try:
        id_bytes = base62.decodebytes(sandbox_id)
    except ValueError:
        return None
    if len(id_bytes) != 16:
        return None
    # Some ids can be spelled in two ways, and a sandbox has one id.
    return id_bytes.hex() if base62.encodebytes(id_bytes) == sandbox_id else None


def ids_of(pks: Sequence[int]) -> dict[int, str | None]:
    """Return the sandbox of each of these conversations, None if it has none, by one query."""
    return {pk: _id_of_line(line) for pk, line in families.lines_of(pks).items()}


def ids_in(rows: Sequence[Mapping[str, Any]]) -> dict[int, str | None]:
    """Return the ids of sandboxes by key, for rows with `pk`, `public_id` and `parent_id`.

    Conversations without a parent need no query.
    """
    started = ids_of([row["pk"] for row in rows if row["parent_id"] is not None])
    return {row["pk"]: id_of(row["public_id"]) for row in rows} | started


def _id_of_line(line: Sequence[str]) -> str | None:
    """Return the sandbox of the topmost conversation that has one; all below it share it."""
    found = None
    for public_id in line:
        # An id that is no UUID has no sandbox, so what is below it has one of its own.
        if (sandbox_id := id_of(public_id)) is None:
            return found
        found = sandbox_id
    return found


def members_of(user_id: int, sandbox_id: str) -> list[int]:
    """Return the keys of the user's conversations in a sandbox, none for an unknown one, by three queries."""
    public_id = public_id_in(sandbox_id)
    if public_id is None:
        return []
    rows = Conversation.objects.owned_by(user_id).known_to_v1().with_public_ids([public_id])
    pks = list(rows.values_list("pk", flat=True))
    if not pks or ids_of(pks).get(pks[0]) != sandbox_id:  # it is part of another conversation's sandbox
        return []
    return families.families_of(pks)[pks[0]]


def of_ids(user_id: int, sandbox_ids: Collection[str]) -> dict[str, V1Sandbox]:
    """Return the user's sandboxes by id, even of deleted conversations, by four queries."""
    public_ids = {public_id for each in sandbox_ids if (public_id := public_id_in(each)) is not None}
    rows = Conversation.objects.owned_by(user_id).known_to_v1().with_public_ids(public_ids)
    found = {sandbox.id: sandbox for sandbox in of_rows(rows)}
    return {each: found[each] for each in sandbox_ids if each in found}


def of_rows(rows: ConversationQuerySet) -> list[V1Sandbox]:
    """Return the sandboxes of the roots among the conversations, by four queries."""
    columns = ("pk", "owner_id", "created_at", "deleted_at", *conversation_keys.COLUMNS)
    tops = list(conversation_keys.keyed(rows).values(*columns))
    pks = [top["pk"] for top in tops]
    own_ids = ids_of(pks)
    below = families.families_of(pks)
    members = {pk for family in below.values() for pk in family}
    statuses = {
        row["pk"]: status_of(row)
        for row in Conversation.objects.with_pks(members).values("pk", *STATUS_COLUMNS)
    }
    found = []
    for top in tops:
        sandbox_id = own_ids.get(top["pk"])
        if sandbox_id is None or sandbox_id != id_of(top["public_id"]):  # it is in another one's sandbox
            continue
        present = {statuses[pk] for pk in below[top["pk"]] if pk in statuses and top["deleted_at"] is None}
        found.append(
            V1Sandbox(
                id=sandbox_id,
                owner_id=top["owner_id"],
                status=next((each for each in _BUSIEST_FIRST if each in present), SandboxStatus.MISSING),
                key=conversation_keys.key_in(top),
                created_at=top["created_at"],
            )
        )
    return found


def top_of(user_id: int, sandbox_id: str) -> ConversationRef | None:
    """Return the existing root conversation of a user's sandbox; None if there is none."""
    public_id = public_id_in(sandbox_id)
    if public_id is None:
        return None
    rows = Conversation.objects.owned_by(user_id).active().known_to_v1().with_public_ids([public_id])
    row = rows.first()
    return row.ref if row is not None and ids_of([row.pk]).get(row.pk) == sandbox_id else None


def is_at_or_below(conversation: ConversationRef, upper: ConversationRef) -> bool:
    """Return whether a conversation is this one, or was started from it in the same sandbox."""
    for public_id in families.lines_of([conversation.pk]).get(conversation.pk, []):
        if id_of(public_id) is None:
            return False
        if public_id == upper.public_id:
            return True
    return False


def sandbox_of(conversation: ConversationRef) -> str | None:
    return ids_of([conversation.pk]).get(conversation.pk)

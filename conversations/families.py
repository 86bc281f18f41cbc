"""Families of V1 conversations: a top-level conversation and all below it (spec V1 §6.4).

A family ends at a conversation that is deleted, belongs to another user, or is of the other wire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.db import connection

from conversations.models import Conversation, ConversationRef, Version

DEPTH_MAX = 100

_ABOVE = """
    WITH RECURSIVE line (start, id, public_id, parent_id, owner_id, depth) AS (
        SELECT id, id, public_id, parent_id, owner_id, 0
        FROM conversations_conversation WHERE id IN ({pks})
        UNION ALL
        SELECT line.start, above.id, above.public_id, above.parent_id, above.owner_id, line.depth + 1
        FROM line JOIN conversations_conversation AS above ON above.id = line.parent_id
        WHERE above.deleted_at IS NULL AND above.version = %s AND above.owner_id = line.owner_id
            AND line.depth < %s
    )
    SELECT start, public_id FROM line ORDER BY start, depth
"""
_BELOW = """
    WITH RECURSIVE family (start, id, owner_id, depth) AS (
        SELECT id, id, owner_id, 0 FROM conversations_conversation WHERE id IN ({pks})
        UNION ALL
        SELECT family.start, below.id, below.owner_id, family.depth + 1
        FROM family JOIN conversations_conversation AS below ON below.parent_id = family.id
        WHERE below.deleted_at IS NULL AND below.version = %s AND below.owner_id = family.owner_id
            AND family.depth < %s
    )
    SELECT start, id FROM family ORDER BY start, depth, id
"""


def lines_of(pks: Sequence[int]) -> dict[int, list[str]]:
    """Return for each conversation its own id and those above it, the topmost last; one query."""
    found: dict[int, list[str]] = {}
    for start, public_id in _asked(_ABOVE, pks):
        found.setdefault(start, []).append(public_id)
    return found


def families_of(pks: Sequence[int]) -> dict[int, list[int]]:
    """Return for each conversation its own key and those below it, parents before children; one query."""
    found: dict[int, list[int]] = {}
    for start, pk in _asked(_BELOW, pks):
        found.setdefault(start, []).append(pk)
    return found


def family_of(conversation: ConversationRef) -> list[ConversationRef]:
    """Return a conversation and all below it, parents before children."""
    pks = families_of([conversation.pk]).get(conversation.pk, [])
    rows = Conversation.objects.in_bulk(pks)
    return [rows[pk].ref for pk in pks if pk in rows]


def _asked(statement: str, pks: Sequence[int]) -> list[tuple[int, Any]]:
    if not pks:
        return []
    with connection.cursor() as cursor:
        places = ", ".join(["%s"] * len(pks))
        cursor.execute(statement.format(pks=places), [*pks, Version.V1.value, DEPTH_MAX])
        return list(cursor.fetchall())

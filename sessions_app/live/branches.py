"""The branches of a conversation: what it is a fork of, and its own forks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from conversations.access import Visitor
from conversations.models import Conversation, ConversationRef

BRANCHES_MAX = 100


class ConversationBranch(NamedTuple):
    """A conversation that shares its beginning with another one."""

    public_id: str
    title: str
    # How it goes on: branches often have the same title.
    last_message: str
    at: int
    """The seq of the last event that both have; -1 if they have none."""

    def as_dict(self) -> dict[str, Any]:
        return {
            "id": self.public_id,
            "title": self.title,
            "last_message": self.last_message,
            "seq": self.at,
        }


def place(forked_at: int | None) -> int:
    """Return the seq of the last event that a fork has in common with its source; -1 if there is none."""
    return -1 if forked_at is None else forked_at


def forks_of(user: Visitor, conversation: ConversationRef, *, most: int) -> Sequence[ConversationBranch]:
    """Return the forks of a conversation that the user may see, ordered by the seq at which they begin."""
    rows = Conversation.objects.open_to(user).filter(forked_from_id=conversation.pk)
    return [_branch(row, row.forked_at) for row in rows.order_by("forked_at", "pk")[:most]]


def described(user: Visitor, conversation: ConversationRef) -> dict[str, Any]:
    """Return the visible source of a fork and its visible forks, as JSON of the native wire."""
    row = Conversation.objects.only("forked_from_id", "forked_at").get(pk=conversation.pk)
    visible = Conversation.objects.open_to(user)
    source = visible.filter(pk=row.forked_from_id).first() if row.forked_from_id else None
    found = forks_of(user, conversation, most=BRANCHES_MAX + 1)  # one more tells whether there are more
    return {
        "forked_from": None if source is None else _branch(source, row.forked_at).as_dict(),
        "branches": [branch.as_dict() for branch in found[:BRANCHES_MAX]],
        "has_more": len(found) > BRANCHES_MAX,
    }


def _branch(row: Conversation, forked_at: int | None) -> ConversationBranch:
    return ConversationBranch(row.public_id, row.shown_title, row.last_message, place(forked_at))

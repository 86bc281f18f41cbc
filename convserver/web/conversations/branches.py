"""The branches of a conversation: where it leaves another one, and what leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from django.http import HttpRequest

from conversations.models import Conversation, ConversationRef

SHOWN_MAX = 50
"""At most this many branches are shown."""


class Branch(NamedTuple):
    """A conversation that leaves this one."""

    public_id: str
    title: str
    last_message: str
    """How it goes on: branches often share their title."""
    at: int
    """The seq of the last event that both have; -1 if they have none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Left:
    """Where this conversation leaves another, and all ways on from there: the other one first."""

    source: Conversation
    at: int
    number: int
    """Which of the ways this one is, from 1."""
    count: int
    before: str | None
    """The id of the way before this one; None for the first."""
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Branches:
    """What the page of a conversation says of its branches."""

    left: Left | None
    own: Sequence[Branch]

    @property
    def has_more(self) -> bool:
        """Whether there are more than are shown."""
        return len(self.own) > SHOWN_MAX


def branches_of(request: HttpRequest, conversation: ConversationRef) -> Branches:
    """Return the branches that the user may see."""
    visible = Conversation.objects.visible_to(request.user)
    row = Conversation.objects.only("forked_from_id", "forked_at").get(pk=conversation.pk)
    own = visible.filter(forked_from_id=conversation.pk).order_by("forked_at", "pk")[: SHOWN_MAX + 1]
    return Branches(
        left=_left(request, row, row.forked_from_id),
        own=[
            Branch(each.public_id, each.shown_title, each.last_message, _place(each.forked_at))
            for each in own
        ],
    )


def _branch(row: Conversation) -> Branch:
    return Branch(row.public_id, row.shown_title, row.last_message, _place(row.forked_at))


def _left(request: HttpRequest, row: Conversation, source_pk: int | None) -> Left | None:
    if source_pk is None:
        return None
    visible = Conversation.objects.visible_to(request.user)
    source = visible.filter(pk=source_pk).first()
    if source is None:
        return None
    siblings = visible.filter(forked_from_id=source.pk, forked_at=row.forked_at).order_by("pk")
    ways = [(source.pk, source.public_id), *siblings.values_list("pk", "public_id")]
    at = next((place for place, (pk, _) in enumerate(ways) if pk == row.pk), 0)
    return Left(
        source=source,
        at=_place(row.forked_at),
        number=at + 1,
        count=len(ways),
        before=ways[at - 1][1] if at else None,
        after=ways[at + 1][1] if at + 1 < len(ways) else None,
    )


def _place(forked_at: int | None) -> int:
    return -1 if forked_at is None else forked_at

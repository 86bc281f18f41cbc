"""The branches of a conversation: where it leaves another one, and what leaves it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.http import HttpRequest

from conversations.models import Conversation, ConversationRef
from sessions_app.live import branches
from sessions_app.live.branches import ConversationBranch

SHOWN_MAX = 50  # the branches that are shown


@dataclass(frozen=True, kw_only=True, slots=True)
class Departure:
    """The place where this conversation leaves its source, among all ways on from there."""

    source: Conversation
    at: int
    number: int  # the number of this way, from 1
    count: int
    before: str | None  # the id of the way before this one; None for the first
    after: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Branches:
    """The branches on the page of a conversation."""

    left: Departure | None
    own: Sequence[ConversationBranch]

    @property
    def has_more(self) -> bool:
        return len(self.own) > SHOWN_MAX


def branches_of(request: HttpRequest, conversation: ConversationRef) -> Branches:
    """Return the branches that the user may see."""
    row = Conversation.objects.only("forked_from_id", "forked_at").get(pk=conversation.pk)
    return Branches(
        left=_left(request, row, row.forked_from_id),
        own=branches.forks_of(request.user, conversation, most=SHOWN_MAX + 1),  # one more: for `has_more`
    )


def _left(request: HttpRequest, row: Conversation, source_pk: int | None) -> Departure | None:
    if source_pk is None:
        return None
    visible = Conversation.objects.open_to(request.user)
    source = visible.filter(pk=source_pk).first()
    if source is None:
        return None
    # All that leave the source at one event are ways on from there; the source itself is the first.
    siblings = visible.filter(forked_from_id=source.pk, forked_at=row.forked_at).order_by("pk")
    ways = [(source.pk, source.public_id), *siblings.values_list("pk", "public_id")]
    at = next((place for place, (pk, _) in enumerate(ways) if pk == row.pk), 0)
    return Departure(
        source=source,
        at=branches.place(row.forked_at),
        number=at + 1,
        count=len(ways),
        before=ways[at - 1][1] if at else None,
        after=ways[at + 1][1] if at + 1 < len(ways) else None,
    )

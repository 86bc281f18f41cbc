"""Work that waits for a loop: conversations with something to do, and abandoned loops."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, TypeVar

from django.conf import settings
from django.contrib.auth.models import User
from django.db import models
from django.db.models import Q

from conversations.models import Conversation, ConversationRef
from sessions_app.loops import leases, turns
from sessions_app.models import AgentLoop, asked_conversations, has_lease
from sessions_app.shared_clock import was_within

Row = TypeVar("Row", bound=models.Model)


SWEEP_PAGE = 200


def has_work(conversation: ConversationRef) -> bool:
    """Return whether a loop would find something to do."""
    rows = Conversation.objects.with_pks([conversation.pk])
    return any(asked.exists() for asked in asked_conversations(rows))


def with_work_among(pks: Collection[int]) -> set[int]:
    """Return the conversations among these whose loops would find something to do."""
    rows = Conversation.objects.with_pks(pks)
    return {pk for asked in asked_conversations(rows) for pk in asked.values_list("pk", flat=True)}


def asked_through(conversation: ConversationRef) -> int:
    """Return the seq of the newest input, -1 if there is none."""
    return Conversation.objects.values_list("asked_through", flat=True).get(pk=conversation.pk)


def needing_a_loop(limit: int, *, besides: Collection[int] = (), after: int = 0) -> list[ConversationRef]:
    """Return conversations with something to do whose loop no living process runs, at most `limit`.

    The loops of `besides` run here and are excluded. Those after the key `after` come first.
    """
    found: dict[int, ConversationRef] = {}
    for is_behind in (True, False) if after else (True,):  # without a key to go on behind, one pass reads all
        for asked in asked_conversations(Conversation.objects.all()):
            rows = asked.exclude(pk__in=besides).select_related("loop")
            rows = rows.annotate(has_lease=has_lease("loop__"))
            rows = rows.filter(pk__gt=after) if is_behind else rows.filter(pk__lte=after)
            unheld = (row for row in _by_pk(rows) if not _is_held(row))
            found.update((row.pk, row.ref) for row in islice(unheld, limit - len(found)))
    return list(found.values())


def _is_held(row: Any) -> bool:
    """Return whether a living process runs the loop of a row with `loop` and `has_lease`."""
    loop: AgentLoop | None = getattr(row, "loop", None)
    if loop is None:
        return False
    loop.has_lease = row.has_lease  # joined rows do not come through the manager that adds it
    return loop.is_held()


def is_suspended(conversation: ConversationRef) -> bool:
    """Return whether the conversation's loop waits for the user, in any process or none.

    A loop that is to continue but runs in no living process counts too: it has a turn to end.
    """
    loop = AgentLoop.objects.of(conversation).filter(conversation__deleted_at=None).first()
    if loop is None or loop.is_suspended:
        return loop is not None
    is_held = loop.is_held()
    return loop.turn_id is not None and not is_held and turns.is_unplayed(conversation, loop.turn_id, loop)


def abandoned(limit: int, *, besides: Collection[int] = ()) -> list[ConversationRef]:
    """Return conversations whose loop belongs to a process that is gone or lost its lease, at most `limit`.

    The loops of `besides` run here and are excluded, as are loops that are about to be claimed.
    """
    # Without a lease, but shown as starting: a worker is about to claim it.
    expected = Q(was_within("updated_at", leases.LEASE_S), epoch=0)
    loops = AgentLoop.objects.there().exclude(pk__in=besides).exclude(expected).select_related("conversation")
    unheld = (loop.conversation.ref for loop in _by_pk(loops) if not loop.is_held())
    return list(islice(unheld, limit))


def of_deactivated_users(limit: int) -> list[ConversationRef]:
    """Return conversations with a loop or something to do whose owner was deactivated, at most `limit`."""
    if settings.CONFIGURATION.auth == "local":  # its only user cannot be deactivated
        return []
    owners = User.objects.filter(is_active=False).values("pk")
    looping = Conversation.objects.filter(loop__in=AgentLoop.objects.there())
    found: dict[int, ConversationRef] = {}
    for rows in (looping, *asked_conversations(Conversation.objects.all())):
        found.update((row.pk, row.ref) for row in rows.filter(owner__in=owners)[: limit - len(found)])
    return list(found.values())


def _by_pk(rows: models.QuerySet[Row]) -> Iterator[Row]:
    """Yield all rows, reading a page at a time."""
    after: Any = 0
    # Only Python can tell whether an owner's process lives, so no LIMIT of the query bounds what is read.
    while page := list(rows.filter(pk__gt=after).order_by("pk")[:SWEEP_PAGE]):
        yield from page
        after = page[-1].pk

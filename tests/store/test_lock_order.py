"""Whoever locks several conversations does so in one order: no two of them wait for each other in a ring."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction

from conversations.models import Conversation, ConversationRef
from conversations.store import creation
from sessions_app.openhands_v1 import steering
from tests.conftest import on_postgresql
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.no_second_try

Work = Callable[[Sequence[ConversationRef]], None]


@on_postgresql
@pytest.mark.parametrize("work", [steering.note_paused, steering._hide])
@pytest.mark.parametrize("turned_round", [False, True])
def test_whoever_waits_for_a_conversation_has_locked_no_later_one(
    alice: User, work: Work, turned_round: bool
) -> None:
    first, last = (creation.create(alice, conversation_id=name) for name in ("first", "last"))
    Conversation.objects.with_pks([first.pk]).update(title="moved behind the other on the disk")
    wanted = (last, first) if turned_round else (first, last)
    worker = threading.Thread(target=_and_leave, args=(work, wanted))
    with transaction.atomic():
        assert Conversation.objects.locked().filter(pk=first.pk).exists()
        worker.start()
        worker.join(0.3)
        assert worker.is_alive(), "it did not wait"
        free = Conversation.objects.select_for_update(skip_locked=True).filter(pk=last.pk)
        assert [row.ref for row in free] == [last]
    worker.join(WAIT_S)
    assert not worker.is_alive()


def _and_leave(work: Work, conversations: Sequence[ConversationRef]) -> None:
    work(conversations)
    connections.close_all()

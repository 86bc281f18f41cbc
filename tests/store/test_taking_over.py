"""A restored store: loops of the time before hold nothing, and write nothing."""

from __future__ import annotations

import pytest
from django.db import connection
from django.utils import timezone

from conversations.events import ConversationRef
from conversations.exceptions import Fenced
from conversations.log import writes
from convserver.backups.taking_over import void_leases
from sessions_app.loops import leases
from sessions_app.models import ProcessRecord
from sessions_app.processes import Process, this_process
from tests.support.data.events import event

pytestmark = pytest.mark.no_second_try

ELSEWHERE = Process("elsewhere", 1, 1.0)
"""A process of another host, whose lease counts until it expires."""
CLAIMS = 5
"""So often a loop was claimed after the backup, which knows nothing of it."""


def test_a_loop_of_before_a_restore_is_fenced_whatever_was_claimed_since_the_backup(
    conversation: ConversationRef,
) -> None:
    zombie = leases.claim(conversation, ELSEWHERE, agent="before") + CLAIMS
    void_leases(connection)
    newest = leases.claim(conversation, this_process(), agent="after")
    for epoch in range(zombie - CLAIMS, zombie + 1):
        with pytest.raises(Fenced):
            writes.append(conversation, [event()], epoch=epoch)
    assert writes.append(conversation, [event()], epoch=newest)


def test_a_second_restore_fences_those_who_came_after_the_first(conversation: ConversationRef) -> None:
    void_leases(connection)
    first = leases.claim(conversation, ELSEWHERE, agent="after the first")
    void_leases(connection)
    second = leases.claim(conversation, this_process(), agent="after the second")
    assert second > first
    with pytest.raises(Fenced):
        writes.append(conversation, [event()], epoch=first)


def test_the_processes_of_before_a_restore_are_not_missed(database: None) -> None:
    now = timezone.now()
    ProcessRecord.objects.create(role="worker", host="h", pid=1, started=1.0, began_at=now, seen_at=now)
    void_leases(connection)
    assert not ProcessRecord.objects.exists()

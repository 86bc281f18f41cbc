"""The record of turns that a dead loop left behind and another process ended."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import IntegrityError
from django.utils import timezone

from conversations.events import Kind
from conversations.exceptions import Fenced
from conversations.log import writes
from conversations.models import ConversationRef, Event, Purge
from sessions_app.loops import leases, recovery, turns
from sessions_app.models import AgentLoop, ExecutionStatus, Repair
from sessions_app.processes import this_process
from tests.support.people.clients import Server
from tests.support.people.scripted_agent import Hooked, asking, hooked
from tests.support.wires.network import NetworkClient

__all__ = ["hooked"]

pytestmark = pytest.mark.no_second_try

AGENT = "tests.support.people.agents.StandingStillAgent"
HERE = this_process()
DEAD = HERE._replace(started=1.0)
"""A process of this host that is gone: its number was given to another one."""


@pytest.fixture
def left_behind(conversation: ConversationRef) -> str:
    """A turn that a dead process has begun."""
    epoch = leases.claim(conversation, DEAD, agent="an agent")
    writes.append(conversation, [asking("hello")])
    start = turns.begin_turn(conversation, epoch)
    assert start is not None
    return start.turn_id


def test_a_killed_servers_turn_is_recorded_once_with_the_process_that_ended_it(
    server: Server, conversation: ConversationRef
) -> None:
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        client.send({"type": "message", "id": "1", "text": "hang in a tool"})
        client.until("event", kind="tool_call")
        killed_at = timezone.now()
        server.kill()
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        client.until("event", kind="turn")
    (turn,) = Event.objects.of(conversation).filter(kind=Kind.TURN)
    (repair,) = Repair.objects.since(killed_at)
    assert (repair.conversation_id, repair.turn_id) == (conversation.pk, turn.turn_id)
    assert (repair.host, repair.pid) == (HERE.host, server.pid)


def test_a_turn_that_is_ended_is_written_to_the_log_of_the_server(
    conversation: ConversationRef, left_behind: str, caplog: pytest.LogCaptureFixture
) -> None:
    recovery.recover(conversation, HERE)
    assert caplog.text.count("An interrupted turn was ended") == 1


def test_a_turn_that_ends_by_itself_leaves_no_record(server: Server, conversation: ConversationRef) -> None:
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        client.send({"type": "message", "id": "1", "text": "hello"})
        client.until("event", kind="turn")
    assert not Repair.objects.exists()


def test_a_turn_is_recorded_once_however_often_it_is_repaired(
    conversation: ConversationRef, left_behind: str
) -> None:
    epoch = leases.claim(conversation, HERE, agent="")
    recovery.repair(conversation, epoch)
    recovery.repair(conversation, epoch)
    recovery.repair(conversation, leases.claim(conversation, HERE, agent=""))
    assert [repair.turn_id for repair in Repair.objects.all()] == [left_behind]


def test_the_database_records_a_turn_once(conversation: ConversationRef, left_behind: str) -> None:
    recovery.recover(conversation, HERE)
    with pytest.raises(IntegrityError):
        Repair.objects.create(
            conversation_id=conversation.pk, turn_id=left_behind, host=HERE.host, pid=HERE.pid
        )


def test_a_turn_that_waits_for_approval_is_not_recorded(
    conversation: ConversationRef, left_behind: str
) -> None:
    AgentLoop.objects.of(conversation).update(execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION)
    recovery.repair(conversation, leases.claim(conversation, HERE, agent=""))
    assert not Repair.objects.exists()


def test_a_loop_that_lost_its_lease_records_nothing(conversation: ConversationRef, left_behind: str) -> None:
    epoch = leases.claim(conversation, HERE, agent="")
    leases.claim(conversation, HERE, agent="")
    with pytest.raises(Fenced):
        recovery.repair(conversation, epoch)
    assert not Repair.objects.exists()


def test_the_record_and_the_end_of_the_turn_are_stored_together_or_not_at_all(
    conversation: ConversationRef, left_behind: str, hooked: Hooked
) -> None:
    def fail() -> None:
        raise OSError("The power is gone.")

    epoch = leases.claim(conversation, HERE, agent="")
    hooked(Repair.objects, "get_or_create").after(fail)
    with pytest.raises(OSError, match="power"):
        recovery.repair(conversation, epoch)
    assert not Repair.objects.exists()
    assert not Event.objects.of(conversation).filter(kind=Kind.TURN).exists()


def test_repairs_since_a_moment_leave_out_earlier_ones(
    conversation: ConversationRef, left_behind: str
) -> None:
    recovery.recover(conversation, HERE)
    (repair,) = Repair.objects.all()
    assert list(Repair.objects.since(repair.repaired_at)) == [repair]
    assert not Repair.objects.since(repair.repaired_at + timedelta(microseconds=1)).exists()


def test_a_record_does_not_hinder_a_purge(conversation: ConversationRef, left_behind: str) -> None:
    recovery.recover(conversation, HERE)
    Purge.objects.create(conversation_id=conversation.pk, requested_by="tests", reason="asked for")
    assert Event.objects.of(conversation).delete()[0] > 0

"""Turns cut off by kill -9: kept, ended once, and out of the way of the next message."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

import pytest
from django.contrib.auth.models import User
from django.db import connection

from conversations.dialects import v1
from conversations.events import Kind
from conversations.log import writes
from conversations.models import ConversationRef, Event, Version
from conversations.store import creation
from sessions_app.loops import leases, recovery, runs
from sessions_app.models import AgentLoop, LoopStatus, UnfinishedAnswer
from sessions_app.processes import this_process
from tests.support.data.events import event
from tests.support.people.clients import Server
from tests.support.wires import event_views
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = pytest.mark.no_second_try

AGENT = "tests.support.people.agents.StandingStillAgent"
AT_ONCE_S = 13.0
"""Before the lease of a killed server expires."""
ONE_SWEEP = {"sessions_app.loops.manager.SWEEP_S": 3600.0}
"""What the sweep at the start does not see to is seen to by none."""
SWEEPS_OFTEN = {"sessions_app.loops.manager.SWEEP_S": 0.2}
"""What another process has stored in SQLite is found by a sweep alone."""


def stored(conversation: ConversationRef, *kinds: Kind) -> list[Event]:
    return list(Event.objects.of(conversation).oldest_first().filter(kind__in=kinds))


def messages_of_the_agent(conversation: ConversationRef) -> list[Event]:
    return [row for row in stored(conversation, Kind.MESSAGE) if row.source == "agent"]


def is_interrupted(row: Event) -> bool:
    return event_views.is_interrupted(json.loads(row.payload))


def ask(client: NetworkClient, text: str) -> None:
    client.send({"type": "message", "id": text, "text": text})


def restart_after_kill(server: Server, *, constants: Mapping[str, float] | None = None) -> float:
    """Kill with -9, start again, and return the moment of the first answer."""
    server.kill()
    server.start(constants=constants, CONVSERVER_AGENT=AGENT)
    return time.monotonic()


TO_BE_KILLED = "to be killed"
"""What PostgreSQL knows a server by."""


def nothing_is_under_way() -> bool:
    """Say whether the database is done with what a killed server sent: PostgreSQL commits without it."""
    if connection.vendor != "postgresql":
        return True
    served = "datname = current_database() AND application_name = %s"
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT FROM pg_stat_activity WHERE {served}", [TO_BE_KILLED])
        return cursor.fetchone() is None


def test_an_answer_cut_off_in_the_middle_is_kept_as_late_readers_saw_it_and_marked(
    server: Server, conversation: ConversationRef, chance: random.Random
) -> None:
    server.start(CONVSERVER_AGENT=AGENT, PGAPPNAME=TO_BE_KILLED)
    with NetworkClient(server, "talk") as client:
        ask(client, "/slow")
        for _ in range(chance.randint(1, 8)):
            client.until("delta")
        with NetworkClient(server, "talk") as late_reader:
            seen = late_reader.until("answer")["text"]
            server.kill()
    wait_until(nothing_is_under_way)
    snapshot = UnfinishedAnswer.objects.get(conversation_id=conversation.pk).text
    restart_after_kill(server)
    with NetworkClient(server, "talk") as client:
        client.until("event", kind="turn")
    (partial,) = messages_of_the_agent(conversation)
    assert is_interrupted(partial)
    assert partial.text == snapshot
    assert snapshot.startswith(seen)


MOMENTS = {
    "before the first word": "hang at once",
    "during a tool call": "hang in a tool",
    "in the middle of an answer": "/slow",
}
"""When a turn is cut off, and what is said to come there; the last one is the only one that passes."""


def wait_for_moment(client: NetworkClient, moment: str) -> None:
    match moment:
        case "before the first word":
            client.until("event", kind="state")
        case "in the middle of an answer":
            client.until("delta")
        case "during a tool call":
            client.until("event", kind="tool_call")


@contextmanager
def joined(server: Server, names: Iterable[str]) -> Iterator[dict[str, NetworkClient]]:
    """Join conversations, and leave them in the end."""
    with ExitStack() as until_left:
        yield {name: until_left.enter_context(NetworkClient(server, name)) for name in names}


def test_interrupted_turns_end_once_and_their_next_messages_are_answered(server: Server, alice: User) -> None:
    talks = {
        f"talk-{number}": creation.create(alice, conversation_id=f"talk-{number}")
        for number in range(len(MOMENTS))
    }
    server.start(CONVSERVER_AGENT=AGENT)
    with joined(server, talks) as clients:
        for client, (moment, text) in zip(clients.values(), MOMENTS.items(), strict=True):
            ask(client, text)
            wait_for_moment(client, moment)
        restarted = restart_after_kill(server, constants=ONE_SWEEP)
    with joined(server, talks) as clients:
        for client in clients.values():
            ask(client, "next")
        for client in clients.values():
            client.until("ack", id="next")
        elapsed_s = time.monotonic() - restarted
        for client in clients.values():
            client.until("event", source="agent", text="You said: next")
            client.until("event", kind="turn")
    assert elapsed_s < AT_ONCE_S
    for moment, talk in zip(MOMENTS, talks.values(), strict=True):
        turns = stored(talk, Kind.TURN)
        assert len({row.turn_id for row in turns}) == len(turns) == 2, moment
        assert [recovery.INTERRUPTED_REASON in row.payload for row in turns] == [True, False], moment


def test_a_turn_that_nobody_goes_on_with_is_ended_as_soon_as_the_server_is_back(
    server: Server, conversation: ConversationRef
) -> None:
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        ask(client, "hang in a tool")
        client.until("event", kind="tool_call")
        restarted = restart_after_kill(server, constants=ONE_SWEEP)
    with NetworkClient(server, "talk") as client:
        client.until("event", kind="turn")
        assert time.monotonic() - restarted < AT_ONCE_S
        if client.frames[0]["loop"]["status"] != "stopped":
            until_loop(client, status="stopped")
    assert AgentLoop.objects.of(conversation).get().status == LoopStatus.STOPPED
    (failed,) = stored(conversation, Kind.ERROR)
    (call,) = stored(conversation, Kind.TOOL_CALL)
    assert failed.cause_seq == call.seq


def test_an_approval_asked_for_before_the_kill_is_given_after_it(
    server: Server, conversation: ConversationRef
) -> None:
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        ask(client, "/approve")
        until_loop(client, execution_status="waiting_for_confirmation")
        restart_after_kill(server)
    with NetworkClient(server, "talk") as client:
        client.send({"type": "confirm", "id": "yes", "accept": True})
        client.until("ack", id="yes")
        client.until("event", kind="turn")
    (result,) = stored(conversation, Kind.TOOL_RESULT)
    (turn,) = stored(conversation, Kind.TURN)
    assert result.turn_id == turn.turn_id
    assert [is_interrupted(row) for row in messages_of_the_agent(conversation)] == [False]


def until_loop(client: NetworkClient, **members: str) -> None:
    """Return once the client is told that the loop is like this."""
    while not members.items() <= client.until("conversation")["changes"].get("loop", {}).items():
        pass


def test_a_message_stored_before_its_turn_could_begin_is_answered_after_the_start(
    server: Server, conversation: ConversationRef
) -> None:
    writes.append(conversation, [event("are you there?", is_input=True)])
    server.start()
    with NetworkClient(server, "talk") as client:
        answer = client.until("event", source="agent", kind="message")
    assert answer["text"].startswith("You said: are you there?")


def test_a_loop_that_was_started_meanwhile_is_not_taken_over_to_be_recovered(
    conversation: ConversationRef,
) -> None:
    epoch = leases.claim(conversation, this_process(), agent="demo")
    recovery.recover(conversation, this_process())
    assert AgentLoop.objects.of(conversation).get().epoch == epoch


# Runs of the V1 wire

Run = Callable[..., ConversationRef]


@pytest.fixture
def run(alice: User) -> Run:
    """Let alice say something in a V1 conversation and ask for a run, whether or not a server is there."""
    talks: dict[str, ConversationRef] = {}

    def say(text: str, name: str = "talk") -> ConversationRef:
        if name not in talks:
            talks[name] = creation.create(alice, conversation_id=name, version=Version.V1)
        talk = talks[name]
        authored = v1.authored(v1.user_message([v1.text_part(text)]), event_id=text)
        runs.take(talk, authored.event(text, is_input=True), run=True)
        return talk

    return say


def status_of(conversation: ConversationRef) -> str:
    return AgentLoop.objects.of(conversation).get().execution_status


def wait_for_status(conversation: ConversationRef, status: str) -> None:
    wait_until(lambda: status_of(conversation) == status)


@pytest.mark.slow(on="postgresql")
def test_runs_that_are_killed_end_in_error_and_the_next_ones_work(server: Server, run: Run) -> None:
    talks = {name: run(text, name) for name, text in zip("abc", MOMENTS.values(), strict=True)}
    server.start(CONVSERVER_AGENT=AGENT)
    with joined(server, talks) as clients:
        for client, moment in zip(clients.values(), MOMENTS, strict=True):
            wait_for_moment(client, moment)
        restart_after_kill(server, constants=SWEEPS_OFTEN)
    for name, talk in talks.items():
        wait_for_status(talk, "error")
        calls, errors = stored(talk, Kind.TOOL_CALL), stored(talk, Kind.ERROR)
        assert [each.tool_call_id for each in errors] == [each.tool_call_id for each in calls]
        assert [each.text for each in stored(talk, Kind.TURN)] == ["error"]
        run("next", name)
    for talk in talks.values():
        wait_for_status(talk, "finished")
        assert "You said: next" in messages_of_the_agent(talk)[-1].text


def test_a_run_that_was_accepted_and_had_not_begun_is_played_after_the_kill(server: Server, run: Run) -> None:
    talk = run("hello")
    assert status_of(talk) == "running"
    server.start()
    wait_for_status(talk, "finished")
    assert [each.text for each in stored(talk, Kind.TURN)] == ["finished"]


def test_a_call_that_was_approved_over_the_v1_wire_before_the_kill_is_carried_out_after_it(
    server: Server, run: Run
) -> None:
    talk = run("/approve")
    server.start(CONVSERVER_AGENT=AGENT)
    wait_for_status(talk, "waiting_for_confirmation")
    server.kill()
    assert runs.ask(talk) is runs.RunOutcome.BEGUN
    server.start(CONVSERVER_AGENT=AGENT)
    wait_for_status(talk, "finished")
    assert len(stored(talk, Kind.TOOL_RESULT)) == 1

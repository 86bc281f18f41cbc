"""Turns cut off by kill -9: kept, ended once, and out of the way of the next message."""

from __future__ import annotations

import json
import random
import time
from typing import Any

import pytest

from conversations import dialects
from conversations.events import Dialect, Kind
from conversations.models import ConversationRef, Event
from conversations.store import ConversationStore
from sessions_app import leases
from sessions_app.models import AgentLoop, LoopStatus, UnfinishedAnswer
from sessions_app.processes import this_process
from tests.clients import Server
from tests.events import event
from tests.network import NetworkClient

AGENT = "tests.agents.StandingStillAgent"
ACCEPTED_WITHIN_S = 1.0
AT_ONCE_S = 3.0
"""Long before the second sweep, and before any lease expires."""


def stored(conversation: ConversationRef, *kinds: Kind) -> list[Event]:
    return list(Event.objects.of(conversation).oldest_first().filter(kind__in=kinds))


def messages_of_the_agent(conversation: ConversationRef) -> list[Event]:
    return [row for row in stored(conversation, Kind.MESSAGE) if row.source == "agent"]


def is_interrupted(row: Event) -> bool:
    return dialects.is_interrupted(json.loads(row.payload), Dialect(row.dialect))


def ask(client: NetworkClient, text: str) -> None:
    client.send({"type": "message", "id": text, "text": text})


def restart_after_kill(server: Server) -> float:
    """Kill with -9, start again, and return the moment of the first answer."""
    server.kill()
    server.start(CONVSERVER_AGENT=AGENT)
    return time.monotonic()


def test_an_answer_cut_off_in_the_middle_is_kept_as_late_readers_saw_it_and_marked(
    server: Server, conversation: ConversationRef, chance: random.Random
) -> None:
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        ask(client, "slow help")
        for _ in range(chance.randint(1, 8)):
            client.until("delta")
        with NetworkClient(server, "talk") as late_reader:
            seen = late_reader.until("answer")["text"]
            server.kill()
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
    "in the middle of an answer": "slow help",
    "during a tool call": "hang in a tool",
}


def wait_for_moment(client: NetworkClient, moment: str) -> None:
    match moment:
        case "before the first word":
            client.until("event", kind="state")
        case "in the middle of an answer":
            client.until("delta")
        case "during a tool call":
            client.until("event", kind="tool_call")


@pytest.mark.parametrize("moment", MOMENTS)
def test_an_interrupted_turn_ends_once_and_the_next_message_is_answered(
    server: Server, conversation: ConversationRef, moment: str
) -> None:
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        ask(client, MOMENTS[moment])
        wait_for_moment(client, moment)
        restarted = restart_after_kill(server)
    with NetworkClient(server, "talk") as client:
        ask(client, "next")
        client.until("ack", id="next")
        elapsed_s = time.monotonic() - restarted
        client.until("event", source="agent", text="You said: next")
        client.until("event", kind="turn")
    turns = stored(conversation, Kind.TURN)
    assert elapsed_s < ACCEPTED_WITHIN_S
    assert len({row.turn_id for row in turns}) == len(turns) == 2
    assert [leases.INTERRUPTED_REASON in row.payload for row in turns] == [True, False]


def test_a_turn_that_nobody_goes_on_with_is_ended_as_soon_as_the_server_is_back(
    server: Server, conversation: ConversationRef
) -> None:
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        ask(client, "hang in a tool")
        client.until("event", kind="tool_call")
        restarted = restart_after_kill(server)
    with NetworkClient(server, "talk") as client:
        client.until("event", kind="turn")
        assert time.monotonic() - restarted < AT_ONCE_S
        if client.frames[0]["loop"]["status"] != "stopped":
            client.until("conversation")
    assert AgentLoop.objects.of(conversation).get().status == LoopStatus.STOPPED
    (failed,) = stored(conversation, Kind.ERROR)
    (call,) = stored(conversation, Kind.TOOL_CALL)
    assert failed.cause_seq == call.seq


def test_an_approval_asked_for_before_the_kill_is_given_after_it(
    server: Server, conversation: ConversationRef
) -> None:
    server.start(CONVSERVER_AGENT=AGENT)
    with NetworkClient(server, "talk") as client:
        ask(client, "approve")
        until_waiting(client)
        restart_after_kill(server)
    with NetworkClient(server, "talk") as client:
        client.send({"type": "confirm", "id": "yes", "accept": True})
        client.until("ack", id="yes")
        client.until("event", kind="turn")
    (result,) = stored(conversation, Kind.TOOL_RESULT)
    (turn,) = stored(conversation, Kind.TURN)
    assert result.turn_id == turn.turn_id
    assert [is_interrupted(row) for row in messages_of_the_agent(conversation)] == [False]


def until_waiting(client: NetworkClient) -> dict[str, Any]:
    while True:
        frame = client.until("conversation")
        if frame["changes"].get("loop", {}).get("execution_status") == "waiting_for_confirmation":
            return frame


def test_a_message_stored_before_its_turn_could_begin_is_answered_after_the_start(
    server: Server, store: ConversationStore, conversation: ConversationRef
) -> None:
    store.append(conversation, [event("are you there?", is_input=True)])
    server.start()
    with NetworkClient(server, "talk") as client:
        answer = client.until("event", source="agent", kind="message")
    assert answer["text"].startswith("You said: are you there?")


def test_a_loop_that_was_started_meanwhile_is_not_taken_over_to_be_recovered(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    epoch = leases.claim(conversation, this_process(), agent="demo")
    leases.recover(conversation, this_process())
    assert AgentLoop.objects.of(conversation).get().epoch == epoch

"""A long conversation whose turn died is polled, joined and restarted again and again: nothing goes, nothing
is written."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import pytest
from django.db import connection

from conversations.events import Kind
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event
from conversations.store import ConversationStore
from conversations.store.metadata import ConversationMetadata
from sessions_app.models import AgentLoop, LoopStatus, UnfinishedAnswer
from tests.support.data.events import event
from tests.support.people.clients import HTTP, Server
from tests.support.wires.network import NetworkClient, wait_until

pytestmark = pytest.mark.no_second_try

AGENT = "tests.support.people.agents.StandingStillAgent"
MESSAGES = 1_000
POLLS = 1_000
RECONNECTS, RESTARTS = 20, 3
CHANGES = ("INSERT", "UPDATE", "DELETE")
KEPT = (Event, Conversation, AgentLoop, UnfinishedAnswer)
"""The tables that make up a conversation and the state of its loop."""
PAGES = (
    "/api/native/conversations/talk",
    "/api/native/conversations/talk/events?limit=1",
    "/api/native/conversations?limit=5",
    "/api/native/conversations/talk/events?after=990",
)


@pytest.fixture
def talk(conversation: ConversationRef) -> ConversationRef:
    """A conversation of 1,000 messages, with metadata."""
    writes.append(conversation, [event(f"message {number}") for number in range(MESSAGES)])
    return conversation


def hashed(conversation: ConversationRef) -> str:
    """Return a hash of all that the first 1,000 rows hold."""
    rows = Event.objects.of(conversation).oldest_first().filter(seq__lt=MESSAGES).values_list()
    return sha256(repr(list(rows)).encode()).hexdigest()


@contextmanager
def counted_writes() -> Iterator[list[str]]:
    """Let the database itself note every write to a conversation's tables, by whichever process."""
    tables = [model._meta.db_table for model in KEPT]
    found: list[str] = []
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE tests_write (what text)")
        for table in tables:
            for change in CHANGES:
                _note(cursor, table, change)
    try:
        yield found
    finally:
        with connection.cursor() as cursor:
            cursor.execute("SELECT what FROM tests_write")
            found += [what for (what,) in cursor.fetchall()]
            for table in tables:
                for change in CHANGES:
                    of = f" ON {table}" if connection.vendor == "postgresql" else ""
                    cursor.execute(f"DROP TRIGGER tests_{table}_{change}{of}")
            if connection.vendor == "postgresql":
                cursor.execute("DROP FUNCTION tests_note")
            cursor.execute("DROP TABLE tests_write")


def _note(cursor: object, table: str, change: str) -> None:
    name, what = f"tests_{table}_{change}", f"{change} {table}"
    if connection.vendor == "postgresql":
        statements = [
            "CREATE OR REPLACE FUNCTION tests_note() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN INSERT INTO tests_write VALUES (TG_ARGV[0]); RETURN NULL; END $$",
            f"CREATE TRIGGER {name} AFTER {change} ON {table} EXECUTE FUNCTION tests_note('{what}')",
        ]
    else:
        body = f"INSERT INTO tests_write VALUES ('{what}')"
        statements = [f"CREATE TRIGGER {name} AFTER {change} ON {table} BEGIN {body}; END"]
    for statement in statements:
        cursor.execute(statement)  # type: ignore[attr-defined]


def kill_in_a_turn(server: Server) -> None:
    """Let a turn begin, show a part of its answer, and kill the server: its state is stale from now on."""
    with NetworkClient(server, "talk", after=MESSAGES - 1) as client:
        client.send({"type": "message", "id": "last", "text": "/slow"})
        client.until("delta")
        wait_until(lambda: UnfinishedAnswer.objects.exists())
        server.kill()


def restart(server: Server) -> None:
    server.kill()
    server.start(CONVSERVER_AGENT=AGENT)


def poll(server: Server, times: int) -> None:
    for number in range(times):
        HTTP.get(f"{server.url}{PAGES[number % len(PAGES)]}").raise_for_status()


def reconnect(server: Server, times: int) -> None:
    for number in range(times):
        with NetworkClient(server, "talk", after=990 - number) as client:
            client.until("replay_complete")


def turns(conversation: ConversationRef) -> int:
    return Event.objects.of(conversation).filter(kind=Kind.TURN).count()


@pytest.mark.slow(on="postgresql")
def test_a_thousand_messages_outlive_a_thousand_polls_and_restarts(
    server: Server, talk: ConversationRef, store: ConversationStore, is_full: bool
) -> None:
    before = hashed(talk)
    server.start(CONVSERVER_AGENT=AGENT)
    HTTP.patch(f"{server.url}/api/native/conversations/talk", json={"title": "Kept"}).raise_for_status()
    kill_in_a_turn(server)
    assert AgentLoop.objects.of(talk).get().turn_id is not None

    restart(server)
    wait_until(lambda: turns(talk) == 1)
    wait_until(lambda: AgentLoop.objects.of(talk).get().status == LoopStatus.STOPPED)
    length, metadata = Event.objects.of(talk).count(), store.get_metadata("talk")
    with counted_writes() as written:
        for _ in range(RESTARTS):
            poll(server, (POLLS if is_full else POLLS // 4) // RESTARTS)
            reconnect(server, RECONNECTS)
            restart(server)
    assert written == []
    assert (hashed(talk), turns(talk), Event.objects.of(talk).count()) == (before, 1, length)
    assert store.get_metadata("talk") == metadata
    assert metadata.title == "Kept"
    assert length > MESSAGES + 2  # the message, the part of its answer, and the end of its turn


@pytest.mark.slow(on="postgresql")
def test_saved_metadata_outlive_stubs_that_are_saved_again(
    server: Server, talk: ConversationRef, store: ConversationStore
) -> None:
    kept = ConversationMetadata(
        conversation_id="talk", title="Kept", selected_repository="acme/widgets", tags={"team": "blue"}
    )
    store.save_metadata(kept)
    before, metadata = hashed(talk), store.get_metadata("talk")
    for _ in range(RESTARTS):
        restart(server)
        for _ in range(RECONNECTS):
            store.save_metadata(ConversationMetadata(conversation_id="talk", user_id=str(talk.owner_id)))
            poll(server, len(PAGES))
    assert store.get_metadata("talk") == metadata
    assert (hashed(talk), Event.objects.of(talk).count()) == (before, MESSAGES)


def test_the_same_text_sent_three_times_is_three_messages(
    server: Server, conversation: ConversationRef
) -> None:
    server.start()
    with NetworkClient(server, "talk") as client:
        for number in range(3):
            client.send({"type": "message", "id": str(number), "text": "Go on"})
            client.until("ack", id=str(number))
    said = Event.objects.of(conversation).filter(source="user", kind=Kind.MESSAGE)
    assert [row.text for row in said] == ["Go on"] * 3

"""Frames sent without waiting are stored in their order, or refused from the first refused one on."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from django.db import connection

import conversations.log.append
from conversations.log import writes
from conversations.models import ConversationRef
from tests.clients import WAIT_S, Client, database_url
from tests.conftest import Join
from tests.scripted_agent import Hooked, hooked, log

pytestmark = [pytest.mark.needs_engine, pytest.mark.no_second_try]

__all__ = ["hooked"]


@contextmanager
def locked(conversation: ConversationRef) -> Iterator[Callable[[], None]]:
    """Hold what an append waits for, as another program; yield what lets it go."""
    if connection.vendor == "postgresql":
        outside: Any = psycopg.connect(database_url())
        outside.execute(
            "SELECT 1 FROM conversations_conversation WHERE id = %s FOR UPDATE", [conversation.pk]
        )
    else:
        outside = sqlite3.connect(connection.settings_dict["NAME"], uri=True, isolation_level=None)
        outside.execute("BEGIN IMMEDIATE")
    try:
        yield outside.rollback
    finally:
        outside.close()


async def record(client: Client, *names: str) -> None:
    """Send a frame `event` each."""
    for name in names:
        event = {"action": "run", "source": "user", "args": {"command": name}}
        await client.send({"type": "event", "id": name, "event": event})


async def answers(client: Client, *names: str) -> list[tuple[str, Any]]:
    """Return what each frame is answered: its seq, or the code of the error."""
    found: dict[str, tuple[str, Any]] = {}
    while set(names) - set(found):
        frame = await client.receive(within_s=2 * WAIT_S)
        if frame["type"] in ("ack", "error"):
            found[frame["id"]] = (frame["type"], frame.get("seq", frame.get("code")))
    return [found[name] for name in names]


async def test_frames_that_came_before_a_refusal_was_sent_are_refused_with_it(
    join: Join, conversation: ConversationRef, hooked: Hooked, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversations.log.append, "LOCK_TIMEOUT_S", 1)
    client = await join(conversation)
    await client.until("hello")
    append = hooked(writes, "append_many")
    if connection.vendor == "postgresql":  # the first try is one that waits for no lock
        append.before(lambda: None)
    trying = append.hold()
    with locked(conversation) as unlock:
        await record(client, "f00")
        await trying.reached()
        await record(client, "f01", "f02")
        await client.send({"type": "auth", "id": "taken", "token": ""})
        await client.until("ack", id="taken")
        trying.let_go.set()
        refused = await client.until("error", id="f00")
        unlock()
    assert refused["code"] in ("busy", "unavailable")
    assert await answers(client, "f01", "f02") == [("error", refused["code"])] * 2
    assert await log(conversation) == []
    await record(client, "f00", "f01", "f02")
    assert await answers(client, "f00", "f01", "f02") == [("ack", 0), ("ack", 1), ("ack", 2)]

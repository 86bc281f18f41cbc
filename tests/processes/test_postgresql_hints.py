"""Hints over PostgreSQL alone: encrypted, short, and back once a connection was lost."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from signal import SIGCONT, SIGSTOP
from typing import Any

import psycopg
import pytest

from conversations.hint_channels import over_postgresql
from conversations.hint_channels.base import BACK
from conversations.hint_channels.over_postgresql import HINT_MAX_BYTES, PostgresqlHints
from tests.conftest import on_postgresql
from tests.support.people.clients import WAIT_S, database_url

pytestmark = [on_postgresql, pytest.mark.needs_engine]

CHANNEL = "test_postgresql_hints"
NewHints = Callable[[str], PostgresqlHints]


@pytest.fixture
async def new_hints(database: None) -> AsyncIterator[NewHints]:
    """Make a channel layer as another process has one, with this key."""
    layers: list[PostgresqlHints] = []

    def make(key: str) -> PostgresqlHints:
        layers.append(PostgresqlHints(prefix=CHANNEL, keys=[key]))
        return layers[-1]

    yield make
    for each in layers:
        await each.close()


async def joined(layer: PostgresqlHints, group: str) -> str:
    """Return a channel of this layer that receives what the group is sent."""
    channel = await layer.new_channel()
    await layer.group_add(group, channel)
    return channel


async def received(layer: PostgresqlHints, channel: str) -> Any:
    async with asyncio.timeout(WAIT_S):
        return await layer.receive(channel)


@pytest.mark.no_second_try
async def test_hints_arrive_in_order_at_all_processes_that_wait_for_the_group(new_hints: NewHints) -> None:
    speaker, *readers = (new_hints("one") for _ in range(3))
    channels = [await joined(each, "talk") for each in readers]
    others = [await joined(each, "other") for each in readers]
    for number in range(100):
        await speaker.group_send("talk", {"kind": "delta", "index": number})
    await speaker.group_send("other", {"kind": "run"})
    for reader, channel, other in zip(readers, channels, others, strict=True):
        heard = [(await received(reader, channel))["index"] for _ in range(100)]
        assert heard == list(range(100))
        assert await received(reader, other) == {"kind": "run"}


async def test_who_listens_without_the_key_learns_nothing(new_hints: NewHints) -> None:
    speaker, reader, stranger = (new_hints(key) for key in ("one", "one", "another"))
    channel, unheard = await joined(reader, "talk"), await joined(stranger, "talk")
    async with await psycopg.AsyncConnection.connect(database_url(), autocommit=True) as listener:
        await listener.execute(f"LISTEN {CHANNEL}".encode())
        await speaker.group_send("talk", {"kind": "delta", "text": "a word that was said"})
        assert (await received(reader, channel))["text"] == "a word that was said"
        said = [each.payload async for each in listener.notifies(timeout=WAIT_S, stop_after=1)]
    assert said
    assert not any("word" in each for each in said)
    assert stranger._link()._queues[unheard].empty()


async def test_events_are_left_to_be_read_from_the_log(new_hints: NewHints) -> None:
    speaker, reader = new_hints("one"), new_hints("one")
    channel = await joined(reader, "talk")
    await speaker.group_send("talk", {"kind": "appended", "last_seq": 3, "events": [{"payload": "{}"}]})
    assert await received(reader, channel) == {"kind": "appended", "last_seq": 3, "events": []}


async def test_a_hint_that_is_too_long_is_lost_and_later_ones_arrive(new_hints: NewHints) -> None:
    speaker, reader = new_hints("one"), new_hints("one")
    channel = await joined(reader, "talk")
    await speaker.group_send("talk", {"kind": "delta", "text": "x" * HINT_MAX_BYTES})
    await speaker.group_send("talk", {"kind": "run"})
    assert await received(reader, channel) == {"kind": "run"}


@pytest.mark.parametrize("which", ["query LIKE '%%pg_notify%%'", "query LIKE 'LISTEN%%'", "true"])
async def test_hints_go_on_once_connections_that_were_lost_are_back(new_hints: NewHints, which: str) -> None:
    one, other = new_hints("one"), new_hints("one")
    channels = [await joined(each, "talk") for each in (one, other)]
    await one.group_send("talk", {"kind": "run"})
    for layer, channel in zip((one, other), channels, strict=True):
        assert await received(layer, channel) == {"kind": "run"}
    with psycopg.connect(database_url(), autocommit=True) as outside:
        outside.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
            f" AND query ~ 'LISTEN|pg_notify' AND pid <> pg_backend_pid() AND {which}".replace(
                "%%", "%"
            ).encode()
        )
    for sender in (one, other):
        await until_heard(sender, other, channels[1], "changed")
        await until_heard(sender, one, channels[0], "listed")
    assert (one.away_since, other.away_since) == (None, None)


async def until_heard(sender: PostgresqlHints, reader: PostgresqlHints, channel: str, kind: str) -> None:
    """Send hints until the reader has received one of this kind; it is told of what it may have missed."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with suppress(ConnectionError):
                await sender.group_send("talk", {"kind": kind})
            with suppress(TimeoutError):
                async with asyncio.timeout(0.2):
                    while (hint := await reader.receive(channel)) is BACK or hint["kind"] != kind:
                        pass
                    return


async def test_a_listener_that_hears_nothing_is_replaced(
    new_hints: NewHints, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(over_postgresql, "SILENT_S", 0.3)
    monkeypatch.setattr(over_postgresql, "BEAT_S", 0.1)
    layer = new_hints("one")
    channel = await joined(layer, "talk")
    with psycopg.connect(database_url(), autocommit=True) as outside:
        [(pid,)] = outside.execute(
            # Servers of other runs listen as well.
            "SELECT pid FROM pg_stat_activity WHERE query LIKE 'LISTEN%' AND datname = current_database()"
        ).fetchall()
        os.kill(pid, SIGSTOP)
        try:
            assert await received(layer, channel) is BACK
        finally:
            os.kill(pid, SIGCONT)
    await layer.group_send("talk", {"kind": "run"})
    assert await received(layer, channel) == {"kind": "run"}


async def test_no_connection_is_closed_while_a_statement_of_it_is_under_way(
    new_hints: NewHints, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed_in_use: list[str] = []
    begun = asyncio.Event()

    class Watched(psycopg.AsyncConnection[Any]):
        """libpq frees what belongs to a connection that is closed, whoever still uses it."""

        running = 0

        async def execute(self, query: Any, *arguments: Any, **options: Any) -> Any:
            self.running += 1
            begun.set()
            try:
                return await super().execute(query, *arguments, **options)
            finally:
                self.running -= 1

        async def close(self) -> None:
            if self.running:
                closed_in_use.append(str(self))
            await super().close()

    monkeypatch.setattr(over_postgresql, "AsyncConnection", Watched)
    layer = new_hints("one")
    channel = await joined(layer, "talk")
    await layer.group_send("talk", {"kind": "run"})
    assert await received(layer, channel) == {"kind": "run"}
    with psycopg.connect(database_url(), autocommit=True) as outside:
        [(pid,)] = outside.execute(
            "SELECT pid FROM pg_stat_activity WHERE query LIKE '%pg_notify%' AND pid <> pg_backend_pid()"
            " AND datname = current_database()"
        ).fetchall()
        os.kill(pid, SIGSTOP)
        try:
            begun.clear()
            sending = asyncio.create_task(layer.group_send("talk", {"kind": "changed"}))
            await begun.wait()
            outside.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
                " AND datname = current_database()"
            )
            assert await received(layer, channel) is BACK
        finally:
            os.kill(pid, SIGCONT)
        await asyncio.wait({sending}, timeout=WAIT_S)
    await until_heard(layer, layer, channel, "listed")
    await layer.close()
    assert closed_in_use == []

"""What SQLite has committed is copied into its file beside the writers, who would wait for it otherwise."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from contextlib import suppress
from uuid import uuid4

import pytest
from django.db import connection

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.capacity.append_queue import BATCH_MAX_EVENTS
from sessions_app.storage import checkpoints
from tests.conftest import on_sqlite
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S
from tests.support.wires.network import wait_until

pytestmark = on_sqlite


@pytest.fixture
async def running(live: None) -> AsyncIterator[None]:
    task = asyncio.create_task(checkpoints.run())
    yield
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


def is_in_the_file(text: str) -> bool:
    """Look into the file itself, in a process of its own: to close it here would drop SQLite's locks."""
    path = str(connection.settings_dict["NAME"])
    return subprocess.run(["grep", "-q", text, path], check=False).returncode == 0


async def shown(text: str) -> None:
    """Return once the text is in the file."""
    await asyncio.to_thread(wait_until, lambda: is_in_the_file(text))


@pytest.mark.usefixtures("running")
@pytest.mark.parametrize("count", [1, BATCH_MAX_EVENTS + 1])
async def test_what_was_appended_is_soon_in_the_file(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    if count > 1:  # nobody waits for the next look
        monkeypatch.setattr(checkpoints, "EVERY_S", 10 * WAIT_S)
    text = uuid4().hex
    await astore.append_soon(conversation, [event(text) for _ in range(count)])
    await shown(text)


@pytest.mark.usefixtures("live")
async def test_no_commit_of_a_few_events_does_it(conversation: ConversationRef) -> None:
    text = uuid4().hex
    await astore.append_soon(conversation, [event(f"{text} {'x' * 100_000}") for _ in range(100)])
    assert not is_in_the_file(text)

"""What a server does beside its sockets and loops."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from django.test import override_settings

from conversations.events import ConversationRef
from convserver.asgi import lifespan
from convserver.commands.serving import WORKER_MANAGER
from convserver.configuration import BUILT_IN_MANAGERS, CLUSTERED
from sessions_app import background
from sessions_app.retention.rounds import Retention
from sessions_app.search_indexer import Indexer
from sessions_app.webhooks.dispatcher import Dispatcher
from tests.conftest import Join

pytestmark = pytest.mark.one_engine


class Works:
    """Counts the dispatchers, indexers and purgers that run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.running: list[str] = []
        for name, kind in (("webhooks", Dispatcher), ("search", Indexer), ("retention", Retention)):
            monkeypatch.setattr(kind, "run", self._run(name))

    def _run(self, name: str) -> Any:
        async def run(_: object) -> None:
            self.running.append(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.running.remove(name)

        return run


@pytest.fixture
def works(monkeypatch: pytest.MonkeyPatch) -> Works:
    """Stand-ins for the dispatcher, the indexer and the purges."""
    return Works(monkeypatch)


async def test_the_lifespan_starts_the_background_and_ends_it(live: None, works: Works) -> None:
    messages: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    sent: asyncio.Queue[dict[str, str]] = asyncio.Queue()
    serving = asyncio.create_task(lifespan(messages.get, sent.put))
    messages.put_nowait({"type": "lifespan.startup"})
    assert (await sent.get())["type"] == "lifespan.startup.complete"
    await asyncio.sleep(0)
    assert sorted(works.running) == ["retention", "search", "webhooks"]
    messages.put_nowait({"type": "lifespan.shutdown"})
    await serving
    assert works.running == []


async def test_without_a_lifespan_the_first_socket_starts_the_background_once(
    join: Join, conversation: ConversationRef, works: Works
) -> None:
    for _ in range(2):
        await join(conversation)
    assert sorted(works.running) == ["retention", "search", "webhooks"]


async def test_a_server_of_a_cluster_leaves_these_to_workers(live: None, works: Works) -> None:
    servers, workers = BUILT_IN_MANAGERS[CLUSTERED], WORKER_MANAGER
    for manager, expected in ((servers, []), (workers, ["retention", "search", "webhooks"])):
        with override_settings(CONVERSATION_MANAGER=manager):
            background.start()
            await asyncio.sleep(0.01)
            assert sorted(works.running) == expected
            await background.close()


async def test_a_task_that_fails_is_logged_and_the_others_go_on(
    live: None, works: Works, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(_: object) -> None:
        raise ValueError("no luck")

    monkeypatch.setattr(Indexer, "run", fail)
    background.start()
    await asyncio.sleep(0.01)
    assert sorted(works.running) == ["retention", "webhooks"]
    assert "A task in the background failed" in caplog.text

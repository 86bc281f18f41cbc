"""kill -9 in the middle of an import: the next server goes on with it, and everything is here once."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, Event
from sessions_app.models import ImportRun, ImportState
from tests.support.data.import_files import chat, export
from tests.support.people.clients import HTTP, Server
from tests.support.wires.network import wait_until

pytestmark = [pytest.mark.needs_engine, pytest.mark.no_second_try]

CHATS = 150


@pytest.mark.slow(on="postgresql")
def test_an_import_goes_on_after_its_server_was_killed(server: Server, alice: User) -> None:
    content = export(
        *(
            chat(str(number), title=f"{number:03}", said=["hello", f"number {number}"])
            for number in range(CHATS)
        )
    )
    server.start()
    imports = f"{server.url}/api/native/imports"
    made: dict[str, Any] = HTTP.post(imports, json={"file_name": "export.zip", "size": len(content)}).json()
    address = f"{imports}/{made['id']}"
    HTTP.put(f"{address}/pieces?offset=0", content=content).raise_for_status()
    HTTP.post(f"{address}/start").raise_for_status()
    wait_until(lambda: Conversation.objects.count() > 5)
    server.kill()
    run = ImportRun.objects.get()
    assert run.state == ImportState.RUNNING
    assert Conversation.objects.count() < CHATS
    server.start()
    wait_until(lambda: ImportRun.objects.filter(state=ImportState.DONE).exists(), within_s=60)
    run.refresh_from_db()
    assert (run.attempt, run.conversations, run.failed) == (2, CHATS, 0)
    assert Event.objects.filter(kind="message").count() == 2 * CHATS
    report = HTTP.get(f"{address}/conversations?limit=100").raise_for_status().json()
    assert [each["title"] for each in report["conversations"]] == [f"{number:03}" for number in range(100)]

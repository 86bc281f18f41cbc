"""A store, a validator and a manager of one's own: what the documentation shows, and which doors ask them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.models import Conversation, ConversationRef, Version
from conversations.store import DatabaseConversationStore, creation
from sessions_app import astore
from sessions_app.loops.manager import StandaloneConversationManager
from tests.conftest import Connect, Join
from tests.support.people.scripted_agent import until_here

OPERATION_PAGE = Path(__file__).parents[2] / "docs" / "operation.md"
TALK = "/api/conversations/talk"


# The examples of the documentation


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that has the classes of the documentation."""
    _, _, section = OPERATION_PAGE.read_text().partition("## A store, a validator, a manager of your own")
    section, _, _ = section.partition("\n## ")
    module = ModuleType("example_of_the_documentation")
    for code in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(code, vars(module))
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module.__name__


async def test_the_store_of_the_documentation_is_told_of_a_deletion(
    example: str, settings: Any, alice: User, rest: httpx.AsyncClient, capsys: pytest.CaptureFixture[str]
) -> None:
    await astore.call(lambda: creation.create(alice, conversation_id="talk", title="Lunch"))
    settings.CONVERSATION_STORE = f"{example}.AuditedStore"
    assert (await rest.delete(TALK)).json() is True
    assert capsys.readouterr().out == f"User {alice.pk} has deleted talk: Lunch\n"


async def test_the_validator_of_the_documentation_closes_rooms(
    example: str, settings: Any, join: Join
) -> None:
    settings.CONVERSATION_VALIDATOR = f"{example}.ClosedRooms"
    refused = await (await join("closed-room")).closed()
    admitted = await (await join("open-room")).until("hello")
    assert (refused.code, refused.reason) == (4404, "This room is closed.")
    assert admitted["conversation"]["id"] == "open-room"
    assert not await astore.call(Conversation.objects.filter(public_id="closed-room").exists)


async def test_the_manager_of_the_documentation_rings_when_somebody_joins(
    example: str, settings: Any, alice: User, connect: Connect, capsys: pytest.CaptureFixture[str]
) -> None:
    settings.CONVERSATION_MANAGER = f"{example}.Doorbell"
    client = await connect("talk")
    await client.until(id="STATUS$READY")
    assert capsys.readouterr().out == f"User {alice.pk} joins talk\n"


# Which methods the doors call


CALLS: list[str] = []


def noting(base: type, *names: str) -> dict[str, Any]:
    """Return methods that note their names in CALLS and do what those of `base` do."""

    def method(name: str) -> Any:
        def noted(self: Any, *args: Any, **options: Any) -> Any:
            CALLS.append(name)
            return getattr(base, name)(self, *args, **options)

        return noted

    return {name: method(name) for name in names}


STORE_METHODS = (
    "save_metadata",
    "get_metadata",
    "validate_metadata",
    "delete_metadata",
    "exists",
    "search",
    "get_all_metadata",
)
MANAGER_METHODS = (
    "__aenter__",
    "__aexit__",
    "attach_to_conversation",
    "detach_from_conversation",
    "join_conversation",
    "is_agent_loop_running",
    "get_running_agent_loops",
    "get_connections",
    "maybe_start_agent_loop",
    "send_to_event_stream",
    "send_event_to_conversation",
    "disconnect_from_session",
    "close_session",
    "get_agent_loop_info",
)

NotingStore = type(
    "NotingStore", (DatabaseConversationStore,), noting(DatabaseConversationStore, *STORE_METHODS)
)
NotingManager = type(
    "NotingManager",
    (StandaloneConversationManager,),
    noting(StandaloneConversationManager, *MANAGER_METHODS),
)


@pytest.fixture
def noted(settings: Any) -> Iterator[list[str]]:
    """The methods that were called, of a store and a manager that note them."""
    settings.CONVERSATION_STORE = f"{__name__}.NotingStore"
    settings.CONVERSATION_MANAGER = f"{__name__}.NotingManager"
    CALLS.clear()
    yield CALLS
    CALLS.clear()


@pytest.mark.parametrize(
    ("method", "path", "body", "asked"),
    [
        ("GET", "/api/conversations", None, {"search"}),
        ("DELETE", TALK, None, {"delete_metadata", "close_session"}),
        ("DELETE", "/api/native/conversations/talk", None, {"delete_metadata", "close_session"}),
        ("PATCH", "/api/conversations/unknown", {"title": "New"}, {"exists"}),
        ("PATCH", "/api/conversations/bobs", {"title": "New"}, {"exists", "validate_metadata"}),
        ("GET", TALK, None, {"get_connections"}),
        ("POST", f"{TALK}/start", {}, {"maybe_start_agent_loop"}),
        ("POST", f"{TALK}/stop", None, {"close_session"}),
        ("POST", f"{TALK}/message", {"message": "hello"}, {"send_event_to_conversation"}),
        (
            "GET",
            f"{TALK}/list-files",
            None,
            {"attach_to_conversation", "detach_from_conversation"},
        ),
        (
            "GET",
            f"{TALK}/remember-prompt?event_id=0",
            None,
            {"is_agent_loop_running", "get_running_agent_loops", "get_agent_loop_info"},
        ),
    ],
    ids=lambda value: value.rpartition("/")[2] if isinstance(value, str) else None,
)
async def test_a_request_goes_through_the_store_and_the_manager(
    method: str,
    path: str,
    body: dict[str, Any] | None,
    asked: set[str],
    noted: list[str],
    conversation: ConversationRef,
    bob: User,
    rest: httpx.AsyncClient,
) -> None:
    await astore.call(lambda: creation.create(bob, conversation_id="bobs"))
    await rest.request(method, path, json=body)
    assert asked <= set(noted)


async def test_a_change_of_the_v1_app_face_saves_metadata(
    noted: list[str], alice: User, rest: httpx.AsyncClient
) -> None:
    talk = await astore.call(lambda: creation.create(alice, version=Version.V1))
    await rest.patch(f"/api/v1/app-conversations/{talk.public_id}", json={"selected_branch": "main"})
    assert "save_metadata" in noted


def test_a_page_that_clears_a_title_reads_the_metadata(
    noted: list[str], conversation: ConversationRef
) -> None:
    Browser(headers={"host": "localhost"}).post("/c/talk/rename", {"title": ""})
    assert {"get_metadata", "get_all_metadata"} <= set(noted)


async def test_a_socket_io_client_is_the_managers_from_its_join_to_its_end(
    noted: list[str], connect: Connect
) -> None:
    client = await connect("talk")
    await client.until(id="STATUS$READY")
    await client.say("hello")
    await client.said()
    await client.leave()
    await until_here(lambda: "disconnect_from_session" in noted)
    assert {"join_conversation", "send_to_event_stream", "send_event_to_conversation"} <= set(noted)

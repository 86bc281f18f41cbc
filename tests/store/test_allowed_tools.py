"""Tools that a user has allowed until that is withdrawn: which calls still ask, and who may allow."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.models import ApiToken, Grant, Scope, ToolRun
from sessions_app.settings import allowed_tools, user_settings
from tests.conftest import Join
from tests.store.test_llm_tools import give, program, ran, runs, until_asked
from tests.support.people.clients import Client
from tests.support.people.model_talks import model
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import Answer, calling, completion

__all__ = ["manager", "runs"]

WIRES = pytest.mark.parametrize("version", [Version.V0, Version.V1])


@pytest.fixture
def careful(alice: User, configured: Callable[..., None]) -> Callable[..., ConversationRef]:
    """Make conversations of a user who wants to approve every call."""
    configured(agent=BUILT_IN_AGENTS["auto"])
    user_settings.change_settings(alice.pk, {"confirmation_mode": True}, secrets={})

    def make(name: str, version: Version = Version.V0) -> ConversationRef:
        return creation.create(alice, conversation_id=name, version=version, title=name)

    return make


def adding(*numbers: int) -> list[Answer]:
    """Return answers of a model that adds 1 to each number, each in a turn of its own."""
    return [
        answer
        for number in numbers
        for answer in (calling(("add", {"a": number, "b": 1})), completion(["."]))
    ]


async def go(client: Client, text: str = "Go.") -> bool:
    """Send a message; return whether the agent asks for an approval before it answers."""
    await client.send({"type": "message", "text": text})
    while True:
        frame = await client.receive()
        status = frame.get("changes", {}).get("loop", {}).get("execution_status")
        if status == "waiting_for_confirmation":
            return True
        if frame["type"] == "event" and frame["kind"] == "turn":
            return False


async def approve(client: Client, **decision: str) -> None:
    await client.send({"type": "confirm", "accept": True, **decision})
    await client.until("event", kind="turn")


@WIRES
async def test_a_tool_is_allowed_in_one_conversation_or_in_all_until_that_is_withdrawn(
    careful: Callable[..., ConversationRef], alice: User, join: Join, runs: Path, version: Version
) -> None:
    first, second = (
        await astore.call(careful, "first", version),
        await astore.call(careful, "second", version),
    )
    await give(alice, program("counting", runs))
    async with model(alice, *adding(1, 2, 3, 4, 5)):
        here, there = await join(first), await join(second)
        await until_asked(here)
        await approve(here, always="conversation")
        assert not await go(here)
        assert await go(there)
        await approve(there, always="user")
        assert not await go(there)
        (in_all, in_one) = await astore.call(lambda: list(allowed_tools.of_user(alice.pk)))
        assert [(each.name, each.conversation_id) for each in (in_all, in_one)] == [
            ("add", None),
            ("add", first.pk),
        ]
        for each in (in_all, in_one):
            assert await astore.change(allowed_tools.withdraw, alice.pk, each.pk)
        assert await go(here)
    assert ran(runs) == ["add 1 1", "add 2 1", "add 3 1", "add 4 1"]


async def test_a_tool_of_the_same_name_that_another_server_has_asks(
    careful: Callable[..., ConversationRef], alice: User, join: Join, runs: Path, tmp_path: Path
) -> None:
    talk = await astore.call(careful, "talk")
    await give(alice, program("counting", runs))
    async with model(alice, *adding(1, 2)):
        client = await join(talk)
        await until_asked(client)
        await approve(client, always="user")
        await give(alice, program("counting", tmp_path / "others"))
        assert await go(client)


async def test_what_another_user_has_allowed_asks(
    careful: Callable[..., ConversationRef], alice: User, bob: User, join: Join, runs: Path
) -> None:
    talk = await astore.call(careful, "talk")
    await give(alice, program("counting", runs))
    async with model(alice, *adding(1)):
        client = await join(talk)
        await until_asked(client)
        await approve(client, always="user")
    (allowed,) = await astore.call(lambda: list(allowed_tools.of_user(alice.pk)))
    assert not await astore.change(allowed_tools.withdraw, bob.pk, allowed.pk)
    assert await astore.call(lambda: list(allowed_tools.of_user(bob.pk))) == []


async def test_a_rejection_allows_nothing_and_some_calls_ask_each_time(
    conversation: ConversationRef, join: Join, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    client = await join(conversation)
    assert await go(client, "/approve")
    address = f"/api/native/conversations/{conversation.public_id}/confirm"
    grant = Grant(conversation=conversation)
    _, token = await astore.call(ApiToken.issue, conversation.owner_id, "of one", grant)
    own = {"Authorization": f"Bearer {token}"}
    narrow = Grant(scopes=[Scope.READ, Scope.RUN])
    _, token = await astore.call(ApiToken.issue, conversation.owner_id, "runs", narrow)
    runs_only = {"Authorization": f"Bearer {token}"}
    refused: list[tuple[dict[str, Any], dict[str, str], int, str]] = [
        ({"accept": False, "always": "user"}, {}, 400, "always: This needs `accept` to be true."),
        ({"accept": True, "always": "forever"}, {}, 400, "always"),
        ({"outcome": "run_again", "always": "user"}, {}, 400, "always: This needs `accept` to be true."),
        ({"accept": True, "always": "user"}, runs_only, 403, "`admin`"),
        ({"accept": True, "always": "user"}, own, 403, "one conversation"),
        ({"accept": True, "always": "conversation"}, own, 409, allowed_tools.NOT_ALWAYS),
        ({"accept": True, "always": "user"}, {}, 409, allowed_tools.NOT_ALWAYS),
    ]
    for body, headers, status, words in refused:
        with subtests.test(body=body):
            answer = await rest.post(address, json=body, headers=headers)
            assert (answer.status_code, words in answer.text) == (status, True), answer.text
    for frame in ({"accept": False, "always": "user"}, {"accept": True, "always": "ever"}):
        with subtests.test(frame=frame):
            await client.send({"type": "confirm", "id": "x", **frame})
            assert (await client.until("error"))["code"] == "bad_frame"
    assert (await rest.post(address, json={"accept": True})).status_code == 200


def test_only_calls_of_one_tool_that_may_run_without_approval_allow_it() -> None:
    def run(name: str, source: str | None) -> ToolRun:
        return ToolRun(name=name, source=source)

    assert allowed_tools.allowable([run("add", "a"), run("add", "a")]) == ("add", "a")
    for waiting in (
        [],
        [run("add", None)],
        [run("add", "a"), run("add", "b")],
        [run("add", "a"), run("remove", "a")],
        [run("remove", "a"), run("run", None)],
    ):
        assert allowed_tools.allowable(waiting) is None, waiting

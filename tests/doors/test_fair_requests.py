"""HTTP requests of several users: one who keeps many threads leaves some to the others."""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from conversations.events import EventEnvelope
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef
from conversations.search.fulltext import search as fulltext
from conversations.store import creation, labels
from convserver.serving import http
from convserver.serving.admission import BATCHES, BATCHES_OF_ONE, SEARCHES, SEARCHES_OF_ONE, THREADS
from convserver.serving.http import OneThreadHandler
from sessions_app import astore
from sessions_app.git_providers.base import ProviderType
from sessions_app.models import ApiToken
from tests.doors.v0.test_v0_git_user import store_token
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import until_here, until_true
from tests.support.servers.git_server import GitServer

ANSWER_S = 2 * WAIT_S


class Gate:
    """Threads that are held until the test lets them go."""

    def __init__(self) -> None:
        self.go = threading.Event()
        self.held = threading.Semaphore(0)

    def wait(self) -> None:
        """Hold the calling thread."""
        self.held.release()
        assert self.go.wait(ANSWER_S)

    async def holds(self, count: int) -> None:
        """Wait until so many threads are held."""
        for _ in range(count):
            assert await asyncio.to_thread(self.held.acquire, timeout=WAIT_S)

    async def holds_more(self) -> bool:
        """Say whether another thread comes to be held soon."""
        return await asyncio.to_thread(self.held.acquire, timeout=0.2)


@pytest.fixture
def gate() -> Iterator[Gate]:
    gate = Gate()
    yield gate
    gate.go.set()


@pytest.fixture
def bobs(bob: User) -> ConversationRef:
    """A conversation of bob's, with one event."""
    conversation = creation.create(bob, conversation_id="bobs")
    writes.append(conversation, [event("needle")])
    return conversation


@pytest.fixture
def slow_reads(alice: User, gate: Gate, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads a log of alice's keeps a thread."""
    read_after = reads.read_after

    def held(conversation: ConversationRef, *args: Any, **bounds: Any) -> list[EventEnvelope]:
        if conversation.owner_id == alice.pk:
            gate.wait()
        return read_after(conversation, *args, **bounds)

    monkeypatch.setattr(reads, "read_after", held)


@pytest.fixture
async def keys(alice: User, bob: User) -> dict[str, dict[str, str]]:
    """The header of each user's token."""
    issued = {user.username: await astore.call(ApiToken.issue, user.pk, "laptop") for user in (alice, bob)}
    return {name: {"authorization": f"Bearer {token}"} for name, (_, token) in issued.items()}


Get = Callable[..., Awaitable[httpx.Response]]


@pytest.fixture
async def in_background(gate: Gate) -> AsyncIterator[Callable[[Awaitable[httpx.Response]], Any]]:
    """Send requests without waiting for their answers; at the end wait for them."""
    sent: list[asyncio.Future[httpx.Response]] = []

    def send(request: Awaitable[httpx.Response]) -> asyncio.Future[httpx.Response]:
        sent.append(asyncio.ensure_future(request))
        return sent[-1]

    yield send
    gate.go.set()
    await asyncio.gather(*sent)


def log_of(conversation: ConversationRef) -> str:
    return f"/api/native/conversations/{conversation.public_id}/events"


@pytest.mark.usefixtures("accounts", "slow_reads")
async def test_another_user_is_answered_while_one_keeps_all_threads_of_a_share(
    conversation: ConversationRef,
    bobs: ConversationRef,
    keys: dict[str, dict[str, str]],
    rest: httpx.AsyncClient,
    gate: Gate,
    in_background: Any,
) -> None:
    hers = [in_background(rest.get(log_of(conversation), headers=keys["local"])) for _ in range(2 * THREADS)]
    await gate.holds(THREADS * 3 // 4)
    async with asyncio.timeout(WAIT_S):
        answer = await rest.get(log_of(bobs), headers=keys["bob"])
        assert [each["text"] for each in answer.json()["events"]] == ["needle"]
        frame = '{"type": "message", "id": "m", "text": "hello"}'
        headers = {**keys["bob"], "content-type": "application/json"}
        assert (await rest.post(log_of(bobs), content=frame, headers=headers)).json()["seq"] == 1
        assert (await rest.get(reverse("login"))).status_code == 200
    assert not any(each.done() for each in hers)
    gate.go.set()
    assert {(await each).status_code for each in hers} == {200}


@pytest.mark.usefixtures("accounts", "slow_reads")
async def test_many_tokens_of_one_user_are_one_share(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient, gate: Gate, in_background: Any
) -> None:
    for number in range(THREADS):
        _, token = await astore.call(ApiToken.issue, alice.pk, f"token {number}")
        in_background(rest.get(log_of(conversation), headers={"x-session-api-key": token}))
    await gate.holds(THREADS * 3 // 4)
    assert not await gate.holds_more()


@pytest.mark.usefixtures("accounts", "slow_reads")
async def test_a_request_that_waits_too_long_for_its_own_user_is_told_when_to_come_again(
    conversation: ConversationRef,
    keys: dict[str, dict[str, str]],
    rest: httpx.AsyncClient,
    gate: Gate,
    in_background: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for _ in range(THREADS * 3 // 4):
        in_background(rest.get(log_of(conversation), headers=keys["local"]))
    await gate.holds(THREADS * 3 // 4)
    monkeypatch.setattr(http, "WAIT_S", 0.05)
    refused = {
        path: await rest.get(path, headers=keys["local"])
        for path in ("/api/native/conversations?pinned=true", "/api/conversations?page_id=x", "/")
    }
    assert {answer.status_code for answer in refused.values()} == {429}
    assert {int(answer.headers["retry-after"]) > 0 for answer in refused.values()} == {True}
    assert refused["/api/native/conversations?pinned=true"].json()["code"] == "too_many_requests"
    assert "Wait for their answers" in refused["/api/conversations?page_id=x"].json()["detail"]
    assert "Wait for their answers" in refused["/"].text


@pytest.mark.usefixtures("slow_reads")
async def test_without_accounts_one_user_may_have_all_threads(
    conversation: ConversationRef,
    rest: httpx.AsyncClient,
    gate: Gate,
    in_background: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(http, "WAIT_S", 0.05)
    hers = [in_background(rest.get(log_of(conversation))) for _ in range(THREADS + 5)]
    await gate.holds(THREADS)
    assert not await gate.holds_more()
    gate.go.set()
    assert {(await each).status_code for each in hers} == {200}


@pytest.mark.usefixtures("accounts")
async def test_one_users_searches_leave_room_for_a_search_of_another(
    bobs: ConversationRef,
    alice: User,
    keys: dict[str, dict[str, str]],
    rest: httpx.AsyncClient,
    gate: Gate,
    in_background: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begin = fulltext.search

    def held(scope: Any, *arguments: Any, **bounds: Any) -> Any:
        if scope.user.pk == alice.pk:
            gate.wait()
        return begin(scope, *arguments, **bounds)

    monkeypatch.setattr("convserver.api.native.search.search", held)
    path = "/api/native/search?q=needle"
    hers = [in_background(rest.get(path, headers=keys["local"])) for _ in range(2 * SEARCHES)]
    await gate.holds(SEARCHES_OF_ONE)
    assert not await gate.holds_more()
    async with asyncio.timeout(WAIT_S):
        assert len((await rest.get(path, headers=keys["bob"])).json()["hits"]) == 1
        assert (await rest.get("/api/native/conversations", headers=keys["local"])).status_code == 200
    gate.go.set()
    assert {(await each).status_code for each in hers} == {200}


@pytest.mark.usefixtures("accounts")
async def test_one_users_batches_come_one_after_the_other_and_another_users_beside_them(
    conversation: ConversationRef,
    bobs: ConversationRef,
    alice: User,
    keys: dict[str, dict[str, str]],
    rest: httpx.AsyncClient,
    gate: Gate,
    in_background: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    set_tag = labels.set_tag

    def held(name: str, values: Any, **others: Any) -> Any:
        if any(each.owner_id == alice.pk for each in values):
            gate.wait()
        return set_tag(name, values, **others)

    monkeypatch.setattr(labels, "set_tag", held)

    def post(user: str, conversation: ConversationRef) -> Awaitable[httpx.Response]:
        body = {"action": "label", "ids": [conversation.public_id], "label": "work"}
        return rest.post("/api/native/batch", json=body, headers=keys[user])

    hers = [in_background(post("local", conversation)) for _ in range(2 * BATCHES)]
    await gate.holds(BATCHES_OF_ONE)
    assert not await gate.holds_more()
    async with asyncio.timeout(WAIT_S):
        assert (await post("bob", bobs)).json()["changed"] == 1
        title = {"title": "New"}
        path = f"/api/native/conversations/{conversation.public_id}"
        assert (await rest.patch(path, json=title, headers=keys["local"])).status_code == 200
    gate.go.set()
    assert {(await each).status_code for each in hers} == {200}


async def test_a_git_host_that_does_not_answer_keeps_no_thread_from_other_requests(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient, in_background: Any
) -> None:
    with GitServer(ProviderType.GITHUB, secrets.token_hex()) as github:
        await astore.call(store_token, alice, github)
        github.never_answer()
        pages = range(1, 2 * THREADS)
        asked = [in_background(rest.get(f"/api/user/repositories?page={page}")) for page in pages]
        chosen = {"repository": "acme/site"}
        asked += [in_background(rest.post("/api/conversations", json=chosen)) for _ in range(THREADS)]
        await until_here(lambda: bool(github.asked) or github.most_at_once > 0)
        async with asyncio.timeout(WAIT_S):
            for _ in range(THREADS):
                assert (await rest.get(log_of(conversation))).status_code == 200
            frame = {"type": "message", "id": "m", "text": "hello"}
            assert (await rest.post(log_of(conversation), json=frame)).json()["seq"] == 0
        assert not any(each.done() for each in asked)
        github.answer_all(401)
        github.stopped.set()
        await asyncio.gather(*asked)


async def test_what_a_thread_has_begun_is_done_though_its_client_leaves(
    live: None, conversation: ConversationRef, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The framework closes the body when the client is gone, and the thread reads it after that."""
    in_thread = http._in_thread

    def late(chain: Any, request: Any) -> Any:
        gate.wait()
        return in_thread(chain, request)

    monkeypatch.setattr(http, "_in_thread", late)
    body = b'{"title": "Renamed"}'
    coming = [{"type": "http.request", "body": body, "more_body": False}]
    has_begun = asyncio.Event()

    async def receive() -> Any:
        if coming:
            return coming.pop()
        await has_begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        pytest.fail(f"nothing is sent to a client that has left: {message}")

    headers = {"host": "localhost", "content-type": "application/json", "content-length": str(len(body))}
    scope = {
        "type": "http",
        "http_version": "1.1",
        "method": "PATCH",
        "path": f"/api/native/conversations/{conversation.public_id}",
        "query_string": b"",
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
        "client": ("127.0.0.1", 1),
        "scheme": "http",
    }
    leaving = asyncio.create_task(OneThreadHandler("leaving")(scope, receive, send))
    await gate.holds(1)
    has_begun.set()
    await asyncio.wait_for(leaving, WAIT_S)
    gate.go.set()

    async def is_renamed() -> bool:
        return await astore.call(lambda: Conversation.objects.get(pk=conversation.pk).title == "Renamed")

    await until_true(is_renamed)

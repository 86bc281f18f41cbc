"""Socket.IO clients as people use them, in two languages, against a server in a process of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection

from conversations.events import ConversationRef
from sessions_app.models import ApiToken
from tests.doors.test_access import login_cookie
from tests.support.people.clients import WAIT_S, Server
from tests.support.wires.npm import SOCKET_IO_CLIENT
from tests.support.wires.socketio_clients import End, NodeClient, PythonClient, SocketIOClient
from tests.support.wires.v0 import Matching
from tests.support.wires.v0_socket import Refused

pytestmark = pytest.mark.one_engine
"""Some of these run on two servers as well, which are on PostgreSQL."""

QUICK = {"sessions_app.agents.demo.DEFAULT_WORD_S": 0.0}

Join = Callable[..., Awaitable[SocketIOClient]]

in_javascript = pytest.param(
    NodeClient,
    marks=pytest.mark.skipif(bool(SOCKET_IO_CLIENT.problem()), reason=SOCKET_IO_CLIENT.problem() or ""),
)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Let each client join on one engine, and on both if two processes are joined, or with `--full`."""
    here = (
        [PythonClient] if connection.vendor == "postgresql" or SOCKET_IO_CLIENT.problem() else [in_javascript]
    )
    everywhere = metafunc.config.getoption("--full") or "another" in metafunc.fixturenames
    if "join" in metafunc.fixturenames:
        clients = [PythonClient, in_javascript] if everywhere else here
        metafunc.parametrize("join", clients, indirect=True)


@pytest.fixture
async def join(request: pytest.FixtureRequest, server: Server, alice: User) -> AsyncIterator[Join]:
    """Join a conversation of a server that runs; alice's in local mode."""
    clients: list[SocketIOClient] = []

    async def joined(
        conversation_id: str | None,
        *,
        at: Server = server,
        transports: Sequence[str] = ("websocket",),
        **options: Any,
    ) -> SocketIOClient:
        client: SocketIOClient = request.param(at)
        client.transports = transports
        clients.append(client)
        await client.connect(conversation_id, **options)
        return client

    yield joined
    for client in clients:
        await client.leave()


@pytest.fixture
def another(database: None, tmp_path: Path) -> Iterator[Server]:
    """A second server on the same database; not started yet."""
    process = Server(tmp_path / "another")
    (tmp_path / "another").mkdir()
    yield process
    process.kill()


@pytest.fixture
async def rest(server: Server) -> AsyncIterator[httpx.AsyncClient]:
    """A REST client of that server."""
    async with httpx.AsyncClient(base_url=server.url, timeout=WAIT_S) as client:
        yield client


async def refusal(join: Join, conversation_id: str | None, **options: Any) -> dict[str, Any]:
    with pytest.raises(Refused) as refused:
        await join(conversation_id, **options)
    return refused.value.data


def answers(text: str) -> Callable[[dict[str, Any]], bool]:
    return lambda frame: (
        (frame.get("source"), frame.get("action")) == ("agent", "message")
        and frame["message"].startswith(f"You said: {text}")
    )


def is_ready(frame: dict[str, Any]) -> bool:
    return frame.get("id") == "STATUS$READY"


def is_error(frame: dict[str, Any]) -> bool:
    return (frame.get("status_update"), frame.get("type")) == (True, "error")


def told(client: SocketIOClient) -> list[int]:
    """Return the ids of the events received, but for states: of these a replay has the newest alone."""
    return [
        frame["id"]
        for frame in client.frames
        if isinstance(frame.get("id"), int) and frame.get("observation") != "agent_state_changed"
    ]


# Joining, and coming back


async def test_a_client_joins_an_unknown_id_and_one_that_was_posted(
    join: Join, server: Server, rest: httpx.AsyncClient
) -> None:
    server.start(constants=QUICK)
    unknown = await join("my-own-id")
    acknowledged = await unknown.say("hello")
    await unknown.until(answers("hello"))
    assert (acknowledged["success"], acknowledged["id"] in unknown.numbers) == (True, True)
    created = await rest.post("/api/conversations", json={"initial_user_msg": "good day"})
    posted = await join(created.json()["conversation_id"])
    await posted.until(answers("good day"))
    assert posted.frames[0]["id"] == 0


@pytest.mark.no_second_try
async def test_a_client_that_leaves_resumes_where_it_was(join: Join, server: Server) -> None:
    server.start(constants=QUICK)
    first = await join("my-talk")
    await first.say("hello")
    await first.until(answers("hello"))
    await first.leave()
    second = await join("my-talk", latest_event_id=first.numbers[-1])
    await second.say("again")
    await second.until(answers("again"))
    assert second.numbers == sorted(set(second.numbers))
    assert second.numbers[0] > first.numbers[-1]


@pytest.mark.no_second_try
async def test_a_client_that_drops_comes_back_by_itself_and_misses_nothing(
    join: Join, server: Server
) -> None:
    server.start(constants=QUICK)
    client, other = await join("my-talk"), await join("my-talk")
    await client.say("hello")
    await client.until(answers("hello"))
    await client.drop()
    assert await client.ended() is End.BY_NETWORK
    await other.say("meanwhile")
    await client.back()
    await other.until(answers("meanwhile"))  # two messages that wait have one answer
    await client.say("again")
    for each in (client, other):
        await each.until(answers("again"))
    assert told(client) == told(other) == sorted(set(told(other)))
    assert client.numbers == sorted(set(client.numbers))


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_a_client_comes_back_to_a_server_that_was_killed_and_has_everything_once(
    join: Join, server: Server
) -> None:
    server.start(constants=QUICK)
    client = await join("my-talk")
    await client.say("hello")
    await client.until(answers("hello"))
    await asyncio.to_thread(server.kill)
    assert await client.ended() is End.BY_NETWORK
    await asyncio.to_thread(server.start, constants=QUICK)
    await client.back()
    await client.say("again")
    await client.until(answers("again"))
    late = await join("my-talk")
    await late.until(answers("again"))
    assert told(client) == told(late) == sorted(set(told(late)))
    assert client.numbers == sorted(set(client.numbers))


@pytest.mark.no_second_try
async def test_four_clients_that_join_a_busy_conversation_miss_nothing_and_get_nothing_twice(
    join: Join, server: Server
) -> None:
    server.start(constants=QUICK)
    busy = await join("busy")
    await busy.until(is_ready)
    commands: list[str] = []
    is_over = asyncio.Event()

    async def talk() -> None:
        while not is_over.is_set():
            commands.append(f"echo {len(commands)}")
            await busy.ask({"action": "run", "args": {"command": commands[-1]}})

    async def come_and_go() -> SocketIOClient:
        client = await join("busy")
        for times in range(1, 4):
            await client.drop()
            await client.back(times=times)
        return client

    talking = asyncio.create_task(talk())
    others = await asyncio.gather(*(come_and_go() for _ in range(4)))
    is_over.set()
    await talking
    for each in [busy, *others]:
        await each.until(lambda frame: frame.get("args", {}).get("command") == commands[-1])
        shown = [frame["args"]["command"] for frame in each.frames if frame.get("action") == "run"]
        assert (shown, each.numbers) == (commands, sorted(set(each.numbers)))


# Ends


@pytest.mark.needs_engine
@pytest.mark.skipif(
    connection.vendor != "postgresql" or settings.CONFIGURATION.redis_url is None,
    reason="only PostgreSQL with Redis brings another process's hints",
)
async def test_clients_of_two_processes_see_the_same_conversation(
    join: Join, server: Server, another: Server
) -> None:
    server.start(constants=QUICK)
    another.start(constants=QUICK)
    here, there = await join("my-talk"), await join("my-talk", at=another)
    await there.say("hello")
    for client in (here, there):
        await client.until(answers("hello"))
        assert client.numbers == sorted(set(client.numbers))
    await here.say("good day")
    for client in (here, there):
        await client.until(answers("good day"))
    assert told(here) == told(there)


async def test_a_stop_a_deletion_and_a_restart_disconnect_each_in_its_way(
    join: Join, server: Server, rest: httpx.AsyncClient
) -> None:
    server.start(constants=QUICK)
    stopped, deleted, other = [await join(name) for name in ("stopped", "deleted", "other")]
    for each in (stopped, deleted, other):
        await each.until(is_ready)
    await rest.post("/api/conversations/stopped/stop")
    assert await stopped.ended() is End.BY_SERVER
    assert stopped.frames[-1]["extras"] == {"agent_state": "stopped", "reason": ""}
    await rest.delete("/api/conversations/deleted")
    assert await deleted.ended() is End.BY_SERVER
    assert await refusal(join, "deleted") == {"message": "Conversation not found."}
    await asyncio.to_thread(server.stop)
    assert await other.ended() is End.BY_NETWORK


async def test_a_client_whose_conversation_makes_room_is_told_why_before_it_is_disconnected(
    join: Join, server: Server
) -> None:
    server.start(CONVSERVER_MAX_CONCURRENT="1")
    first = await join("first")
    await first.until(is_ready)
    second = await join("second")
    assert await first.ended() is End.BY_SERVER
    why, closed = first.frames[-2:]
    assert (why["id"], is_error(why)) == ("AGENT_ERROR$TOO_MANY_CONVERSATIONS", True)
    assert closed["extras"] == {"agent_state": "stopped", "reason": ""}
    await second.until(is_ready)


# Refusals


async def test_what_cannot_be_joined_is_refused_in_words(join: Join, server: Server) -> None:
    server.start(constants=QUICK)
    for nothing in (None, "", " "):
        assert await refusal(join, nothing) == {"message": "No conversation_id in query params"}
    path = await refusal(join, "../x")
    assert path == {"message": "Conversation ID contains invalid path characters"}
    unknown = await refusal(join, "talk", providers_set="github,sourceforge")
    assert unknown == {"message": Matching(".*sourceforge.*")}


async def test_a_wrong_and_an_absent_key_are_refused(join: Join, server: Server) -> None:
    server.start(SESSION_API_KEY="sesame")
    for key in ("wrong", "null", None):
        answer = await refusal(join, "talk", session_api_key=key)
        assert answer == {"message": "invalid_session_api_key"}
    client = await join("talk", session_api_key="sesame")
    await client.until(is_ready)


async def test_who_has_no_settings_or_no_key_for_the_model_is_told_so(
    join: Join, server: Server, rest: httpx.AsyncClient
) -> None:
    server.start(CONVSERVER_AGENT="tests.support.data.faulty.ModelAgent")
    assert await refusal(join, "talk") == {
        "message": "Settings not found",
        "data": {"msg_id": "CONFIGURATION$SETTINGS_NOT_FOUND"},
    }
    await rest.post("/api/settings", json={"llm_model": "openai/gpt-5"})
    assert await refusal(join, "talk") == {
        "message": "Error authenticating with the LLM provider. Please check your API key",
        "data": {"msg_id": "STATUS$ERROR_LLM_AUTHENTICATION"},
    }
    await rest.post("/api/settings", json={"llm_api_key": "sk-1"})
    await (await join("talk")).until(is_ready)


@pytest.fixture
def tokens(alice: User, bob: User) -> list[str]:
    """What opens the door to alice, and to bob."""
    return [ApiToken.issue(user.pk, "laptop")[1] for user in (alice, bob)]


@pytest.fixture
def login(alice: User) -> str:
    return login_cookie(alice)


async def test_somebody_elses_conversation_is_refused_as_a_deleted_one_is(
    join: Join, server: Server, conversation: ConversationRef, tokens: list[str], rest: httpx.AsyncClient
) -> None:
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="127.0.0.1")
    hers, his = [{"authorization": f"Bearer {token}"} for token in tokens]
    await (await join(conversation.public_id, headers=hers)).until(is_ready)
    await (await join("gone", headers=his)).until(is_ready)
    await rest.delete("/api/conversations/gone", headers=his)
    foreign, deleted = [await refusal(join, name, headers=his) for name in (conversation.public_id, "gone")]
    assert foreign == deleted == {"message": "Conversation not found."}
    assert await refusal(join, "talk") == {"message": "invalid_session_api_key"}


async def test_clients_that_poll_bring_their_credentials_by_themselves(
    join: Join, server: Server, conversation: ConversationRef, tokens: list[str], login: str
) -> None:
    server.start(CONVSERVER_AUTH="accounts", CONVSERVER_ALLOWED_HOSTS="localhost,127.0.0.1")
    server.url = server.url.replace("127.0.0.1", "localhost")  # clients in Python keep cookies of names alone
    hers = tokens[0]
    carried: list[dict[str, Any]] = [
        {"headers": {"authorization": f"Bearer {hers}"}},
        {"headers": {"x-session-api-key": hers}},
        {"headers": {"cookie": login}},
        {"session_api_key": hers},
        {"session_api_key": hers, "headers": {"authorization": f"Bearer {hers}"}},
    ]
    for transports in (["polling"], ["polling", "websocket"]):
        for number, credentials in enumerate(carried):
            text = f"{transports[-1]} {number}"
            client = await join(conversation.public_id, transports=transports, **deepcopy(credentials))
            assert (await client.say(text))["success"]
            await client.until(answers(text))
            await client.leave()


# What clients send


WRONG: list[tuple[str, list[Any]]] = [
    ("oh_user_action", [{"action": "dance", "args": {}}]),
    ("oh_user_action", ["hello"]),
    ("oh_user_action", []),
    ("oh_action", [{"kind": "MessageEvent"}]),
    ("chat message", [{"action": "message", "args": {"content": "hello"}}]),
    ("*", [{"action": "message", "args": {"content": "hello"}}]),
]


async def test_what_is_no_event_and_what_nobody_takes_is_answered_with_an_error(
    join: Join, server: Server
) -> None:
    server.start(constants=QUICK)
    client = await join("talk")
    for name, values in WRONG:
        client.frames.clear()
        answer = await client.ask(*values, name=name)
        assert (answer["success"], bool(answer["error"])) == (False, True)
        frame = await client.until(is_error)
        assert (frame["id"], frame["message"]) == ("STATUS$ERROR", answer["error"])
        client.frames.clear()
        await client.emit(*values, name=name)
        assert (await client.until(is_error))["message"] == answer["error"]
    await client.say("hello")
    await client.until(answers("hello"))

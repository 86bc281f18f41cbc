"""Who may come in at every socket: by whose credentials, carried how, and what each is told."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.utils import timezone

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore, routing
from sessions_app.identity import conversation_keys
from sessions_app.models import ApiToken, Grant, Scope
from tests.conftest import Connect, Dial
from tests.doors.test_access import login_cookie
from tests.support.people.clients import Client, SocketClosed
from tests.support.wires.v0_socket import Refused
from tests.support.wires.v1_socket import ID, events_path, session_path

pytestmark = pytest.mark.one_engine

HEX = ID.replace("-", "")
POLLING = "/socket.io/?EIO=4&transport=polling"

IN, UNKNOWN, ABSENT, SMALL = "in", "not known", "no such conversation", "scope too small"
"""What a client is told."""

WORDS = {
    1008: UNKNOWN,  # a handshake that is refused
    4401: UNKNOWN,
    4404: ABSENT,
    4403: SMALL,
    4004: ABSENT,
    "Authentication failed": UNKNOWN,
    "This needs a token with the scope `read`.": SMALL,
    "This token is for one conversation only. Use a token for all conversations.": SMALL,
    "invalid_session_api_key": UNKNOWN,
    "Conversation not found.": ABSENT,
}
"""The same by code, or by words where a code stands for several."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Door:
    """A socket: how it is addressed, and which ways of bringing a key it has beside the headers."""

    route: str
    path: str
    by_address: bool = False
    by_frame: dict[str, str] = field(default_factory=dict)
    """The member of the first frame that has the key, by its name."""
    knows_keys: bool = False
    """Whether it takes the keys of conversations."""
    is_of_all: bool = False
    """Whether it is about all of a user's conversations: a stranger finds their own."""
    runs: bool = False
    """Whether to read is not enough."""
    is_silent: bool = False
    """Whether it says nothing before it is asked for something."""


V1_ROUTE = r"^(?:agent/)?sockets/{}/(?P<conversation_id>[^/]+)$"
AGENT_ROUTE = "^ws/agents/(?P<name>[^/]+)$"
TOKEN, KEY = {"token": "token"}, {"key": "session_api_key"}
V1: dict[str, Any] = {"by_address": True, "by_frame": KEY, "knows_keys": True}
COMMANDS_ROUTE = "^(?:agent/)?sockets/bash-events$"
DOORS = {
    "list": Door(route="^ws/conversations$", path="/ws/conversations", by_frame=TOKEN, is_of_all=True),
    "native": Door(
        route="^ws/conversations/(?P<conversation_id>[^/]+)$",
        path=f"/ws/conversations/{HEX}",
        by_frame=TOKEN,
    ),
    "agent": Door(route=AGENT_ROUTE, path="/ws/agents/helper", by_frame=TOKEN, is_of_all=True, runs=True),
    "agent of one": Door(
        route=AGENT_ROUTE, path=f"/ws/agents/helper?conversation={HEX}", by_frame=TOKEN, runs=True
    ),
    "events": Door(route=V1_ROUTE.format("events"), path=events_path(), **V1),
    "session": Door(route=V1_ROUTE.format("session"), path=session_path(), **V1),
    "the agent's events": Door(route=V1_ROUTE.format("events"), path=f"/agent{events_path()}", **V1),
    "the agent's session": Door(route=V1_ROUTE.format("session"), path=f"/agent{session_path()}", **V1),
    "commands": Door(route=COMMANDS_ROUTE, path="/sockets/bash-events", is_of_all=True, is_silent=True, **V1),
    "v0": Door(route=r"^socket\.io/", path="/socket.io/", by_address=True),
    "v0 by polling": Door(route=r"^socket\.io/", path="/socket.io/", by_address=True),
}
NOWHERE = ""
"""The route of every other address: test_access.py."""

EXPECTED = {
    "the owner's token": IN,
    "the owner's login": IN,
    "a stranger's token": ABSENT,
    "a stranger's login": ABSENT,
    "nothing": UNKNOWN,
    "a wrong key": UNKNOWN,
    "a revoked token": UNKNOWN,
    "an expired token": UNKNOWN,
    "a deactivated user's token": UNKNOWN,
    "a deactivated user's login": UNKNOWN,
    "a login that is over": UNKNOWN,
    "the conversation's key": UNKNOWN,
    "a rotated key": UNKNOWN,
    "another conversation's key": UNKNOWN,
    "a token that only reads": IN,
    "a token that may not read": SMALL,
    "a token of this conversation": IN,
    "a token of another conversation": ABSENT,
}
WITH_KEYS = EXPECTED | {"the conversation's key": IN, "another conversation's key": ABSENT}
OF_ALL = EXPECTED | {
    "a stranger's token": IN,
    "a stranger's login": IN,
    "a token of this conversation": SMALL,
    "a token of another conversation": SMALL,
}


def expected(door: Door) -> dict[str, str]:
    answers = OF_ALL if door.is_of_all else WITH_KEYS if door.knows_keys else EXPECTED
    if door.is_of_all and door.knows_keys:  # each key opens what is its own
        answers = answers | {"the conversation's key": IN, "another conversation's key": IN}
    return answers | {"a token that only reads": SMALL} if door.runs else answers


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation of alice's that every wire can join."""
    return creation.create(alice, conversation_id=ID, version=Version.V1)


@pytest.fixture
def credentials(talk: ConversationRef, alice: User, bob: User) -> dict[str, str]:
    """What each brings: a key, or a cookie."""
    other = creation.create(alice, version=Version.V1)
    rotated = conversation_keys.key_of(talk)
    conversation_keys.rotate(talk)
    gone = User.objects.create_user("gone")

    def token(user: User, **grant: Any) -> str:
        return ApiToken.issue(user.pk, "laptop", Grant(**grant))[1]

    found = {
        "the owner's token": token(alice),
        "the owner's login": login_cookie(alice),
        "a stranger's token": token(bob),
        "a stranger's login": login_cookie(bob),
        "nothing": "",
        "a wrong key": "cs_wrong",
        "a revoked token": token(alice, scopes=[Scope.READ]),
        "an expired token": token(alice, expires_at=timezone.now() - timedelta(days=1), scopes=[Scope.READ]),
        "a deactivated user's token": token(gone),
        "a deactivated user's login": login_cookie(gone),
        "a login that is over": login_cookie(alice),
        "a rotated key": rotated,
        "the conversation's key": conversation_keys.key_of(talk),
        "another conversation's key": conversation_keys.key_of(other),
        "a token that only reads": token(alice, scopes=[Scope.READ]),
        "a token that may not read": token(alice, scopes=[Scope.WRITE, Scope.RUN, Scope.ADMIN]),
        "a token of this conversation": token(alice, conversation=talk),
        "a token of another conversation": token(alice, conversation=other),
    }
    ApiToken.objects.matching(found["a revoked token"]).get().revoke()
    Session.objects.get(pk=found["a login that is over"].removeprefix("sessionid=")).delete()
    User.objects.filter(pk=gone.pk).update(is_active=False)
    return found


Knock = Callable[[str, str, str], Awaitable[str]]


def carriers(door: Door, credential: str) -> list[str]:
    """Return how this door can be brought a credential."""
    if not credential:
        return ["nowhere"]
    if credential.startswith("sessionid="):
        return ["cookie"]
    ways = {"address": door.by_address, "frame": bool(door.by_frame)}
    return ["authorization", "x-session-api-key", *(way for way, is_there in ways.items() if is_there)]


def headers_with(carrier: str, credential: str) -> dict[str, str]:
    """Return the headers that bring it, if this way is by a header."""
    if carrier == "authorization":
        return {carrier: f"Bearer {credential}"}
    return {carrier: credential} if carrier in ("cookie", "x-session-api-key") else {}


def told(code: object, words: str = "") -> str:
    """Return what a refusal says in the words of the table; itself if it is not among them."""
    return WORDS.get(words) or WORDS.get(code, f"{code} {words}")


@pytest.fixture
def knock(dial: Dial, connect: Connect, rest: httpx.AsyncClient) -> Knock:
    """Come to a door with a credential, leave at once, and return what was told."""

    async def by_socket(door: Door, carrier: str, credential: str) -> str:
        query = {"session_api_key": credential} if carrier == "address" else None
        client: Client | None = None
        try:
            client = await dial(door.path, headers=headers_with(carrier, credential), query=query)
            key = dict.fromkeys(door.by_frame.values(), credential) if carrier == "frame" else {}
            await client.send({"type": "auth", **key})  # who is known already may send it, too
            if door.is_silent:
                await client.send({"nonsense": True})
            await client.receive()
        except SocketClosed as closed:
            return told(closed.code, closed.reason)
        finally:
            if client is not None:
                await client.leave()
        return IN

    async def by_socket_io(carrier: str, credential: str) -> str:
        query = {"session_api_key": credential} if carrier == "address" else {}
        try:
            client = await connect(HEX, headers=headers_with(carrier, credential), **query)
        except Refused as refused:
            return told(None, refused.data["message"])
        await client.leave()
        return IN

    async def by_polling(carrier: str, credential: str) -> str:
        key = f"&session_api_key={credential}" if carrier == "address" else ""
        headers = headers_with(carrier, credential)
        address = f"{POLLING}&conversation_id={HEX}{key}"
        opened = await rest.get(address, headers=headers)
        address += f"&sid={json.loads(opened.text[1:])['sid']}"
        await rest.post(address, content="40", headers=headers)
        answer = (await rest.get(address, headers=headers)).text.partition("\x1e")[0]
        await rest.post(address, content="1", headers=headers)
        return told(None, json.loads(answer[2:])["message"]) if answer.startswith("44") else IN

    async def knocked(name: str, carrier: str, credential: str) -> str:
        match name:
            case "v0":
                return await by_socket_io(carrier, credential)
            case "v0 by polling":
                return await by_polling(carrier, credential)
        return await by_socket(DOORS[name], carrier, credential)

    return knocked


def test_every_socket_has_a_door_here() -> None:
    routes: list[Any] = routing.router.routes
    assert [str(route.pattern) for route in routes] == [
        *dict.fromkeys(
            DOORS[name].route for name in ("v0", "list", "native", "agent", "events", "session", "commands")
        ),
        NOWHERE,
    ]
    assert {door.route for door in DOORS.values()} == {str(route.pattern) for route in routes} - {NOWHERE}


async def test_each_socket_tells_each_what_its_row_says_whichever_way_they_bring_their_credentials(
    accounts: None, credentials: dict[str, str], knock: Knock
) -> None:
    assert set(credentials) == set(EXPECTED)
    different = {}
    for name, door in DOORS.items():
        for who, answer in expected(door).items():
            for carrier in carriers(door, credentials[who]):
                found = await knock(name, carrier, credentials[who])
                if found != answer:
                    different[name, who, carrier] = (found, answer)
    assert different == {}


async def test_once_the_owner_is_deactivated_no_socket_lets_anybody_in_for_them(
    accounts: None, credentials: dict[str, str], alice: User, knock: Knock
) -> None:
    await astore.call(User.objects.filter(pk=alice.pk).update, is_active=False)
    theirs = [who for who in credentials if "owner" in who or "token" in who or "conversation" in who]
    let_in = [
        (name, who)
        for name, door in DOORS.items()
        for who in theirs
        if "stranger" not in who
        for carrier in carriers(door, credentials[who])
        if await knock(name, carrier, credentials[who]) != UNKNOWN
    ]
    assert let_in == []

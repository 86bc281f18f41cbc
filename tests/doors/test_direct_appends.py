"""Appends by REST that are made on the event loop: the same as by their views, and only for whoever may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from conversations.log import reads
from conversations.models import ConversationRef, Version
from conversations.payloads import bounds
from conversations.store import creation, deletion
from convserver.api.direct import callers
from convserver.api.direct.appends import ROUTES
from convserver.quotas import Quotas
from sessions_app.event_loops import PerEventLoop
from sessions_app.identity import access_watch, conversation_keys
from sessions_app.identity.authentication import Credentials
from sessions_app.models import ApiToken, Grant, Scope
from tests.support.wires.direct_doors import DirectDoors

pytestmark = pytest.mark.one_engine

NATIVE, V0, MESSAGE, AGENT = (
    "/api/native/conversations/{}/events",
    "/api/conversations/{}/events",
    "/api/conversations/{}/message",
    "/agent/api/conversations/{}/events",
)
RUN = {"action": "run", "args": {"command": "ls"}}
EVENT = {"type": "event", "id": "a", "event": RUN}
GOOD: dict[str, Any] = {NATIVE: EVENT, V0: RUN, MESSAGE: {"message": "hi"}, AGENT: {"content": "hi"}}
"""What each address takes."""
JSON = {"content-type": "application/json"}


def good_body(path: str) -> dict[str, Any]:
    """Return what the address takes, under an id that is new."""
    return {**GOOD[path], **({"id": uuid4().hex} if path == NATIVE else {})}


REQUESTS: dict[str, tuple[str, str | bytes, dict[str, str]]] = {
    "native event": (NATIVE, json.dumps(EVENT), JSON),
    "native event of a session": (NATIVE + "?session=tab-1", json.dumps(EVENT), JSON),
    "native message": (NATIVE, json.dumps({"type": "message", "id": 1, "text": "hello"}), JSON),
    "native events": (NATIVE, json.dumps({"type": "events", "events": [{"id": "a", "event": RUN}]}), JSON),
    "native list": (NATIVE, json.dumps([EVENT, {"type": "nonsense", "id": 2}, 7]), JSON),
    "native list of nothing": (NATIVE, "[]", JSON),
    "native nonsense": (NATIVE, "{", JSON),
    "native unknown type": (NATIVE, '{"type":"dance","id":"a"}', JSON),
    "native without a type": (NATIVE, '{"id":"a"}', JSON),
    "native event that is no event": (NATIVE, '{"type":"event","event":7}', JSON),
    "native without JSON's name": (NATIVE, json.dumps(EVENT), {}),
    "native text": (NATIVE, json.dumps(EVENT), {"content-type": "text/plain"}),
    "native for HTML": (NATIVE, json.dumps(EVENT), JSON | {"accept": "text/html"}),
    "native session that is too long": (NATIVE + f"?session={'x' * 101}", json.dumps(EVENT), JSON),
    "native not UTF-8": (NATIVE, b'{"type":"\xff"}', JSON),
    "native without a body": (NATIVE, b"", JSON),
    "native of another conversation": (NATIVE.format("other"), json.dumps(EVENT), JSON),
    "native of an impossible one": (NATIVE.format("a..b"), json.dumps(EVENT), JSON),
    "native event of many values": (
        NATIVE,
        json.dumps({"type": "event", "id": "m", "event": RUN | {"more": [1] * 2_000}}),
        JSON,
    ),
    "v0 event": (V0, json.dumps(RUN), JSON),
    "v0 event without JSON's name": (V0, json.dumps(RUN), {}),
    "v0 event with a key": (V0, json.dumps(RUN), JSON | {"idempotency-key": "one"}),
    "v0 event with a long key": (V0, json.dumps(RUN), JSON | {"idempotency-key": "k" * 300}),
    "v0 event with a query": (V0 + "?a=b", json.dumps(RUN), JSON),
    "v0 list": (V0, "[1]", JSON),
    "v0 nonsense": (V0, "{", JSON),
    "v0 without a body": (V0, b"", JSON),
    "v0 event that is no event": (V0, '{"what":"this"}', JSON),
    "v0 decision without a question": (
        V0,
        json.dumps({"action": "change_agent_state", "args": {"agent_state": "user_confirmed"}}),
        JSON,
    ),
    "v0 of another conversation": (V0.format("other"), json.dumps(RUN), JSON),
    "v0 message": (MESSAGE, json.dumps({"message": "hello"}), JSON),
    "v0 message that is no text": (MESSAGE, '{"message":7}', JSON),
    "v0 message that is missing": (MESSAGE, "{}", JSON),
    "v0 message with a NUL": (MESSAGE, '{"message":"a\\u0000b"}', JSON),
    "agent message": (AGENT, json.dumps({"role": "user", "content": [{"type": "text", "text": "hi"}]}), JSON),
    "agent message of an unknown role": (AGENT, json.dumps({"role": 7}), JSON),
    "agent message without a body": (AGENT, b"", JSON),
    "agent message of another conversation": (AGENT.format(uuid4().hex), '{"content":"hi"}', JSON),
}


class Doors(DirectDoors):
    """The appends on the event loop before the views, and the views alone."""

    async def post(self, path: str, body: Any, **headers: str) -> int:
        """Append as a client does, before the views, and return the status."""
        async with self.client(self.direct, **headers) as client:
            return (await client.post(path, json=body)).status_code

    async def warmed_up(self, path: str, conversation_id: str, **headers: str) -> None:
        """Append twice, so that the caller is known."""
        for _ in range(2):
            assert await self.post(path.format(conversation_id), good_body(path), **headers) == 200


@pytest.fixture
def doors(live: None, alice: User) -> Doors:
    return Doors()


@pytest.fixture
def stopped_clock(monkeypatch: pytest.MonkeyPatch, live: None) -> list[float]:
    """Let callers be known by a clock that stands; its only item is what it shows."""
    now = [0.0]
    monkeypatch.setattr(callers, "_callers", PerEventLoop(lambda: _watched(now)))
    return now


def _watched(now: list[float]) -> callers.Callers:
    made = callers.Callers(lambda: now[0])
    callers._all.add(made)
    return made


def new_conversation(user: User, version: Version = Version.V0) -> ConversationRef:
    return creation.create(user, conversation_id=uuid4().hex, version=version)


@pytest.mark.parametrize("door", GOOD)
async def test_requests_are_answered_as_their_view_answers(doors: Doors, alice: User, door: str) -> None:
    version = Version.V1 if door == AGENT else Version.V0
    base = door.partition("{}")
    for name, (path, body, headers) in REQUESTS.items():
        if not (path.startswith(base[0]) and path.partition("?")[0].endswith(base[2])):
            continue
        one, other = [await sync_to_async(new_conversation)(alice, version) for _ in range(2)]
        warm = await sync_to_async(new_conversation)(alice, version)
        await doors.warmed_up(door, warm.public_id)
        answers = []
        for conversation, application in ((one, doors.direct), (other, doors.views)):
            async with doors.client(application) as client:
                address = path.format(conversation.public_id)
                answer = await client.post(address, content=body, headers=headers)
            text = answer.text.replace(conversation.public_id, "ID")
            log = await sync_to_async(reads.read_after)(conversation, -1)
            stored = [(event["type"], event["source"]) for event in log][:1]
            answers.append((answer.status_code, text, sorted(answer.headers.multi_items()), stored))
        assert answers[0] == answers[1], name


def test_each_route_is_compared() -> None:
    assert {route.name for route in ROUTES} == {"native-events", "v0-events", "v0-message", "agent-events"}
    for route in ROUTES:
        assert any(route.address.fullmatch(path.format("id")) for path in GOOD)


@pytest.mark.parametrize("path", GOOD)
async def test_an_append_like_most_asks_no_view(doors: Doors, alice: User, path: str) -> None:
    version = Version.V1 if path == AGENT else Version.V0
    conversation = await sync_to_async(new_conversation)(alice, version)
    await doors.warmed_up(path, conversation.public_id)
    assert doors.left_to_views == 0


@pytest.mark.parametrize("hsts_s", [0, 300])
async def test_successes_have_the_headers_of_their_views(
    live: None, alice: User, settings: Any, hsts_s: int
) -> None:
    settings.SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
    settings.SECURE_HSTS_SECONDS = hsts_s
    doors = Doors()
    _, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    for path in GOOD:
        for scheme in ("http", "https"):
            for key in ({}, {"authorization": f"Bearer {text}"}):
                answers = []
                for application in (doors.direct, doors.views):
                    version = Version.V1 if path == AGENT else Version.V0
                    conversation = await sync_to_async(new_conversation)(alice, version)
                    headers = {"x-forwarded-proto": scheme, **key}
                    async with doors.client(application, **headers) as client:
                        answer = await client.post(path.format(conversation.public_id), json=good_body(path))
                    answers.append((answer.status_code, sorted(answer.headers.multi_items())))
                assert answers[0] == answers[1], (path, scheme, key)
                assert answers[0][0] == 200
    assert doors.left_to_views == 0


async def test_a_body_that_takes_long_to_read_is_left_to_the_view(
    doors: Doors, conversation: ConversationRef
) -> None:
    await doors.warmed_up(V0, conversation.public_id)
    long = RUN | {"args": {"command": "x" * bounds.LIGHT_MAX_CHARACTERS}}
    assert await doors.post(V0.format(conversation.public_id), long) == 200
    assert doors.left_to_views == 1


@pytest.mark.no_second_try
async def test_what_is_sent_twice_is_stored_once(doors: Doors, conversation: ConversationRef) -> None:
    await doors.warmed_up(NATIVE, conversation.public_id)
    path = NATIVE.format(conversation.public_id)
    assert [await doors.post(path, EVENT) for _ in range(2)] == [200, 200]
    assert await doors.post(path, EVENT | {"event": {"action": "run", "args": {"command": "rm"}}}) == 409
    assert await sync_to_async(reads.last_seq)(conversation) == 2


Take = Callable[[User, ApiToken, ConversationRef], object]


def revoke(alice: User, token: ApiToken, conversation: ConversationRef) -> None:
    token.revoke()


def deactivate(alice: User, token: ApiToken, conversation: ConversationRef) -> None:
    alice.is_active = False
    alice.save()


def delete(alice: User, token: ApiToken, conversation: ConversationRef) -> None:
    deletion.soft_delete(conversation)


@pytest.mark.parametrize("path", GOOD)
@pytest.mark.parametrize(
    ("take_away", "status"), [(revoke, 401), (deactivate, 401), (delete, 404)], ids=["token", "user", "row"]
)
async def test_what_is_taken_away_is_refused_from_the_next_request_on(
    accounts: None,
    stopped_clock: list[float],
    doors: Doors,
    alice: User,
    path: str,
    take_away: Take,
    status: int,
) -> None:
    version = Version.V1 if path == AGENT else Version.V0
    conversation = await sync_to_async(new_conversation)(alice, version)
    token, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    await doors.warmed_up(path, conversation.public_id, authorization=f"Bearer {text}")
    await sync_to_async(take_away)(alice, token, conversation)
    body = GOOD[path] | ({"id": "b"} if path == NATIVE else {})
    address = path.format(conversation.public_id)
    assert await doors.post(address, body, authorization=f"Bearer {text}") == status


@pytest.mark.parametrize("path", GOOD)
async def test_what_is_taken_away_while_a_body_comes_is_refused(
    accounts: None, stopped_clock: list[float], doors: Doors, alice: User, path: str
) -> None:
    version = Version.V1 if path == AGENT else Version.V0
    conversation = await sync_to_async(new_conversation)(alice, version)
    token, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    await doors.warmed_up(path, conversation.public_id, authorization=f"Bearer {text}")
    body = json.dumps(GOOD[path] | ({"id": "b"} if path == NATIVE else {})).encode()

    async def slowly() -> AsyncIterator[bytes]:
        yield body[:1]
        await sync_to_async(token.revoke)()
        yield body[1:]

    headers = JSON | {"authorization": f"Bearer {text}", "content-length": str(len(body))}
    async with doors.client(doors.direct) as client:
        answer = await client.post(path.format(conversation.public_id), content=slowly(), headers=headers)
    assert answer.status_code == 401


@pytest.mark.parametrize("body", [[], [EVENT], [EVENT | {"id": "b"}, 7]], ids=["none", "one", "two"])
async def test_a_list_for_a_conversation_that_was_deleted_just_now_finds_none(
    stopped_clock: list[float], doors: Doors, conversation: ConversationRef, body: list[Any]
) -> None:
    await doors.warmed_up(NATIVE, conversation.public_id)
    await sync_to_async(deletion.soft_delete)(conversation)
    assert await doors.post(NATIVE.format(conversation.public_id), body) == 404


async def test_a_rotated_key_of_a_conversation_opens_nothing_from_the_next_request_on(
    accounts: None, stopped_clock: list[float], doors: Doors, alice: User
) -> None:
    conversation = await sync_to_async(new_conversation)(alice, Version.V1)
    key = await sync_to_async(conversation_keys.key_of)(conversation)
    await doors.warmed_up(AGENT, conversation.public_id, **{"x-session-api-key": key})
    left = doors.left_to_views
    await sync_to_async(conversation_keys.rotate)(conversation)
    status = await doors.post(AGENT.format(conversation.public_id), GOOD[AGENT], **{"x-session-api-key": key})
    assert (status, doors.left_to_views) == (401, left + 1)


async def test_the_key_of_one_conversation_opens_no_other(accounts: None, doors: Doors, alice: User) -> None:
    one, other = [await sync_to_async(new_conversation)(alice, Version.V1) for _ in range(2)]
    key = await sync_to_async(conversation_keys.key_of)(one)
    await doors.warmed_up(AGENT, one.public_id, **{"x-session-api-key": key})
    assert (await doors.post(AGENT.format(other.public_id), GOOD[AGENT], **{"x-session-api-key": key})) == 404


@pytest.mark.parametrize("path", GOOD)
async def test_a_stranger_and_a_scope_too_small_are_refused_as_the_view_refuses_them(
    accounts: None, doors: Doors, alice: User, bob: User, path: str
) -> None:
    version = Version.V1 if path == AGENT else Version.V0
    conversation = await sync_to_async(new_conversation)(alice, version)
    _, own = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    _, foreign = await sync_to_async(ApiToken.issue)(bob.pk, "script")
    reading = Grant(scopes=(Scope.READ,))
    _, small = await sync_to_async(ApiToken.issue)(alice.pk, "reader", reading)
    await doors.warmed_up(path, conversation.public_id, authorization=f"Bearer {own}")
    address, body = path.format(conversation.public_id), GOOD[path]
    assert await doors.post(address, body, authorization=f"Bearer {foreign}") == 404
    assert await doors.post(address, body, authorization=f"Bearer {small}") == 403
    assert await doors.post(address, body) == 401
    assert await doors.post(address, body, authorization="Bearer nonsense") == 401


async def test_a_change_without_a_signal_counts_after_a_second(
    accounts: None, stopped_clock: list[float], doors: Doors, alice: User, conversation: ConversationRef
) -> None:
    _, text = await sync_to_async(ApiToken.issue)(alice.pk, "script")
    key = f"Bearer {text}"
    await doors.warmed_up(V0, conversation.public_id, authorization=key)
    await User.objects.filter(pk=alice.pk).aupdate(is_active=False)
    stopped_clock[0] = callers.KNOWN_S
    assert await doors.post(V0.format(conversation.public_id), RUN, authorization=key) == 401


async def test_who_is_looked_up_while_access_is_taken_away_is_not_remembered(
    live: None, alice: User, conversation: ConversationRef
) -> None:
    known = callers.get_callers()
    asked = callers.Asked(Credentials(), conversation.public_id, None, takes_conversation_keys=False)
    looking = asyncio.ensure_future(known.find(asked, 0))
    await asyncio.sleep(0)  # it has begun
    access_watch._tell(alice.pk)
    assert await looking is not None
    assert len(known) == 0
    assert await known.find(asked, 0) is not None
    assert len(known) == 1


async def test_a_request_counts_once_for_its_users_quota(
    configured: Callable[..., None], doors: Doors, conversation: ConversationRef
) -> None:
    configured(quotas=Quotas(requests_per_minute=6))
    await doors.warmed_up(V0, conversation.public_id)
    path = V0.format(conversation.public_id)
    statuses = [await doors.post(path, body) for body in (RUN, [1], RUN, {"what": "this"}, RUN)]
    assert statuses == [200, 422, 200, 422, 429]


@pytest.mark.parametrize("path", GOOD)
async def test_a_quota_is_told_before_what_is_wrong_with_a_body(
    configured: Callable[..., None], doors: Doors, alice: User, path: str
) -> None:
    version = Version.V1 if path == AGENT else Version.V0
    conversation = await sync_to_async(new_conversation)(alice, version)
    configured(quotas=Quotas(requests_per_minute=2))
    await doors.warmed_up(path, conversation.public_id)
    answers = []
    for application in (doors.direct, doors.views):
        async with doors.client(application) as client:
            answer = await client.post(path.format(conversation.public_id), content="{", headers=JSON)
        answers.append((answer.status_code, sorted(answer.headers)))
    assert answers[0] == answers[1]
    assert answers[0][0] == 429


async def test_an_answer_that_cannot_be_sent_is_not_begun_again(
    doors: Doors, conversation: ConversationRef
) -> None:
    await doors.warmed_up(V0, conversation.public_id)
    left, begun = doors.left_to_views, []

    async def without_a_client(scope: Any, receive: Any, send: Any) -> None:
        async def lost(message: Any) -> None:
            begun.append(message["type"])
            raise OSError("The client has left.")

        await doors.direct(scope, receive, lost)

    async with doors.client(without_a_client) as client:
        with pytest.raises(OSError, match="has left"):
            await client.post(V0.format(conversation.public_id), json=RUN)
    assert (begun, doors.left_to_views) == (["http.response.start"], left)

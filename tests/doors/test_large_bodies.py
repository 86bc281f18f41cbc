"""Large bodies: so many bytes of each user and of all are read at a time; others are refused unread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation
from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from convserver.serving import admission
from sessions_app import astore
from sessions_app.capacity import parsing
from sessions_app.models import ApiToken
from sessions_app.sockets.native.frames import FRAME_MAX_BYTES
from tests.support.people.clients import WAIT_S

pytestmark = [pytest.mark.usefixtures("accounts"), pytest.mark.one_engine]

LARGE = UNKNOWN_BODY_MAX_BYTES + 1
PLACE = "/api/native/conversations"
Keys = dict[str, dict[str, str]]


def body_of(title: str, length: int = LARGE) -> bytes:
    return json.dumps({"title": title}).encode().ljust(length)


@pytest.fixture
async def keys(alice: User, bob: User) -> Keys:
    """The header of each user's token."""
    issued = {user.username: await astore.call(ApiToken.issue, user.pk, "laptop") for user in (alice, bob)}
    return {name: {"authorization": f"Bearer {token}"} for name, (_, token) in issued.items()}


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for three bodies, two of them of one user."""
    monkeypatch.setattr(admission, "BODIES_MAX_BYTES", 3 * LARGE)
    monkeypatch.setattr(admission, "BODIES_OF_ONE_BYTES", 2 * LARGE)
    monkeypatch.setattr(admission, "BODY_WAIT_S", 0.2)


class Upload:
    """A body that comes slowly."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self.is_read, self.rest = asyncio.Event(), asyncio.Event()

    async def parts(self, first: int = LARGE - 1) -> AsyncIterator[bytes]:
        """Yield the first bytes, and the rest once that is wanted."""
        yield self._body[:first]
        self.is_read.set()
        async with asyncio.timeout(WAIT_S):
            await self.rest.wait()
        yield self._body[first:]


@asynccontextmanager
async def uploading(
    rest: httpx.AsyncClient, title: str, headers: dict[str, str], *, length: int | None = LARGE
) -> AsyncIterator[asyncio.Task[httpx.Response]]:
    """Send the first bytes of a body until the server has read them; the rest at the end of the block."""
    upload = Upload(body_of(title, length or LARGE + 1))
    said = {"content-length": str(length)} if length else {}
    parts = upload.parts(length - 1 if length else LARGE)
    sent = asyncio.create_task(rest.post(PLACE, content=parts, headers={**JSON, **headers, **said}))
    async with asyncio.timeout(WAIT_S):
        await upload.is_read.wait()
    try:
        yield sent
    finally:
        upload.rest.set()
        await sent


JSON = {"content-type": "application/json"}


async def post(rest: httpx.AsyncClient, title: str, headers: dict[str, str], length: int = LARGE) -> Any:
    """Post a body at once; return its status, what it was told, and when to come again."""
    answer = await rest.post(PLACE, content=body_of(title, length), headers={**JSON, **headers})
    return answer.status_code, answer.json().get("code"), answer.headers.get("retry-after")


@pytest.mark.usefixtures("little_room")
async def test_bodies_beyond_a_users_share_are_refused_and_those_of_others_are_read(
    rest: httpx.AsyncClient, keys: Keys
) -> None:
    async with (
        uploading(rest, "one", keys["local"]) as first,
        uploading(rest, "two", keys["local"]),
    ):
        assert await post(rest, "three", keys["local"]) == (429, "too_many_requests", "5")
        assert (await post(rest, "small", keys["local"], length=100))[0] == 201
        assert (await post(rest, "bob's", keys["bob"]))[0] == 201
        async with uploading(rest, "bob's second", keys["bob"]):
            assert await post(rest, "bob's third", keys["bob"]) == (503, "unavailable", "5")
    assert first.result().status_code == 201
    assert (await post(rest, "four", keys["local"]))[0] == 201
    titles = {"one", "two", "small", "bob's", "bob's second", "four"}
    assert (
        set(await astore.call(lambda: list(Conversation.objects.values_list("title", flat=True)))) == titles
    )


@pytest.mark.usefixtures("little_room")
async def test_a_body_waits_for_room_and_is_read_then(
    rest: httpx.AsyncClient, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "BODY_WAIT_S", WAIT_S)
    async with uploading(rest, "one", keys["local"]), uploading(rest, "two", keys["local"]):
        waiting = asyncio.create_task(post(rest, "three", keys["local"]))
        assert (await post(rest, "bob's", keys["bob"]))[0] == 201
        assert not waiting.done()
    assert (await waiting)[0] == 201


async def test_a_body_without_a_length_has_room_for_the_largest_once_it_is_large(
    rest: httpx.AsyncClient, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admission, "BODY_WAIT_S", 0.2)
    async with (
        uploading(rest, "one", keys["local"], length=None) as first,
        uploading(rest, "two", keys["local"], length=None),
    ):
        assert (await post(rest, "three", keys["local"]))[0] == 429
        assert (await post(rest, "bob's", keys["bob"]))[0] == 201
    assert first.result().status_code == 201
    assert (await post(rest, "four", keys["local"]))[0] == 201


@pytest.mark.usefixtures("little_room")
async def test_where_there_are_no_accounts_one_user_may_have_all_the_room(
    rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(auth="local")
    async with uploading(rest, "one", {}), uploading(rest, "two", {}), uploading(rest, "three", {}):
        assert (await post(rest, "four", {}))[0] == 429
    assert (await post(rest, "five", {}))[0] == 201


async def test_bodies_of_one_user_are_read_at_a_pace_that_others_bear(
    rest: httpx.AsyncClient, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "SIZE_PER_S", LARGE / WAIT_S)
    assert (await post(rest, "one", keys["local"]))[0] == 201
    waiting = asyncio.create_task(post(rest, "two", keys["local"]))
    assert (await post(rest, "bob's", keys["bob"]))[0] == 201
    assert (await post(rest, "small", keys["local"], length=100))[0] == 201
    assert not waiting.done()
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_body_without_a_length_is_paced_by_the_length_that_it_has(
    rest: httpx.AsyncClient, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parsing, "SIZE_PER_S", FRAME_MAX_BYTES / WAIT_S)
    async with asyncio.timeout(WAIT_S / 2):
        for title in ("one", "two", "three"):
            async with uploading(rest, title, keys["local"], length=None) as sent:
                pass
            assert sent.result().status_code == 201

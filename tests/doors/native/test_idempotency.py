"""Under an Idempotency-Key every door creates once, and answers a repeated request as the first one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from io import StringIO
from itertools import product
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.core.management import call_command
from django.db import connection
from django.utils import timezone

from conversations.models import Conversation, ConversationRef, Event
from conversations.store import creation
from convserver.api.v1.app import start_tasks
from sessions_app import astore, idempotency
from sessions_app.idempotency import key_in
from sessions_app.identity import conversation_keys
from sessions_app.models import ApiToken, RecordedAnswer
from sessions_app.models.idempotency import KEY_MAX_LENGTH
from sessions_app.settings import agent_setups, user_settings
from tests.conftest import once
from tests.support.people.scripted_agent import Hooked, hooked
from tests.support.wires.app_face import create, said

__all__ = ["hooked"]

pytestmark = pytest.mark.no_second_try

NATIVE = "/api/native/conversations"
V0 = "/api/conversations"
AGENT = "/agent/api/conversations"
APP = "/api/v1/app-conversations"
SOURCE = "00000000000000000000000000000001"
START = {"workspace": {"working_dir": "here"}}

DOORS: dict[str, tuple[str, dict[str, Any]]] = {
    "native": (NATIVE, {"title": "One", "tags": {"a": "b"}}),
    "v0": (V0, {"initial_user_msg": "hello"}),
    "v1": (AGENT, {**START, "initial_message": said("hello")}),
    "v1, on the address of v0": (V0, {**START, "initial_message": said("hello")}),
    "v1, acp": ("/agent/api/acp/conversations", START),
    "v1, app": (APP, {"initial_message": said("hello"), "title": "One"}),
    "v1, app, streamed": (f"{APP}/stream-start", {"initial_message": said("hello")}),
    "v1, fork": (f"{AGENT}/{SOURCE}/fork", {"title": "A copy"}),
}
each_door = pytest.mark.parametrize("door", DOORS)
KEY = {"Idempotency-Key": "8e03978e-40d5-43e8-bc93-6894a57f9324"}


@pytest.fixture
def source(alice: User) -> ConversationRef:
    """A conversation that can be copied."""
    return create(alice, SOURCE)


async def made() -> int:
    """Return how many conversations there are beside the source."""
    return await astore.call(Conversation.objects.exclude(public_id=SOURCE).count)


def without(answer: httpx.Response) -> tuple[int, Any]:
    return answer.status_code, answer.json()


@once
@each_door
async def test_a_repeated_request_creates_nothing_more_and_is_answered_as_the_first_one(
    source: ConversationRef, rest: httpx.AsyncClient, door: str
) -> None:
    address, body = DOORS[door]
    first = await rest.post(address, json=body, headers=KEY)
    again = await rest.post(address, json=dict(reversed(body.items())), headers=KEY)
    assert first.is_success, first.text
    assert (without(again), await made()) == (without(first), 1)


@once
async def test_the_first_message_of_a_repeated_request_is_stored_once(rest: httpx.AsyncClient) -> None:
    address, body = DOORS["v0"]
    for _ in range(2):
        await rest.post(address, json=body, headers=KEY)
    assert await astore.call(Event.objects.filter(source="user", kind="message").count) == 1


@once
@each_door
async def test_a_key_that_comes_with_another_body_is_a_conflict(
    source: ConversationRef, rest: httpx.AsyncClient, door: str
) -> None:
    address, body = DOORS[door]
    await rest.post(address, json=body, headers=KEY)
    other_body = {**body, "tags": {"a": "c"}} if "tags" in body or "workspace" in body else {}
    other = await rest.post(address, json=other_body, headers=KEY)
    assert (other.status_code, await made()) == (409, 1), other.text
    assert other.json()["detail"].startswith("This Idempotency-Key was used for a request with another body")


@once
async def test_without_a_key_every_request_creates(rest: httpx.AsyncClient) -> None:
    for _ in range(2):
        await rest.post(NATIVE, json={})
    assert await made() == 2


@once
async def test_a_key_means_nothing_at_another_address(
    source: ConversationRef, rest: httpx.AsyncClient
) -> None:
    addresses = dict(DOORS.values())
    for address, body in addresses.items():
        assert (await rest.post(address, json=body, headers=KEY)).is_success
    assert await made() == len(addresses)


@once
async def test_a_key_means_nothing_for_another_user(
    accounts: None, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    for user in (alice, bob, alice):
        _, token = await astore.call(ApiToken.issue, user.pk, "a token")
        answer = await rest.post(NATIVE, json={}, headers={**KEY, "Authorization": f"Bearer {token}"})
        assert answer.status_code == 201
    owners = await astore.call(lambda: list(Conversation.objects.values_list("owner_id", flat=True)))
    assert sorted(owners) == sorted([alice.pk, bob.pk])


@once
async def test_the_key_of_one_conversation_opens_no_answer_about_another(
    source: ConversationRef, rest: httpx.AsyncClient
) -> None:
    address, body = DOORS["v1"]
    await rest.post(address, json=body, headers=KEY)
    own = {"X-Session-API-Key": await astore.call(conversation_keys.key_of, source)}
    assert (await rest.post(address, json=body, headers=KEY | own)).status_code == 403


@once
async def test_the_key_of_one_conversation_may_repeat_its_own_start(
    source: ConversationRef, rest: httpx.AsyncClient
) -> None:
    own = {"X-Session-API-Key": await astore.call(conversation_keys.key_of, source)}
    body = {**START, "conversation_id": SOURCE}
    first = await rest.post(AGENT, json=body, headers=KEY | own)
    again = await rest.post(AGENT, json=body, headers=KEY | own)
    assert (without(again), first.status_code) == (without(first), 200)


@pytest.mark.parametrize(
    ("door", "module", "name"),
    [
        ("native", creation, "create"),
        ("v0", creation, "create"),
        ("v1", agent_setups, "create"),
        ("v1, app", agent_setups, "create"),
        ("v1, fork", agent_setups, "fork"),
    ],
)
async def test_of_two_at_once_one_creates_and_both_get_its_answer(
    source: ConversationRef, rest: httpx.AsyncClient, hooked: Hooked, door: str, module: Any, name: str
) -> None:
    address, body = DOORS[door]
    creating, begun = hooked(module, name).hold(), hooked(idempotency, "_digest")
    first = asyncio.create_task(rest.post(address, json=body, headers=KEY))
    await creating.reached()
    second = asyncio.create_task(rest.post(address, json=body, headers=KEY))
    await begun.called(1)
    creating.let_go.set()
    assert without(await second) == without(await first)
    assert await made() == 1


@pytest.mark.parametrize("door", ["native", "v0", "v1, app", "v1, fork"])
async def test_a_failure_before_the_answer_is_recorded_leaves_nothing_behind(
    source: ConversationRef, rest: httpx.AsyncClient, hooked: Hooked, door: str
) -> None:
    address, body = DOORS[door]
    seal = hooked(idempotency, "seal")
    seal.before(lambda: None)
    seal.before(_fail)
    with suppress(ConnectionError):
        assert (await rest.post(address, json=body, headers=KEY)).status_code == 500
    assert await made() == 0
    assert (await rest.post(address, json=body, headers=KEY)).is_success
    assert await made() == 1


def _fail() -> None:
    raise ConnectionError("The process is gone.")


@once
async def test_a_refusal_is_not_recorded(
    alice: User, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.ModelAgent")
    address, body = DOORS["v0"]
    refused = await rest.post(address, json=body, headers=KEY)
    await astore.call(
        lambda: user_settings.change_settings(
            alice.pk, {"llm_model": "m"}, secrets={user_settings.SettingSecret.LLM_API_KEY: "a-key"}
        )
    )
    assert (refused.status_code, (await rest.post(address, json=body, headers=KEY)).status_code) == (400, 200)


@pytest.mark.parametrize("address", [APP, f"{APP}/stream-start"])
async def test_a_start_that_was_refused_may_be_repeated_under_its_key(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(start_tasks, "needs_model", lambda agent: True)
    refused = await rest.post(address, json={}, headers=KEY)
    monkeypatch.undo()
    again = await rest.post(address, json={}, headers=KEY)
    assert refused.is_success, refused.text
    assert (await made(), without(await rest.post(address, json={}, headers=KEY))) == (1, without(again))


async def test_a_start_whose_id_was_taken_may_be_repeated_under_its_key(
    source: ConversationRef, rest: httpx.AsyncClient
) -> None:
    body = {"conversation_id": SOURCE}
    first, second = [(await rest.post(APP, json=body, headers=KEY)).json() for _ in range(2)]
    assert first["id"] != second["id"]


NO_KEYS: list[str] = ["", '"', '""', "a b", "a,b", '"a"b"', r'"a\b"', '"a";p=1', "\x7f", "é", "x" * 201]


@pytest.mark.one_engine
@once
async def test_a_header_that_is_no_key_is_refused_in_a_sentence(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for header, door in product(NO_KEYS, ["native", "v0", "v1", "v1, app"]):
        with subtests.test(header=header, door=door):
            address, body = DOORS[door]
            answer = await rest.post(address, json=body, headers={b"Idempotency-Key": header.encode()})
            assert (answer.status_code, await made()) == (400, 0)
            assert answer.json()["detail"].startswith(
                "An Idempotency-Key has 1 to 200 printable ASCII characters"
            )


@pytest.mark.parametrize(
    ("header", "key"),
    [("a-1", "a-1"), ('"a-1"', "a-1"), (r'"a \"b\" \\"', r'a "b" \\'[:-1]), ("x" * KEY_MAX_LENGTH,) * 2],
)
def test_a_key_is_the_same_with_and_without_quotes(header: str, key: str) -> None:
    assert key_in(header) == key


async def test_a_key_is_forgotten_after_a_day(rest: httpx.AsyncClient) -> None:
    async def repeat_after(**age: int) -> None:
        await rest.post(NATIVE, json={}, headers=KEY)
        moment = timezone.now() - timedelta(**age)
        await astore.call(lambda: RecordedAnswer.objects.update(created_at=moment))

    await repeat_after(hours=23)
    await repeat_after(hours=24)
    assert await made() == 1
    await repeat_after(hours=0)
    assert await made() == 2


async def test_answers_that_count_no_longer_are_removed(rest: httpx.AsyncClient) -> None:
    for key in ("old", "new"):
        await rest.post(NATIVE, json={}, headers={"Idempotency-Key": key})
    day_ago = timezone.now() - timedelta(days=1)
    await astore.call(lambda: RecordedAnswer.objects.filter(key="old").update(created_at=day_ago))
    assert await astore.call(idempotency.prune) == 1
    assert await astore.call(lambda: list(RecordedAnswer.objects.values_list("key", flat=True))) == ["new"]


@once
async def test_what_is_recorded_is_sealed_and_rotated_with_the_other_secrets(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"title": "Not in clear"}
    first = await rest.post(NATIVE, json=body, headers=KEY)
    assert "clear" not in str(await astore.call(_stored))
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [settings.SECRET_KEY])
    monkeypatch.setattr(settings, "SECRET_KEY", "another key of at least 32 characters")
    await astore.call(lambda: call_command("rotate_secrets", stdout=StringIO()))
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [])
    assert without(await rest.post(NATIVE, json=body, headers=KEY)) == without(first)


def _stored() -> list[tuple[Any, ...]]:
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {RecordedAnswer._meta.db_table}")
        return list(cursor.fetchall())

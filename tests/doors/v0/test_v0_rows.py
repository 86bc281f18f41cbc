"""What the V0 door makes of its rows: whatever old ones hold, however many there are, whoever else writes."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import OperationalError, connection, connections, transaction

from conversations import access
from conversations.models import CHILDREN_MAX, Conversation, ConversationRef, CreationParameters
from conversations.store import changes, creation, deletion
from convserver.api.v0.git import microagents
from sessions_app import astore
from sessions_app.encryption import Sealed
from sessions_app.git_providers import http
from sessions_app.git_providers.base import ProviderType
from sessions_app.models import SecretKind
from sessions_app.settings import tool_servers, user_settings
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import Hooked, hooked
from tests.support.servers.git_server import CLOSED, OPEN, GitServer
from tests.support.wires.v0 import CONVERSATIONS

__all__ = ["hooked"]

MICROAGENTS = "/api/microagent-management/conversations"
START = datetime(2025, 11, 20, tzinfo=UTC)
FIRST_KEY, SECOND_KEY = "a" * 50, "b" * 50
SERVERS = '{"sse_servers":[]}'


@pytest.fixture
def github(alice: User) -> Iterator[GitServer]:
    """A provider of which alice has stored a token."""
    with GitServer(ProviderType.GITHUB, secrets.token_hex()) as server:
        token = server.token
        user_settings.store_secret(
            alice.pk, SecretKind.PROVIDER_TOKEN, name=server.provider, value=token.token, host=token.host
        )
        yield server


def with_pull_requests(owner: User, **numbers: Any) -> None:
    for name, number in numbers.items():
        creation.create(
            owner,
            conversation_id=name,
            repository="acme/site",
            provider="github",
            trigger="microagent_management",
            pr_number=number,
        )


async def listed(rest: httpx.AsyncClient) -> list[str]:
    response = await rest.get(MICROAGENTS, params={"selected_repository": "acme/site"})
    assert response.status_code == 200, response.text
    return [each["conversation_id"] for each in response.json()["results"]]


# Messages


async def test_a_message_under_the_key_of_another_event_is_a_conflict(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    key = {"Idempotency-Key": "1"}
    first = await rest.post(f"{CONVERSATIONS}/talk/message", json={"message": "a"}, headers=key)
    other = await rest.post(f"{CONVERSATIONS}/talk/message", json={"message": "b"}, headers=key)
    assert (first.status_code, other.status_code, list(other.json())) == (200, 409, ["detail"])


async def test_a_message_to_a_conversation_that_is_deleted_meanwhile_finds_none(
    conversation: ConversationRef, rest: httpx.AsyncClient, hooked: Hooked
) -> None:
    hooked(access, "writable").after(lambda: deletion.soft_delete(conversation))
    response = await rest.post(f"{CONVERSATIONS}/talk/message", json={"message": "a"})
    assert (response.status_code, response.json()) == (404, {"detail": "Conversation talk not found"})


async def test_a_key_that_is_too_long_for_a_message_is_refused(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    key = {"Idempotency-Key": "x" * 201}
    response = await rest.post(f"{CONVERSATIONS}/talk/message", json={"message": "a"}, headers=key)
    assert response.status_code == 400


# Pull requests


ODD_NUMBERS = [{"a": 1}, 5, "none", [], [None], ["1"], [True], [1.5], [[CLOSED]], [{}, "x"]]


async def test_a_row_whose_pull_request_numbers_are_odd_is_listed_as_one_that_has_none(
    alice: User, github: GitServer, rest: httpx.AsyncClient
) -> None:
    odd = {f"odd-{index}": numbers for index, numbers in enumerate(ODD_NUMBERS)}
    await astore.call(with_pull_requests, alice, **odd, closed=["x", CLOSED], open=[CLOSED, OPEN, {}])
    assert await listed(rest) == ["open", *reversed(odd)]


async def test_a_provider_that_stays_silent_costs_a_page_of_microagents_one_wait(
    alice: User, github: GitServer, rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(microagents, "PROVIDERS_S", 0.2)
    monkeypatch.setattr(http, "TOTAL_S", 3_600.0)  # whoever waited for each answer would wait for ever
    monkeypatch.setattr(http, "READ_S", 3_600.0)
    await astore.call(with_pull_requests, alice, a=[OPEN], b=[CLOSED])
    github.never_answer()
    assert await listed(rest) == ["b", "a"]


# Text in any case


@pytest.mark.parametrize(
    ("stored", "wanted"),
    [
        ("Über den Äther", "ÜBER DEN äTHER"),
        ("Привет, мир", "ПРИВЕТ"),
        ("ΟΔΟΣ", "οδος"),
        ("Straße", "STRASSE"),
        ("100 % of a_b\\c", "% OF A_B\\C"),
        ("ՎԱՆ", "վան"),
    ],
)
async def test_text_is_found_in_any_case_of_any_script(
    stored: str, wanted: str, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.append(conversation, [event(stored), event("100 of aXb")])
    await astore.call(changes.retitle, conversation, stored)
    found = (await rest.get(f"{CONVERSATIONS}/talk/events", params={"query": wanted})).json()["events"]
    assert [each["id"] for each in found] == [0]
    assert await astore.call(lambda: Conversation.objects.matching(title=wanted).exists())
    assert not await astore.call(lambda: Conversation.objects.matching(title="of aXb").exists())


LETTERS = [
    "é",
    "\u0131",
    "\u017f",
    "\u212a",
    "\u0149",
    "\ufb01",
    "\u01c6",
    "\u10d0",
    "\uab70",
    "\U00010428",
]


async def test_letters_with_odd_capitals_find_themselves_and_their_capitals(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for number, letter in enumerate(LETTERS):
        with subtests.test(letter=letter):
            talk = await astore.call(creation.create, alice, conversation_id=f"talk{number}")
            await astore.append(talk, [event(letter), event(letter.upper()), event("other")])
            answer = await rest.get(f"{CONVERSATIONS}/talk{number}/events", params={"query": letter})
            assert [each["id"] for each in answer.json()["events"]] == [0, 1]


# Creation parameters


@pytest.fixture
def keys(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the secret key, and the fallbacks after it."""

    def change(newest: str, *fallbacks: str) -> None:
        monkeypatch.setattr(settings, "SECRET_KEY", newest)
        monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", list(fallbacks))

    change(FIRST_KEY)
    return change


@pytest.fixture
def with_servers(alice: User, keys: Callable[..., None]) -> ConversationRef:
    """A conversation whose tool servers were sealed under a key that is not the newest any more."""
    conversation = creation.create(alice, parameters=tool_servers.sealed_parameter(SERVERS))
    keys(SECOND_KEY, FIRST_KEY)
    return conversation


def finds_it_locked(write: Callable[[], object]) -> Callable[[], None]:
    """Return what tries to write from another connection, and fails unless a lock keeps it out."""

    def tried() -> None:
        try:
            with transaction.atomic(), connection.cursor() as cursor:
                cursor.execute("SET LOCAL lock_timeout = '500ms'")
                write()
        finally:
            connections.close_all()

    def try_elsewhere() -> None:
        with ThreadPoolExecutor(1) as pool, pytest.raises(OperationalError, match="lock timeout"):
            pool.submit(tried).result(WAIT_S)

    return try_elsewhere


@pytest.mark.no_second_try
@on_postgresql
def test_a_rotation_waits_for_who_adds_a_creation_parameter(
    with_servers: ConversationRef, hooked: Hooked
) -> None:
    rotate = finds_it_locked(lambda: tool_servers.rotate(with_servers.pk))
    hooked(CreationParameters, "save").before(rotate)
    changes.set_parameter_once(with_servers, "experiment_config", {})
    assert tool_servers.rotate(with_servers.pk)


@pytest.mark.no_second_try
@on_postgresql
def test_who_adds_a_creation_parameter_waits_for_a_rotation(
    with_servers: ConversationRef, hooked: Hooked
) -> None:
    add = finds_it_locked(lambda: changes.set_parameter_once(with_servers, "experiment_config", {}))
    hooked(Sealed, "resealed").before(add)
    assert tool_servers.rotate(with_servers.pk)
    assert changes.set_parameter_once(with_servers, "experiment_config", {})


def test_a_rotation_keeps_the_other_creation_parameters(
    with_servers: ConversationRef, keys: Callable[..., None]
) -> None:
    changes.set_parameter_once(with_servers, "experiment_config", {"a": 1})
    assert tool_servers.rotate(with_servers.pk)
    keys(SECOND_KEY)
    assert tool_servers.tool_servers_of(with_servers) == json.loads(SERVERS)
    assert CreationParameters.objects.get(pk=with_servers.pk).parameters["experiment_config"] == {"a": 1}


# Lists


def test_the_first_page_of_a_list_passes_over_no_sub_conversations(
    alice: User, conversation: ConversationRef
) -> None:
    sub_conversations(conversation, alice, 2_000, prefix="sub")
    if connection.vendor == "postgresql":  # SQLite would plan by this for the tests that follow, too
        with connection.cursor() as cursor:
            cursor.execute("ANALYZE")  # so that the plan is made for as many as there are
    rows = Conversation.objects.visible_to(alice).newest_first().top_level()
    assert "conversation_top_level" in rows.values_list("created_at", "pk")[:21].explain()


# Sub-conversations


def sub_conversations(parent: ConversationRef, owner: User, count: int, *, prefix: str) -> None:
    Conversation.objects.bulk_create(
        Conversation(
            public_id=f"{prefix}-{number:04}",
            owner=owner,
            parent_id=parent.pk,
            created_at=START + timedelta(seconds=number),
        )
        for number in range(count)
    )


async def test_the_newest_sub_conversations_of_each_conversation_are_named_the_oldest_first(
    alice: User, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    other = await astore.call(creation.create, alice, conversation_id="other")
    await astore.call(sub_conversations, conversation, alice, CHILDREN_MAX + 50, prefix="many")
    await astore.call(sub_conversations, other, alice, 3, prefix="few")
    results = (await rest.get(CONVERSATIONS)).json()["results"]
    named = {each["conversation_id"]: each["sub_conversation_ids"] for each in results}
    assert named["talk"] == [f"many-{number:04}" for number in range(50, CHILDREN_MAX + 50)]
    assert named["other"] == ["few-0000", "few-0001", "few-0002"]


async def test_a_strangers_conversation_is_never_named_as_a_sub_conversation(
    alice: User, bob: User, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    await astore.call(sub_conversations, conversation, alice, 1, prefix="hers")
    await astore.call(sub_conversations, conversation, bob, 1, prefix="his")
    info = (await rest.get(f"{CONVERSATIONS}/talk")).json()
    assert info["sub_conversation_ids"] == ["hers-0000"]

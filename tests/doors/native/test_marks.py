"""A user's own marks of a conversation: pinned, archived, seen, and what follows from them."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.live import marks
from sessions_app.live.status import ListedConversation, iso, listed
from sessions_app.loops.manager import ConversationManager
from sessions_app.models import AgentLoop, ExecutionStatus, Mark
from tests.conftest import Dial, Join
from tests.support.data.events import event
from tests.support.people.clients import Client
from tests.support.people.scripted_agent import Stage, manager, stage

__all__ = ["manager", "stage"]

LIST = "/api/native/conversations"
TALK = f"{LIST}/talk"


def shown(conversation: ConversationRef, user: User) -> ListedConversation:
    return listed(Conversation.objects.with_pks([conversation.pk]), user.pk)[conversation.pk]


async def listed_with(rest: httpx.AsyncClient, query: str) -> list[str]:
    return [each["id"] for each in (await rest.get(f"{LIST}?{query}")).json()["conversations"]]


async def frame_with(client: Client, **members: Any) -> dict[str, Any]:
    """Return the next conversation with these members that a list is shown."""
    while True:
        conversation: dict[str, Any] = (await client.until("conversation"))["conversation"]
        if members.items() <= conversation.items():
            return conversation


# Pinned and archived


@pytest.mark.parametrize("mark", ["pinned", "archived"])
async def test_a_mark_is_set_and_taken_back(
    conversation: ConversationRef, rest: httpx.AsyncClient, mark: str
) -> None:
    for value in (True, True, False):
        answer = await rest.patch(TALK, json={mark: value})
        assert (answer.status_code, answer.json()[mark]) == (200, value)
        assert (await rest.get(TALK)).json() == answer.json()


@pytest.mark.parametrize("mark", ["pinned", "archived"])
async def test_a_list_is_filtered_by_a_mark_and_shows_all_without_a_filter(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient, mark: str
) -> None:
    await astore.call(lambda: creation.create(alice, conversation_id="other"))
    await rest.patch(TALK, json={mark: True})
    assert await listed_with(rest, f"{mark}=true") == ["talk"]
    assert await listed_with(rest, f"{mark}=false") == ["other"]
    assert await listed_with(rest, "") == ["other", "talk"]


def test_a_mark_keeps_its_first_time_and_the_other_mark(conversation: ConversationRef, alice: User) -> None:
    marks.mark(alice.pk, conversation, pinned=True)
    first = Mark.objects.get().pinned_at
    marks.mark(alice.pk, conversation, pinned=True, archived=True)
    marks.mark(alice.pk, conversation, archived=False)
    row = Mark.objects.get()
    assert (row.pinned_at, row.archived_at) == (first, None)


def test_a_mark_is_one_users_own(conversation: ConversationRef, alice: User, bob: User) -> None:
    marks.mark(bob.pk, conversation, pinned=True, archived=True)
    marks.mark_seen(bob.pk, conversation, 0)
    state = shown(conversation, alice)
    assert (state["pinned"], state["archived"], state["seen_through"]) == (False, False, -1)


@pytest.mark.parametrize("value", ["perhaps", None, []])
async def test_a_mark_is_true_or_false(
    conversation: ConversationRef, rest: httpx.AsyncClient, value: object
) -> None:
    answer = await rest.patch(TALK, json={"pinned": value})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")


async def test_a_mark_is_shown_to_the_users_lists_at_once(
    conversation: ConversationRef, dial: Dial, rest: httpx.AsyncClient
) -> None:
    client = await dial("/ws/conversations")
    await client.until("hello")
    await rest.patch(TALK, json={"pinned": True, "archived": True})
    state = await frame_with(client, pinned=True, archived=True)
    assert state == (await rest.get(TALK)).json()


async def test_a_mark_that_was_made_meanwhile_is_shown_to_a_list_that_comes_back(
    conversation: ConversationRef, alice: User, dial: Dial, rest: httpx.AsyncClient
) -> None:
    now = timezone.now()
    await astore.call(Conversation.objects.update, listed_at=now.replace(year=2020))
    await rest.patch(TALK, json={"pinned": True})
    await frame_with(await dial("/ws/conversations", query={"since": iso(now)}), id="talk", pinned=True)


# Unread


def say(conversation: ConversationRef, **columns: Any) -> int:
    """Append a message and return its seq."""
    return writes.append(conversation, [event("something", **columns)])[0].seq


def test_an_empty_conversation_is_not_unread(conversation: ConversationRef, alice: User) -> None:
    assert not shown(conversation, alice)["unread"]


def test_what_a_script_has_recorded_is_unread_until_it_is_seen(
    conversation: ConversationRef, alice: User
) -> None:
    seq = say(conversation)
    assert shown(conversation, alice)["unread"]
    marks.mark_seen(alice.pk, conversation, seq)
    assert not shown(conversation, alice)["unread"]


def test_a_new_message_after_what_was_seen_is_unread(conversation: ConversationRef, alice: User) -> None:
    marks.mark_seen(alice.pk, conversation, say(conversation))
    say(conversation)
    assert shown(conversation, alice)["unread"]


def test_bookkeeping_after_what_was_seen_is_not_unread(conversation: ConversationRef, alice: User) -> None:
    marks.mark_seen(alice.pk, conversation, say(conversation))
    writes.append(conversation, [event(raw='{"action": "note"}')])
    assert not shown(conversation, alice)["unread"]


async def test_an_own_message_is_not_unread_and_its_answer_is(
    conversation: ConversationRef,
    stage: Stage,
    manager: ConversationManager,
    dial: Dial,
    rest: httpx.AsyncClient,
) -> None:
    client = await dial("/ws/conversations")
    await client.until("hello")
    await rest.post(f"{TALK}/events", json={"type": "message", "text": "deaf until it is let go"})
    assert not (await frame_with(client, last_message="deaf until it is let go"))["unread"]
    stage.go.set()
    state = await frame_with(client, unread=True)
    assert state["loop"]["execution_status"] == "finished"


async def test_seeing_is_shown_to_the_users_lists_at_once(
    conversation: ConversationRef, join: Join, dial: Dial
) -> None:
    await astore.call(say, conversation)
    client = await dial("/ws/conversations")
    await client.until("hello")
    await (await join(conversation)).send({"type": "seen", "through": 0})
    assert not (await frame_with(client, seen_through=0))["unread"]


def test_having_seen_never_goes_back_and_never_beyond_the_end(
    conversation: ConversationRef, alice: User
) -> None:
    for _ in range(3):
        say(conversation)
    found = []
    for through in (1, 0, 99):
        marks.mark_seen(alice.pk, conversation, through)
        found.append(shown(conversation, alice)["seen_through"])
    assert found == [1, 1, 2]


# Further filters, and families


async def test_a_list_is_filtered_by_what_the_agent_does(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    for status in (ExecutionStatus.ERROR, ExecutionStatus.RUNNING, ExecutionStatus.PAUSED):
        ref = await astore.call(partial(creation.create, alice, conversation_id=status.value))
        await astore.call(AgentLoop.objects.create, conversation_id=ref.pk, execution_status=status)
    assert await listed_with(rest, "status=running&status=error") == ["running", "error"]
    assert await listed_with(rest, "status=idle") == ["talk"]
    assert (await rest.get(f"{LIST}?status=asleep")).status_code == 400


async def test_a_list_is_filtered_by_version(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(lambda: creation.create(alice, conversation_id="newer", version=Version.V1))
    assert await listed_with(rest, "version=V1") == ["newer"]


async def test_a_family_is_shown_by_its_head_and_listed_by_it(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    for name in ("first", "second", "gone"):
        await astore.call(partial(creation.create, alice, conversation_id=name, parent_id=conversation.pk))
    await rest.delete(f"{LIST}/gone")
    assert await listed_with(rest, "parent=talk") == ["second", "first"]
    assert await listed_with(rest, "top_level=true") == ["talk"]
    assert (
        (await rest.get(TALK)).json()["children"],
        (await rest.get(f"{LIST}/first")).json()["parent"],
    ) == (
        2,
        "talk",
    )


def test_families_end_at_their_owner(conversation: ConversationRef, alice: User, bob: User) -> None:
    bobs = creation.create(bob, conversation_id="bobs", parent_id=conversation.pk)
    assert (shown(conversation, alice)["children"], shown(bobs, bob)["parent"]) == (0, None)


async def test_a_parent_that_is_none_has_started_nothing(rest: httpx.AsyncClient) -> None:
    assert await listed_with(rest, "parent=nowhere") == []


async def test_what_a_deleted_conversation_has_started_stands_for_itself(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    await astore.call(partial(creation.create, alice, conversation_id="first", parent_id=conversation.pk))
    await rest.delete(TALK)
    assert await listed_with(rest, "top_level=true") == ["first"]
    assert (await rest.get(f"{LIST}/first")).json()["parent"] is None

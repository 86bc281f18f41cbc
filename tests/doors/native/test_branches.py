"""Forks by REST: another way on from any event, and what the branches of a conversation are."""

from __future__ import annotations

from functools import partial
from typing import Any

import httpx
import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Purge
from conversations.store import copying, creation, forks
from sessions_app import astore
from sessions_app.models import ApiToken, Grant
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine

LIST = "/api/native/conversations"
TALK = f"{LIST}/talk"


@pytest.fixture
async def talk(alice: User) -> ConversationRef:
    """A conversation with three events."""

    def made() -> ConversationRef:
        conversation = creation.create(alice, conversation_id="talk", title="The clock", tags={"work": ""})
        writes.append(conversation, [event(text) for text in ("one", "two", "three")])
        return conversation

    return await sync_to_async(made)()


async def forked(rest: httpx.AsyncClient, **body: Any) -> dict[str, Any]:
    answer = await rest.post(f"{TALK}/fork", json=body)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


async def events_of(rest: httpx.AsyncClient, conversation_id: str) -> list[Any]:
    answer = await rest.get(f"{LIST}/{conversation_id}/events")
    return [(each["seq"], each["id"], each["cursor"]) for each in answer.json()["events"]]


@pytest.mark.parametrize(("body", "count"), [({}, 3), ({"through": 1}, 2), ({"through": -1}, 0)])
async def test_a_fork_begins_with_a_copy_up_to_an_event(
    rest: httpx.AsyncClient, talk: ConversationRef, body: dict[str, Any], count: int
) -> None:
    before = await events_of(rest, "talk")
    fork = await forked(rest, id="other", **body)
    assert (fork["id"], fork["title"], fork["tags"]) == ("other", "The clock", {})
    assert fork["last_seq"] == count - 1
    assert await events_of(rest, "other") == before[:count]
    assert await events_of(rest, "talk") == before


async def test_a_fork_has_the_title_and_the_tags_that_it_is_given(
    rest: httpx.AsyncClient, talk: ConversationRef
) -> None:
    fork = await forked(rest, title="Another way", tags={"try": "2"})
    assert (fork["title"], fork["tags"]) == ("Another way", {"try": "2"})


async def test_what_is_said_in_a_fork_is_answered_there_alone(
    rest: httpx.AsyncClient, talk: ConversationRef
) -> None:
    await forked(rest, id="other", through=0)
    sent = await rest.post(f"{LIST}/other/events", json={"type": "message", "text": "again"})
    assert sent.json()["seq"] == 1
    assert len(await events_of(rest, "talk")) == 3


@pytest.mark.no_second_try
async def test_a_repeated_request_forks_once(rest: httpx.AsyncClient, talk: ConversationRef) -> None:
    headers = {"Idempotency-Key": "fork-1"}
    first, second = [
        (await rest.post(f"{TALK}/fork", json={"through": 1}, headers=headers)).json() for _ in range(2)
    ]
    assert first == second
    assert await Conversation.objects.acount() == 2


NO_FORKS: list[tuple[dict[str, Any], int, str]] = [
    ({"through": 3}, 404, "event_not_found"),
    ({"through": -2}, 400, "invalid"),
    ({"through": 2**63}, 400, "invalid"),
    ({"through": "last"}, 400, "invalid"),
    ({"id": "talk"}, 409, "conversation_exists"),
    ({"id": "../talk"}, 400, "invalid_conversation_id"),
]


async def test_a_fork_that_cannot_be_made_is_refused_and_leaves_nothing(
    rest: httpx.AsyncClient, talk: ConversationRef, subtests: pytest.Subtests
) -> None:
    for body, status, code in NO_FORKS:
        with subtests.test(body=body, status=status):
            answer = await rest.post(f"{TALK}/fork", json=body)
            assert (answer.status_code, answer.json()["code"]) == (status, code)
            assert await Conversation.objects.acount() == 1


async def test_branches_are_told_both_ways_in_the_order_of_their_places(
    rest: httpx.AsyncClient, talk: ConversationRef
) -> None:
    for name, through in (("late", 2), ("early", 0), ("empty", -1)):
        await forked(rest, id=name, through=through)
    told = (await rest.get(f"{TALK}/branches")).json()
    assert [(each["id"], each["seq"]) for each in told["branches"]] == [
        ("empty", -1),
        ("early", 0),
        ("late", 2),
    ]
    assert (told["forked_from"], told["has_more"]) == (None, False)
    there = (await rest.get(f"{LIST}/early/branches")).json()
    assert there["branches"] == []
    assert (there["forked_from"]["id"], there["forked_from"]["seq"]) == ("talk", 0)


async def test_the_token_of_one_conversation_neither_forks_it_nor_is_told_of_others(
    rest: httpx.AsyncClient, talk: ConversationRef, alice: User
) -> None:
    await forked(rest, id="other")
    _, key = await astore.call(ApiToken.issue, alice.pk, "small", Grant(conversation=talk))
    headers = {"Authorization": f"Bearer {key}"}
    assert (await rest.post(f"{TALK}/fork", json={}, headers=headers)).status_code == 403
    told = (await rest.get(f"{TALK}/branches", headers=headers)).json()
    assert (told["branches"], told["forked_from"]) == ([], None)


async def test_a_deleted_branch_is_not_told_of(rest: httpx.AsyncClient, talk: ConversationRef) -> None:
    await forked(rest, id="other")
    await rest.delete(f"{LIST}/other")
    assert (await rest.get(f"{TALK}/branches")).json()["branches"] == []


@pytest.fixture
def long(talk: ConversationRef, monkeypatch: pytest.MonkeyPatch) -> None:
    """The conversation's three events are many, and one is copied in each step."""
    monkeypatch.setattr(forks, "AT_ONCE_EVENTS", 2)
    monkeypatch.setattr(copying, "STEP_EVENTS", 1)


async def test_a_long_fork_is_accepted_and_is_there_once_all_is_copied(
    rest: httpx.AsyncClient, long: None
) -> None:
    headers = {"Idempotency-Key": "fork-1"}
    answers = [await rest.post(f"{TALK}/fork", json={"id": "other"}, headers=headers) for _ in range(2)]
    begun = {"id": "other", "copied": 0, "events": 3, "is_whole": False}
    assert [(answer.status_code, answer.json()) for answer in answers] == [(202, begun)] * 2
    pk = await astore.call(lambda: Conversation.objects.values_list("pk", flat=True).get(public_id="other"))
    await astore.change(copying.step, pk)
    progress = (await rest.get(f"{LIST}/other/fork-progress")).json()
    assert progress == {**begun, "copied": 1}
    refusals = [
        await rest.get(f"{LIST}/other"),
        await rest.get(f"{LIST}/other/events"),
        await rest.post(f"{LIST}/other/events", json={"type": "message", "text": "hello"}),
    ]
    for refusal in refusals:
        assert refusal.status_code == 503, refusal.text
        assert "1 of 3 events are here" in refusal.json()["detail"]
    assert [each["id"] for each in (await rest.get(LIST)).json()["conversations"]] == ["talk"]
    while await astore.change(copying.step, pk):
        pass
    progress = (await rest.get(f"{LIST}/other/fork-progress")).json()
    assert progress == {**begun, "copied": 3, "is_whole": True}
    assert await events_of(rest, "other") == await events_of(rest, "talk")


async def test_a_fork_that_is_not_whole_is_cancelled_by_its_owner_alone(
    rest: httpx.AsyncClient, long: None, bob: User
) -> None:
    await rest.post(f"{TALK}/fork", json={"id": "other"})
    row = await astore.call(Conversation.objects.get, public_id="other")
    await astore.change(copying.step, row.pk)
    assert not await astore.change(partial(copying.cancel, bob.pk, "other", requested_by="bob"))
    assert (await rest.delete(f"{LIST}/other/fork-progress")).status_code == 204
    assert not await astore.change(copying.step, row.pk)
    for path in ("", "/fork-progress"):
        assert (await rest.get(f"{LIST}/other{path}")).status_code == 404
    assert (await rest.delete(f"{LIST}/other/fork-progress")).status_code == 404
    purge = await astore.call(Purge.objects.get, conversation_id=row.pk)
    assert purge.reason == copying.CANCELLED
    assert [each["id"] for each in (await rest.get(LIST)).json()["conversations"]] == ["talk"]


async def test_a_fork_that_is_whole_is_not_cancelled(rest: httpx.AsyncClient, talk: ConversationRef) -> None:
    await forked(rest, id="other")
    assert (await rest.delete(f"{LIST}/other/fork-progress")).status_code == 404
    assert (await rest.get(f"{LIST}/other")).status_code == 200


async def test_the_progress_of_what_is_no_fork_is_not_found(
    rest: httpx.AsyncClient, talk: ConversationRef
) -> None:
    assert (await rest.get(f"{TALK}/fork-progress")).status_code == 404

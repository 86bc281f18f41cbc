"""Temporary conversations: found by their id alone, purged when they are left, and kept if the user wants."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db.models import Value
from django.db.models.functions import Least
from django.test import Client as Browser
from django.utils import timezone

from conversations import access
from conversations.engines.watermark import EventHorizon
from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Event, SearchProgress, Version
from conversations.search import titles
from conversations.search.fulltext import indexing
from conversations.store import creation, deletion, forks, temporary
from conversations.verification import derived
from sessions_app import astore
from sessions_app.models import Connection, Delivery
from sessions_app.retention import left, rounds
from sessions_app.retention.failures import RetentionFailures
from sessions_app.webhooks import transport
from sessions_app.webhooks.gathering import Watermark, gather
from tests.conftest import Dial
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S
from tests.support.wires.network import wait_until

NATIVE = "/api/native/conversations"
SECRET = f"{0xBEEF:032x}"
LISTS = (
    NATIVE,
    f"{NATIVE}?order=title",
    f"{NATIVE}?title=Marigold",
    f"{NATIVE}?deleted=true",
    "/api/native/search?q=marigold",
    "/api/conversations?limit=20",
    "/api/conversations?limit=20&conversation_trigger=gui",
    "/api/v1/app-conversations/search?limit=20",
    "/api/v1/app-conversations/search?title__contains=Marigold",
    "/agent/api/conversations/search?limit=20",
    "/agent/api/conversations/search?limit=20&sort_order=CREATED_AT",
    "/agent/api/conversations/search?limit=20&status=idle",
    "/",
    "/?order=created",
    "/rows?q=Marigold",
    "/search?q=marigold",
    "/deleted",
    "/admin/conversations/conversation/",
)
"""Each may refuse the question, and none may name the conversation."""


def begin(owner: User, public_id: str = SECRET, **columns: Any) -> ConversationRef:
    """Begin a temporary V1 conversation about marigolds."""
    made = creation.create(
        owner,
        conversation_id=public_id,
        version=Version.V1,
        title="Marigold",
        trigger="gui",
        expires_at=temporary.expiry(is_temporary=True),
        **columns,
    )
    writes.append(made, [event("About a marigold")])
    return made


def due() -> int:
    """Purge what is due, and return how many conversations that were."""
    begun = left.begin_left("retention", failures := RetentionFailures(), most=9)
    rounds.finish_all(failures)
    assert not failures.found
    return begun


def pass_time(**time: float) -> None:
    """Let everything have begun this long ago."""
    for row in Conversation.objects.all():
        moment = row.created_at - timedelta(**time)
        ends = row.expires_at and row.expires_at - timedelta(**time)
        Conversation.objects.filter(pk=row.pk).update(created_at=moment, expires_at=ends)


def index_all() -> None:
    """Index everything, once what others do with the database server lets it settle."""
    watermark = EventHorizon()
    newest = Event.objects.order_by("-pk").values_list("pk", flat=True)[0]

    def is_indexed() -> bool:
        watermark.look()
        indexing.step(watermark)
        return SearchProgress.through_now() >= newest

    wait_until(is_indexed, within_s=4 * WAIT_S)
    while titles.step():
        pass


def found_by_search(rest_answer: httpx.Response) -> list[str]:
    return [hit["conversation"]["id"] for hit in rest_answer.json()["hits"]]


@contextmanager
def opened(conversation: ConversationRef) -> Iterator[None]:
    """Let a socket be open in the conversation."""
    row = Connection.objects.create(
        conversation_id=conversation.pk, user_id=conversation.owner_id, door="native"
    )
    yield
    row.delete()


async def test_no_list_search_or_admin_page_has_it_and_its_id_opens_it(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    await astore.call(begin, alice)
    await astore.change(index_all)
    for address in LISTS:
        with subtests.test(address):
            answer = await rest.get(address)
            assert answer.status_code < 500
            assert SECRET not in answer.text
            assert "Marigold" not in answer.text.replace("q=Marigold", "").replace('value="Marigold"', "")
    assert (await rest.get(f"{NATIVE}/{SECRET}")).json()["expires_at"]
    assert (await rest.get(f"/c/{SECRET}")).status_code == 200
    assert (await rest.get(f"/api/conversations/{SECRET}")).json()["conversation_id"] == SECRET
    assert (await rest.get(f"{NATIVE}/{SECRET}/events")).json()["events"]


async def test_it_is_created_by_rest_and_has_no_labels(rest: httpx.AsyncClient) -> None:
    made = await rest.post(NATIVE, json={"id": "talk", "temporary": True})
    assert (made.status_code, bool(made.json()["expires_at"])) == (201, True)
    refused = await rest.post(NATIVE, json={"temporary": True, "tags": {"work": ""}})
    assert refused.status_code == 400
    refused = await rest.patch(f"{NATIVE}/talk", json={"tags": {"work": ""}})
    assert (refused.status_code, refused.json()["code"]) == (400, "temporary")
    refused = await rest.patch(f"{NATIVE}/talk", json={"temporary": True})
    assert refused.status_code == 400
    assert (await rest.get("/api/native/labels")).json()["labels"] == []


async def test_a_kept_one_is_listed_told_and_found_with_all_its_events(
    alice: User, rest: httpx.AsyncClient, dial: Dial
) -> None:
    await astore.call(begin, alice)
    await astore.change(index_all)
    client = await dial("/ws/conversations")
    await client.until("hello")
    kept = await rest.patch(f"{NATIVE}/{SECRET}", json={"temporary": False})
    assert (kept.status_code, kept.json()["expires_at"]) == (200, None)
    assert (await client.until("conversation"))["conversation"]["id"] == SECRET
    assert [each["id"] for each in (await rest.get(NATIVE)).json()["conversations"]] == [SECRET]
    assert found_by_search(await rest.get("/api/native/search?q=marigold")) == [SECRET]
    assert [each["id"] for each in (await rest.get(f"{NATIVE}?title=arigol")).json()["conversations"]]
    steps = await astore.call(lambda: list(derived.steps(everything=True)))
    assert not [damage for step in steps for damage in step.found]


async def test_a_list_that_is_open_hears_nothing_of_it(alice: User, dial: Dial) -> None:
    client = await dial("/ws/conversations")
    await client.until("hello")
    made = await astore.call(begin, alice)
    await astore.call(temporary.leave, made)
    await astore.call(pass_time, minutes=2)
    assert await astore.call(due) == 1
    await astore.call(creation.create, alice, conversation_id="other")
    assert (await client.until("conversation"))["conversation"]["id"] == "other"


def test_it_is_purged_soon_after_it_was_left(alice: User) -> None:
    made = begin(alice)
    stays = creation.create(alice, conversation_id="stays")
    assert due() == 0
    temporary.leave(made)
    temporary.leave(stays)
    assert due() == 0
    pass_time(minutes=2)
    assert due() == 1
    row = Conversation.objects.get(pk=made.pk)
    assert (row.purged_at is not None, row.title, row.event_set.count()) == (True, None, 0)
    assert Conversation.objects.get(pk=stays.pk).purged_at is None


def test_it_is_purged_after_a_day_if_nothing_tells_that_it_was_left(alice: User) -> None:
    made = begin(alice)
    pass_time(hours=23)
    assert due() == 0
    pass_time(hours=2)
    with opened(made):  # a page that was forgotten
        assert due() == 1


def test_what_was_left_and_is_open_again_stays(alice: User) -> None:
    made = begin(alice)
    temporary.leave(made)
    temporary.come_back(made)
    pass_time(minutes=2)
    assert due() == 0
    temporary.leave(made)
    pass_time(minutes=2)
    with opened(made):  # in another window
        assert due() == 0
    assert due() == 0  # and is not purged by the first moment without a connection
    assert access.readable(alice, SECRET) == made


def test_a_branch_is_temporary_and_shares_the_fate_of_what_it_left(alice: User) -> None:
    made = begin(alice)
    branch = forks.fork(alice, made, through=0)
    again = forks.fork(alice, branch, through=0)
    other = begin(alice, "other")
    temporary.leave(branch)
    left_ones = Conversation.objects.filter(expires_at__lt=timezone.now() + timedelta(minutes=2))
    assert set(left_ones.values_list("pk", flat=True)) == {made.pk, branch.pk, again.pk}
    temporary.keep(again)
    assert set(Conversation.objects.permanent().values_list("pk", flat=True)) == {
        made.pk,
        branch.pk,
        again.pk,
    }
    assert Conversation.objects.temporary().get().pk == other.pk


def test_what_is_kept_is_not_given_an_end_by_who_found_it_before(alice: User) -> None:
    made = begin(alice)
    found = temporary.family(made)  # as by a page that is left at the same moment
    temporary.keep(made)
    found.update(expires_at=Least("expires_at", Value(timezone.now())))
    assert Conversation.objects.get(pk=made.pk).expires_at is None


def test_a_branch_of_what_was_kept_is_kept_as_well(alice: User) -> None:
    made = begin(alice)
    branch = forks.fork(alice, made, through=0)
    Conversation.objects.filter(pk=made.pk).update(expires_at=None)  # before the branch was there
    temporary.keep(made)
    assert Conversation.objects.get(pk=branch.pk).expires_at is None


def test_what_is_left_stays_while_a_branch_of_it_is_open(alice: User) -> None:
    made = begin(alice)
    branch = forks.fork(alice, made, through=0)
    temporary.leave(made)
    pass_time(minutes=2)
    with opened(branch):
        assert due() == 0
    assert Conversation.objects.temporary().count() == 2


def test_delete_now_removes_its_branches_as_well(alice: User) -> None:
    made = begin(alice)
    forks.fork(alice, made, through=0)
    browser = Browser(headers={"host": "localhost"})
    assert browser.post(f"/c/{made.public_id}/temporary", {"act": "remove"}).status_code == 302
    assert not Conversation.objects.temporary().filter(purged_at__isnull=True).exists()


def test_a_deleted_one_is_purged_with_the_others(alice: User) -> None:
    made = begin(alice)
    deletion.soft_delete(made)
    pass_time(hours=25)
    assert due() == 1


def test_no_endpoint_hears_of_it_before_it_is_kept(alice: User) -> None:
    endpoint = transport.create("http://127.0.0.1:9/")
    made = begin(alice)

    def told() -> list[int]:
        watermark = Watermark()
        watermark.look()
        gather(endpoint, watermark)
        return list(Delivery.objects.values_list("conversation_id", flat=True))

    assert told() == []
    temporary.keep(made)
    assert told() == [made.pk]

"""ConversationStore: what is known of conversations, their ids, their pages, and the two seams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.test.utils import CaptureQueriesContext
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

import conversations.store
from conversations.access import ConversationValidator, Visitor
from conversations.cursors import InvalidCursor
from conversations.events import EventEnvelope
from conversations.exceptions import ConversationNotFound, InvalidConversationId
from conversations.log import reads, writes
from conversations.models import (
    Conversation,
    ConversationRef,
    Event,
    Version,
    new_public_id,
)
from conversations.store import (
    ConversationExists,
    ConversationStore,
    changes,
    creation,
    deletion,
)
from conversations.store.metadata import ConversationMetadata
from sessions_app import astore
from sessions_app.live import hub
from tests.conftest import Join
from tests.support.data.events import event, payload
from tests.support.wires.v1_socket import START, v1_event

pytestmark = pytest.mark.one_engine

BEGINNING = datetime(2026, 1, 1, tzinfo=UTC)
UUID_SPELLINGS = (
    "0f0e0d0c-0b0a-4908-8706-050403020100",
    "0F0E0D0C-0B0A-4908-8706-050403020100",
    "0f0e0d0c0b0a49088706050403020100",
    "0F0E0D0C0B0A49088706050403020100",
)

# The database is emptied after the test, not after each example: every example makes its own rows.
on_one_database = hypothesis_settings(
    deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def of(user: User) -> ConversationStore:
    """Return the store that acts for a user."""
    return conversations.store.store(str(user.pk))


# Metadata


@pytest.mark.needs_engine
def test_saved_metadata_makes_a_conversation_that_reads_back_the_same(
    store: ConversationStore, alice: User
) -> None:
    metadata = ConversationMetadata(
        conversation_id="new",
        user_id=str(alice.pk),
        selected_repository="acme/widgets",
        selected_branch="main",
        git_provider="github",
        title="Title",
        trigger="gui",
        pr_number=[3, 5],
        tags={"team": "blue"},
        llm_model="a-model",
        accumulated_cost=0.25,
        prompt_tokens=10,
        completion_tokens=5,
        total_tokens=15,
        conversation_version="V1",
        created_at=BEGINNING,
        last_updated_at=BEGINNING + timedelta(days=1),
    )
    store.save_metadata(metadata)
    assert store.get_metadata("new") == metadata


def test_metadata_saved_by_a_users_store_belongs_to_that_user(alice: User) -> None:
    of(alice).save_metadata(ConversationMetadata(conversation_id="new"))
    assert of(alice).get_metadata("new").user_id == str(alice.pk)


def test_metadata_of_nobody_makes_no_conversation(store: ConversationStore) -> None:
    with pytest.raises(ConversationNotFound, match="names no user"):
        store.save_metadata(ConversationMetadata(conversation_id="new"))
    assert not Conversation.objects.exists()


def test_a_metadata_save_of_named_fields_leaves_the_others(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    changes.retitle(conversation, "Kept")
    changed = ConversationMetadata(conversation_id="talk", title="Lost", selected_branch="main")
    store.save_metadata(changed, fields=["selected_branch"])
    saved = store.get_metadata("talk")
    assert (saved.title, saved.selected_branch) == ("Kept", "main")


@pytest.mark.parametrize("field", ["created_at", "user_id", "conversation_version", "titel"])
def test_a_metadata_save_of_a_field_that_it_cannot_change_is_refused(
    store: ConversationStore, conversation: ConversationRef, field: str
) -> None:
    with pytest.raises(ValueError, match=f"A metadata save cannot change {field}"):
        store.save_metadata(ConversationMetadata(conversation_id="talk"), fields=["title", field])


async def test_a_metadata_save_is_shown_to_who_follows(
    store: ConversationStore, conversation: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "POLL_S", 3600.0)
    socket = await join(conversation)
    await socket.replayed()
    await astore.call(store.save_metadata, ConversationMetadata(conversation_id="talk", title="Saved"))
    assert (await socket.until("conversation"))["changes"] == {"title": "Saved"}


@pytest.mark.needs_engine
def test_all_metadata_comes_by_one_query_in_the_order_asked(
    store: ConversationStore, alice: User, django_assert_num_queries: Callable[[int], Any]
) -> None:
    for name in ("a", "b", "c"):
        creation.create(alice, conversation_id=name)
    with django_assert_num_queries(1):
        found = store.get_all_metadata(["c", "a", "b", "a"])
    assert [each.conversation_id for each in found] == ["c", "a", "b", "a"]


def test_all_metadata_is_refused_when_one_is_missing(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    with pytest.raises(ConversationNotFound, match="nowhere"):
        store.get_all_metadata(["talk", "nowhere"])


@pytest.mark.parametrize(
    ("conversation_id", "is_valid"), [("talk", True), ("of-bob", False), ("deleted", False), ("none", False)]
)
def test_metadata_is_valid_for_the_owner_of_a_conversation_that_stands(
    store: ConversationStore,
    conversation: ConversationRef,
    alice: User,
    bob: User,
    conversation_id: str,
    is_valid: bool,
) -> None:
    creation.create(bob, conversation_id="of-bob")
    deletion.soft_delete(creation.create(alice, conversation_id="deleted"))
    assert store.validate_metadata(conversation_id, str(alice.pk)) is is_valid


def test_metadata_is_valid_for_nobody_whose_id_is_no_number(
    subtests: pytest.Subtests, store: ConversationStore, conversation: ConversationRef
) -> None:
    for user_id in ["", "alice", "-1", "\u00b2", "\u0663"]:
        with subtests.test(user_id=user_id):
            assert store.validate_metadata("talk", user_id) is False


@pytest.mark.parametrize("refused", ["get_metadata", "delete_metadata"])
def test_a_users_store_knows_nothing_of_a_strangers_conversation(
    conversation: ConversationRef, bob: User, refused: str
) -> None:
    assert not of(bob).exists("talk")
    assert of(bob).search().results == []
    with pytest.raises(ConversationNotFound, match=r"Conversation not found"):
        getattr(of(bob), refused)("talk")


def test_a_strangers_metadata_save_neither_changes_nor_takes_a_conversation(
    store: ConversationStore, conversation: ConversationRef, bob: User
) -> None:
    before = store.get_metadata("talk")
    with pytest.raises(ConversationExists):
        of(bob).save_metadata(ConversationMetadata(conversation_id="talk", title="Bob's"))
    assert store.get_metadata("talk") == before


@pytest.mark.needs_engine
@pytest.mark.parametrize(("title_is", "is_set"), [("Old", True), ("Older", False), (None, False)])
def test_a_conditional_title_is_set_only_while_the_condition_holds(
    store: ConversationStore, conversation: ConversationRef, title_is: str | None, is_set: bool
) -> None:
    changes.retitle(conversation, "Old")
    assert changes.retitle(conversation, "New", title_is=title_is) is is_set
    assert store.get_metadata("talk").title == ("New" if is_set else "Old")


@pytest.mark.needs_engine
def test_a_title_is_given_on_the_condition_that_there_is_none(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    assert changes.retitle(conversation, "First", title_is=None) is True
    assert changes.retitle(conversation, "Second", title_is=None) is False
    assert store.get_metadata("talk").title == "First"


# Deleting


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_a_deleted_conversation_is_nowhere_to_be_seen_but_loses_no_event(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    writes.append(conversation, [event("a"), event("b")])
    store.delete_metadata("talk")
    assert not store.exists("talk")
    assert store.search().results == []
    for look in (store.get_metadata, store.delete_metadata, lambda name: store.get_all_metadata([name])):
        with pytest.raises(ConversationNotFound):
            look("talk")
    assert Event.objects.of(conversation).count() == 2


async def test_a_deleted_conversation_is_missing_at_every_door(
    conversation: ConversationRef, join: Join, rest: httpx.AsyncClient
) -> None:
    await astore.call(deletion.soft_delete, conversation)
    answers = [
        await rest.get("/api/native/conversations/talk"),
        await rest.get("/api/native/conversations/talk/events"),
        await rest.patch("/api/native/conversations/talk", json={"title": "New"}),
        await rest.post("/api/native/conversations/talk/events", json={"type": "message", "text": "Hi"}),
    ]
    listed = await rest.get("/api/native/conversations")
    socket = await join(conversation)
    assert [answer.status_code for answer in answers] == [404, 404, 404, 404]
    assert listed.json()["conversations"] == []
    assert (await socket.closed()).code == 4404


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_a_restored_conversation_is_whole_again(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    writes.append(conversation, [event("a"), event("b")])
    before = store.get_metadata("talk"), reads.read_after(conversation, -1)
    deletion.soft_delete(conversation)
    deletion.restore(conversation)
    assert (store.get_metadata("talk"), reads.read_after(conversation, -1)) == before
    assert writes.append(conversation, [event("c")])[0].seq == 2


@pytest.mark.parametrize("name", ["talk", *UUID_SPELLINGS])
def test_a_deleted_id_is_never_given_out_again(store: ConversationStore, alice: User, name: str) -> None:
    deletion.soft_delete(creation.create(alice, conversation_id=UUID_SPELLINGS[0]))
    deletion.soft_delete(creation.create(alice, conversation_id="talk"))
    with pytest.raises(ConversationExists):
        creation.create(alice, conversation_id=name)
    with pytest.raises(ConversationNotFound):
        creation.join(alice, name)
    with pytest.raises(ConversationExists):
        store.save_metadata(ConversationMetadata(conversation_id=name, user_id=str(alice.pk)))
    assert Conversation.objects.count() == 2


# Ids


def test_every_spelling_of_a_uuid_names_one_conversation(store: ConversationStore, alice: User) -> None:
    joined = {creation.join(alice, spelling).pk for spelling in UUID_SPELLINGS}
    found = {each.conversation_id for each in store.get_all_metadata(UUID_SPELLINGS)}
    assert (len(joined), found) == (1, {UUID_SPELLINGS[2]})


@pytest.mark.parametrize("name", ["Talk", "talk ", "{0f0e0d0c-0b0a-4908-8706-050403020100}", "g" * 32])
def test_an_id_of_another_form_is_kept_as_it_is(
    conversation: ConversationRef, alice: User, name: str
) -> None:
    assert creation.join(alice, name).public_id == name
    assert Conversation.objects.count() == 2


@pytest.mark.needs_engine
def test_an_id_that_could_mislead_is_refused(
    subtests: pytest.Subtests, store: ConversationStore, alice: User
) -> None:
    for name, reason in [
        ("", "cannot be ''"),
        ("search", "cannot be 'search'"),
        ("count", "cannot be 'count'"),
        ("x" * 101, "too long"),
        ("a\0b", "invalid characters"),
        ("a\nb", "control characters"),
        ("a\x7fb", "cannot be"),
        ("a/b", "path"),
        ("a\\b", "path"),
        ("..", "path"),
        ("\ud800", "cannot be"),
        ("a\u200eb", "cannot be"),
    ]:
        with subtests.test(name=name, reason=reason):
            for use in (store.exists, store.get_metadata, lambda name: creation.join(alice, name)):
                with pytest.raises(InvalidConversationId, match=reason):
                    use(name)
            assert not Conversation.objects.exists()


# Pages of conversations


def followed(store: ConversationStore, limit: int, between: Callable[[], None]) -> list[str]:
    """Return the ids of all pages, one after the other, with something happening between them."""
    page = store.search(limit=limit)
    found = [each.conversation_id for each in page.results]
    while page.next_page_id is not None:
        assert len(page.results) == limit
        between()
        page = store.search(page.next_page_id, limit=limit)
        found += [each.conversation_id for each in page.results]
    return found


@pytest.mark.needs_engine
@pytest.mark.no_second_try
@on_one_database
@given(
    ages=st.lists(st.integers(0, 3), max_size=12),
    limit=st.integers(1, 14),
    changes=st.lists(st.tuples(st.sampled_from(["create", "delete"]), st.integers(0, 11)), max_size=10),
)
def test_following_the_pages_shows_each_standing_conversation_once(
    database: None, ages: list[int], limit: int, changes: list[tuple[str, int]]
) -> None:
    owner = User.objects.create(username=new_public_id())
    store = of(owner)

    def create(age: int) -> ConversationRef:
        created_at = BEGINNING - timedelta(seconds=age)
        return creation.create(owner, created_at=created_at)

    rows = [create(age) for age in ages]
    standing = {row.public_id for row in rows}
    left = iter(changes)

    def change() -> None:
        for what, number in left:
            if what == "create":
                create(number % 4)
            elif number < len(rows):
                deletion.soft_delete(rows[number])
                standing.discard(rows[number].public_id)
            return

    found = followed(store, limit, change)
    assert len(found) == len(set(found))
    assert standing <= set(found)


@pytest.mark.needs_engine
def test_a_page_of_conversations_shows_the_newest_first(store: ConversationStore, alice: User) -> None:
    for day in (2, 3, 1):
        creation.create(alice, conversation_id=f"day-{day}", created_at=BEGINNING + timedelta(days=day))
    assert followed(store, 2, lambda: None) == ["day-3", "day-2", "day-1"]


def test_a_page_id_that_was_never_given_out_is_refused(
    subtests: pytest.Subtests, store: ConversationStore
) -> None:
    for page_id in ["x", "0", "MTIz", "\u00e9", "a" * 300]:
        refused = pytest.raises(InvalidCursor, match="use next_page_id of the page before")
        with subtests.test(page_id=page_id), refused:
            store.search(page_id)


def test_an_empty_page_cannot_be_asked_for(store: ConversationStore, conversation: ConversationRef) -> None:
    with pytest.raises(ValueError, match="one conversation at least, not 0"):
        store.search(limit=0)


# Pages of events


def read_forwards(log: ConversationRef, limit: int) -> list[list[EventEnvelope]]:
    pages: list[list[EventEnvelope]] = []
    while page := reads.read_after(log, pages[-1][-1]["seq"] if pages else -1, limit=limit):
        pages.append(page)
    return pages


def read_backwards(log: ConversationRef, limit: int) -> list[list[EventEnvelope]]:
    pages: list[list[EventEnvelope]] = []
    while page := reads.read_before(log, pages[0][0]["seq"] if pages else 2**63 - 1, limit=limit):
        pages.insert(0, page)
    return pages


def sizes(page: Sequence[EventEnvelope]) -> list[int]:
    return [len(each["payload"].encode()) for each in page]


@pytest.mark.needs_engine
@pytest.mark.no_second_try
@on_one_database
@given(
    lengths=st.lists(st.integers(0, 400), max_size=20),
    limit=st.integers(1, 22),
    max_bytes=st.integers(1, 2_000),
)
def test_pages_of_events_both_ways_make_up_the_log(
    database: None, lengths: list[int], limit: int, max_bytes: int
) -> None:
    owner = User.objects.create(username=new_public_id())
    log = creation.create(owner)
    texts = [payload("é" * length) for length in lengths]
    writes.append(log, [event(raw=text) for text in texts])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reads, "PAGE_MAX_BYTES", max_bytes)
        forwards, backwards = read_forwards(log, limit), read_backwards(log, limit)
    for pages in (forwards, backwards):
        assert [each["payload"] for page in pages for each in page] == texts
        assert all(len(page) <= limit for page in pages)
    assert all(sum(sizes(page)[:-1]) < max_bytes for page in forwards)
    assert all(sum(sizes(page)[1:]) < max_bytes for page in backwards)
    assert all(len(page) == limit or sum(sizes(page)) >= max_bytes for page in forwards[:-1])
    assert all(len(page) == limit or sum(sizes(page)) >= max_bytes for page in backwards[1:])


@pytest.mark.needs_engine
def test_a_page_of_long_events_ends_once_it_is_full(conversation: ConversationRef) -> None:
    megabyte = 1024 * 1024
    writes.append(conversation, [event("x" * megabyte) for _ in range(6)])
    page = reads.read_after(conversation, -1)
    assert [each["seq"] for each in page] == [0, 1, 2, 3]
    assert reads.PAGE_MAX_BYTES <= sum(sizes(page)) < reads.PAGE_MAX_BYTES + 2 * megabyte
    assert [each["seq"] for each in reads.read_before(conversation, 6)] == [2, 3, 4, 5]


# The seams


class ClosedRooms(ConversationValidator):
    """A validator that lets nobody into conversations of some names."""

    def validate(
        self, user: Visitor, conversation_id: str, *, version: Version = Version.V0
    ) -> tuple[ConversationRef, bool]:
        """Refuse closed rooms, and ask the default for all others."""
        if conversation_id.startswith("closed-"):
            raise ConversationNotFound("This room is closed.")
        return super().validate(user, conversation_id, version=version)


async def test_another_validator_decides_who_joins(join: Join, settings: Any) -> None:
    settings.CONVERSATION_VALIDATOR = f"{__name__}.ClosedRooms"
    refused = await (await join("closed-room")).closed()
    admitted = await (await join("open-room")).until("hello")
    assert (refused.code, refused.reason) == (4404, "This room is closed.")
    assert admitted["conversation"]["id"] == "open-room"
    assert not await astore.call(Conversation.objects.filter(public_id="closed-room").exists)


@pytest.mark.needs_engine
def test_events_that_are_asked_for_one_by_one_are_read_as_far_as_a_page_goes(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [event(payload("x" * 300), event_id=f"event {number}") for number in range(6)]
    writes.append(conversation, events)
    monkeypatch.setattr(reads, "PAGE_MAX_BYTES", 700)
    found = reads.read_portion(conversation, event_ids=[f"event {n}" for n in (5, 4, 2, 0)], seqs=[1])
    assert [each["seq"] for each in found.events] == [0, 1]
    assert [(each.seq, each.id) for each in found.deferred] == [(n, f"event {n}") for n in (2, 4, 5)]


@pytest.mark.needs_engine
def test_one_event_that_is_asked_for_is_read_however_long_it_is(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes.append(conversation, [event(payload("x" * 300))])
    monkeypatch.setattr(reads, "PAGE_MAX_BYTES", 1)
    found = reads.read_portion(conversation, seqs=[0])
    assert (len(found.events), found.deferred) == (1, [])


@pytest.mark.needs_engine
def test_the_first_event_since_a_moment_is_found_wherever_it_stands(conversation: ConversationRef) -> None:
    moments = [START + timedelta(seconds=second) for second in (5, 1, 7, 3)]
    writes.append(conversation, [v1_event(at_s=second) for second in (5, 1, 7, 3)])
    firsts = [reads.first_since(conversation, moment) for moment in moments]
    assert firsts == [0, 0, 2, 0]
    assert reads.first_since(conversation, moments[2] + timedelta(microseconds=1)) is None


@pytest.mark.needs_engine
def test_the_first_event_since_a_moment_is_found_in_an_index(conversation: ConversationRef) -> None:
    writes.append(conversation, [event() for _ in range(200)])
    with CaptureQueriesContext(connection) as captured:
        reads.first_since(conversation, datetime.now(UTC))
    (query,) = captured
    with transaction.atomic(), connection.cursor() as cursor:
        if connection.vendor == "postgresql":
            cursor.execute("ANALYZE conversations_event")  # an earlier test may have left the table small
            cursor.execute("SET LOCAL enable_seqscan = off")
            cursor.execute(f"EXPLAIN {query['sql']}")
        else:
            cursor.execute(f"EXPLAIN QUERY PLAN {query['sql']}")
        assert "event_time" in str(cursor.fetchall())

"""A purge removes a conversation everywhere, is finished whatever interrupts it, and touches no other."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from datetime import date
from functools import partial
from types import SimpleNamespace

import psutil
import pytest
from django.apps import apps
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db import connection, connections, transaction
from django.utils import timezone

from conversations import access
from conversations.engines import residues
from conversations.engines.watermark import EventHorizon
from conversations.exceptions import ConversationNotFound, Fenced, StoreUnavailable
from conversations.log import writes
from conversations.models import (
    Conversation,
    ConversationRef,
    CreationParameters,
    Event,
    Purge,
    SearchProgress,
    StorageProgress,
)
from conversations.search import titles
from conversations.search.fulltext import index, indexing
from conversations.storage import stored_bytes
from conversations.store import ConversationExists, changes, creation, deletion, forks, purging
from sessions_app import idempotency
from sessions_app.encryption import seal
from sessions_app.idempotency import IdempotencyKey, RepeatableAnswer
from sessions_app.live import drafts, marks
from sessions_app.live.drafts import Edit
from sessions_app.loops import leases
from sessions_app.models import (
    AgentLoop,
    AgentSetup,
    ApiToken,
    Attachment,
    Delivery,
    Draft,
    Endpoint,
    Feedback,
    Grant,
    ImportedConversation,
    LoopEnd,
    ModelUse,
    RecordedAnswer,
    StartTask,
    UnfinishedAnswer,
)
from sessions_app.processes import this_process
from sessions_app.retention import places, purges, rounds
from sessions_app.retention.failures import RetentionFailures
from sessions_app.storage import usage
from sessions_app.storage.attachments import NewFile, attach
from tests.conftest import on_postgresql, on_sqlite
from tests.support.data.events import event
from tests.support.data.refusing import refusing
from tests.support.data.residues import columns_with, files_with
from tests.support.data.threads import in_threads, is_somebody_waiting
from tests.support.people.clients import WAIT_S

pytestmark = pytest.mark.no_second_try

WORD = "quibblezorp"
"""A word that nothing else in any database has."""


def purge(conversation: ConversationRef) -> Purge:
    begun = purging.begin(
        conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason="asked for"
    )
    assert begun is not None
    purges.run(begun.pk)
    begun.refresh_from_db()
    return begun


def index_all() -> None:
    watermark = EventHorizon()
    watermark.settled = max(Event.objects.values_list("pk", flat=True))
    while SearchProgress.through_now() < watermark.settled:
        indexing.step(watermark)
    while titles.step():
        pass


@pytest.fixture
def full(conversation: ConversationRef, alice: User) -> ConversationRef:
    """A conversation with the word in everything that can hold one."""
    writes.append(conversation, [event(f"I say {WORD} to you") for _ in range(3)])
    changes.retitle(conversation, f"About {WORD}")
    pk = conversation.pk
    Conversation.objects.filter(pk=pk).update(
        tags={WORD: WORD}, repository=WORD, branch=WORD, provider=WORD, trigger=WORD, llm_model=WORD
    )
    CreationParameters.objects.create(conversation_id=pk, parameters={"instructions": WORD})
    attach(conversation, [NewFile(name=f"{WORD}.txt", content=f"file of {WORD}".encode())])
    drafts.write(alice.pk, conversation, Edit(text=f"draft of {WORD}", images=[], version=0))
    marks.mark(alice.pk, conversation, pinned=True)
    AgentLoop.objects.create(conversation_id=pk, error=WORD)
    UnfinishedAnswer.objects.create(
        conversation_id=pk, turn_id="t", event_id="e", through=0, text=WORD, reasoning=WORD
    )
    hidden = {name: seal("{}") for name in ("sealed_agent", "sealed_secrets", "sealed_keys")}
    AgentSetup.objects.create(
        conversation_id=pk, **hidden, shown_agent={"prompt": WORD}, facts={"title": WORD}
    )
    StartTask.objects.create(conversation_id=pk, user=alice, task_id="task", request={"message": WORD})
    Feedback.objects.create(conversation_id=pk, polarity="positive", email=f"{WORD}@example.org")
    ApiToken.issue(alice.pk, f"for {WORD}", Grant(conversation=conversation))
    endpoint = Endpoint.objects.create(
        kind="webhook", name="mine", base_url="http://localhost:1", sealed=seal("{}"), owner=alice
    )
    Delivery.objects.create(
        endpoint=endpoint, conversation_id=pk, last_error=f"no {WORD}", due_at=timezone.now()
    )
    ModelUse.objects.create(user=alice, conversation_id=pk, model="small", day=date(2026, 1, 2), calls=1)
    idempotency.answered_once(
        IdempotencyKey(alice.pk, "/api/conversations", "once"),
        {},
        lambda: RepeatableAnswer(201, {"id": conversation.public_id, "title": WORD}),
    )
    LogEntry.objects.create(
        user=alice,
        content_type=ContentType.objects.get_for_model(Conversation),
        object_id=str(pk),
        object_repr=f"About {WORD}",
        action_flag=CHANGE,
    )
    index_all()
    return conversation


@pytest.mark.parametrize("rewrites", [False, True])
def test_after_a_purge_the_word_is_nowhere(full: ConversationRef, alice: User, rewrites: bool) -> None:
    other = creation.create(alice, conversation_id="other")
    writes.append(other, [event("nothing of interest")] * 1)
    assert files_with(WORD)
    assert columns_with(WORD)
    purge(full)
    assert rounds.erase(rewrites=rewrites)
    assert columns_with(WORD) == []
    if rewrites or connection.vendor == "sqlite":
        assert files_with(WORD) == []
    assert Event.objects.of(other).count() == 1


@on_sqlite
@pytest.mark.parametrize("small_pages", [0, residues.SMALL_PAGES])
def test_after_a_purge_the_word_is_nowhere_in_an_index_that_was_merged_often(
    conversation: ConversationRef, alice: User, small_pages: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merges of several levels of segments add levels, and those stay though nothing is left in them."""
    monkeypatch.setattr(residues, "SMALL_PAGES", small_pages)
    index.empty()
    for talk in (conversation, creation.create(alice, conversation_id="other")):
        for number in range(6):
            writes.append(talk, [event(f"I say {WORD} {number} {place} to you") for place in range(100)])
            index_all()
            assert rounds.erase()
        assert columns_with(WORD)
        purge(talk)
        assert rounds.erase()
        assert columns_with(WORD) == []
        assert files_with(WORD) == []


@on_sqlite
def test_tables_are_not_written_anew_without_the_memory_for_it(
    full: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    purge(full)
    with connection.cursor() as cursor:
        cursor.execute("PRAGMA compile_options")
        if (residues.ALL_IN_MEMORY,) not in cursor.fetchall():
            pytest.skip("this library of SQLite makes temporary files")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=1000))
    with pytest.raises(StoreUnavailable, match="and 1,000 bytes are free"):
        rounds.erase(rewrites=True)


def test_every_table_says_what_a_purge_does_to_it() -> None:
    labels = {model._meta.label for model in apps.get_models(include_auto_created=True)}
    listed = [*places.REMOVED, *places.OTHERWISE, *places.UNTOUCHED]
    assert len(listed) == len(set(listed))
    assert set(listed) == labels


def test_every_table_without_a_model_says_so_too(database: None) -> None:
    known = {model._meta.db_table for model in apps.get_models(include_auto_created=True)}
    tables = set(connection.introspection.table_names()) - known
    assert {name for name in tables if not name.startswith(tuple(places.WITHOUT_MODEL))} == set()


def test_every_table_that_points_to_a_conversation_is_changed_by_a_purge() -> None:
    pointing = {
        model._meta.label
        for model in apps.get_models(include_auto_created=True)
        for field in model._meta.concrete_fields
        if field.related_model is Conversation
    }
    assert pointing.isdisjoint(places.UNTOUCHED)
    fields = {label: apps.get_model(label)._meta.get_field("conversation") for label in places.REMOVED}
    assert {label for label, field in fields.items() if field.related_model is not Conversation} == set()


def test_every_column_of_a_conversation_is_emptied_or_kept_on_purpose() -> None:
    names = {field.name for field in Conversation._meta.concrete_fields}
    assert names == purging.KEPT | set(purging.EMPTY)
    assert purging.KEPT.isdisjoint(purging.EMPTY)


def test_a_purge_leaves_a_tombstone_and_a_record(full: ConversationRef, alice: User) -> None:
    before = Conversation.objects.get(pk=full.pk)
    record = purge(full)
    row = Conversation.objects.get(pk=full.pk)
    assert {name: getattr(row, name) for name in purging.EMPTY} == purging.EMPTY
    assert (row.public_id, row.owner, row.next_seq) == (before.public_id, alice, 3)
    assert (record.requested_by, record.reason, record.events) == ("tests", "asked for", 3)
    assert record.last_digest == before.head_digest != ""
    assert record.bytes > 0
    assert record.finished_at is not None
    with pytest.raises(ConversationExists):
        creation.create(alice, conversation_id=full.public_id)
    with pytest.raises(ConversationNotFound):
        access.restorable(alice, full.public_id)


def test_no_row_of_a_purged_conversation_is_left(full: ConversationRef) -> None:
    purge(full)
    left = [
        label
        for label in (*places.REMOVED, "conversations.Event", "conversations.CreationParameters")
        if apps.get_model(label)._default_manager.filter(conversation_id=full.pk).exists()
    ]
    assert left == []
    assert ModelUse.objects.get().conversation is None
    assert Delivery.objects.get().last_error == ""
    assert LogEntry.objects.get().object_repr == full.public_id


def test_a_fork_stays_whole(full: ConversationRef, alice: User) -> None:
    fork = forks.fork(alice, full, conversation_id="branch", through=1)
    before = list(Event.objects.of(fork).order_by("seq").values())
    purge(full)
    assert list(Event.objects.of(fork).order_by("seq").values()) == before
    assert Conversation.objects.get(pk=fork.pk).forked_from_id == full.pk


def test_no_other_conversation_loses_anything(full: ConversationRef, alice: User, bob: User) -> None:
    others = [creation.create(user, conversation_id=f"of-{user}") for user in (alice, bob)]
    for other in others:
        writes.append(other, [event("kept")])
        attach(other, [NewFile(name="kept.txt", content=b"kept")])
        drafts.write(other.owner_id, other, Edit(text="kept", images=[], version=0))
        answer = RepeatableAnswer(201, {"id": other.public_id, "parent_conversation_id": full.public_id})
        key = IdempotencyKey(other.owner_id, "/api/conversations", f"key of {other.public_id}")
        idempotency.answered_once(key, {}, partial(RepeatableAnswer, *answer))
    purge(full)
    assert Event.objects.count() == Attachment.objects.count() == Draft.objects.count() == 2
    assert RecordedAnswer.objects.count() == 2
    assert Conversation.objects.active().count() == 2


def test_a_purge_that_was_begun_cannot_be_taken_back(conversation: ConversationRef, alice: User) -> None:
    begun = purging.begin(
        conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason=""
    )
    deletion.restore(conversation)
    assert begun is not None
    assert not Conversation.objects.active().exists()
    assert (
        purging.begin(conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason="")
        is None
    )


def test_a_purge_goes_on_where_it_was_interrupted(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "STEP_EVENTS", 2)
    writes.append(conversation, [event() for _ in range(5)])
    begun = purging.begin(
        conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason=""
    )
    assert begun is not None
    assert purges.step(begun.pk)
    assert Event.objects.count() == 3
    rounds.finish_all()
    begun.refresh_from_db()
    assert (Event.objects.count(), begun.events) == (0, 5)
    assert not purges.step(begun.pk)


def test_a_step_is_bounded_by_bytes(conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(purging, "STEP_BYTES", 3_000)
    writes.append(conversation, [event("x" * 2_000) for _ in range(5)])
    begun = purging.begin(
        conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason=""
    )
    assert begun is not None
    purges.step(begun.pk)
    assert Event.objects.count() == 3


def test_two_purgers_at_once_count_everything_once(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purging, "STEP_EVENTS", 3)
    writes.append(conversation, [event() for _ in range(60)])
    begun = purging.begin(
        conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason=""
    )
    assert begun is not None
    pk = begun.pk

    def run(_: int) -> None:
        purges.run(pk)

    in_threads(3, run)
    begun.refresh_from_db()
    assert begun.events == 60
    assert begun.finished_at is not None


def test_what_was_restored_since_it_was_listed_is_not_purged(conversation: ConversationRef) -> None:
    deletion.soft_delete(conversation)
    among = Conversation.objects.deleted()
    deletion.restore(conversation)
    assert purging.begin(conversation, among=among, requested_by="tests", reason="") is None
    assert Conversation.objects.active().exists()


@on_postgresql
def test_what_is_restored_while_a_purge_waits_for_its_lock_is_not_purged(
    conversation: ConversationRef,
) -> None:
    deletion.soft_delete(conversation)
    begun: list[Purge | None] = []

    def begin() -> None:
        among = Conversation.objects.deleted()
        begun.append(purging.begin(conversation, among=among, requested_by="tests", reason=""))
        connections.close_all()

    beginning = threading.Thread(target=begin)
    with transaction.atomic():
        deletion.restore(conversation)
        beginning.start()
        deadline = time.monotonic() + WAIT_S
        while not is_somebody_waiting():
            assert time.monotonic() < deadline
    beginning.join(WAIT_S)
    assert begun == [None]
    assert Conversation.objects.active().exists()


def test_two_who_purge_at_once_begin_one_purge(conversation: ConversationRef) -> None:
    def begin(_: int) -> None:
        purging.begin(conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason="")

    in_threads(4, begin)
    assert Purge.objects.count() == 1


def test_what_a_user_has_stored_gets_smaller(conversation: ConversationRef, alice: User) -> None:
    writes.append(conversation, [event("x" * 1_000)])
    attach(conversation, [NewFile(name="a", content=b"abc")])
    watermark = EventHorizon()
    watermark.settled = max(Event.objects.values_list("pk", flat=True))
    stored_bytes.count(watermark)
    assert stored_bytes.totals([alice.pk])[alice.pk] > 1_000
    purge(conversation)
    assert stored_bytes.totals([alice.pk])[alice.pk] == 0
    with transaction.atomic():
        assert usage.locked(alice.pk).uploaded_bytes == 0


@pytest.mark.parametrize("is_purged", [False, True])
@pytest.mark.parametrize("moment", ["before the claim", "during a call", "before the result", "at the end"])
def test_what_goes_while_a_turn_runs_stays_gone(
    conversation: ConversationRef, alice: User, moment: str, is_purged: bool
) -> None:
    def go() -> None:
        deletion.soft_delete(conversation)
        if is_purged:
            purge(conversation)

    writes.append(conversation, [event("do it")])
    if moment == "before the claim":
        go()
        with pytest.raises(ConversationNotFound):
            leases.claim(conversation, this_process(), agent="demo")
    else:
        epoch = leases.claim(conversation, this_process(), agent="demo")
        if moment in ("before the result", "at the end"):
            writes.append(conversation, [event("a call")], epoch=epoch)
        go()
        with pytest.raises((ConversationNotFound, Fenced)):
            writes.append(conversation, [event("what came too late")], epoch=epoch)
        with pytest.raises((ConversationNotFound, Fenced)), transaction.atomic():
            leases.locked_by(conversation, epoch)
        with suppress(Fenced):
            leases.release(conversation, epoch, ended_by=LoopEnd.INTERRUPTED)
    assert not Conversation.objects.active().exists()
    assert not Event.objects.filter(text__contains="too late").exists()
    assert not (is_purged and (Event.objects.exists() or UnfinishedAnswer.objects.exists()))


def test_a_purge_that_fails_keeps_no_other_from_being_done(
    conversation: ConversationRef, alice: User
) -> None:
    second = creation.create(alice, conversation_id="second")
    for each in (conversation, second):
        writes.append(each, [event()])
        purging.begin(each, among=Conversation.objects.unpurged(), requested_by="tests", reason="")
    failures = RetentionFailures()
    with refusing("DELETE", "conversations_event", f"conversation_id = {conversation.pk}"):
        rounds.finish_all(failures)
    assert [name for name, _ in failures.found] == [conversation.public_id]
    assert Purge.objects.get(conversation_id=second.pk).finished_at is not None
    rounds.finish_all()
    assert not Event.objects.exists()


@on_postgresql
def test_where_there_is_no_index_of_titles_the_files_are_cleaned_all_the_same(
    conversation: ConversationRef,
) -> None:
    purge(conversation)
    index = "conversations_titletext_pieces"
    with connection.cursor() as cursor:
        cursor.execute(f"ALTER INDEX IF EXISTS {index} RENAME TO titles_elsewhere")
        try:
            assert rounds.erase()
        finally:
            cursor.execute(f"ALTER INDEX IF EXISTS titles_elsewhere RENAME TO {index}")
    assert Purge.objects.get().erased_at is not None


@on_sqlite
def test_the_lines_of_reports_about_a_conversation_are_found_by_an_index(database: None) -> None:
    assert "imported_as" in ImportedConversation.objects.filter(conversation="x").explain()


def test_what_somebody_wrote_after_a_purge_is_swept_away(conversation: ConversationRef, alice: User) -> None:
    purge(conversation)
    drafts.write(alice.pk, conversation, Edit(text="late", images=[], version=0))
    assert purges.sweep_late() == 1
    assert not Draft.objects.exists()
    assert purges.sweep_late() == 0


def test_where_nothing_was_purged_lately_one_query_says_so(
    conversation: ConversationRef, django_assert_num_queries: Callable[[int], AbstractContextManager[object]]
) -> None:
    with django_assert_num_queries(1):
        assert purges.sweep_late() == 0


@on_postgresql
def test_bytes_that_are_just_being_counted_are_not_counted_after_their_purge(
    conversation: ConversationRef, alice: User
) -> None:
    writes.append(conversation, [event("x" * 1_000)])
    watermark = EventHorizon()
    watermark.settled = max(Event.objects.values_list("pk", flat=True))
    StorageProgress.objects.get_or_create(pk=1)
    begun = purging.begin(
        conversation, among=Conversation.objects.unpurged(), requested_by="tests", reason=""
    )
    is_removed, is_counted = threading.Event(), threading.Event()

    def remove_slowly() -> None:
        assert begun is not None
        with transaction.atomic():
            purging.remove_events(begun)
            is_removed.set()
            deadline = time.monotonic() + WAIT_S
            while not is_counted.is_set() and not is_somebody_waiting():
                assert time.monotonic() < deadline

    def count_meanwhile() -> None:
        assert is_removed.wait(WAIT_S)
        stored_bytes.count(watermark)
        is_counted.set()

    in_threads(2, lambda number: (remove_slowly, count_meanwhile)[number]())
    assert stored_bytes.totals([alice.pk])[alice.pk] == 0

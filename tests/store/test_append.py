"""Appending to the log: numbered without holes, once each, whoever writes at the same time."""

from __future__ import annotations

import json
import os
import tempfile
import threading
from collections.abc import Callable
from itertools import pairwise

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError, connection, transaction

from conversations.events import NewEvent
from conversations.exceptions import ConversationError, ConversationNotFound, EventConflict, Fenced
from conversations.log import sql, writes
from conversations.log.append import AppendOutcome, AppendRequest, chain
from conversations.models import Conversation, ConversationRef, Event
from conversations.store import ConversationStore, creation, deletion
from tests.conftest import on_postgresql
from tests.support.data.events import event, payload
from tests.support.data.threads import in_threads

pytestmark = pytest.mark.no_second_try


def stored(conversation: ConversationRef) -> list[tuple[int, str]]:
    return list(Event.objects.of(conversation).oldest_first().values_list("seq", "payload"))


def test_events_are_numbered_from_zero_in_the_order_given(conversation: ConversationRef) -> None:
    appended = writes.append(conversation, [event("a"), event("b")])
    assert [each.seq for each in appended] == [0, 1]
    assert stored(conversation) == [(0, payload("a")), (1, payload("b"))]


def test_repeating_an_event_returns_its_first_place_and_adds_nothing(conversation: ConversationRef) -> None:
    writes.append(conversation, [event("a", event_id="x"), event("b")])
    (again,) = writes.append(conversation, [event("a", event_id="x")])
    assert (again.seq, again.is_new) == (0, False)
    assert len(stored(conversation)) == 2


def test_same_id_with_other_bytes_is_a_conflict_and_stores_nothing(conversation: ConversationRef) -> None:
    writes.append(conversation, [event("a", event_id="x")])
    with pytest.raises(EventConflict, match=r"Event 0 has the id .* and other content"):
        writes.append(conversation, [event("new"), event("b", event_id="x")])
    assert stored(conversation) == [(0, payload("a"))]


def test_an_event_twice_in_one_append_is_stored_once(conversation: ConversationRef) -> None:
    appended = writes.append(conversation, [event("a", event_id="x"), event("a", event_id="x")])
    assert [(each.seq, each.is_new) for each in appended] == [(0, True), (0, False)]


def many_events() -> list[NewEvent]:
    """Return more events than are inserted one by one, with values of every kind in their columns."""
    texts = [
        "plain",
        "a tab\t and a line\nfeed",
        "back\\slash and \\N and \\.",
        "",
        "\u00fc \U0001f600",
        '"quoted"',
    ]
    made = []
    for number in range(3 * sql.COPIED_MIN):
        members: dict[str, object] = {"id": number} if number % 3 else {}
        if number % 4 == 0:
            members["timestamp"] = "2026-01-02T03:04:05.678901"
        raw = payload(f"{texts[number % len(texts)]}{number}", **members)
        turn = f"turn\t{number}" if number % 2 else None
        made.append(event(event_id=f"many-{number}", raw=raw, turn_id=turn, is_input=number % 5 == 0))
    return made


def test_many_events_are_stored_alike_whether_or_not_something_else_is_done_with_them(
    conversation: ConversationRef, alice: User
) -> None:
    other = creation.create(alice)
    events = many_events()
    writes.append(conversation, events)
    writes.append(other, events, also=lambda _: None)
    names = [field.name for field in Event._meta.concrete_fields]
    varying = {"id", "conversation", "received_at", "timestamp"}
    columns = [name for name in names if name not in varying]

    def rows(of: ConversationRef) -> list[tuple[object, ...]]:
        return list(Event.objects.of(of).oldest_first().values_list(*columns))

    assert rows(conversation) == rows(other)
    assert len(rows(other)) == len(events)
    told = Event.objects.of(other).filter(seq=0).values_list("timestamp", flat=True).get()
    assert told.isoformat() == "2026-01-02T03:04:05.678901+00:00"


def test_nothing_of_many_events_is_stored_if_what_else_is_done_fails(conversation: ConversationRef) -> None:
    def fail(_: object) -> None:
        raise RuntimeError

    with pytest.raises(RuntimeError):
        writes.append(conversation, many_events(), also=fail)
    assert stored(conversation) == []
    writes.append(conversation, many_events()[:2])
    assert len(stored(conversation)) == 2


def append_at_last(conversation: ConversationRef, new: NewEvent) -> None:
    """Append, and again if so many others wait for SQLite's one lock that the wait was in vain."""
    while True:
        try:
            writes.append(conversation, [new])
        except OperationalError as error:
            if "locked" not in str(error):
                raise
        else:
            return


def test_sixteen_writers_leave_no_gap_and_no_repeat(conversation: ConversationRef, is_full: bool) -> None:
    count = 200 if is_full else 60

    def write(number: int) -> None:
        for index in range(count):
            append_at_last(conversation, event(event_id=f"{number}-{index}"))

    in_threads(16, write)
    assert list(Event.objects.of(conversation).oldest_first().values_list("seq", flat=True)) == list(
        range(16 * count)
    )
    assert Conversation.objects.get(pk=conversation.pk).next_seq == 16 * count


def test_fifty_first_joins_at_once_make_one_conversation(alice: User) -> None:
    joined: list[int] = []
    in_threads(50, lambda number: joined.append(creation.join(alice, "brand-new").pk))
    assert len(joined) == 50
    assert len(set(joined)) == Conversation.objects.count() == 1


def test_digests_chain_from_the_first_event_on(conversation: ConversationRef) -> None:
    writes.append(conversation, [event("a")])
    writes.append(conversation, [event("b"), event("c")])
    head = ""
    for row in Event.objects.of(conversation).oldest_first():
        head = chain(head, seq=row.seq, event_id=row.event_id, payload=row.payload)
        assert row.digest == head
    assert Conversation.objects.get(pk=conversation.pk).head_digest == head


def test_the_digest_of_a_known_log_is_what_it_always_was() -> None:
    first = chain("", seq=0, event_id="a", payload="{}")
    assert first == "32644a03c8f3f6ccaeb3a466ca912bd199fc4fb6f9a8e5a0fe66bcb16c9771a1"
    assert (
        chain(first, seq=1, event_id="b", payload='{"x":1}')
        == "d858aa58cf7a9ca48592ab6d953705ee069deca44b681600e159e7ad42d43f12"
    )


def test_every_event_is_later_than_the_one_before(conversation: ConversationRef) -> None:
    writes.append(conversation, [event() for _ in range(50)])
    times = list(Event.objects.of(conversation).oldest_first().values_list("received_at", flat=True))
    assert all(earlier < later for earlier, later in pairwise(times))


def test_a_loop_of_an_older_epoch_is_refused(conversation: ConversationRef) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(loop_epoch=3)
    with pytest.raises(Fenced):
        writes.append(conversation, [event()], epoch=2)
    writes.append(conversation, [event()], epoch=3)
    assert len(stored(conversation)) == 1


def test_a_deleted_conversation_takes_no_events(conversation: ConversationRef) -> None:
    deletion.soft_delete(conversation)
    with pytest.raises(ConversationNotFound):
        writes.append(conversation, [event()])


def test_one_refused_request_harms_no_other_of_its_batch(conversation: ConversationRef, alice: User) -> None:
    writes.append(conversation, [event("a", event_id="x")])
    others = [creation.create(alice) for _ in range(49)]
    requests = [AppendRequest(conversation=other, events=[event()]) for other in others]
    requests.insert(20, AppendRequest(conversation=conversation, events=[event("b", event_id="x")]))
    outcomes = writes.append_many(requests)
    assert isinstance(outcomes[20], EventConflict)
    assert sum(isinstance(outcome, AppendOutcome) for outcome in outcomes) == 49
    assert Event.objects.count() == 50


def test_what_also_raises_undoes_the_append(conversation: ConversationRef) -> None:
    def fail(appended: object) -> None:
        raise ConversationError("no")

    with pytest.raises(ConversationError):
        writes.append(conversation, [event()], also=fail)
    assert stored(conversation) == []


@on_postgresql
def test_a_locked_conversation_is_passed_over_by_a_batch(conversation: ConversationRef, alice: User) -> None:
    other = creation.create(alice)
    requests = [
        AppendRequest(conversation=conversation, events=[event()]),
        AppendRequest(conversation=other, events=[event()]),
    ]
    outcomes: list[object] = []

    def write() -> None:
        outcomes.extend(writes.append_many(requests))
        connection.close()

    with transaction.atomic():
        Conversation.objects.locked().get(pk=conversation.pk)
        writer = threading.Thread(target=write)
        writer.start()
        writer.join(20)
    assert [type(outcome).__name__ for outcome in outcomes] == ["ConversationBusy", "AppendOutcome"]


def test_cause_names_the_same_event_whatever_its_sender_numbered_it(conversation: ConversationRef) -> None:
    def wire(**members: object) -> str:
        return json.dumps({"source": "agent", **members})

    writes.append(conversation, [event(raw=wire(id=40, action="run", args={"command": "ls"}))])
    writes.append(conversation, [event(raw=wire(id=42, cause=40, observation="run", content="", extras={}))])
    assert Event.objects.of(conversation).get(seq=1).cause_seq == 0


def test_totals_that_were_saved_do_not_fall_with_the_next_event(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    metadata = store.get_metadata(conversation.public_id)
    metadata.total_tokens = 500
    store.save_metadata(metadata, ["total_tokens"])
    writes.append(conversation, [event()])
    assert store.get_metadata(conversation.public_id).total_tokens == 500


def test_a_batch_takes_the_same_number_of_statements_whatever_its_size(
    alice: User, django_assert_num_queries: Callable[[int], object]
) -> None:
    def statements(count: int) -> int:
        requests = [
            AppendRequest(conversation=creation.create(alice), events=[event() for _ in range(3)])
            for _ in range(count)
        ]
        with django_assert_num_queries(7) as captured:  # type: ignore[attr-defined]
            writes.append_many(requests)
        return len(captured)

    assert statements(1) == statements(40)


@on_postgresql
@pytest.mark.parametrize("count", [1, 3])
def test_an_append_is_two_round_trips(alice: User, count: int) -> None:
    conversation = creation.create(alice)
    writes.append(conversation, [event() for _ in range(count)])  # prepares the statements
    with tempfile.TemporaryFile("w+") as trace:
        connection.connection.pgconn.trace(os.dup(trace.fileno()))
        writes.append(conversation, [event() for _ in range(count)])
        connection.connection.pgconn.untrace()
        trace.seek(0)
        sent = [columns[3] for columns in (line.rstrip().split("\t") for line in trace) if columns[1] == "F"]
    assert sent.count("Sync") == 2
    assert "Query" not in sent
    assert sent.count("Parse") == 2  # BEGIN and COMMIT; all others were prepared before


@pytest.mark.parametrize("written", ["2026-01-02T03:04:05", "2026-01-02T03:04:05.000600"])
def test_the_orm_finds_an_event_by_its_time(conversation: ConversationRef, written: str) -> None:
    writes.append(conversation, [event("a", raw=payload("a", timestamp=written))])
    row = Event.objects.of(conversation).get(timestamp=f"{written}+00:00")
    assert Event.objects.of(conversation).filter(received_at=row.received_at).exists()
    assert Conversation.objects.filter(pk=conversation.pk, updated_at=row.received_at).exists()

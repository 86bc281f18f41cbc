"""Verification: every sort of damage is found, with its place, and nothing else is."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import F
from django.test.utils import CaptureQueriesContext

from conversations.events import Kind, NewEvent
from conversations.log import writes
from conversations.models import (
    Conversation,
    ConversationRef,
    DamageKind,
    Event,
    Occasion,
    Purge,
    VerificationFinding,
    VerificationRun,
)
from conversations.search.fulltext import indexing
from conversations.search.fulltext.index import IndexEntry
from conversations.store import creation, forks
from conversations.verification import checkpoints, derived, recent, records, rows
from conversations.verification.checkpoints import CheckpointRefused
from conversations.verification.signatures import Key, KeyUnusable, read_key
from sessions_app.loops import leases
from sessions_app.models import AgentLoop
from sessions_app.processes import this_process
from sessions_app.verification import leases as lease_checks
from sessions_app.verification.checks import Check, checks, run
from tests.conftest import on_postgresql, on_sqlite
from tests.support.data.damage import (
    change,
    damaged,
    flip,
    other_text,
    places,
    rewrite,
    set_counter,
    unguarded,
    verified,
)
from tests.support.data.events import delete_events, event, payload


def call(call_id: str, turn: str = "turn") -> NewEvent:
    raw = json.dumps(
        {
            "action": "run",
            "source": "agent",
            "args": {"command": "ls"},
            "tool_call_metadata": {"tool_call_id": call_id, "function_name": "run"},
        }
    )
    return event(raw=raw, turn_id=turn)


def result(call_id: str, cause: int, turn: str = "turn") -> NewEvent:
    raw = json.dumps(
        {
            "observation": "run",
            "source": "agent",
            "content": "a file",
            "extras": {"command": "ls"},
            "tool_call_metadata": {"tool_call_id": call_id, "function_name": "run"},
        }
    )
    return event(raw=raw, turn_id=turn, cause_seq=cause)


def end_of_turn(turn: str = "turn") -> NewEvent:
    raw = json.dumps({"observation": "agent_state_changed", "source": "environment", "extras": {}})
    return event(raw=raw, turn_id=turn, kind=Kind.TURN)


@pytest.fixture
def log(conversation: ConversationRef) -> ConversationRef:
    """A log of eight events: four messages, and a turn with a call and its result."""
    writes.append(conversation, [event() for _ in range(4)])
    writes.append(conversation, [call("c1"), result("c1", 4), end_of_turn(), event()])
    return conversation


@pytest.fixture
def other(alice: User) -> ConversationRef:
    """Another log, which nobody damages."""
    other = creation.create(alice, conversation_id="other")
    writes.append(other, [event() for _ in range(3)])
    return other


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every log be a long one, read in pages of two events."""
    monkeypatch.setattr(rows, "PAGE_EVENTS", 2)
    monkeypatch.setattr(rows, "_LIMIT", 4)


@pytest.fixture(params=[pytest.param("one page", marks=pytest.mark.one_engine), "many pages"], autouse=True)
def length(request: pytest.FixtureRequest) -> None:
    """Read logs both as short and as long ones."""
    if request.param == "many pages":
        request.getfixturevalue("short_pages")


def test_a_store_that_nobody_damaged_is_whole(
    log: ConversationRef, other: ConversationRef, alice: User
) -> None:
    forks.fork(alice, log, through=5)
    creation.create(alice, conversation_id="empty")
    record = verified(with_columns=True, whole_search=True)
    assert record.found == []
    assert record.run.outcome == "whole"
    assert record.run.events == 8 + 3 + 6


def test_a_missing_event_is_found(log: ConversationRef, other: ConversationRef) -> None:
    delete_events(log, [2])
    assert places(verified().found) == [("missing", "talk", 2)]
    assert damaged(log) == [("missing", 2)]
    assert damaged(other) == []


def test_missing_events_are_one_place(log: ConversationRef) -> None:
    delete_events(log, [1, 2, 3])
    (damage,) = verified().found
    assert (damage.seq, damage.detail) == (1, "The events 1 to 3 are missing.")


def test_a_missing_end_is_found(log: ConversationRef) -> None:
    delete_events(log, [7])
    assert ("missing", "talk", 7) in places(verified().found)


def test_a_log_that_lost_all_its_events_is_found(log: ConversationRef) -> None:
    delete_events(log, range(8))
    assert ("missing", "talk", 0) in places(verified().found)


def test_a_changed_byte_of_a_payload_is_found(log: ConversationRef, other: ConversationRef) -> None:
    change(log, 3, payload=other_text(payload()))
    assert places(verified().found) == [("changed", "talk", 3)]


def test_a_changed_digest_is_found_once(log: ConversationRef) -> None:
    change(log, 3, digest="0" * 64)
    assert places(verified().found) == [("changed", "talk", 3)]


def test_a_long_payload_is_read_whole(conversation: ConversationRef) -> None:
    writes.append(conversation, [event("hello" + "x" * 2 * rows.LARGE_BYTES), event()])
    assert verified().found == []
    change(conversation, 0, payload=other_text(payload("hello" + "x" * 2 * rows.LARGE_BYTES)))
    assert places(verified().found) == [("changed", "talk", 0)]


@on_sqlite
@pytest.mark.parametrize(
    ("column", "problem"),
    [("payload", "changed"), ("event_id", "changed"), ("digest", "changed"), ("text", "head")],
)
def test_a_byte_that_is_no_text_is_found(
    log: ConversationRef, other: ConversationRef, column: str, problem: str
) -> None:
    delete_events(other, [1])
    flip(log, 7, column)
    record = verified()
    assert {(problem, "talk"), ("missing", "other")} <= {each[:2] for each in places(record.found)}
    assert "hello" not in "".join(VerificationFinding.objects.values_list("detail", flat=True))
    verified(with_columns=True, whole_search=True)


@on_sqlite
def test_a_payload_that_is_stored_as_bytes_is_found(log: ConversationRef) -> None:
    with unguarded("event_refuse_update"), connection.cursor() as cursor:
        cursor.execute(
            "UPDATE conversations_event SET payload = CAST(payload AS BLOB) "
            "WHERE conversation_id = %s AND seq = 3",
            [log.pk],
        )
    assert places(verified(with_columns=True).found) == [("changed", "talk", 3)]


def test_a_counter_that_runs_far_ahead_costs_no_time(log: ConversationRef, key: Key, tmp_path: Path) -> None:
    set_counter(log, 10**12)
    assert places(verified(with_columns=True).found) == [("counter", "talk", 8)]
    with (tmp_path / "checkpoint").open("wb") as target:
        assert sum(step.events for step in checkpoints.write(target, key)) == 8


@on_postgresql
def test_events_behind_a_wide_gap_are_read(log: ConversationRef) -> None:
    set_counter(log, 10**12)
    change(log, 7, seq=10**11)
    assert ("changed", "talk", 10**11) not in places(verified().found)
    change(log, 10**11, payload=other_text(payload()))
    assert ("missing", "talk", 7) in places(verified().found)


@pytest.mark.parametrize("value", [5, 12])
def test_a_wrong_counter_is_found(log: ConversationRef, value: int) -> None:
    set_counter(log, value)
    found = places(verified().found)
    assert ("counter", "talk", min(value, 8)) in found


def test_a_wrong_size_is_found(log: ConversationRef) -> None:
    change(log, 1, size=F("size") + 1)
    assert places(verified().found) == [("size", "talk", 1)]


def test_a_wrong_head_is_found(log: ConversationRef) -> None:
    Conversation.objects.filter(pk=log.pk).update(head_digest="0" * 64)
    assert places(verified().found) == [("head", "talk", 7)]


def test_a_mark_beyond_the_log_is_found(log: ConversationRef) -> None:
    Conversation.objects.filter(pk=log.pk).update(answered_through=20)
    assert places(verified().found) == [("counter", "talk", None)]


def test_another_newest_message_is_found(log: ConversationRef) -> None:
    Conversation.objects.filter(pk=log.pk).update(last_message="never said")
    assert places(verified().found) == [("head", "talk", None)]


def test_a_call_that_lost_its_result_is_found(log: ConversationRef) -> None:
    change(log, 5, cause_seq=None, tool_call_id=None)
    assert places(verified().found) == [("unpaired_call", "talk", 4)]


def test_a_call_of_a_turn_that_goes_on_is_no_damage(conversation: ConversationRef) -> None:
    writes.append(conversation, [call("c1")])
    assert verified().found == []


def test_an_answer_to_what_comes_later_is_found(log: ConversationRef) -> None:
    change(log, 2, cause_seq=6)
    assert places(verified().found) == [("cause", "talk", 2)]


@on_postgresql
def test_a_doubled_id_is_found(log: ConversationRef) -> None:
    first = Event.objects.of(log).get(seq=0).event_id
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE conversations_event DROP CONSTRAINT event_id_once")
    change(log, 3, event_id=first)
    found = places(verified().found)
    delete_events(log, [3])
    with connection.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE conversations_event ADD CONSTRAINT event_id_once UNIQUE (conversation_id, event_id)"
        )
    assert ("doubled_id", "talk", 3) in found


@pytest.fixture
def copy(log: ConversationRef, tmp_path: Path) -> Iterator[Path]:
    """A copy of SQLite's file, which is used from then on instead."""
    name, path = connection.settings_dict["NAME"], tmp_path / "copy.sqlite3"
    with connection.cursor() as cursor:
        cursor.execute("VACUUM INTO %s", [str(path)])
    connection.close()
    connection.settings_dict["NAME"] = str(path)
    yield path
    connection.close()
    connection.settings_dict["NAME"] = name


def take_constraint(path: Path, name: str, number: int, columns: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as outside:
        outside.execute("PRAGMA writable_schema = ON")
        constraint = f', CONSTRAINT "{name}" UNIQUE ({columns})'
        outside.execute("UPDATE sqlite_master SET sql = replace(sql, ?, '')", [constraint])
        index = f"sqlite_autoindex_conversations_event_{number}"
        assert outside.execute("DELETE FROM sqlite_master WHERE name = ?", [index]).rowcount


@on_sqlite
def test_a_doubled_id_is_found_in_a_file(log: ConversationRef, copy: Path) -> None:
    take_constraint(copy, "event_id_once", 2, '"conversation_id", "event_id"')
    change(log, 3, event_id=Event.objects.of(log).get(seq=0).event_id)
    assert ("doubled_id", "talk", 3) in places(verified().found)


@on_sqlite
def test_an_event_at_a_taken_place_is_found(log: ConversationRef, copy: Path) -> None:
    take_constraint(copy, "event_id_once", 2, '"conversation_id", "event_id"')
    take_constraint(copy, "event_seq_once", 1, '"conversation_id", "seq"')
    change(log, 3, seq=2)
    found = places(verified().found)
    assert ("doubled_seq", "talk", 2) in found
    assert ("missing", "talk", 3) in found


@on_sqlite
def test_events_without_a_conversation_are_found(log: ConversationRef, other: ConversationRef) -> None:
    with (
        unguarded("conversation_refuse_delete"),
        closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as outside,
    ):
        outside.execute("DELETE FROM conversations_conversation WHERE id = ?", [other.pk])
    found = places(verified().found)
    with unguarded("event_refuse_delete"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM conversations_event WHERE conversation_id = %s", [other.pk])
    assert ("orphan", "", 0) in found


@on_sqlite
def test_orphans_that_a_full_page_leaves_unread_stay_recorded(
    log: ConversationRef, other: ConversationRef, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    third = creation.create(alice, conversation_id="third")
    writes.append(third, [event()])
    lost = (other.pk, third.pk)
    with (
        unguarded("conversation_refuse_delete"),
        closing(sqlite3.connect(connection.settings_dict["NAME"], isolation_level=None)) as outside,
    ):
        outside.execute("DELETE FROM conversations_conversation WHERE id IN (?, ?)", lost)
    counts = []
    for limit in (100, 3):
        monkeypatch.setattr(rows, "_LIMIT", limit)
        found = verified().found
        counts.append((len(found), VerificationFinding.objects.filter(problem=DamageKind.ORPHAN).count()))
    with unguarded("event_refuse_delete"), connection.cursor() as cursor:
        cursor.execute("DELETE FROM conversations_event WHERE conversation_id IN (%s, %s)", lost)
    assert counts == [(2, 2), (1, 2)]


def test_a_column_unlike_its_payload_is_found(log: ConversationRef) -> None:
    change(log, 2, source="agent", text="never said")
    assert verified().found == []
    (damage,) = verified(with_columns=True).found
    assert (damage.problem, damage.seq) == ("column", 2)
    assert damage.detail == "Event 2 has another source and text than its payload."


def test_a_lease_ahead_of_its_conversation_is_found(log: ConversationRef) -> None:
    leases.claim(log, this_process(), agent="agent")
    assert verified().found == []
    AgentLoop.objects.of(log).update(epoch=9)
    assert places(verified().found) == [("lease", "talk", None)]
    assert damaged(log) == []  # which says nothing about what stands in the log


def test_a_missing_guard_is_found_until_it_is_back(log: ConversationRef) -> None:
    with unguarded("event_refuse_update"):
        assert "event_refuse_update" in verified().found[0].detail
    assert VerificationFinding.objects.count() == 1
    assert verified().found == []
    assert not VerificationFinding.objects.exists()


def test_a_purge_is_no_damage(log: ConversationRef, alice: User) -> None:
    Purge.objects.create(conversation_id=log.pk, requested_by="alice", reason="asked for")
    Event.objects.of(log).delete()
    assert verified(with_columns=True).found == []


def test_what_was_mended_is_forgotten(log: ConversationRef) -> None:
    stored = Event.objects.of(log).get(seq=3).payload
    change(log, 3, payload=other_text(payload()))
    verified()
    again = verified()
    assert damaged(log) == [("changed", 3)]
    assert VerificationFinding.objects.get().run == again.run
    change(log, 3, payload=stored)
    verified()
    assert damaged(log) == []
    assert not VerificationFinding.objects.exists()


def test_damage_that_two_runs_find_at_the_same_time_stays(log: ConversationRef) -> None:
    change(log, 3, payload=other_text(payload()))
    night = records.begin(Occasion.NIGHT, "all", host="here", pid=1)
    going_on = run(night, checks())
    while not night.found:
        next(going_on)
    start = verified([Check(steps=lambda: recent.steps(0))])
    for _ in going_on:
        pass
    night.end()
    assert places(start.found) == places(night.found) == [("changed", "talk", 3)]
    assert damaged(log) == [("changed", 3)]


def test_damage_found_first_by_the_later_run_stays_until_a_later_one_reads_it_whole(
    log: ConversationRef,
) -> None:
    stored = Event.objects.of(log).get(seq=3).payload
    change(log, 3, payload=other_text(payload()))
    night = records.begin(Occasion.NIGHT, "all", host="here", pid=1)
    start = verified([Check(steps=lambda: recent.steps(0))])
    for _ in run(night, checks()):
        pass
    assert VerificationFinding.objects.get().run == start.run
    assert damaged(log) == [("changed", 3)]
    change(log, 3, payload=stored)
    verified()
    assert damaged(log) == []


def test_one_conversation_can_be_verified(log: ConversationRef, other: ConversationRef) -> None:
    change(log, 3, payload=other_text(payload()))
    verified()
    record = verified(rows=Conversation.objects.filter(pk=other.pk))
    assert record.found == []
    assert record.run.events == 3
    assert damaged(log) == [("changed", 3)]  # of which this run says nothing


def test_a_conversation_names_only_some_of_many_places(conversation: ConversationRef) -> None:
    writes.append(conversation, [event() for _ in range(130)])
    with unguarded("event_refuse_update"):
        Event.objects.of(conversation).update(size=1)
    record = verified()
    assert len(record.found) == 100
    assert record.found[-1].detail.endswith("30 more places of this conversation are damaged.")
    assert len(damaged(conversation)) == 20


# What changed lately


def test_the_check_of_a_start_finds_what_changed_lately(log: ConversationRef, other: ConversationRef) -> None:
    change(log, 3, payload=other_text(payload()))
    found = verified([Check(steps=lambda: recent.steps(0))]).found
    assert places(found) == [("changed", "talk", 3)]


def test_the_check_of_a_start_reads_only_what_is_newer_and_the_end_of_it(
    log: ConversationRef, other: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest_of_log = Event.objects.of(log).newest_first()[0].pk
    record = verified([Check(steps=lambda: recent.steps(newest_of_log))])
    assert (record.run.conversations, record.run.events) == (1, 3)
    monkeypatch.setattr(recent, "EVENTS_OF_ONE", 2)
    record = verified([Check(steps=lambda: recent.steps(0))])
    assert (record.found, record.run.conversations, record.run.events) == ([], 2, 4)


# What is derived


@pytest.fixture
def indexed(log: ConversationRef) -> None:
    """Let the index hold all events; on PostgreSQL that waits for every transaction that was open before."""
    indexing.rebuild()


def lose_entry(pk: int) -> None:
    """Remove an event's entry of the search index."""
    key = "rowid" if connection.vendor == "sqlite" else "event_id"
    with connection.cursor() as cursor:
        cursor.execute(f"DELETE FROM conversations_searchtext WHERE {key} = %s", [pk])


@pytest.mark.parametrize("whole_search", [True, False])
def test_a_lost_entry_of_the_search_index_is_found_and_rebuilt(
    log: ConversationRef, indexed: None, whole_search: bool
) -> None:
    assert verified(whole_search=whole_search).found == []
    pk = Event.objects.of(log).get(seq=2).pk
    lose_entry(pk)
    (damage,) = verified(whole_search=whole_search).found
    assert damage.problem == DamageKind.SEARCH
    assert str(pk) in damage.detail
    indexing.rebuild()
    assert verified(whole_search=True).found == []


def test_a_damaged_index_is_looked_at_as_a_whole_until_it_is_mended(
    log: ConversationRef, indexed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived, "SAMPLES", 0)
    lose_entry(Event.objects.of(log).get(seq=2).pk)
    assert verified().found == []  # no sample is of it
    assert places(verified(whole_search=True).found) == [("search", "", None)]
    assert places(verified().found) == [("search", "", None)]
    indexing.rebuild()
    assert verified().found == []
    assert not VerificationFinding.objects.exists()


def test_what_a_check_that_stopped_early_has_not_examined_stays_recorded(
    log: ConversationRef, other: ConversationRef, indexed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    Conversation.objects.update(title="A title")
    indexing.rebuild()
    for talk in (log, other):
        lose_entry(Event.objects.of(talk).get(seq=2).pk)
        leases.claim(talk, this_process(), agent="agent")
    AgentLoop.objects.update(epoch=9)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE conversations_titletext SET title = 'ANOTHER'")
    found = VerificationFinding.objects.values_list("problem", flat=True).order_by("problem")
    everything = ["lease"] * 2 + ["search"] * 2 + ["title"] * 2
    verified(whole_search=True)
    assert list(found) == everything
    for module in (derived, lease_checks):
        monkeypatch.setattr(module, "PER_CONVERSATION_MAX", 1)
    assert len(verified(whole_search=True).found) < len(everything)
    assert list(found) == everything


def test_an_event_that_is_purged_while_it_is_compared_is_no_damage(
    log: ConversationRef, indexed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = derived._expected

    def purged_meanwhile(keys: list[int]) -> list[tuple[IndexEntry, str]]:
        found = read(keys)
        if Event.objects.of(log).exists():
            Purge.objects.create(conversation_id=log.pk, requested_by="alice", reason="asked for")
            Event.objects.of(log).delete()
        return found

    monkeypatch.setattr(derived, "_expected", purged_meanwhile)
    assert verified(whole_search=True).found == []
    assert not Event.objects.of(log).exists()


def test_a_wrong_title_in_its_index_is_found(log: ConversationRef) -> None:
    Conversation.objects.filter(pk=log.pk).update(title="A title")
    assert verified().found == []  # it waits to be indexed
    indexing.rebuild()
    assert verified().found == []
    with connection.cursor() as cursor:
        cursor.execute("UPDATE conversations_titletext SET title = 'ANOTHER'")
    assert places(verified().found) == [("title", "talk", None)]


# Checkpoints


@pytest.fixture
def key(tmp_path: Path) -> Key:
    """The operator's key."""
    path = tmp_path / "key.pem"
    private = Ed25519PrivateKey.generate()
    path.write_bytes(private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return read_key(path)


@pytest.fixture
def checkpoint(log: ConversationRef, other: ConversationRef, key: Key, tmp_path: Path) -> Path:
    """A checkpoint of two logs."""
    path = tmp_path / "checkpoint.jsonl"
    with path.open("wb") as target:
        steps = list(checkpoints.write(target, key))
    assert sum(step.events for step in steps) == 11
    return path


def against(checkpoint: Path, key: Key) -> list[tuple[str, str, int | None]]:
    compared = Check(steps=lambda: checkpoints.compare(checkpoint, key), examined=checkpoints.EXAMINED)
    return places(verified([compared]).found)


@pytest.mark.usefixtures("alice")
def test_a_store_that_only_grew_agrees_with_its_checkpoint(
    log: ConversationRef, checkpoint: Path, key: Key, alice: User
) -> None:
    writes.append(log, [event()])
    forks.fork(alice, log)
    assert against(checkpoint, key) == []


def test_what_was_damaged_before_the_checkpoint_is_no_news_to_it(
    log: ConversationRef, key: Key, tmp_path: Path
) -> None:
    delete_events(log, [2])
    path = tmp_path / "late.jsonl"
    with path.open("wb") as target:
        for _ in checkpoints.write(target, key):
            pass
    assert against(path, key) == []


def test_a_changed_timestamp_is_found_by_the_checkpoint(
    log: ConversationRef, checkpoint: Path, key: Key
) -> None:
    change(log, 5, timestamp=F("timestamp") + timedelta(microseconds=1))
    assert verified().found == []
    assert against(checkpoint, key) == [("facts", "talk", 5)]
    assert damaged(log) == [("facts", 5)]


@pytest.mark.parametrize(
    "columns", [{"epoch": 7}, {"cause_seq": 0}, {"turn_id": "other"}, {"is_input": True}]
)
def test_what_the_chain_does_not_cover_is_found_by_the_checkpoint(
    log: ConversationRef, checkpoint: Path, key: Key, columns: dict[str, object]
) -> None:
    change(log, 3, **columns)
    assert against(checkpoint, key) == [("facts", "talk", 3)]


@pytest.mark.parametrize("digest", ["no digest", "", "0"])
def test_a_digest_that_is_none_is_found_by_the_checkpoint(
    log: ConversationRef, checkpoint: Path, key: Key, digest: str
) -> None:
    change(log, 7, digest=digest)
    assert against(checkpoint, key) == [("rewritten", "talk", 7)]


@on_sqlite
def test_a_byte_that_is_no_text_is_found_by_the_checkpoint(
    log: ConversationRef, checkpoint: Path, key: Key, tmp_path: Path
) -> None:
    flip(log, 3, "text")
    assert against(checkpoint, key) == [("facts", "talk", 3)]
    flip(log, 5, "digest")
    assert against(checkpoint, key)[0][0] in ("rewritten", "facts")
    with (tmp_path / "other").open("wb") as target:
        assert sum(step.events for step in checkpoints.write(target, key)) == 11


def test_a_checkpoint_reads_each_event_once_and_long_texts_by_themselves(
    log: ConversationRef, key: Key, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes.append(log, [event("hello" + "x" * 2 * rows.LARGE_BYTES)])
    long_ones: list[int] = []

    def noted(pk: int) -> str:
        long_ones.append(pk)
        return ""

    monkeypatch.setattr("conversations.verification.facts.text_of", noted)
    with (
        (tmp_path / "checkpoint").open("wb") as target,
        CaptureQueriesContext(connection) as captured,
    ):
        list(checkpoints.write(target, key))
    read = [each["sql"] for each in captured if "sender_id" in each["sql"]]
    assert len(read) == -(-9 // rows.PAGE_EVENTS)
    assert long_ones == [Event.objects.of(log).get(seq=8).pk]


def test_a_rewritten_chain_is_found_by_the_checkpoint(
    log: ConversationRef, checkpoint: Path, key: Key
) -> None:
    rewrite(log, 3, other_text(payload()))
    assert verified().found == []
    assert against(checkpoint, key) == [("rewritten", "talk", 3)]


def test_a_shortened_log_is_found_by_the_checkpoint(log: ConversationRef, checkpoint: Path, key: Key) -> None:
    delete_events(log, [6, 7])
    assert against(checkpoint, key) == [("rewritten", "talk", 6)]


@on_sqlite
def test_a_removed_conversation_is_found_by_the_checkpoint(
    other: ConversationRef, checkpoint: Path, key: Key
) -> None:
    with unguarded("event_refuse_delete"):
        Event.objects.of(other).delete()
        Conversation.objects.filter(pk=other.pk).delete()
    assert against(checkpoint, key) == [("gone", "", None)]


def test_a_forged_checkpoint_is_refused(checkpoint: Path, key: Key) -> None:
    checkpoint.write_text(checkpoint.read_text().replace('"first":0', '"first":1', 1))
    with pytest.raises(CheckpointRefused, match="was changed, or signed by another key"):
        list(checkpoints.compare(checkpoint, key))


@pytest.mark.parametrize("text", ["", "{}\n", "no JSON", '{"format":"convserver-checkpoint"}\n[]\n'])
def test_any_other_file_is_refused(checkpoint: Path, key: Key, text: str) -> None:
    checkpoint.write_text(text)
    with pytest.raises(CheckpointRefused, match="is not a checkpoint"):
        list(checkpoints.compare(checkpoint, key))


def test_the_public_key_verifies_and_does_not_sign(checkpoint: Path, key: Key, tmp_path: Path) -> None:
    path = tmp_path / "key.pub"
    path.write_bytes(key.public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    public = read_key(path)
    assert against(checkpoint, public) == []
    with (tmp_path / "other").open("wb") as target, pytest.raises(KeyUnusable, match="signs nothing"):
        list(checkpoints.write(target, public))


def test_the_newest_runs_are_kept(log: ConversationRef) -> None:
    verified()
    verified()
    assert [run.outcome for run in VerificationRun.objects.clean()] == ["whole", "whole"]

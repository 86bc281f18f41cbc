"""Saving what is known of a conversation: it can neither shrink the log nor take back what others wrote."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError
from django.db.backends.utils import CursorWrapper
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from conversations.events import Metrics
from conversations.log import writes
from conversations.log.append import chain
from conversations.models import OWNED_BY_APPEND, Conversation, ConversationRef, Event, WholeRowSaveRefused
from conversations.store import ConversationStore, creation
from conversations.store.metadata import COLUMN_OF, NEVER_FALLING, ConversationMetadata
from sessions_app import astore
from sessions_app.live.status import states_of
from tests.support.data.events import event

pytestmark = pytest.mark.no_second_try

MESSAGES = 1_000
READS = 1_000
READERS = 4


@pytest.fixture
def talk(conversation: ConversationRef) -> ConversationRef:
    """A conversation of 1,000 messages."""
    writes.append(conversation, [event(f"message {number}") for number in range(MESSAGES)])
    return conversation


@pytest.fixture
def statements(database: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is executed from here on, on every connection of every thread, however old it is."""
    executed: list[str] = []
    execute = CursorWrapper._execute_with_wrappers  # type: ignore[attr-defined]

    def record(self: CursorWrapper, sql: str, *rest: Any, **options: Any) -> Any:
        executed.append(sql)
        return execute(self, sql, *rest, **options)

    monkeypatch.setattr(CursorWrapper, "_execute_with_wrappers", record)
    return executed


def changing(executed: list[str]) -> list[str]:
    reads = ("SELECT", "PRAGMA", "BEGIN", "SET ")
    return [sql for sql in executed if not sql.lstrip().startswith(reads)]


def is_whole(conversation: ConversationRef) -> bool:
    """Say whether all the messages stand and the log's head is that of the last one."""
    head = ""
    for each in Event.objects.of(conversation).oldest_first():
        head = chain(head, seq=each.seq, event_id=each.event_id, payload=each.payload)
    row = Conversation.objects.get(pk=conversation.pk)
    return (row.next_seq, row.head_digest, Event.objects.count()) == (MESSAGES, head, MESSAGES)


def stub(conversation: ConversationRef) -> Conversation:
    """Return what a careless program makes up from an id alone."""
    return Conversation(
        pk=conversation.pk, public_id=conversation.public_id, owner_id=conversation.owner_id, title="Stub"
    )


def partly_loaded(conversation: ConversationRef) -> Conversation:
    row = Conversation.objects.only("title").get(pk=conversation.pk)
    row.title = "Partly loaded"
    return row


def wholly_loaded(conversation: ConversationRef) -> Conversation:
    row = Conversation.objects.get(pk=conversation.pk)
    row.title = "Loaded"
    return row


@pytest.mark.parametrize("of", [stub, partly_loaded, wholly_loaded])
def test_a_whole_row_save_is_refused_in_a_sentence_that_says_what_to_call(
    talk: ConversationRef, of: Callable[[ConversationRef], Conversation]
) -> None:
    with pytest.raises(WholeRowSaveRefused, match=r"Call ConversationStore\.save_metadata, or name update"):
        of(talk).save()
    assert is_whole(talk)
    assert Conversation.objects.get(pk=talk.pk).title is None


async def test_an_awaited_save_is_refused_as_well(talk: ConversationRef) -> None:
    with pytest.raises(WholeRowSaveRefused):
        await stub(talk).asave()


def test_a_save_that_names_a_column_of_the_log_is_refused(
    subtests: pytest.Subtests, talk: ConversationRef
) -> None:
    for column in sorted(OWNED_BY_APPEND):
        with subtests.test(column=column):
            with pytest.raises(WholeRowSaveRefused, match=rf"{column} belong.* call .*writes\.append"):
                stub(talk).save(update_fields=["title", column])
            assert is_whole(talk)


def test_a_save_of_named_columns_changes_these_alone(talk: ConversationRef) -> None:
    stub(talk).save(update_fields=["title"])
    assert Conversation.objects.get(pk=talk.pk).title == "Stub"
    assert is_whole(talk)


def test_a_second_row_for_a_taken_id_is_refused_by_the_database(talk: ConversationRef) -> None:
    with pytest.raises(IntegrityError):
        Conversation(public_id=talk.public_id, owner_id=talk.owner_id).save()
    assert is_whole(talk)


def test_a_metadata_save_leaves_the_log_alone(store: ConversationStore, talk: ConversationRef) -> None:
    store.save_metadata(ConversationMetadata(conversation_id=talk.public_id, title="Saved"))
    assert is_whole(talk)
    assert store.get_metadata(talk.public_id).title == "Saved"


def test_a_stale_metadata_save_lowers_no_total(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    stale = store.get_metadata(conversation.public_id)
    metrics = Metrics(accumulated_cost=0.5, prompt_tokens=70, completion_tokens=30)
    writes.append(conversation, [event(metrics=metrics)])
    store.save_metadata(replace(stale, title="Late"))
    saved = store.get_metadata(conversation.public_id)
    assert saved.title == "Late"
    assert (saved.accumulated_cost, saved.prompt_tokens, saved.completion_tokens) == (0.5, 70, 30)
    assert saved.total_tokens == 100


FACTS: dict[str, Any] = {
    "selected_repository": "acme/widgets",
    "selected_branch": "main",
    "git_provider": "github",
    "title": "Widgets",
    "trigger": "gui",
    "pr_number": [3, 5],
    "tags": {"team": "blue"},
    "llm_model": "a-model",
    "accumulated_cost": 0.25,
    "prompt_tokens": 10,
    "completion_tokens": 5,
    "total_tokens": 15,
}


def test_a_stub_that_is_saved_again_and_again_takes_nothing_away(
    store: ConversationStore, talk: ConversationRef, statements: list[str], is_full: bool
) -> None:
    store.save_metadata(ConversationMetadata(conversation_id=talk.public_id, **FACTS))
    stored, user_id = store.get_metadata(talk.public_id), str(talk.owner_id)
    statements.clear()
    for _ in range(1_000 if is_full else 100):
        store.save_metadata(ConversationMetadata(conversation_id=talk.public_id, user_id=user_id))
    assert store.get_metadata(talk.public_id) == stored
    assert [sql for sql in changing(statements) if sql.startswith(("UPDATE", "INSERT", "DELETE"))] == []
    assert is_whole(talk)


def test_the_fields_that_are_named_overwrite_with_empty_values_too(
    store: ConversationStore, conversation: ConversationRef
) -> None:
    store.save_metadata(ConversationMetadata(conversation_id="talk", **FACTS))
    store.save_metadata(ConversationMetadata(conversation_id="talk"), fields=list(FACTS))
    empty = ConversationMetadata(conversation_id="talk")
    assert facts_of(store, "talk") == {
        name: FACTS[name] if name in NEVER_FALLING else getattr(empty, name) for name in FACTS
    }


words = st.none() | st.text("ab", max_size=2)
totals = st.integers(0, 3)
facts_of_any_row = st.fixed_dictionaries(
    {
        **dict.fromkeys(FACTS, words),
        **dict.fromkeys(NEVER_FALLING, totals),
        "pr_number": st.lists(totals, max_size=2),
        "tags": st.dictionaries(st.text("ab", max_size=1), st.text("ab", max_size=1), max_size=2),
    }
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=facts_of_any_row, saved=facts_of_any_row)
def test_metadata_alone_fills_what_is_empty_raises_totals_and_leaves_the_rest(
    store: ConversationStore, alice: User, stored: dict[str, Any], saved: dict[str, Any]
) -> None:
    conversation_id = creation.create(alice, **{COLUMN_OF[name]: stored[name] for name in FACTS}).public_id
    store.save_metadata(ConversationMetadata(conversation_id=conversation_id, **saved))
    filled = {name: stored[name] or saved[name] or stored[name] for name in FACTS}
    raised = {name: max(stored[name], saved[name]) for name in NEVER_FALLING}
    assert facts_of(store, conversation_id) == filled | raised


def facts_of(store: ConversationStore, conversation_id: str) -> dict[str, Any]:
    metadata = store.get_metadata(conversation_id)
    return {name: getattr(metadata, name) for name in FACTS}


def test_many_looks_at_the_state_write_nothing(
    talk: ConversationRef, statements: list[str], is_full: bool
) -> None:
    reads = READS if is_full else READS // 5
    for _ in range(reads):
        assert states_of([talk.pk])[talk.pk]["last_seq"] == MESSAGES - 1
    assert len(statements) == reads
    assert changing(statements) == []
    assert is_whole(talk)


async def test_hundreds_of_reads_by_rest_write_nothing(
    talk: ConversationRef, rest: httpx.AsyncClient, statements: list[str], is_full: bool
) -> None:
    reads = READS if is_full else READS // 5

    async def read() -> None:
        for _ in range(reads // READERS):
            answer = await rest.get(f"/api/native/conversations/{talk.public_id}")
            assert answer.json()["last_seq"] == MESSAGES - 1

    await asyncio.gather(*(read() for _ in range(READERS)))
    assert len(statements) >= reads
    assert changing(statements) == []
    assert await astore.call(is_whole, talk)

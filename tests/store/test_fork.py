"""A fork begins with a copy of another conversation's log, and goes its own way from there."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import Metrics
from conversations.exceptions import EventNotFound
from conversations.log import reads, writes
from conversations.log.append import chain
from conversations.models import Conversation, ConversationRef, Event, Version
from conversations.store import ConversationExists, ConversationStore, creation, forks
from sessions_app import astore
from sessions_app.loops import runs, turn_events
from sessions_app.loops.manager import ConversationManager
from sessions_app.openhands_v1 import input as v1_input
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from tests.support.data.events import event
from tests.support.people.scripted_agent import Stage, asking, log, manager, stage, until_said, until_status

__all__ = ["manager", "stage"]


@pytest.fixture
def source(alice: User) -> ConversationRef:
    """A conversation with five messages, of which the first four are answered."""
    ref = creation.create(alice, conversation_id="source", title="Source", repository="a/b", trigger="slack")
    spent = Metrics(accumulated_cost=0.5, prompt_tokens=3)
    writes.append(ref, [event(f"text {number}", event_id=f"e{number}") for number in range(4)])
    writes.append(ref, [asking("text 4", event_id="e4", metrics=spent)])
    Conversation.objects.filter(pk=ref.pk).update(answered_through=3)
    return ref


def row_of(conversation: ConversationRef) -> Conversation:
    return Conversation.objects.get(pk=conversation.pk)


def columns_of(conversation: ConversationRef, *, through: int) -> list[dict[str, Any]]:
    rows = Event.objects.of(conversation).through(through).oldest_first().values()
    return [{**row, "id": None, "conversation_id": None} for row in rows]


@pytest.mark.parametrize("through", [None, -1, 0, 3])
def test_a_fork_has_the_events_up_to_the_place_as_they_were(
    alice: User, source: ConversationRef, through: int | None
) -> None:
    fork = forks.fork(alice, source, through=through)
    last = 4 if through is None else through
    assert columns_of(fork, through=9) == columns_of(source, through=last)
    row = row_of(fork)
    assert (row.forked_from_id, row.forked_at, row.next_seq) == (source.pk, last, last + 1)


def test_a_fork_proves_its_log_like_any_other(alice: User, source: ConversationRef) -> None:
    fork = forks.fork(alice, source, through=2)
    writes.append(fork, [event("its own")])
    digest = ""
    for row in Event.objects.of(fork).oldest_first():
        digest = chain(digest, seq=row.seq, event_id=row.event_id, payload=row.payload)
    assert digest == row_of(fork).head_digest


def test_a_fork_begins_with_new_facts_and_keeps_those_of_the_work(
    alice: User, source: ConversationRef
) -> None:
    fork = forks.fork(alice, source, conversation_id="mine", through=1, title="Mine", tags={"a": "b"})
    row = row_of(fork)
    assert (fork.public_id, row.title, row.tags) == ("mine", "Mine", {"a": "b"})
    assert (row.repository, row.trigger, row.last_message) == ("a/b", None, "text 1")


@pytest.mark.parametrize(("keep", "cost"), [(True, 0.5), (False, 0.0)])
def test_a_fork_counts_anew_unless_it_is_told_to_go_on(
    alice: User, source: ConversationRef, keep: bool, cost: float
) -> None:
    assert row_of(forks.fork(alice, source, keep_metrics=keep)).accumulated_cost == cost


def test_what_follows_in_one_of_them_is_not_in_the_other(alice: User, source: ConversationRef) -> None:
    fork = forks.fork(alice, source)
    writes.append(fork, [event("here", event_id="e5")])
    writes.append(source, [event("there", event_id="e5")])
    texts = [reads.read_after(each, 4)[0]["text"] for each in (fork, source)]
    assert texts == ["here", "there"]


def test_the_clock_of_a_fork_is_behind_no_event(alice: User, source: ConversationRef) -> None:
    fork = forks.fork(alice, source)
    writes.append(fork, [event("here")])
    times = list(Event.objects.of(fork).oldest_first().values_list("received_at", flat=True))
    assert times == sorted(set(times))


def test_a_fork_asks_for_nothing_by_itself(alice: User, source: ConversationRef) -> None:
    assert not row_of(forks.fork(alice, source)).is_unanswered


@pytest.mark.parametrize("through", [5, -2])
def test_a_place_that_is_not_there_cannot_be_forked_from(
    alice: User, source: ConversationRef, store: ConversationStore, through: int
) -> None:
    with pytest.raises(EventNotFound):
        forks.fork(alice, source, conversation_id="mine", through=through)
    assert not store.exists("mine")


def test_a_taken_id_is_refused(alice: User, source: ConversationRef) -> None:
    with pytest.raises(ConversationExists):
        forks.fork(alice, source, conversation_id="source")


def test_a_long_log_is_forked_by_as_many_statements_as_a_short_one(
    alice: User, source: ConversationRef, django_assert_max_num_queries: Any
) -> None:
    writes.append(source, [event(f"more {number}") for number in range(300)])
    with django_assert_max_num_queries(12):
        forks.fork(alice, source)


async def test_a_run_of_a_fork_answers_what_waited_in_its_source(
    alice: User, stage: Stage, manager: ConversationManager
) -> None:
    talk = await astore.call(creation.create, alice, version=Version.V1)
    await v1_input.say(talk, {"content": "hello"}, sender_id=alice.pk, run=False)
    fork = await astore.call(forks.fork, alice, talk)
    await manager.ask_run(fork)
    await until_said(fork, "answer to hello")
    assert len(await log(talk)) == 1


async def test_a_run_of_a_fork_in_which_all_was_answered_asks_the_agent_for_a_step(
    alice: User, stage: Stage, manager: ConversationManager
) -> None:
    talk = await astore.call(creation.create, alice, version=Version.V1)
    await v1_input.say(talk, {"content": "hello"}, sender_id=alice.pk, run=True)
    await until_status(talk, "finished")
    fork = await astore.call(forks.fork, alice, talk)
    assert await astore.call(runs.ask, fork) is runs.RunOutcome.BEGUN
    manager.wake(fork)
    await until_said(fork, "answer to hello", "answer to nothing")


def test_an_event_of_the_log_can_be_navigated_to_and_no_other(alice: User) -> None:
    first = turn_events.system_prompt()
    talk = agent_setups.create(alice, NewSetup(), events=[first])
    v1_input.navigate(talk, first.event_id)
    assert agent_setups.row_of(talk).leaf_event_id == first.event_id
    with pytest.raises(EventNotFound):
        v1_input.navigate(talk, "another")
    v1_input.navigate(talk, None)
    assert agent_setups.row_of(talk).leaf_event_id is None


def test_an_agent_that_was_silent_has_no_response(alice: User) -> None:
    assert v1_input.final_response(creation.create(alice, version=Version.V1)) == ""

"""The right to run a loop: one process at a time, each turn begun and ended once, whoever dies in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from datetime import timedelta
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.db import connections, transaction
from django.utils import timezone

from conversations import dialects
from conversations.dialects import AgentState
from conversations.exceptions import ConversationBusy, ConversationNotFound, Fenced, LoopUnavailable
from conversations.log import locks, writes
from conversations.models import Conversation, ConversationRef, Event
from conversations.store import creation, deletion
from sessions_app.loops import decisions, leases, pauses, pending_work, recovery, turn_events, turns
from sessions_app.loops.leases import LoopHeld
from sessions_app.loops.turns import TurnStart
from sessions_app.models import AgentLoop, ExecutionStatus, LoopStatus, UnfinishedAnswer
from sessions_app.processes import Process, this_process
from tests.conftest import on_postgresql
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import Hooked, asking, hooked

__all__ = ["hooked"]

pytestmark = pytest.mark.no_second_try

HERE = this_process()
DEAD = HERE._replace(started=1.0)
"""A process of this host that is gone: its number was given to another one."""
ELSEWHERE = Process("elsewhere", 1, 1.0)
"""A process of another host, of which nothing is certain."""


@pytest.fixture
def claimed(conversation: ConversationRef) -> int:
    """The epoch of a loop that this process has claimed."""
    epoch = leases.claim(conversation, HERE, agent="an agent")
    leases.ready(conversation, epoch)
    return epoch


@pytest.fixture
def begun(conversation: ConversationRef, claimed: int) -> TurnStart:
    """A turn that has begun, of epoch 1, about the event 0."""
    writes.append(conversation, [asking("hello")])
    start = turns.begin_turn(conversation, claimed)
    assert start is not None
    return start


def row_of(conversation: ConversationRef) -> AgentLoop:
    return AgentLoop.objects.of(conversation).get()


def kinds(conversation: ConversationRef) -> list[str]:
    return list(Event.objects.of(conversation).oldest_first().values_list("kind", flat=True))


def run_out(conversation: ConversationRef) -> None:
    AgentLoop.objects.of(conversation).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


def end(conversation: ConversationRef, turn: TurnStart) -> None:
    writes.append(
        conversation,
        [turn_events.end_of_turn(conversation, turn.turn_id, AgentState.FINISHED)],
        epoch=1,
        also=turns.finish_turn(conversation, turn.through, ExecutionStatus.FINISHED),
    )


# Expectations


def test_an_expected_loop_is_starting_until_it_is_claimed(conversation: ConversationRef) -> None:
    leases.expect(conversation)
    assert row_of(conversation).status == LoopStatus.STARTING
    assert leases.claim(conversation, HERE, agent="") == 1


def test_an_expected_loop_that_nobody_claims_is_ended_by_the_sweep(conversation: ConversationRef) -> None:
    leases.expect(conversation)
    assert pending_work.abandoned(9) == []
    long_ago = timezone.now() - timedelta(seconds=leases.LEASE_S)
    AgentLoop.objects.of(conversation).update(updated_at=long_ago)
    assert pending_work.abandoned(9) == [conversation]
    recovery.recover(conversation, HERE)
    assert row_of(conversation).status == LoopStatus.STOPPED


def test_expecting_a_loop_changes_nothing_of_one_that_runs(
    conversation: ConversationRef, claimed: int
) -> None:
    leases.expect(conversation)
    assert (row_of(conversation).status, row_of(conversation).epoch) == (LoopStatus.RUNNING, claimed)


def test_giving_up_ends_an_expected_loop_and_leaves_one_that_was_claimed_to_the_sweep(
    conversation: ConversationRef,
) -> None:
    leases.expect(conversation)
    recovery.give_up_unheld(conversation, -1)
    assert pending_work.abandoned(9) == []
    leases.claim(conversation, DEAD, agent="")
    recovery.give_up_unheld(conversation, -1)
    assert pending_work.abandoned(9) == [conversation]


# Claims


def test_each_claim_raises_the_epoch(conversation: ConversationRef) -> None:
    assert [leases.claim(conversation, HERE, agent="") for _ in range(3)] == [1, 2, 3]


def test_a_held_lease_is_refused_to_another_process(conversation: ConversationRef) -> None:
    leases.claim(conversation, ELSEWHERE, agent="")
    with pytest.raises(LoopHeld, match="process 1 on elsewhere"):
        leases.claim(conversation, HERE, agent="")
    assert Conversation.objects.get(pk=conversation.pk).loop_epoch == 1


def test_a_lease_that_has_run_out_can_be_claimed(conversation: ConversationRef) -> None:
    leases.claim(conversation, ELSEWHERE, agent="")
    run_out(conversation)
    assert leases.claim(conversation, HERE, agent="") == 2


def test_the_lease_of_a_process_that_is_gone_can_be_claimed_at_once(conversation: ConversationRef) -> None:
    leases.claim(conversation, DEAD, agent="")
    assert leases.claim(conversation, ELSEWHERE, agent="") == 2


def test_a_lease_that_was_given_back_can_be_claimed(conversation: ConversationRef) -> None:
    leases.release(conversation, leases.claim(conversation, ELSEWHERE, agent=""))
    assert leases.claim(conversation, HERE, agent="") == 2


def test_the_loop_of_a_deleted_conversation_cannot_be_claimed(conversation: ConversationRef) -> None:
    deletion.soft_delete(conversation)
    with pytest.raises(ConversationNotFound):
        leases.claim(conversation, HERE, agent="")


def test_of_ten_claims_at_once_one_wins(conversation: ConversationRef) -> None:
    barrier = threading.Barrier(10)

    def claim(number: int) -> int | None:
        barrier.wait(30)
        try:
            return leases.claim(conversation, Process("elsewhere", number, 1.0), agent="")
        except LoopHeld:
            return None
        finally:
            connections.close_all()

    with ThreadPoolExecutor(10) as pool:
        epochs = list(pool.map(claim, range(10)))
    assert sorted(epochs, key=str) == [1, *[None] * 9]


# Renewing and giving back


def test_a_renewal_reports_what_was_lost_and_extends_the_rest(
    conversation: ConversationRef, claimed: int, alice: User
) -> None:
    other = creation.create(alice, conversation_id="other")
    leases.claim(other, HERE, agent="")
    leases.claim(other, HERE, agent="")
    run_out(conversation)
    assert leases.renew({conversation.pk: claimed, other.pk: 1}, HERE) == {other.pk}
    assert row_of(conversation).is_held()


def test_a_renewal_extends_no_lease_of_another_process(conversation: ConversationRef, claimed: int) -> None:
    run_out(conversation)
    assert leases.renew({conversation.pk: claimed}, ELSEWHERE) == {conversation.pk}
    assert not row_of(conversation).is_held()


@on_postgresql
def test_a_renewal_waits_for_no_lock_and_loses_nothing_that_is_locked(
    conversation: ConversationRef, claimed: int
) -> None:
    def renew() -> set[int]:
        try:
            return leases.renew({conversation.pk: claimed}, HERE)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        AgentLoop.objects.locked().get(conversation_id=conversation.pk)
        assert pool.submit(renew).result(WAIT_S) == set()


@on_postgresql
def test_a_conversation_that_stays_locked_is_busy(
    conversation: ConversationRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def claim() -> int:
        try:
            return leases.claim(conversation, HERE, agent="")
        finally:
            connections.close_all()

    monkeypatch.setattr(locks, "LOCK_TIMEOUT_S", 1)
    with ThreadPoolExecutor(1) as pool, transaction.atomic():
        Conversation.objects.locked().get(pk=conversation.pk)
        with pytest.raises(ConversationBusy):
            pool.submit(claim).result(WAIT_S)


def test_the_lease_of_a_deleted_conversation_is_lost_and_can_be_given_back(
    conversation: ConversationRef, claimed: int
) -> None:
    deletion.soft_delete(conversation)
    assert leases.renew({conversation.pk: claimed}, HERE) == {conversation.pk}
    leases.release(conversation, claimed)
    assert row_of(conversation).lease_expires_at is None


@pytest.mark.parametrize(
    "act",
    [
        leases.ready,
        turns.begin_turn,
        partial(recovery.give_up, through=0),
        leases.release,
        leases.locked_by,
    ],
)
def test_a_loop_that_was_replaced_can_do_nothing(
    conversation: ConversationRef, claimed: int, act: Callable[[ConversationRef, int], object]
) -> None:
    leases.claim(conversation, HERE, agent="")
    with pytest.raises(Fenced), transaction.atomic():
        act(conversation, claimed)


def test_refused_writes_are_counted(conversation: ConversationRef, claimed: int) -> None:
    leases.count_refused_write(conversation)
    leases.count_refused_write(conversation)
    assert row_of(conversation).refused_writes == 2


# Turns


def test_a_turn_answers_everything_that_was_asked(conversation: ConversationRef, claimed: int) -> None:
    writes.append(conversation, [asking("a"), asking("b")])
    start = turns.begin_turn(conversation, claimed)
    assert start is not None
    assert (start.answered_through, start.through, start.decision) == (-1, 1, None)


def test_without_anything_unanswered_no_turn_begins(conversation: ConversationRef, claimed: int) -> None:
    assert turns.begin_turn(conversation, claimed) is None
    assert row_of(conversation).turn_id is None


def test_nobody_can_ask_between_the_look_and_the_decision_that_nothing_is_to_do(
    conversation: ConversationRef, claimed: int, hooked: Hooked
) -> None:
    # The look is held open under the conversation's lock: the message must come after it, and the
    # next look must find it.
    asked: list[threading.Thread] = []

    def ask() -> None:
        writes.append(conversation, [asking("late")])
        connections.close_all()

    def begin_to_ask() -> None:
        asked.append(threading.Thread(target=ask))
        asked[0].start()
        asked[0].join(0.3)
        assert asked[0].is_alive(), "the message was committed while the loop decided"

    hooked(leases, "locked_loop").after(begin_to_ask)
    assert turns.begin_turn(conversation, claimed) is None
    asked[0].join(20)
    assert turns.begin_turn(conversation, claimed) is not None


def test_a_turn_that_was_not_ended_goes_on_under_its_id(
    conversation: ConversationRef, claimed: int, begun: TurnStart
) -> None:
    again = turns.begin_turn(conversation, claimed)
    assert again is not None
    assert again.turn_id == begun.turn_id


def test_a_turn_that_goes_on_answers_only_what_it_began_with(
    conversation: ConversationRef, claimed: int, begun: TurnStart
) -> None:
    writes.append(conversation, [asking("later")])
    again = turns.begin_turn(conversation, claimed)
    assert again is not None
    assert again.through == begun.through


def test_suspending_a_turn_again_does_not_wipe_a_decision_made_since(
    conversation: ConversationRef, begun: TurnStart
) -> None:
    call = event(event_id="call")
    suspend = turns.suspend_turn(conversation, ExecutionStatus.WAITING_FOR_CONFIRMATION)
    writes.append(conversation, [call], epoch=1, also=suspend)
    decisions.decide(conversation, True, "")
    writes.append(conversation, [call], epoch=1, also=suspend)
    assert row_of(conversation).decision is True


def test_ending_a_turn_again_does_not_wipe_a_pause_made_since(
    conversation: ConversationRef, begun: TurnStart
) -> None:
    end(conversation, begun)
    pauses.pause(conversation)
    end(conversation, begun)
    assert row_of(conversation).execution_status == ExecutionStatus.PAUSED


def test_a_paused_loop_begins_no_turn_until_it_is_resumed(
    conversation: ConversationRef, claimed: int
) -> None:
    pauses.pause(conversation)
    writes.append(conversation, [asking("hello")])
    assert turns.begin_turn(conversation, claimed) is None
    pauses.resume(conversation)
    assert turns.begin_turn(conversation, claimed) is not None


def test_the_end_of_a_turn_has_the_same_id_whoever_writes_it(
    conversation: ConversationRef, begun: TurnStart
) -> None:
    ends = [turn_events.end_of_turn(conversation, begun.turn_id, state) for state in AgentState]
    assert len({event.event_id for event in ends}) == 1


# Repair


def test_a_turn_left_behind_is_ended_once_however_often_it_is_repaired(
    conversation: ConversationRef, begun: TurnStart
) -> None:
    epoch = leases.claim(conversation, HERE, agent="")
    recovery.repair(conversation, epoch)
    recovery.repair(conversation, epoch)
    assert kinds(conversation) == ["message", "turn"]
    assert not Conversation.objects.get(pk=conversation.pk).is_unanswered


def test_a_turn_that_had_ended_is_not_repaired(conversation: ConversationRef, begun: TurnStart) -> None:
    end(conversation, begun)
    recovery.repair(conversation, leases.claim(conversation, HERE, agent=""))
    assert kinds(conversation) == ["message", "turn"]


def test_what_a_dead_loop_had_said_is_kept(conversation: ConversationRef, begun: TurnStart) -> None:
    UnfinishedAnswer.objects.create(
        conversation_id=conversation.pk, turn_id=begun.turn_id, event_id="answer", through=0, text="half"
    )
    recovery.repair(conversation, leases.claim(conversation, HERE, agent=""))
    answer = Event.objects.of(conversation).get(event_id="answer")
    assert (answer.text, answer.turn_id) == ("half", begun.turn_id)
    assert not UnfinishedAnswer.objects.exists()


def test_a_turn_left_behind_is_ended_once_though_its_ids_are_taken(
    conversation: ConversationRef, begun: TurnStart
) -> None:
    UnfinishedAnswer.objects.create(
        conversation_id=conversation.pk, turn_id=begun.turn_id, event_id="answer", through=0, text="half"
    )
    taken = ("answer", turn_events.turn_event_id(begun.turn_id, "end"))
    writes.append(conversation, [event("taken", event_id=event_id) for event_id in taken])
    epoch = leases.claim(conversation, HERE, agent="")
    recovery.repair(conversation, epoch)
    recovery.repair(conversation, epoch)
    texts = Event.objects.of(conversation).oldest_first().values_list("text", flat=True)
    assert list(texts[:4]) == ["hello", "taken", "taken", "half"]
    assert kinds(conversation)[4:] == ["turn"]


def test_a_call_that_a_dead_loop_left_open_is_answered_as_failed(
    conversation: ConversationRef, begun: TurnStart
) -> None:
    authored = dialects.author(conversation.dialect).tool_call(
        name="run", arguments={"command": "ls"}, tool_call_id="call_1", event_id="call"
    )
    (call,) = writes.append(conversation, [authored.event("call", turn_id=begun.turn_id)], epoch=1)
    recovery.repair(conversation, leases.claim(conversation, HERE, agent=""))
    assert kinds(conversation) == ["message", "tool_call", "error", "turn"]
    assert Event.objects.of(conversation).get(kind="error").cause_seq == call.seq


def test_a_turn_that_waits_for_approval_is_not_repaired(
    conversation: ConversationRef, begun: TurnStart
) -> None:
    AgentLoop.objects.of(conversation).update(execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION)
    recovery.repair(conversation, leases.claim(conversation, HERE, agent=""))
    assert kinds(conversation) == ["message"]
    assert row_of(conversation).turn_id == begun.turn_id


# What the sweep finds


def test_a_conversation_with_something_to_do_needs_a_loop(conversation: ConversationRef) -> None:
    writes.append(conversation, [asking("hello")])
    assert pending_work.needing_a_loop(10) == [conversation]
    assert pending_work.has_work(conversation)


def test_a_conversation_whose_loop_runs_needs_none(conversation: ConversationRef, begun: TurnStart) -> None:
    assert pending_work.needing_a_loop(10) == pending_work.abandoned(10) == []


@pytest.mark.parametrize("status", [ExecutionStatus.PAUSED, ExecutionStatus.WAITING_FOR_CONFIRMATION])
def test_a_loop_that_waits_for_the_user_is_not_needed(
    conversation: ConversationRef, begun: TurnStart, status: ExecutionStatus
) -> None:
    AgentLoop.objects.of(conversation).update(execution_status=status, lease_expires_at=None)
    assert pending_work.needing_a_loop(10) == []
    assert not pending_work.has_work(conversation)


def test_a_decision_needs_a_loop(conversation: ConversationRef, begun: TurnStart) -> None:
    AgentLoop.objects.of(conversation).update(
        execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION, lease_expires_at=None
    )
    decisions.decide(conversation, True, "")
    assert pending_work.needing_a_loop(10) == [conversation]


def test_a_decision_is_taken_once(conversation: ConversationRef, begun: TurnStart) -> None:
    AgentLoop.objects.of(conversation).update(execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION)
    decisions.decide(conversation, True, "")
    with pytest.raises(LoopUnavailable):
        decisions.decide(conversation, False, "")
    assert kinds(conversation) == ["message", "state"]


def test_a_loop_whose_process_is_gone_is_abandoned(conversation: ConversationRef) -> None:
    leases.claim(conversation, DEAD, agent="")
    assert pending_work.abandoned(10) == [conversation]
    deletion.soft_delete(conversation)
    assert pending_work.abandoned(10) == []


@pytest.fixture
def others(alice: User, monkeypatch: pytest.MonkeyPatch) -> list[ConversationRef]:
    """Conversations with something to do, whose loops run elsewhere: more than the sweep reads at once."""
    monkeypatch.setattr(pending_work, "SWEEP_PAGE", 2)
    others = [creation.create(alice, conversation_id=f"other-{number}") for number in range(3)]
    for other in others:
        writes.append(other, [asking("hello")])
        leases.claim(other, ELSEWHERE, agent="")
    return others


def test_a_conversation_that_needs_a_loop_is_found_behind_many_that_have_one(
    others: list[ConversationRef], alice: User
) -> None:
    last = creation.create(alice, conversation_id="last")
    writes.append(last, [asking("hello")])
    assert pending_work.needing_a_loop(1) == [last]


def test_a_look_from_the_start_looks_everywhere_once(
    conversation: ConversationRef, django_assert_num_queries: Callable[[int], AbstractContextManager[object]]
) -> None:
    with django_assert_num_queries(2):  # for messages, and for what else a loop is asked for
        assert pending_work.needing_a_loop(1) == []


def test_what_cannot_be_started_hides_no_other_conversation(alice: User) -> None:
    waiting = [creation.create(alice, conversation_id=f"talk-{number}") for number in range(5)]
    for conversation in waiting:
        writes.append(conversation, [asking("hello")])
    rounds = []
    after = 0
    for _ in range(3):
        found = pending_work.needing_a_loop(2, after=after)
        rounds.append([each.public_id for each in found])
        after = max(each.pk for each in found)
    assert rounds == [["talk-0", "talk-1"], ["talk-2", "talk-3"], ["talk-4", "talk-0"]]


def test_an_abandoned_loop_is_found_behind_many_that_are_held(
    others: list[ConversationRef], alice: User
) -> None:
    last = creation.create(alice, conversation_id="last")
    leases.claim(last, DEAD, agent="")
    assert pending_work.abandoned(1) == [last]


def test_what_runs_here_is_neither_needed_nor_abandoned(others: list[ConversationRef]) -> None:
    for other in others:
        run_out(other)
    besides = [other.pk for other in others[1:]]
    assert (
        pending_work.needing_a_loop(10, besides=besides)
        == pending_work.abandoned(10, besides=besides)
        == others[:1]
    )


def test_of_some_conversations_those_with_something_to_do_are_told(
    conversation: ConversationRef, others: list[ConversationRef]
) -> None:
    pauses.pause(others[1])
    AgentLoop.objects.of(others[2]).update(execution_status=ExecutionStatus.WAITING_FOR_CONFIRMATION)
    decisions.decide(others[2], True, "")
    pks = [conversation.pk, *(other.pk for other in others)]
    assert pending_work.with_work_among(pks) == {others[0].pk, others[2].pk}

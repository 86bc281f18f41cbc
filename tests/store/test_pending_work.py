"""Whether a loop has something to do: its row, the query, and the columns of a list give one answer."""

from __future__ import annotations

from itertools import product

import pytest

from conversations.models import Conversation, ConversationRef
from convserver.api.v0.info import ConversationStatus, status_of
from sessions_app.loops import pending_work
from sessions_app.models import (
    SUSPENDED,
    WORK_COLUMNS,
    AgentLoop,
    ExecutionStatus,
    LoopEnd,
    LoopWork,
)
from sessions_app.openhands_v1.sandboxes import STATUS_COLUMNS

WAITING = ExecutionStatus.WAITING_FOR_CONFIRMATION
INPUTS = {True: 3, False: -1}


def with_input(conversation: ConversationRef, is_unanswered: bool) -> None:
    Conversation.objects.filter(pk=conversation.pk).update(asked_through=INPUTS[is_unanswered])


def work_of(conversation: ConversationRef) -> LoopWork:
    return LoopWork.of(Conversation.objects.values(*WORK_COLUMNS).get(pk=conversation.pk))


@pytest.mark.parametrize("is_unanswered", INPUTS)
def test_a_conversation_without_a_loop_is_asked_by_its_inputs(
    conversation: ConversationRef, is_unanswered: bool
) -> None:
    with_input(conversation, is_unanswered)
    assert pending_work.has_work(conversation) is work_of(conversation).is_asked is is_unanswered
    assert not work_of(conversation).waits_for_user


def test_the_row_the_query_and_the_columns_agree_in_every_state(conversation: ConversationRef) -> None:
    AgentLoop.objects.create(conversation_id=conversation.pk)
    states = product(ExecutionStatus, (None, False, True), INPUTS, (None, "turn"))
    for status, decision, is_unanswered, turn_id in states:
        with_input(conversation, is_unanswered)
        rows = AgentLoop.objects.of(conversation)
        rows.update(execution_status=status, decision=decision, turn_id=turn_id)
        loop, work = rows.select_related("conversation").get(), work_of(conversation)
        waits = status in SUSPENDED and not (status == WAITING and decision is not None)
        assert loop.waits_for_user is work.waits_for_user is waits, (status, decision)
        is_asked = pending_work.has_work(conversation)
        assert loop.is_asked is work.is_asked is is_asked, (status, decision, is_unanswered)
        assert loop.may_play is (is_asked or (turn_id is not None and not waits))
        assert bool(pending_work.with_work_among([conversation.pk])) is is_asked


@pytest.mark.parametrize(
    ("decision", "status"),
    [(None, ConversationStatus.STOPPED), (False, ConversationStatus.STARTING)],
)
def test_a_v0_conversation_with_a_decision_to_carry_out_is_starting(
    conversation: ConversationRef, decision: bool | None, status: ConversationStatus
) -> None:
    with_input(conversation, True)
    AgentLoop.objects.create(
        conversation_id=conversation.pk, ended_by=LoopEnd.IDLE, execution_status=WAITING, decision=decision
    )
    row = Conversation.objects.values("version", *STATUS_COLUMNS).get(pk=conversation.pk)
    assert status_of(row) is status

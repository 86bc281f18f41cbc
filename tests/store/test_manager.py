"""The manager: loops are started once, answer everything, and pause, stop and close without losing a word."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.exceptions import ConversationNotFound, LoopUnavailable
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef
from conversations.store import deletion
from sessions_app import astore
from sessions_app.loops import decisions, leases, pauses, pending_work, recovery, turn_events
from sessions_app.loops import manager as manager_module
from sessions_app.loops import turns as loop_turns
from sessions_app.loops.manager import ConversationManager, close_manager
from sessions_app.loops.playing import played_turn
from sessions_app.loops.playing.played_turn import PlayedTurn
from sessions_app.models import AgentLoop
from sessions_app.processes import this_process
from tests.support.data.events import event
from tests.support.people.scripted_agent import (
    Hooked,
    Stage,
    ask,
    asking,
    ends,
    hooked,
    in_loop,
    log,
    loop_of,
    manager,
    row_of,
    said,
    stage,
    until,
    until_no_loop,
    until_said,
    until_status,
)
from tests.support.wires.event_views import is_interrupted

__all__ = ["hooked", "manager", "stage"]

pytestmark = [pytest.mark.one_engine, pytest.mark.no_second_try]


# Messages and starts


async def test_a_message_that_arrives_while_the_loop_starts_is_answered(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    hooked(leases, "ready").before(lambda: writes.append(conversation, [asking("early")]))
    await manager.maybe_start_agent_loop(conversation)
    await until_said(conversation, "answer to early")


async def test_what_arrives_during_a_turn_is_answered_by_the_next_one_in_order(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await ask(conversation, "a", "b", "c")
    stage.go.set()
    await until_said(conversation, "step 1", "step 2", "answer to c")
    assert stage.asked == [["hold"], ["a", "b", "c"]]


async def test_a_message_that_arrives_as_the_loop_finds_nothing_to_do_is_answered(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    def arrive() -> None:
        writes.append(conversation, [asking("late")])
        wake()

    wake = in_loop(lambda: manager.wake(conversation))
    hooked(loop_turns, "begin_turn").after(arrive)
    await manager.maybe_start_agent_loop(conversation)
    await until_said(conversation, "answer to late")


async def test_a_program_for_the_openhands_server_names_conversations_by_their_ids(
    conversation: ConversationRef, alice: User, manager: ConversationManager
) -> None:
    theirs, sid, user_id = ConversationManager.get_instance(None, {}), conversation.public_id, str(alice.pk)
    info = await theirs.join_conversation(sid=sid, connection_id="one", settings=None, user_id=user_id)
    assert info.conversation_id == sid
    assert await theirs.get_connections(user_id) == {"one": sid}
    await theirs.disconnect_from_session("one")
    await theirs.close_session(sid)
    first = {"action": "message", "args": {"content": "first"}}
    await theirs.maybe_start_agent_loop(sid=sid, settings=None, user_id=user_id, initial_user_msg=first)
    await until_said(conversation, "answer to first")
    await theirs.maybe_start_agent_loop(sid=sid, settings=None, user_id=user_id, initial_user_msg="late")
    await theirs.send_event_to_conversation(sid=sid, data=first | {"args": {"content": "second"}})
    await until_said(conversation, "answer to first", "answer to second")
    for unknown in ({"sid": "none", "user_id": user_id}, {"sid": sid, "user_id": "0"}):
        with pytest.raises(ConversationNotFound):
            await theirs.maybe_start_agent_loop(settings=None, **unknown)


@pytest.mark.needs_engine
async def test_two_starts_at_once_make_one_loop(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await asyncio.gather(*(manager.maybe_start_agent_loop(conversation) for _ in range(2)))
    assert (await row_of(conversation)).loop_epoch == 1


async def test_the_first_message_is_stored_only_by_the_start(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation, initial_user_msg=asking("first"))
    await manager.maybe_start_agent_loop(conversation, initial_user_msg=asking("second"))
    await until_said(conversation, "answer to first")


async def test_a_conversation_that_is_only_a_row_can_be_started(
    alice: User, manager: ConversationManager
) -> None:
    row = await astore.call(lambda: Conversation.objects.create(public_id="row", owner=alice))
    info = await manager.maybe_start_agent_loop(row.ref)
    assert (info.conversation_id, info.status) == ("row", "running")


async def test_a_deleted_conversation_cannot_be_started(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await astore.call(deletion.soft_delete, conversation)
    with pytest.raises(ConversationNotFound):
        await manager.maybe_start_agent_loop(conversation)


# Pause


async def test_a_pause_takes_effect_after_the_current_step(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await manager.pause(conversation)
    stage.go.set()
    await until_status(conversation, "paused")
    assert await said(conversation) == ["step 1"]


async def test_a_pause_while_a_tool_works_keeps_what_the_tool_gives_back(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "use")
    await stage.holding()
    await manager.pause(conversation)
    stage.go.set()
    await until_status(conversation, "paused")
    kinds = [event["kind"] for event in await log(conversation) if event["kind"] != "state"]
    assert kinds == ["message", "tool_call", "tool_result"]


async def test_a_paused_turn_goes_on_under_the_same_id_and_ends_once(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await manager.pause(conversation)
    stage.go.set()
    await until_status(conversation, "paused")
    await manager.run(conversation)
    await until_said(conversation, "step 1", "step 2")
    assert stage.turn_ids[0] == stage.turn_ids[1] == (await ends(conversation))[0]["turn"]
    assert len(await ends(conversation)) == 1


async def test_a_turn_that_goes_on_is_given_all_that_it_has_done(
    conversation: ConversationRef, live: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(played_turn, "DONE_PAGE_EVENTS", 2)
    epoch = await astore.call(leases.claim, conversation, this_process(), agent="")
    await astore.append(conversation, [asking("hello")])
    start = await astore.call(loop_turns.begin_turn, conversation, epoch)
    assert start is not None
    said = [event(text, turn_id=start.turn_id) for text in ("a", "b", "c")]
    await astore.append(conversation, said, epoch=epoch)
    turn = PlayedTurn(conversation, epoch, start)
    await turn.prepare()
    assert [each["text"] for each in turn.done] == ["a", "b", "c"]


async def test_what_arrives_during_a_pause_is_kept_and_answered_when_it_is_over(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    await manager.pause(conversation)
    await ask(conversation, "a", "b")
    assert await astore.call(loop_turns.begin_turn, conversation, 1) is None
    await manager.run(conversation)
    await until_said(conversation, "answer to b")
    assert stage.asked == [["a", "b"]]


async def test_a_pause_in_the_last_step_holds_for_what_follows(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "speak")
    await stage.holding()
    await manager.pause(conversation)
    stage.go.set()
    await until_status(conversation, "paused")
    await ask(conversation, "next")
    assert await astore.call(loop_turns.begin_turn, conversation, 1) is None
    assert await said(conversation) == ["half of an answer"]


async def test_a_pause_that_comes_just_as_a_turn_begins_takes_effect(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage, hooked: Hooked
) -> None:
    pausing: list[asyncio.Task[None]] = []
    pause = in_loop(lambda: pausing.append(asyncio.create_task(manager.pause(conversation))))
    hooked(loop_turns, "begin_turn").after(pause)
    await ask(conversation, "hello")
    await until_status(conversation, "paused")
    assert await said(conversation) == []
    await asyncio.gather(*pausing)


async def test_a_run_takes_a_pause_back_that_has_not_taken_effect(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await manager.pause(conversation)
    await manager.run(conversation)
    stage.go.set()
    await until_said(conversation, "step 1", "step 2")


async def test_a_run_that_follows_a_pause_at_once_is_what_counts(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage, hooked: Hooked
) -> None:
    pausing = hooked(pauses, "pause").hold()
    await ask(conversation, "speak")
    await stage.holding()
    await manager.pause(conversation)
    stage.go.set()
    await pausing.reached()
    running = asyncio.create_task(manager.run(conversation))
    pausing.let_go.set()
    await running
    await ask(conversation, "next")
    await until_said(conversation, "half of an answer", "answer to next")


async def test_a_conversation_without_a_loop_can_be_paused(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.pause(conversation)
    await manager.pause(conversation)
    assert (await loop_of(conversation)).execution_status == "paused"
    assert [event["kind"] for event in await log(conversation)] == ["state"]


async def test_a_pause_does_not_lose_the_decision_that_a_call_waited_for(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    await manager.confirm(conversation, accept=True)
    await stage.holding()
    await manager.pause(conversation)
    stage.go.set()
    await until_status(conversation, "paused")
    await manager.run(conversation)
    await until_said(conversation)
    assert [event["text"] for event in await log(conversation) if event["kind"] == "tool_result"] == [
        "{'colour': 'green'} done"
    ]


async def test_a_pause_before_a_decided_call_is_carried_out_keeps_the_decision(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    await close_manager()
    await astore.call(decisions.decide, conversation, True, "")
    again = manager_module.get_manager()
    await again.pause(conversation)
    assert (await loop_of(conversation)).execution_status == "paused"
    stage.go.set()
    await again.run(conversation)
    await until_said(conversation)
    assert [event["kind"] for event in await log(conversation)][-2:] == ["tool_result", "turn"]


@pytest.mark.needs_engine
async def test_a_pause_that_comes_while_a_dead_loop_is_taken_over_holds_for_what_follows(
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    hooked: Hooked,
) -> None:
    monkeypatch.setattr(manager_module, "SWEEP_S", 3600.0)
    sweeps = hooked(pending_work, "needing_a_loop")
    await manager.ensure_started()
    await sweeps.called(1)  # another one would take the dead loop over as well
    await astore.call(left_behind, conversation)
    claiming = hooked(leases, "claim").hold()
    manager.start_soon(conversation)
    await claiming.reached()
    await manager.pause(conversation)
    claiming.let_go.set()
    await until_status(conversation, "paused")
    await ask(conversation, "next")
    assert await astore.call(loop_turns.begin_turn, conversation, 2) is None


def left_behind(conversation: ConversationRef) -> None:
    """Let a process die that played a turn."""
    epoch = leases.claim(conversation, this_process()._replace(started=1.0), agent="")
    writes.append(conversation, [asking("hello")])
    assert loop_turns.begin_turn(conversation, epoch) is not None


# Stop


async def test_a_stop_keeps_what_was_said_and_marks_it_as_interrupted(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "speak")
    await stage.holding()
    await manager.close_session(conversation.public_id)
    answer = (await log(conversation))[-2]
    assert answer["text"] == "half of "
    assert is_interrupted(json.loads(answer["payload"]))


async def test_a_stop_ends_the_turn_once_and_gives_up_on_what_is_unanswered(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await ask(conversation, "never mind")
    await manager.close_session(conversation.public_id)
    assert [end["text"] for end in await ends(conversation)] == ["stopped: The agent was stopped."]
    assert not (await row_of(conversation)).is_unanswered


async def test_a_message_that_comes_while_the_agent_is_being_stopped_is_answered(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage, hooked: Hooked
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    hooked(loop_turns, "pending_turn").before(lambda: writes.append(conversation, [asking("another tab")]))
    await manager.close_session(conversation.public_id)
    await until_said(conversation, "step 1", "answer to another tab")


@pytest.mark.needs_engine
async def test_stopping_twice_at_once_is_stopping_once(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await asyncio.gather(*(manager.close_session(conversation.public_id) for _ in range(3)))
    assert [end["text"] for end in await ends(conversation)] == ["stopped: The agent was stopped."]
    assert (await loop_of(conversation)).status == "stopped"


async def test_stopping_where_no_loop_is_changes_nothing(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.close_session(conversation.public_id)
    await manager.close_session("unknown")
    assert await log(conversation) == []


async def test_a_message_after_a_stop_is_answered_by_a_new_loop(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await manager.close_session(conversation.public_id)
    await ask(conversation, "again")
    await until_said(conversation, "step 1", "answer to again")
    assert (await row_of(conversation)).loop_epoch == 2


async def test_a_stop_that_comes_as_the_turn_ends_leaves_one_end(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    stopping: list[asyncio.Task[None]] = []
    stop = in_loop(
        lambda: stopping.append(asyncio.create_task(manager.close_session(conversation.public_id)))
    )
    hooked(turn_events, "end_of_turn").after(stop)
    await ask(conversation, "hello")
    await until_said(conversation, "answer to hello")
    await asyncio.gather(*stopping)
    assert [end["text"] for end in await ends(conversation)] == ["awaiting_user_input"]
    assert (await loop_of(conversation)).status == "stopped"


async def test_an_agent_that_does_not_hear_the_stop_is_stopped_after_its_turn(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "deaf")
    await stage.holding()
    await ask(conversation, "never mind")
    await manager.close_session(conversation.public_id)
    assert await said(conversation) == ["What?"]
    assert (await loop_of(conversation)).status == "stopped"
    assert not (await row_of(conversation)).is_unanswered


async def test_a_stop_ends_a_turn_that_waits_for_approval(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    await manager.close_session(conversation.public_id)
    assert [event["kind"] for event in await log(conversation)][-2:] == ["error", "turn"]
    with pytest.raises(LoopUnavailable):
        await manager.confirm(conversation, accept=True)


async def test_a_stop_ends_a_waiting_turn_whose_loop_runs_nowhere(
    conversation: ConversationRef, manager: ConversationManager, configured: Callable[..., None]
) -> None:
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    await close_manager()
    await manager_module.get_manager().close_session(conversation.public_id)
    assert [end["text"] for end in await ends(conversation)] == ["stopped: The agent was stopped."]


# Closing the manager, losing the lease


async def test_closing_the_manager_ends_a_turn_as_interrupted_and_gives_the_lease_back(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "speak")
    await stage.holding()
    await close_manager()
    assert await said(conversation) == ["half of "]
    assert [end["text"] for end in await ends(conversation)] == [f"error: {recovery.INTERRUPTED_REASON}"]
    loop = await loop_of(conversation)
    assert (loop.status, loop.lease_expires_at, loop.turn_id) == ("stopped", None, None)


async def test_what_a_closed_manager_has_not_begun_is_answered_by_the_next(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await ask(conversation, "later")
    await close_manager()
    await manager_module.get_manager().ensure_started()
    await until_said(conversation, "step 1", "answer to later")


async def test_a_turn_that_waits_for_approval_outlives_the_manager(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    await close_manager()
    stage.go.set()
    await manager_module.get_manager().confirm(conversation, accept=True)
    await until_said(conversation)
    assert [event["kind"] for event in await log(conversation)][-2:] == ["tool_result", "turn"]


@pytest.mark.needs_engine
async def test_closing_the_manager_while_a_loop_claims_its_lease_gives_the_lease_back(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    claiming = hooked(leases, "claim").hold()
    await ask(conversation, "hello")
    await claiming.reached()
    closing = asyncio.create_task(close_manager())
    await asyncio.sleep(0)
    claiming.let_go.set()
    await closing
    assert (await loop_of(conversation)).lease_expires_at is None


def take_over(conversation: ConversationRef) -> None:
    """Raise the epoch, as another process does that has claimed the loop."""
    epoch = Conversation.objects.get(pk=conversation.pk).loop_epoch + 1
    Conversation.objects.filter(pk=conversation.pk).update(loop_epoch=epoch)
    loops = AgentLoop.objects.of(conversation)
    loops.update(epoch=epoch, owner_host="elsewhere", owner_pid=1)


@pytest.mark.needs_engine
async def test_a_loop_that_lost_its_lease_is_cancelled_and_writes_nothing(
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager_module, "RENEW_S", 0.01)
    await ask(conversation, "speak")
    await stage.holding()
    await astore.call(take_over, conversation)
    await until_no_loop(conversation)
    assert [event["kind"] for event in await log(conversation)] == ["message", "state"]
    assert (await loop_of(conversation)).refused_writes == 1  # that its turn was stopped


@pytest.mark.needs_engine
async def test_what_a_loop_writes_without_its_lease_is_refused_and_counted(
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(manager_module, "RENEW_S", 3600.0)  # it would end the loop before it writes
    await ask(conversation, "hold")
    await stage.holding()
    await astore.call(take_over, conversation)
    stage.go.set()
    await until_no_loop(conversation)
    assert await said(conversation) == ["step 1"]
    assert (await loop_of(conversation)).refused_writes == 1


@pytest.mark.needs_engine
async def test_a_renewal_leaves_a_loop_alone_that_was_started_anew_meanwhile(
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    hooked: Hooked,
) -> None:
    monkeypatch.setattr(manager_module, "RENEW_S", 0.01)
    await manager.maybe_start_agent_loop(conversation)
    renewals = hooked(leases, "renew")
    renewing = renewals.hold()
    await renewing.reached()
    await manager.close_session(conversation.public_id)
    await ask(conversation, "hold")
    await stage.holding()
    renewing.let_go.set()
    await renewals.called(2)
    stage.go.set()
    await until_said(conversation, "step 1", "step 2")


# Deleting


async def test_an_idle_loop_ends_when_its_conversation_is_deleted(
    conversation: ConversationRef, manager: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(manager_module, "RENEW_S", 0.01)
    await manager.maybe_start_agent_loop(conversation)
    await astore.call(deletion.soft_delete, conversation)
    await until_no_loop(conversation)
    assert (await loop_of(conversation)).lease_expires_at is None


async def test_a_working_loop_ends_when_its_conversation_is_deleted_and_does_not_bring_it_back(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await astore.call(deletion.soft_delete, conversation)
    stage.go.set()
    await until_no_loop(conversation)
    assert await said(conversation) == ["step 1"]
    assert (await row_of(conversation)).deleted_at is not None
    assert (await loop_of(conversation)).lease_expires_at is None


async def test_deleting_stops_the_agent_first(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage, rest: httpx.AsyncClient
) -> None:
    await ask(conversation, "speak")
    await stage.holding()
    answer = await rest.delete(f"/api/native/conversations/{conversation.public_id}")
    assert answer.status_code == 204
    assert manager.get_agent_session(conversation.public_id) is None
    assert await said(conversation) == ["half of "]


async def test_a_restored_conversation_answers_again(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    await astore.call(deletion.soft_delete, conversation)
    stage.go.set()
    await until_no_loop(conversation)
    await astore.call(deletion.restore, conversation)
    await ask(conversation, "hello")
    await until(lambda: reads.last_seq(conversation) > 4)
    await until_said(conversation, "step 1", "answer to hello")

"""A run over the V1 wire: each row of its state machine (spec V1 §2.6), as its clients read it in the log."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connections

from conversations import live
from conversations.dialects import v1
from conversations.events import Metrics
from conversations.exceptions import LoopUnavailable
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.loops import (
    command_channel,
    decisions,
    leases,
    pauses,
    pending_work,
    recovery,
    runs,
    turn_events,
)
from sessions_app.loops import turns as loop_turns
from sessions_app.loops.commands import CommandPending
from sessions_app.loops.manager import ConversationManager, close_manager, get_manager
from sessions_app.loops.playing import played_turn
from sessions_app.loops.playing.confirmation import wants_approval
from sessions_app.models import AgentLoop, ExecutionStatus
from sessions_app.openhands_v1 import input as v1_input
from sessions_app.processes import Process, this_process
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from tests.support.data.events import event
from tests.support.people.scripted_agent import (
    Held,
    Hook,
    Hooked,
    Stage,
    hooked,
    log,
    loop_of,
    manager,
    row_of,
    said,
    stage,
    until,
    until_here,
    until_said,
    until_status,
)

pytestmark = pytest.mark.one_engine

__all__ = ["hooked", "manager", "stage"]

HERE = this_process()
DEAD = HERE._replace(started=1.0)
"""A process of this host that is gone: its number was given to another one."""


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation of alice's as V1 doors make it."""
    return made(alice)


def made(user: User, **setup: Any) -> ConversationRef:
    first = [turn_events.system_prompt()]
    return agent_setups.create(user, NewSetup(**setup), conversation_id="talk", events=first)


def request(text: str) -> dict[str, object]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def message(text: str) -> Any:
    authored = v1.received(request(text), event_id=text)
    return authored.event(text, is_input=True)


async def say(conversation: ConversationRef, text: str, *, run: bool = False, **more: Any) -> int:
    return await v1_input.say(conversation, request(text), sender_id=7, run=run, **more)


async def run(conversation: ConversationRef) -> bool:
    return await get_manager().ask_run(conversation)


def told(payload: dict[str, Any]) -> str:
    """Return an event as one word: a state's value, who said a message, any other's kind."""
    match payload["kind"]:
        case "ConversationStateUpdateEvent" if payload["key"] == "execution_status":
            return str(payload["value"])
        case "ConversationStateUpdateEvent":
            return str(payload["key"])
        case "MessageEvent":
            return str(payload["source"])
        case kind:
            return str(kind)


async def payloads(conversation: ConversationRef) -> list[dict[str, Any]]:
    return [json.loads(each["payload"]) for each in await log(conversation)]


async def wire(conversation: ConversationRef, *, after: int = 0) -> list[str]:
    """Return what stands behind the system prompt, or behind `after`."""
    return [told(payload) for payload in (await payloads(conversation))[after + 1 :]]


async def status_of(conversation: ConversationRef) -> str:
    return (await loop_of(conversation)).execution_status


async def until_waiting(conversation: ConversationRef, text: str = "approve") -> int:
    """Let the agent ask for approval; return the seq of what then stands last."""
    await say(conversation, text, run=True)
    await until_status(conversation, "waiting_for_confirmation")
    return len(await log(conversation)) - 1


async def until_held(conversation: ConversationRef, stage: Stage) -> None:
    await say(conversation, "hold", run=True)
    await stage.holding()


async def until_paused(conversation: ConversationRef, stage: Stage) -> None:
    """Let a turn be paused in its middle."""
    await until_held(conversation, stage)
    await get_manager().pause(conversation)
    stage.go.set()
    await until_status(conversation, "paused")


# Run


async def test_a_conversation_without_a_message_begins_with_the_prompt_and_is_idle(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    (first,) = await payloads(talk)
    assert (first["kind"], first["tools"]) == ("SystemPromptEvent", [])


async def test_a_run_is_seen_to_run_at_once_and_then_to_have_finished(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello")
    assert await astore.call(runs.ask, talk) is runs.RunOutcome.BEGUN
    assert await status_of(talk) == "running"
    manager.wake(talk)
    await until_status(talk, "finished")
    assert await wire(talk) == ["user", "running", "agent", "finished"]


async def test_a_message_that_asks_for_a_run_starts_one(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello", run=True)
    await until_said(talk, "answer to hello")


async def test_a_second_run_is_refused_while_one_is_on(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    assert await run(talk) is False


@pytest.mark.needs_engine
async def test_a_second_run_is_refused_before_the_first_has_begun(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello")
    asked = [await astore.call(runs.ask, talk) for _ in range(2)]
    assert asked == [runs.RunOutcome.BEGUN, runs.RunOutcome.RUNS]


async def test_a_run_where_nothing_was_ever_said_is_over_at_once(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    assert await run(talk) is True
    assert (await wire(talk), await status_of(talk), stage.asked) == (["finished"], "finished", [])


async def test_a_run_of_an_empty_log_is_over_at_once(alice: User, manager: ConversationManager) -> None:
    empty = await astore.call(creation.create, alice, version=Version.V1)
    assert await run(empty) is True
    assert await status_of(empty) == "finished"


async def test_a_finished_conversation_that_is_run_again_stays_as_it_is(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello", run=True)
    await until_status(talk, "finished")
    before = await log(talk)
    assert await run(talk) is True
    assert (await log(talk), await status_of(talk)) == (before, "finished")


@pytest.mark.parametrize("status", [ExecutionStatus.IDLE, ExecutionStatus.ERROR, ExecutionStatus.STUCK])
async def test_a_run_without_a_new_message_asks_the_agent_for_a_step(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, status: ExecutionStatus
) -> None:
    await say(talk, "hello", run=True)
    await until_status(talk, "finished")
    await astore.call(AgentLoop.objects.of(talk).update, execution_status=status)
    assert await run(talk) is True
    await until_said(talk, "answer to hello", "answer to nothing")
    assert stage.asked == [["hello"], []]


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_a_run_that_was_accepted_survives_the_server(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello")
    await astore.call(runs.ask, talk)
    assert await astore.call(pending_work.needing_a_loop, 9) == [talk]
    await astore.call(leases.claim, talk, DEAD, agent="")
    await manager.ensure_started()
    await until_said(talk, "answer to hello")


async def test_a_run_that_is_stopped_before_it_began_does_not_stay_running(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello")
    await astore.call(runs.ask, talk)
    await manager.close_session(talk.public_id)
    assert await status_of(talk) == "idle"
    assert await run(talk) is True
    await until_said(talk, "answer to hello")


@pytest.mark.parametrize(("text", "status"), [("hello", "finished"), ("fail", "error")])
async def test_a_run_that_is_over_stays_so_when_its_conversation_is_stopped(
    talk: ConversationRef, manager: ConversationManager, text: str, status: str
) -> None:
    await say(talk, text, run=True)
    await until_status(talk, status)
    await manager.close_session(talk.public_id)
    assert await status_of(talk) == status


async def test_a_conversation_that_was_paused_stays_so_when_it_is_stopped(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(talk)
    await manager.pause(talk)
    await manager.close_session(talk.public_id)
    assert await status_of(talk) == "paused"


# Messages


@pytest.mark.parametrize("status", [ExecutionStatus.FINISHED, ExecutionStatus.STUCK])
async def test_a_message_makes_a_conversation_that_is_over_idle_again(
    talk: ConversationRef, manager: ConversationManager, status: ExecutionStatus
) -> None:
    await say(talk, "hello", run=True)
    await until_status(talk, "finished")
    await astore.call(AgentLoop.objects.of(talk).update, execution_status=status)
    before = len(await log(talk)) - 1
    await say(talk, "more")
    assert (await wire(talk, after=before), await status_of(talk)) == (["idle", "user"], "idle")


async def test_a_message_during_a_run_is_answered_by_the_next_turn_of_that_run(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    await say(talk, "more")
    stage.go.set()
    await until_said(talk, "step 1", "step 2", "answer to more")
    await until_status(talk, "finished")
    states = [word for word in await wire(talk) if word not in ("user", "agent")]
    assert set(states[:-1]) == {"running"}
    assert states[-1] == "finished"


async def test_a_message_without_a_run_waits_until_one_is_asked_for(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await say(talk, "first")
    assert not await astore.call(pending_work.has_work, talk)
    assert await astore.call(pending_work.needing_a_loop, 9) == []
    await manager.maybe_start_agent_loop(talk)
    assert await astore.call(loop_turns.begin_turn, talk, 1) is None
    await say(talk, "second", run=True)
    await until_said(talk, "answer to second")
    assert stage.asked == [["first", "second"]]


@pytest.mark.no_second_try
async def test_a_repeated_message_stores_and_asks_nothing(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    seq = await say(talk, "hello", run=True, event_id="once")
    await until_status(talk, "finished")
    before = await log(talk)
    assert await say(talk, "other words", run=True, event_id="once") == seq
    assert (await log(talk), await status_of(talk)) == (before, "finished")


async def test_a_message_over_this_wire_is_one_of_the_conversations_own(
    alice: User, manager: ConversationManager
) -> None:
    older = await astore.call(creation.create, alice)
    await say(older, "hello", run=True)
    await until_said(older, "answer to hello")
    assert json.loads((await log(older))[0]["payload"])["args"]["content"] == "hello"


@pytest.mark.no_second_try
async def test_a_message_whose_client_has_left_is_answered(
    talk: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    held = hooked(runs, "take").hold()
    saying = asyncio.ensure_future(say(talk, "hello", run=True))
    await held.reached()
    saying.cancel()
    held.let_go.set()
    await until_said(talk, "answer to hello")


@pytest.mark.parametrize("asks_too", [True, False])
async def test_a_message_is_no_approval_and_is_answered_after_one(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, asks_too: bool
) -> None:
    await until_waiting(talk)
    await say(talk, "yes, do", run=asks_too)
    assert await status_of(talk) == "waiting_for_confirmation"
    stage.go.set()
    await run(talk)
    await until_said(talk, "answer to yes, do")
    await until_status(talk, "finished")


async def test_a_message_that_waits_with_a_call_is_part_of_the_next_run_after_a_rejection(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_waiting(talk)
    await say(talk, "rather this")
    await manager.reject(talk)
    assert (await status_of(talk), await said(talk)) == ("idle", [])
    await run(talk)
    await until_said(talk, "answer to rather this")


async def test_a_message_that_asked_for_a_run_while_a_call_waited_is_answered_after_a_rejection(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_waiting(talk)
    await say(talk, "rather this", run=True)
    await manager.reject(talk)
    await until_said(talk, "answer to rather this")


class Late:
    """Work of another thread that begins when a row is locked, and must wait for that lock."""

    def __init__(self, hook: Hook, work: Callable[[], object]) -> None:
        self._thread = threading.Thread(target=self._do)
        self._work = work
        hook.after(self._begin)

    def _begin(self) -> None:
        self._thread.start()
        self._thread.join(0.3)
        assert self._thread.is_alive(), "it was done while another had the lock"

    def _do(self) -> None:
        self._work()
        connections.close_all()

    def wait(self) -> None:
        self._thread.join(20)


@pytest.mark.no_second_try
@pytest.mark.needs_engine
def test_a_message_and_a_run_at_the_same_moment_come_one_after_the_other(
    talk: ConversationRef, hooked: Hooked
) -> None:
    # Without a lock the run is not about the message, and the message does not know that a run is on.
    writes.append(talk, [message("first")])
    late = Late(hooked(runs, "_locked"), lambda: runs.ask(talk))
    seq = runs.take(talk, message("second"), run=False).seq
    late.wait()
    assert Conversation.objects.get(pk=talk.pk).asked_through == seq


@pytest.mark.no_second_try
@pytest.mark.needs_engine
def test_a_run_that_finds_nothing_to_answer_cannot_miss_what_is_being_stored(
    talk: ConversationRef, hooked: Hooked
) -> None:
    late = Late(hooked(runs, "_locked"), lambda: writes.append(talk, [replace(message("hello"), asks=True)]))
    assert runs.ask(talk) is runs.RunOutcome.NOTHING
    late.wait()
    assert pending_work.has_work(talk)


# Approval


@pytest.mark.parametrize("accept", [run, lambda talk: get_manager().confirm(talk, accept=True)])
async def test_an_accepted_call_is_carried_out_by_the_same_run(
    talk: ConversationRef,
    stage: Stage,
    manager: ConversationManager,
    accept: Callable[[ConversationRef], Any],
) -> None:
    before = await until_waiting(talk)
    assert await accept(talk) is not False
    assert await status_of(talk) == "running"
    stage.go.set()
    await until_status(talk, "finished")
    after = await wire(talk, after=before)
    assert [word for word in after if word != "running"] == ["ObservationEvent", "finished"]


def test_an_approval_is_announced_once_it_is_stored(talk: ConversationRef) -> None:
    waiting(talk)
    statuses: list[str] = []

    def listen(hint: Mapping[str, Any]) -> None:
        if hint["kind"] == "changed":
            statuses.append(AgentLoop.objects.of(talk).get().execution_status)

    end = live.add_listener(listen)
    decisions.decide(talk, True, "")
    end()
    assert statuses == ["running"]


@pytest.mark.needs_engine
async def test_an_accepted_call_of_a_server_that_ends_is_carried_out_by_the_next(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_waiting(talk)
    await close_manager()
    await astore.call(runs.ask, talk)
    await astore.call(leases.claim, talk, DEAD, agent="")
    stage.go.set()
    await get_manager().ensure_started()
    await until_status(talk, "finished")
    assert "ObservationEvent" in await wire(talk)


async def test_a_rejection_refuses_each_pending_call_and_ends_the_turn(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    before = await until_waiting(talk, "approve-both")
    await manager.reject(talk, "no thanks")
    assert await wire(talk, after=before) == ["UserRejectObservation", "UserRejectObservation", "idle"]
    events = await payloads(talk)
    calls = [each for each in events if each["kind"] == "ActionEvent"]
    refusals = [each for each in events if each["kind"] == "UserRejectObservation"]
    assert [(each["action_id"], each["tool_call_id"]) for each in refusals] == [
        (each["id"], each["tool_call_id"]) for each in calls
    ]
    assert {each["rejection_reason"] for each in refusals} == {"no thanks"}
    assert (await status_of(talk), len(stage.asked)) == ("idle", 1)


async def test_a_rejection_without_a_reason_gives_the_usual_one(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await until_waiting(talk)
    await manager.reject(talk)
    assert (await payloads(talk))[-2]["rejection_reason"] == "User rejected the action."


async def test_after_a_rejection_the_next_message_is_answered(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await until_waiting(talk)
    await manager.reject(talk)
    await say(talk, "more", run=True)
    await until_said(talk, "answer to more")


async def test_nothing_can_be_rejected_where_nothing_waits(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    with pytest.raises(LoopUnavailable, match="No call is waiting"):
        await manager.reject(talk)


def test_a_call_that_was_accepted_cannot_be_rejected(talk: ConversationRef) -> None:
    waiting(talk)
    runs.ask(talk)
    with pytest.raises(LoopUnavailable):
        runs.reject(talk, "")


@pytest.mark.no_second_try
@pytest.mark.needs_engine
def test_a_rejection_and_an_approval_at_the_same_moment_are_not_both_taken(
    talk: ConversationRef, hooked: Hooked
) -> None:
    waiting(talk)
    outcomes: list[runs.RunOutcome] = []
    late = Late(hooked(runs, "_locked"), lambda: outcomes.append(runs.ask(talk)))
    runs.reject(talk, "no")
    late.wait()
    assert AgentLoop.objects.of(talk).get().decision is None
    assert outcomes == [runs.RunOutcome.BEGUN]  # a run of its own, for what stands in the log


def waiting(conversation: ConversationRef) -> None:
    """Let a turn wait for approval that no loop plays."""
    epoch = leases.claim(conversation, HERE, agent="")
    writes.append(conversation, [message("approve")])
    runs.ask(conversation)
    start = loop_turns.begin_turn(conversation, epoch)
    assert start is not None
    call = action_event("call", turn_id=start.turn_id)
    suspend = loop_turns.suspend_turn(conversation, ExecutionStatus.WAITING_FOR_CONFIRMATION)
    writes.append(conversation, [call], epoch=epoch, also=suspend)


def action_event(tool_call_id: str, *, turn_id: str) -> Any:
    authored = v1.AUTHOR.tool_call(name="run", arguments={}, tool_call_id=tool_call_id, event_id=tool_call_id)
    return authored.event(tool_call_id, turn_id=turn_id)


POLICIES: list[tuple[dict[str, Any], set[str]]] = [
    ({"kind": "NeverConfirm"}, set()),
    ({"kind": "AlwaysConfirm"}, {"LOW", "MEDIUM", "HIGH", "UNKNOWN"}),
    ({"kind": "ConfirmRisky"}, {"HIGH", "UNKNOWN"}),
    ({"kind": "ConfirmRisky", "threshold": "MEDIUM", "confirm_unknown": False}, {"MEDIUM", "HIGH"}),
    ({"kind": "ConfirmRisky", "threshold": "odd"}, {"HIGH", "UNKNOWN"}),
    ({}, set()),
]


def test_a_policy_says_which_calls_wait(subtests: pytest.Subtests) -> None:
    for policy, risks in POLICIES:
        with subtests.test(policy=policy, risks=risks):
            assert {
                risk for risk in ("LOW", "MEDIUM", "HIGH", "UNKNOWN") if wants_approval(policy, risk)
            } == risks


@pytest.mark.parametrize(
    ("kind", "ends"), [("AlwaysConfirm", "waiting_for_confirmation"), ("ConfirmRisky", "finished")]
)
async def test_the_demo_agent_asks_as_the_policy_says(
    alice: User, manager: ConversationManager, configured: Callable[..., None], kind: str, ends: str
) -> None:
    configured(agent="sessions_app.agents.demo.DemoAgent")
    talk = await astore.call(made, alice, confirmation_policy={"kind": kind})
    await say(talk, "/tool", run=True)
    await until_status(talk, ends)
    assert "ActionEvent" in await wire(talk)


# Pause and interruption


@pytest.mark.needs_engine
async def test_a_pause_of_a_run_takes_effect_after_the_step_and_is_told(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_paused(talk, stage)
    assert await wire(talk) == ["user", "running", "agent", "paused", "PauseEvent"]


@pytest.mark.parametrize("status", ["paused", "finished", "error"])
async def test_a_pause_writes_nothing_where_no_run_is_on(
    talk: ConversationRef, manager: ConversationManager, status: str
) -> None:
    await say(talk, {"paused": "hello", "finished": "hello", "error": "fail"}[status], run=True)
    await until_status(talk, "error" if status == "error" else "finished")
    if status == "paused":
        await say(talk, "more")
        await manager.pause(talk)
    before = await log(talk)
    await manager.pause(talk)
    assert (await log(talk), await status_of(talk)) == (before, status)


async def test_an_idle_conversation_is_paused_at_once(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await manager.pause(talk)
    assert (await wire(talk), await status_of(talk)) == (["paused", "PauseEvent"], "paused")


async def test_a_run_that_has_not_begun_is_paused_at_once(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await say(talk, "hello")
    await astore.call(runs.ask, talk)
    await manager.pause(talk)
    await manager.maybe_start_agent_loop(talk)
    assert await astore.call(loop_turns.begin_turn, talk, 1) is None
    assert (await status_of(talk), stage.asked) == ("paused", [])


async def test_a_run_goes_on_with_the_turn_that_was_paused(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_paused(talk, stage)
    assert await run(talk) is True
    await until_said(talk, "step 1", "step 2")
    await until_status(talk, "finished")
    assert (stage.turn_ids[0], len(stage.turn_ids)) == (stage.turn_ids[1], 2)


async def test_a_paused_turn_that_is_to_go_on_runs_at_once_and_survives_the_server(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_paused(talk, stage)
    await close_manager()
    await astore.call(runs.ask, talk)
    await astore.call(leases.claim, talk, DEAD, agent="")
    assert await status_of(talk) == "running"
    await get_manager().ensure_started()
    await until_said(talk, "step 1", "step 2")
    assert len(set(stage.turn_ids)) == 1


async def test_a_paused_turn_that_is_to_go_on_is_not_ended_by_a_stop_of_the_server(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, hooked: Hooked
) -> None:
    await until_paused(talk, stage)
    held = Held(threading.Event(), threading.Event())
    looks = hooked(loop_turns, "begin_turn")
    # The look that finds the turn paused may still be to come; while a run is asked for, none is under way.
    hooked(runs, "ask").after(lambda: looks.before(held.wait))
    await run(talk)
    await held.reached()
    closing = close_manager()
    held.let_go.set()
    await closing
    assert "error" not in await wire(talk)


async def until_to_go_on(conversation: ConversationRef, stage: Stage) -> None:
    """Let a paused turn be asked to go on where no loop is."""
    await until_paused(conversation, stage)
    await close_manager()
    await astore.call(runs.ask, conversation)


async def until_started(conversation: ConversationRef) -> None:
    """Start the loop, unless that was done, and see that it finds nothing to do."""
    await get_manager().maybe_start_agent_loop(conversation)
    await until(lambda: AgentLoop.objects.of(conversation).filter(status="running").exists())
    epoch = (await loop_of(conversation)).epoch
    assert await astore.call(loop_turns.begin_turn, conversation, epoch) is None


async def test_a_pause_holds_for_a_turn_that_is_to_go_on_and_that_nobody_plays(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_to_go_on(talk, stage)
    await get_manager().pause(talk)
    assert ((await wire(talk))[-2:], await status_of(talk)) == (["paused", "PauseEvent"], "paused")
    await until_started(talk)
    await run(talk)
    await until_said(talk, "step 1", "step 2")
    assert len(stage.turn_ids) == 2


async def test_a_pause_holds_for_a_turn_that_is_to_go_on_and_whose_loop_is_being_started(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, hooked: Hooked
) -> None:
    await until_to_go_on(talk, stage)
    claiming = hooked(leases, "claim").hold()
    get_manager().start_soon(talk)
    await claiming.reached()
    await get_manager().pause(talk)
    assert await status_of(talk) == "paused"
    claiming.let_go.set()
    await until_started(talk)
    assert len(stage.turn_ids) == 1


async def test_a_pause_finds_the_loop_that_was_started_meanwhile(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, hooked: Hooked
) -> None:
    pausing = hooked(pauses, "pause").hold()
    asking = asyncio.ensure_future(manager.pause(talk))
    await pausing.reached()
    await until_held(talk, stage)
    pausing.let_go.set()
    await asking
    stage.go.set()
    await until_status(talk, "paused")
    assert await said(talk) == ["step 1"]


async def test_a_pause_of_an_approved_call_that_nobody_carries_out_keeps_the_approval(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_waiting(talk)
    await close_manager()
    await astore.call(runs.ask, talk)
    await get_manager().pause(talk)
    assert await status_of(talk) == "paused"
    stage.go.set()
    await run(talk)
    await until_status(talk, "finished")
    assert (await wire(talk)).count("ObservationEvent") == 1


async def test_a_pause_ends_what_a_dead_loop_has_left(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await astore.call(playing, talk, DEAD)
    await manager.pause(talk)
    assert await status_of(talk) == "error"


@pytest.mark.needs_engine
async def test_a_run_of_another_process_cannot_be_paused_behind_its_back(
    talk: ConversationRef, manager: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_channel, "WAIT_S", 0.1)
    await astore.call(playing, talk, HERE._replace(host="elsewhere"))
    with pytest.raises(CommandPending):
        await manager.pause(talk)
    assert await status_of(talk) == "running"


def playing(conversation: ConversationRef, process: Process) -> None:
    epoch = leases.claim(conversation, process, agent="")
    runs.take(conversation, message("hello"), run=True)
    start = loop_turns.begin_turn(conversation, epoch)
    assert start is not None


async def test_a_run_takes_back_a_pause_that_has_not_taken_effect(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    await manager.pause(talk)
    assert await run(talk) is True
    stage.go.set()
    await until_status(talk, "finished")
    assert "paused" not in await wire(talk)


async def test_a_message_that_asks_for_a_run_takes_back_a_pause_that_has_not_taken_effect(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    await manager.pause(talk)
    await say(talk, "more", run=True)
    stage.go.set()
    await until_said(talk, "step 1", "step 2", "answer to more")
    assert "paused" not in await wire(talk)


async def test_a_message_that_waits_leaves_a_pause_that_has_not_taken_effect(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    await manager.pause(talk)
    await say(talk, "more")
    stage.go.set()
    await until_status(talk, "paused")


async def run_once(talk: ConversationRef, manager: ConversationManager) -> None:
    assert await run(talk) is True


async def run_twice(talk: ConversationRef, manager: ConversationManager) -> None:
    assert await run(talk) is True
    await run(talk)


async def resume(talk: ConversationRef, manager: ConversationManager) -> None:
    await manager.run(talk)


@pytest.mark.needs_engine
@pytest.mark.parametrize("go_on", [run_once, run_twice, resume])
async def test_a_turn_that_pauses_just_as_it_is_to_go_on_goes_on(
    talk: ConversationRef,
    stage: Stage,
    manager: ConversationManager,
    hooked: Hooked,
    go_on: Callable[[ConversationRef, ConversationManager], Awaitable[None]],
) -> None:
    await until_held(talk, stage)
    await manager.pause(talk)
    pausing = hooked(writes, "append_many").hold()
    stage.go.set()
    await pausing.reached()
    await go_on(talk, manager)
    pausing.let_go.set()
    await until_status(talk, "finished")


async def test_a_pause_holds_in_the_turn_after_one_whose_pause_was_taken_back(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, hooked: Hooked
) -> None:
    await until_held(talk, stage)
    await manager.pause(talk)
    await run(talk)
    await say(talk, "more")
    beginning = hooked(loop_turns, "begin_turn").hold()
    stage.go.set()
    await beginning.reached()
    pausing = asyncio.ensure_future(manager.pause(talk))
    await asyncio.sleep(0)
    beginning.let_go.set()
    await pausing
    await until_status(talk, "paused")
    loop = manager.get_agent_session(talk.public_id)
    await until_here(lambda: loop is not None and not loop.is_working)
    assert (await status_of(talk), await said(talk)) == ("paused", ["step 1", "step 2"])


async def test_what_is_said_during_a_pause_is_answered_by_the_run_that_ends_it(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_paused(talk, stage)
    await say(talk, "more")
    assert await status_of(talk) == "paused"
    await run(talk)
    await until_said(talk, "step 1", "step 2", "answer to more")


@pytest.mark.needs_engine
async def test_an_interruption_ends_the_turn_and_leaves_the_conversation_paused(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    await manager.interrupt(talk)
    await until_status(talk, "paused")
    assert await wire(talk) == ["user", "running", "agent", "paused", "InterruptEvent"]
    assert not (await row_of(talk)).is_unanswered


async def test_after_an_interruption_a_run_answers_what_was_said_since(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    await manager.interrupt(talk)
    await until_status(talk, "paused")
    await say(talk, "more")
    await run(talk)
    await until_said(talk, "step 1", "answer to more")


async def test_a_turn_that_is_interrupted_while_it_is_prepared_is_not_played(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, hooked: Hooked
) -> None:
    held = hooked(played_turn.PlayedTurn, "_read").hold()
    await say(talk, "hello", run=True)
    await held.reached()
    await manager.interrupt(talk)
    held.let_go.set()
    await until_status(talk, "paused")
    assert ((await wire(talk))[-2:], stage.asked) == (["paused", "InterruptEvent"], [])


async def test_an_interruption_waits_for_the_beginning_of_a_turn(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, hooked: Hooked
) -> None:
    held = Held(threading.Event(), threading.Event())
    hooked(loop_turns, "begin_turn").after(held.wait)
    await say(talk, "hello", run=True)
    await held.reached()
    interrupting = asyncio.ensure_future(manager.interrupt(talk))
    done, _ = await asyncio.wait({interrupting}, timeout=0.3)
    assert not done
    held.let_go.set()
    await interrupting
    await until_status(talk, "paused")
    assert ((await wire(talk))[-2:], stage.asked) == (["paused", "InterruptEvent"], [])


async def test_a_run_that_no_loop_plays_is_interrupted(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello")
    await astore.call(runs.ask, talk)
    await manager.interrupt(talk)
    assert (await wire(talk))[-2:] == ["paused", "InterruptEvent"]
    assert await status_of(talk) == "paused"


@pytest.mark.needs_engine
async def test_a_run_of_another_process_is_not_interrupted_behind_its_back(
    talk: ConversationRef, manager: ConversationManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(command_channel, "WAIT_S", 0.1)
    await astore.call(playing, talk, HERE._replace(host="elsewhere"))
    with pytest.raises(CommandPending):
        await manager.interrupt(talk)
    assert await status_of(talk) == "running"


async def test_an_interruption_after_the_end_of_a_run_writes_nothing(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello", run=True)
    await until_status(talk, "finished")
    before = await log(talk)
    await manager.interrupt(talk)
    assert (await log(talk), await status_of(talk)) == (before, "finished")


async def until_letting_go(conversation: ConversationRef, stage: Stage) -> None:
    """Let a turn be interrupted whose agent needs a moment to let go."""
    await say(conversation, "tidy", run=True)
    await stage.holding()
    await get_manager().interrupt(conversation)


async def test_a_message_that_asks_for_a_run_before_an_interrupted_turn_has_ended_is_answered_after_it(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_letting_go(talk, stage)
    before = len(await log(talk)) - 1
    await say(talk, "more", run=True)
    stage.go.set()
    await until_said(talk, "answer to more")
    await until_status(talk, "finished")
    after = await wire(talk, after=before)
    assert after == ["user", "paused", "InterruptEvent", "running", "agent", "finished"]


async def test_a_run_that_is_asked_for_before_an_interrupted_turn_has_ended_follows_it(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_letting_go(talk, stage)
    assert [await run(talk), await run(talk)] == [True, False]
    stage.go.set()
    await until_said(talk, "answer to nothing")
    assert stage.asked == [["tidy"], []]


async def test_a_run_that_is_asked_for_while_an_interrupted_turn_is_prepared_follows_it(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, hooked: Hooked
) -> None:
    held = hooked(played_turn.PlayedTurn, "_read").hold()
    await say(talk, "hello", run=True)
    await held.reached()
    await manager.interrupt(talk)
    assert await run(talk) is True
    held.let_go.set()
    await until_said(talk, "answer to nothing")


async def test_what_is_only_said_before_an_interrupted_turn_has_ended_waits_for_the_next_run(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_letting_go(talk, stage)
    await say(talk, "more")
    stage.go.set()
    await until_status(talk, "paused")
    assert not await astore.call(pending_work.has_work, talk)
    await run(talk)
    await until_said(talk, "answer to more")


async def test_what_is_said_after_a_run_that_follows_an_interruption_is_answered_by_it(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_letting_go(talk, stage)
    await run(talk)
    await say(talk, "more")
    stage.go.set()
    await until_said(talk, "answer to more")


async def test_a_loop_that_is_resumed_before_an_interrupted_turn_has_ended_is_not_paused_by_its_end(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_letting_go(talk, stage)
    await manager.run(talk)
    stage.go.set()
    await until(lambda: AgentLoop.objects.of(talk).filter(turn_id=None).exists())
    await until_status(talk, "idle")


async def test_a_second_interruption_gives_up_on_the_run_that_was_to_follow_the_first(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_letting_go(talk, stage)
    await say(talk, "more", run=True)
    await manager.interrupt(talk)
    stage.go.set()
    await until_status(talk, "paused")
    assert not (await row_of(talk)).is_unanswered


async def test_a_run_that_was_to_follow_an_interruption_survives_the_server(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_letting_go(talk, stage)
    await say(talk, "more", run=True)
    closing = asyncio.ensure_future(close_manager())
    await asyncio.sleep(0)
    stage.go.set()
    await closing
    await get_manager().ensure_started()
    await until_said(talk, "answer to more")


@pytest.mark.no_second_try
@pytest.mark.needs_engine
def test_a_run_that_is_asked_for_as_an_interrupted_turn_ends_is_not_lost(
    talk: ConversationRef, hooked: Hooked
) -> None:
    # Without a lock the turn's end does not see it, and leaves the conversation paused.
    epoch = leases.claim(talk, HERE, agent="")
    through = runs.take(talk, message("hello"), run=True).seq
    assert loop_turns.begin_turn(talk, epoch) is not None
    late = Late(hooked(leases, "locked_by"), lambda: runs.ask(talk, given_up=through))
    recovery.stop_turn(talk, epoch, through=through)
    late.wait()
    assert pending_work.has_work(talk)


# Ends


async def test_an_agent_that_is_done_finishes_by_a_call_and_its_answer(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "finish", run=True)
    await until_status(talk, "finished")
    _, _, _, call, answer, _ = await payloads(talk)
    assert (call["action"], answer["action_id"]) == (
        {"kind": "FinishAction", "message": "All done."},
        call["id"],
    )
    assert answer["observation"]["kind"] == "FinishObservation"
    assert await astore.call(v1_input.final_response, talk) == "All done."


async def test_on_the_older_wire_an_agent_that_is_done_says_so_in_its_way(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await say(conversation, "finish", run=True)
    await until_status(conversation, "finished")
    actions = [each["args"] for each in await payloads(conversation) if each.get("action") == "finish"]
    assert [args["final_thought"] for args in actions] == ["All done."]


def test_a_turn_that_is_ended_again_has_one_end(talk: ConversationRef) -> None:
    epoch = leases.claim(talk, HERE, agent="")
    writes.append(talk, [message("hello")])
    runs.ask(talk)
    start = loop_turns.begin_turn(talk, epoch)
    assert start is not None
    runs.finish(talk, epoch, start, start.counted)
    writes.append(talk, [replace(message("more"), asks=True)])
    runs.finish(talk, epoch, start, start.counted)
    assert reads.last_seq(talk) == 3


@pytest.mark.needs_engine
def test_a_message_that_arrives_as_a_turn_ends_finds_the_run_over(
    talk: ConversationRef, hooked: Hooked
) -> None:
    # Without a lock it is taken to be answered by a run that has ended meanwhile.
    epoch = leases.claim(talk, HERE, agent="")
    writes.append(talk, [message("hello")])
    runs.ask(talk)
    start = loop_turns.begin_turn(talk, epoch)
    assert start is not None
    late = Late(hooked(runs, "_locked"), lambda: runs.take(talk, message("more"), run=False))
    runs.finish(talk, epoch, start, start.counted)
    late.wait()
    row = Conversation.objects.get(pk=talk.pk)
    assert (row.is_unanswered, AgentLoop.objects.of(talk).get().execution_status) == (False, "idle")


async def test_an_agent_that_fails_ends_the_run_in_error_and_the_reason_follows(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "fail", run=True)
    await until_status(talk, "error")
    assert await wire(talk) == ["user", "running", "error", "ConversationErrorEvent"]
    last = (await payloads(talk))[-1]
    assert (last["code"], last["detail"]) == ("ValueError", "No luck.")


async def test_after_an_error_the_next_run_works(talk: ConversationRef, manager: ConversationManager) -> None:
    await say(talk, "fail", run=True)
    await until_status(talk, "error")
    await say(talk, "more")
    assert await run(talk) is True
    await until_said(talk, "answer to more")


class Unmakeable:
    """An agent that cannot be made."""

    def __init__(self) -> None:
        raise RuntimeError("There is no key.")


@pytest.mark.parametrize("was_paused", [False, True])
async def test_a_run_that_no_loop_can_play_ends_in_error_each_time(
    talk: ConversationRef,
    stage: Stage,
    manager: ConversationManager,
    configured: Callable[..., None],
    was_paused: bool,
) -> None:
    if was_paused:
        await until_paused(talk, stage)
        await close_manager()
    else:
        await say(talk, "hello")
    configured(agent=f"{__name__}.Unmakeable")
    for _ in range(2):
        assert await run(talk) is True
        await until_status(talk, "error")
    assert (await wire(talk))[-2:] == ["error", "ConversationErrorEvent"]
    configured(agent="tests.support.people.scripted_agent.ScriptedAgent")
    await run(talk)
    await until_status(talk, "finished")


@pytest.mark.needs_engine
def test_a_dead_loop_leaves_no_call_unanswered_and_the_run_in_error(talk: ConversationRef) -> None:
    epoch = leases.claim(talk, DEAD, agent="")
    writes.append(talk, [message("hello")])
    runs.ask(talk)
    start = loop_turns.begin_turn(talk, epoch)
    assert start is not None
    calls = [action_event(name, turn_id=start.turn_id) for name in ("a", "b", "c")]
    failed = v1.authored(v1.agent_error(v1.Call("terminal", "b"), error="no"), event_id="failed")
    writes.append(talk, [*calls, failed.event("failed", turn_id=start.turn_id)], epoch=epoch)
    recovery.recover(talk, HERE)
    events = [json.loads(each["payload"]) for each in reads.read_after(talk, -1)]
    errors = [each["tool_call_id"] for each in events if each["kind"] == "AgentErrorEvent"]
    assert (errors, told(events[-1])) == (["b", "a", "c"], "error")
    assert AgentLoop.objects.of(talk).get().execution_status == "error"


async def test_a_run_that_a_stop_of_the_server_cuts_off_ends_in_error(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    await close_manager()
    assert ((await wire(talk))[-1], await status_of(talk)) == ("error", "error")


async def test_the_totals_are_told_once_where_a_turn_has_changed_them(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await until_held(talk, stage)
    spent = Metrics(accumulated_cost=0.5, prompt_tokens=100, completion_tokens=10)
    await astore.append(talk, [event(metrics=spent)])
    stage.go.set()
    await until_status(talk, "finished")
    await say(talk, "more", run=True)
    await until_said(talk, "step 1", "step 2", "answer to more")
    (told,) = [each["value"] for each in await payloads(talk) if each.get("key") == "stats"]
    usage = told["usage_to_metrics"]["agent"]
    assert (usage["accumulated_cost"], usage["accumulated_token_usage"]["prompt_tokens"]) == (0.5, 100)


# What stands beside a run


async def test_a_condensation_is_stored_with_the_agents_summary_and_removes_nothing(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await say(talk, "hello", run=True)
    await until_status(talk, "finished")
    before = await payloads(talk)
    await v1_input.condense(talk)
    *kept, asked, condensed = await payloads(talk)
    assert (kept, asked["kind"], condensed["kind"]) == (before, "CondensationRequest", "Condensation")
    assert condensed["forgotten_event_ids"] == [each["id"] for each in before if told(each) in SPOKEN]
    assert condensed["summary"] == "USER: HELLO\nAGENT: ANSWER TO HELLO"


SPOKEN = ("user", "agent")


@pytest.mark.needs_engine
async def test_a_condensation_forgets_only_what_the_one_before_has_left(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    for text in ("one", "two"):
        await say(talk, text, run=True)
        await until_status(talk, "finished")
        await v1_input.condense(talk)
    forgotten = [each["forgotten_event_ids"] for each in await payloads(talk) if told(each) == "Condensation"]
    assert [len(ids) for ids in forgotten] == [2, 2]
    assert not set(forgotten[0]) & set(forgotten[1])


async def test_a_condensation_needs_no_agent_that_answers(
    talk: ConversationRef, manager: ConversationManager, configured: Callable[..., None]
) -> None:
    await say(talk, "hello")
    configured(agent=f"{__name__}.Unmakeable")
    await v1_input.condense(talk)
    assert (await payloads(talk))[-1]["summary"] == "1 earlier events were left out here."

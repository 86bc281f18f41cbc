"""A tool call is three commits, and a turn goes on after a crash: nothing runs twice by accident."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar
from uuid import UUID

import httpx
import pytest
from django.contrib.auth.models import User
from django.db.models import F

from conversations.events import EventEnvelope, Kind
from conversations.exceptions import Fenced, LoopUnavailable
from conversations.models import ConversationRef, Event, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.base import ProposedCall, ToolCall, Turn, TurnSuspended
from sessions_app.loops import decisions, leases, pauses, recovery, runs, turn_events, turns
from sessions_app.loops.calls import left, start
from sessions_app.loops.calls.start import CallRefused
from sessions_app.loops.conversation_manager import ConversationManager
from sessions_app.loops.playing.played_turn import PlayedTurn
from sessions_app.models import (
    AgentLoop,
    ExecutionStatus,
    Repair,
    RunOptions,
    RunState,
    ToolRun,
    UnknownAnswer,
    UnknownOutcome,
)
from sessions_app.processes import this_process
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from tests.conftest import Join
from tests.support.people.scripted_agent import (
    asking,
    ends,
    log,
    loop_of,
    manager,
    stage,
    until,
    until_status,
)

__all__ = ["manager", "stage"]

pytestmark = pytest.mark.no_second_try

HERE = this_process()
DEAD = HERE._replace(started=1.0)
"""A process of this host that is gone: its number was given to another one."""
WAITING = ExecutionStatus.WAITING_FOR_CONFIRMATION


class PaintingAgent:
    """Carries out what was decided, and paints; told to `ask`, it asks before it paints twice."""

    continues = True
    painted: ClassVar[list[tuple[str, str]]] = []
    """The id and the key of each call that was run."""

    async def play(self, turn: Turn) -> None:
        for decision in turn.decisions:
            if decision.accepted:
                await self._paint(turn, decision.call)
            else:
                await turn.tool_rejected(decision.call, decision.reason or "No.")
        if not turn.done and turn.inputs[0]["text"] == "ask":
            colours = ["red", "blue"]
            await turn.ask_approvals([ProposedCall(name="paint", arguments={"c": each}) for each in colours])
        await turn.say("It is done.")

    async def _paint(self, turn: Turn, call: ToolCall) -> None:
        key = await turn.start_tool(call)
        self.painted.append((call.event_id, key))
        await turn.tool_result(call, "painted")

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return ""


class EndingAgent(PaintingAgent):
    """One that cannot go on."""

    continues = False


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(
    request: pytest.FixtureRequest,
    alice: User,
    manager: ConversationManager,
    configured: Callable[..., None],
) -> ConversationRef:
    """An empty conversation of either wire."""
    configured(agent="tests.store.test_tool_runs.PaintingAgent")
    PaintingAgent.painted.clear()
    return creation.create(alice, conversation_id="talk", version=request.param, title="A talk")


async def begun(talk: ConversationRef) -> PlayedTurn:
    """Let a process that is about to die begin a turn."""
    epoch = await astore.call(leases.claim, talk, DEAD, agent="an agent")
    await astore.append(talk, [asking("paint it")])
    begin = await astore.call(turns.begin_turn, talk, epoch)
    assert begin is not None
    turn = PlayedTurn(talk, epoch, begin)
    await turn.prepare()
    return turn


async def taken_over(talk: ConversationRef) -> None:
    """Let this process find what the dead one has left, and go on with it."""
    await astore.call(recovery.recover, talk, HERE)


async def until_ended(talk: ConversationRef, manager: ConversationManager) -> list[str]:
    """Let the agent go on until its turn is over, and return what has answered its calls."""
    manager.start_soon(talk)
    await until(lambda: AgentLoop.objects.of(talk).filter(turn_id=None, epoch__gt=1).exists())
    return await answers(talk)


async def answers(talk: ConversationRef) -> list[str]:
    return [each["text"] for each in await log(talk) if each["kind"] in ("tool_result", "error")]


async def run_of(call: ToolCall) -> ToolRun:
    return await astore.call(lambda: ToolRun.objects.get(call_id=call.event_id))


def newest_message(events: Sequence[EventEnvelope]) -> str:
    return [each["text"] for each in events if each["kind"] == "message"][-1]


async def test_a_start_is_stored_with_its_epoch_and_a_key_that_the_call_alone_decides(
    talk: ConversationRef,
) -> None:
    turn = await begun(talk)
    first, second = [await turn.call_tool("paint", {"c": "red"}) for _ in range(2)]
    keys = [await turn.start_tool(call) for call in (first, second)]
    stored = [await run_of(call) for call in (first, second)]
    assert [(run.state, run.epoch, run.key) for run in stored] == [("started", 1, key) for key in keys]
    assert keys[0] != keys[1]
    assert stored[0].digest == stored[1].digest != ""


async def test_nothing_is_left_of_the_runs_of_a_turn_that_is_over(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await (await begun(talk)).call_tool("paint", {})
    await taken_over(talk)
    await until_ended(talk, manager)
    assert not await astore.call(ToolRun.objects.exists)


async def test_a_result_is_stored_once_however_often_it_comes(talk: ConversationRef) -> None:
    turn = await begun(talk)
    call = await turn.call_tool("paint", {})
    await turn.start_tool(call)
    await turn.tool_result(call, "painted")
    await turn.tool_result(call, "painted again")
    assert await answers(talk) == ["painted"]


async def test_a_result_is_stored_though_a_client_has_used_its_id(talk: ConversationRef) -> None:
    turn = await begun(talk)
    call = await turn.call_tool("paint", {})
    taken = turn_events.turn_event_id(turn.turn_id, f"result {call.seq}")
    await astore.append(talk, [asking("mine", event_id=taken)])
    await turn.tool_result(call, "painted")
    assert await answers(talk) == ["painted"]


async def test_a_call_is_started_once(talk: ConversationRef) -> None:
    turn = await begun(talk)
    call = await turn.call_tool("paint", {})
    await turn.start_tool(call)
    with pytest.raises(CallRefused, match="it was started before"):
        await turn.start_tool(call)
    await turn.tool_result(call, "painted")
    with pytest.raises(CallRefused, match="it has a result"):
        await turn.start_tool(call)


async def test_a_start_whose_commit_is_repeated_is_one(talk: ConversationRef) -> None:
    turn = await begun(talk)
    call = await turn.call_tool("paint", {})
    keys = {
        await astore.call(start.start, talk, 1, turn.turn_id, call, attempt="the first") for _ in range(2)
    }
    assert len(keys) == 1


async def test_a_loop_that_was_replaced_starts_nothing(talk: ConversationRef) -> None:
    turn = await begun(talk)
    call = await turn.call_tool("paint", {})
    await astore.call(leases.claim, talk, HERE, agent="")
    with pytest.raises(Fenced):
        await turn.start_tool(call)


async def test_a_call_of_a_turn_that_is_over_is_not_started(talk: ConversationRef) -> None:
    turn = await begun(talk)
    call = await turn.call_tool("paint", {})
    await astore.call(lambda: recovery.stop_turn(talk, 1, through=9))
    with pytest.raises(CallRefused, match="its turn is over"):
        await turn.start_tool(call)


async def test_a_call_that_the_turn_has_not_stored_is_not_started(talk: ConversationRef) -> None:
    turn = await begun(talk)
    call = await turn.call_tool("paint", {})
    with pytest.raises(CallRefused, match="the turn has not stored it"):
        await turn.start_tool(replace(call, event_id="another"))


# Approvals


async def approved(talk: ConversationRef) -> PlayedTurn:
    """Let a turn ask for the approval of a call, approve it, and continue the turn."""
    turn = await begun(talk)
    with pytest.raises(TurnSuspended):
        await turn.ask_approval("paint", {"c": "red"})
    await astore.call(decisions.decide, talk, True, "")
    return await continued(talk)


async def continued(talk: ConversationRef) -> PlayedTurn:
    """Let the process that is about to die take a turn up again."""
    begin = await astore.call(turns.begin_turn, talk, 1)
    assert begin is not None
    turn = PlayedTurn(talk, 1, begin)
    await turn.prepare()
    return turn


async def test_an_approval_is_for_the_arguments_that_were_shown(talk: ConversationRef) -> None:
    turn = await approved(talk)
    (decision,) = turn.decisions
    with pytest.raises(CallRefused, match="it is not what was approved"):
        await turn.start_tool(replace(decision.call, arguments={"c": "blue"}))
    assert turn.decision == decision
    assert (await run_of(decision.call)).state == RunState.APPROVED


async def test_an_approval_is_used_once(talk: ConversationRef) -> None:
    turn = await approved(talk)
    (decision,) = turn.decisions
    await turn.start_tool(decision.call)
    with pytest.raises(CallRefused, match="it was started before"):
        await turn.start_tool(decision.call)


async def test_a_call_that_waits_or_was_rejected_is_not_started(talk: ConversationRef) -> None:
    turn = await begun(talk)
    with pytest.raises(TurnSuspended):
        await turn.ask_approval("paint", {"c": "red"})
    run = await astore.call(ToolRun.objects.get)
    call = ToolCall(
        name="paint", arguments={"c": "red"}, tool_call_id="", event_id=run.call_id, seq=run.call_seq
    )
    with pytest.raises(CallRefused, match="it waits for approval"):
        await turn.start_tool(call)
    await astore.call(decisions.decide, talk, False, "")
    with pytest.raises(CallRefused, match="it was rejected"):
        await turn.start_tool(call)


async def ask(talk: ConversationRef, manager: ConversationManager) -> None:
    """Let the agent ask for the approval of two calls at once."""
    await astore.append(talk, [asking("ask")])
    manager.wake(talk)
    await until_status(talk, WAITING)


async def test_one_approval_runs_all_calls_that_wait(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await ask(talk, manager)
    assert PaintingAgent.painted == []
    await manager.confirm(talk, accept=True)
    assert await until_over(talk) == ["painted", "painted"]
    assert len(set(PaintingAgent.painted)) == 2


async def test_one_rejection_rejects_all_calls_that_wait(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await ask(talk, manager)
    await manager.reject(talk, "Not today.")
    await until(lambda: AgentLoop.objects.of(talk).filter(turn_id=None).exists())
    refused = [each for each in await log(talk) if each["kind"] in ("tool_result", "error")]
    calls = [each for each in await log(talk) if each["kind"] == "tool_call"]
    assert [each["text"] for each in refused] == ["Not today.", "Not today."]
    assert [each["tool_call_id"] for each in refused] == [each["tool_call_id"] for each in calls]
    if talk.version == Version.V1:
        assert {each["type"] for each in refused} == {"UserRejectObservation"}
    assert PaintingAgent.painted == []


async def until_over(talk: ConversationRef) -> list[str]:
    await until(lambda: AgentLoop.objects.of(talk).filter(turn_id=None).exists())
    return await answers(talk)


async def test_a_decision_about_several_calls_names_the_last(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await ask(talk, manager)
    first, last = [each["seq"] for each in await log(talk) if each["kind"] == "tool_call"]
    with pytest.raises(decisions.OtherCallWaits):
        await manager.confirm(talk, accept=True, call_seq=first)
    await manager.confirm(talk, accept=True, call_seq=last)
    await until_over(talk)


async def test_the_outcome_of_a_call_that_waits_for_approval_cannot_be_told(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await ask(talk, manager)
    with pytest.raises(decisions.NotUnknown):
        await manager.confirm(talk, accept=True, outcome=UnknownAnswer.DONE)
    assert (await loop_of(talk)).is_undecided


async def test_two_approvals_at_once_run_a_call_once(
    alice: User, manager: ConversationManager, configured: Callable[..., None], is_full: bool
) -> None:
    configured(agent="tests.store.test_tool_runs.PaintingAgent")
    PaintingAgent.painted.clear()
    talk = await astore.call(
        lambda: creation.create(alice, conversation_id="talk", version=Version.V1, title="A talk")
    )
    times = 1000 if is_full else 5
    for number in range(times):
        await ask(talk, manager)
        done = await asyncio.gather(
            manager.confirm(talk, accept=True),
            manager.ask_run(talk),
            manager.confirm(talk, accept=True),
            return_exceptions=True,
        )
        assert all(each is None or isinstance(each, bool | LoopUnavailable) for each in done)
        await until_over(talk)
        assert len(PaintingAgent.painted) == len(set(PaintingAgent.painted)) == 2 * (number + 1)
    results = Event.objects.of(talk).filter(kind=Kind.TOOL_RESULT)
    assert await astore.call(results.count) == 2 * times


async def test_a_pause_between_two_approved_calls_keeps_the_approval_of_the_second(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    turn = await begun(talk)
    with pytest.raises(TurnSuspended):
        await turn.ask_approvals([ProposedCall(name="paint", arguments={"c": each}) for each in "ab"])
    await astore.call(decisions.decide, talk, True, "")
    turn = await continued(talk)
    first, second = [each.call for each in turn.decisions]
    await turn.start_tool(first)
    await turn.tool_result(first, "painted")
    turn.pause_wanted = True
    with pytest.raises(TurnSuspended):
        await turn.start_tool(second)
    await astore.call(pauses.resume, talk)
    assert [each.call for each in (await continued(talk)).decisions] == [second]


# After a crash


async def test_a_call_that_had_not_been_started_runs_once(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    turn = await begun(talk)
    call = await turn.call_tool("paint", {"c": "red"})
    await taken_over(talk)
    loop = await loop_of(talk)
    assert (loop.execution_status, loop.ended_by) == (ExecutionStatus.RUNNING, "")
    assert await until_ended(talk, manager) == ["painted"]
    assert [call_id for call_id, _ in PaintingAgent.painted] == [call.event_id]
    assert [each["turn"] for each in await ends(talk)] == [turn.turn_id]
    repair = await astore.call(Repair.objects.get)
    assert (repair.turn_id, repair.has_ended, repair.continuations) == (turn.turn_id, False, 1)


async def started_and_left(talk: ConversationRef) -> tuple[ToolCall, str]:
    """Let a call be started, and its process die; return the call and its key."""
    turn = await begun(talk)
    call = await turn.call_tool("paint", {"c": "red"})
    key = await turn.start_tool(call)
    return call, key


async def test_a_call_that_was_started_waits_for_a_persons_word(talk: ConversationRef) -> None:
    call, _ = await started_and_left(talk)
    await taken_over(talk)
    assert (await loop_of(talk)).is_undecided
    assert (await run_of(call)).state == RunState.UNKNOWN
    [notice] = [each["text"] for each in await log(talk) if each["kind"] == "other"]
    assert "it is unknown whether the call has taken effect" in notice
    assert (PaintingAgent.painted, await answers(talk)) == ([], [])


async def test_a_repeatable_tool_runs_again_with_the_same_key(
    talk: ConversationRef, manager: ConversationManager, configured: Callable[..., None]
) -> None:
    configured(repeatable_tools=("paint",))
    call, key = await started_and_left(talk)
    await taken_over(talk)
    assert await until_ended(talk, manager) == ["painted"]
    assert PaintingAgent.painted == [(call.event_id, key)]


@pytest.mark.parametrize(
    ("declared", "state"), [({}, RunState.APPROVED), ({"properties": {"kind": {}}}, RunState.UNKNOWN)]
)
async def test_a_tool_of_the_client_runs_again_and_one_of_a_server_with_the_name_of_an_unusable_one_does_not(
    talk: ConversationRef, declared: dict[str, object], state: RunState
) -> None:
    tool = {"name": "paint", "parameters": {"type": "object", **declared}}
    await astore.call(agent_setups.add, talk, NewSetup(facts={"client_tools": [tool]}))
    call, _ = await started_and_left(talk)
    await taken_over(talk)
    assert (await run_of(call)).state == state


async def test_a_model_is_told_of_an_unknown_outcome_where_the_conversation_says_so(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await astore.call(
        lambda: RunOptions.objects.create(conversation_id=talk.pk, unknown_outcome=UnknownOutcome.TELL)
    )
    await started_and_left(talk)
    await taken_over(talk)
    assert await until_ended(talk, manager) == [turn_events.OUTCOME_UNKNOWN]
    assert PaintingAgent.painted == []


async def test_accepted_an_unknown_call_runs_again_with_the_same_key(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    call, key = await started_and_left(talk)
    await taken_over(talk)
    await manager.confirm(talk, accept=True, call_seq=call.seq)
    assert await until_ended(talk, manager) == ["painted"]
    assert PaintingAgent.painted == [(call.event_id, key)]


async def test_rejected_an_unknown_call_is_skipped_and_says_why(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await started_and_left(talk)
    await taken_over(talk)
    await manager.reject(talk, "I have painted it.")
    assert await until_ended(talk, manager) == ["I have painted it."]
    assert PaintingAgent.painted == []
    state = (await ends(talk))[0]["text"].partition(":")[0]
    assert state == ("idle" if talk.version == Version.V1 else "awaiting_user_input")


@pytest.mark.parametrize(
    ("answer", "words", "told"),
    [
        (UnknownAnswer.DONE, "It is red.", f"{turn_events.OUTCOME_DONE}: It is red."),
        (UnknownAnswer.DONE, "", f"{turn_events.OUTCOME_DONE}."),
        (UnknownAnswer.SKIP, "Never mind.", "Never mind."),
        (UnknownAnswer.SKIP, "", turn_events.SKIPPED),
        (UnknownAnswer.RUN_AGAIN, "", "painted"),
    ],
)
async def test_a_person_says_what_became_of_a_call(
    talk: ConversationRef, manager: ConversationManager, answer: UnknownAnswer, words: str, told: str
) -> None:
    await started_and_left(talk)
    await taken_over(talk)
    accept = answer is not UnknownAnswer.SKIP
    await manager.confirm(talk, accept=accept, outcome=answer, reason=words)
    assert await until_ended(talk, manager) == [told]
    assert len(PaintingAgent.painted) == (answer is UnknownAnswer.RUN_AGAIN)
    assert newest_message(await log(talk)) == "It is done."
    assert len(await ends(talk)) == 1


async def test_a_word_about_an_outcome_counts_once(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    call, _ = await started_and_left(talk)
    await taken_over(talk)
    with pytest.raises(decisions.OtherCallWaits):
        await manager.confirm(talk, accept=True, call_seq=call.seq - 1)
    for _ in range(2):
        await manager.confirm(talk, accept=True, outcome=UnknownAnswer.DONE, event_id="said once")
    assert len(await until_ended(talk, manager)) == 1


async def test_a_call_that_was_rejected_before_the_crash_is_not_run_after_it(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    turn = await begun(talk)
    with pytest.raises(TurnSuspended):
        await turn.ask_approval("paint", {"c": "red"})
    await astore.call(decisions.decide, talk, False, "Not today.")
    await continued(talk)
    await taken_over(talk)
    assert await until_ended(talk, manager) == ["Not today."]
    assert PaintingAgent.painted == []


async def test_an_approval_that_was_not_used_before_the_crash_is_used_after_it(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    turn = await begun(talk)
    with pytest.raises(TurnSuspended):
        await turn.ask_approvals([ProposedCall(name="paint", arguments={"c": each}) for each in "ab"])
    await astore.call(decisions.decide, talk, True, "")
    turn = await continued(talk)
    first, second = [each.call for each in turn.decisions]
    await turn.start_tool(first)
    await taken_over(talk)
    with pytest.raises(decisions.OtherCallWaits):
        await manager.confirm(talk, accept=True, call_seq=second.seq)
    await manager.confirm(talk, accept=True, outcome=UnknownAnswer.SKIP, call_seq=first.seq)
    assert await until_ended(talk, manager) == [turn_events.SKIPPED, "painted"]
    assert [call_id for call_id, _ in PaintingAgent.painted] == [second.event_id]


async def test_a_turn_asks_about_one_unknown_call_after_the_other(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    turn = await begun(talk)
    calls = [await turn.call_tool("paint", {"c": each}) for each in "ab"]
    for call in calls:
        await turn.start_tool(call)
    await taken_over(talk)
    for call in calls:
        await until(lambda: AgentLoop.objects.of(talk).undecided().exists())
        await manager.confirm(talk, accept=True, outcome=UnknownAnswer.DONE, call_seq=call.seq)
    assert len(await until_ended(talk, manager)) == 2
    assert PaintingAgent.painted == []


async def test_what_was_said_before_the_crash_is_kept_and_marked(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    turn = await begun(talk)
    with suppress(ZeroDivisionError):
        async with turn.answer() as answer:
            await answer.write("half of ")
            raise ZeroDivisionError
    await taken_over(talk)
    await until_ended(talk, manager)
    said = [each for each in await log(talk) if each["kind"] == "message" and each["source"] == "agent"]
    assert [each["text"] for each in said] == ["half of ", "It is done."]
    assert "interrupted" in said[0]["payload"]


async def test_a_turn_goes_on_three_times_and_then_ends_as_interrupted(talk: ConversationRef) -> None:
    turn = await begun(talk)
    for _ in range(left.RECOVERIES_MAX):
        await taken_over(talk)
        assert (await loop_of(talk)).turn_id == turn.turn_id
        epoch = await astore.call(leases.claim, talk, DEAD, agent="an agent")
        begin = await astore.call(turns.begin_turn, talk, epoch)
        assert begin is not None
        await PlayedTurn(talk, epoch, begin).prepare()
    await taken_over(talk)
    assert (await loop_of(talk)).execution_status == ExecutionStatus.ERROR
    assert len(await ends(talk)) == 1
    repair = await astore.call(Repair.objects.get)
    assert (repair.has_ended, repair.continuations) == (True, left.RECOVERIES_MAX)


async def test_a_take_over_that_is_repeated_counts_once(talk: ConversationRef) -> None:
    await begun(talk)
    for _ in range(3):
        await taken_over(talk)
    assert (await loop_of(talk)).recoveries == 1


async def test_a_turn_of_an_agent_that_cannot_go_on_ends_as_interrupted(
    talk: ConversationRef, configured: Callable[..., None]
) -> None:
    configured(agent="tests.store.test_tool_runs.EndingAgent")
    turn = await begun(talk)
    await turn.call_tool("paint", {})
    await taken_over(talk)
    assert (await loop_of(talk)).turn_id is None
    assert len(await ends(talk)) == 1


async def test_a_turn_that_goes_on_can_be_paused_before_a_loop_takes_it_up(
    talk: ConversationRef, manager: ConversationManager
) -> None:
    await (await begun(talk)).call_tool("paint", {})
    await taken_over(talk)
    assert await astore.call(pauses.pause, talk)
    loop = await loop_of(talk)
    assert (loop.execution_status, loop.recoveries) == (ExecutionStatus.PAUSED, 1)
    await astore.call(pauses.resume, talk)
    assert await until_ended(talk, manager) == ["painted"]


async def test_a_turn_that_goes_on_can_be_stopped_before_a_loop_takes_it_up(talk: ConversationRef) -> None:
    await (await begun(talk)).call_tool("paint", {})
    await taken_over(talk)
    await astore.call(runs.interrupt_unheld, talk)
    assert (await loop_of(talk)).turn_id is None
    assert len(await answers(talk)) == 1
    assert PaintingAgent.painted == []


async def test_what_is_left_of_another_turn_is_not_asked_about(
    talk: ConversationRef,
) -> None:
    call, _ = await started_and_left(talk)
    of_another_turn = {"turn_id": "another", "state": RunState.UNKNOWN}
    await astore.call(lambda: ToolRun.objects.of_call(talk, call.event_id).update(**of_another_turn))
    await ask_anew(talk)
    await astore.call(decisions.decide, talk, True, "")
    run = await astore.call(lambda: ToolRun.objects.of(talk).get())
    assert (run.state, run.name) == (RunState.APPROVED, "draw")


async def ask_anew(talk: ConversationRef) -> None:
    """Let the turn of the process that is about to die ask for the approval of another call."""
    begin = await astore.call(turns.begin_turn, talk, 1)
    assert begin is not None
    with pytest.raises(TurnSuspended):
        await PlayedTurn(talk, 1, begin).ask_approval("draw", {})


async def test_a_lease_that_was_lost_lets_no_turn_go_on(talk: ConversationRef) -> None:
    turn = await begun(talk)
    await astore.call(leases.claim, talk, HERE, agent="")
    with pytest.raises(Fenced):
        await astore.call(left.go_on, talk, 1, turn.turn_id)
    assert await astore.call(AgentLoop.objects.filter(recoveries=F("recoveries") * 0).exists)


# By the native door


PENDING = "/api/native/conversations/talk/pending-calls"


async def test_a_native_client_learns_what_waits_and_says_what_became_of_it(
    talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    call, _ = await started_and_left(talk)
    assert (await rest.get(PENDING)).json() == {"calls": []}
    await taken_over(talk)
    waiting = {"seq": call.seq, "id": call.event_id, "tool": "paint", "asks": "outcome"}
    assert (await rest.get(PENDING)).json() == {"calls": [waiting]}
    told = {"outcome": "done", "text": "It is red.", "seq": call.seq}
    answer = await rest.post("/api/native/conversations/talk/confirm", json=told)
    assert answer.status_code == 200
    assert await until_ended(talk, manager) == [f"{turn_events.OUTCOME_DONE}: It is red."]


async def test_a_frame_says_what_became_of_a_call_once(
    talk: ConversationRef, manager: ConversationManager, join: Join
) -> None:
    await started_and_left(talk)
    await taken_over(talk)
    client = await join(talk)
    for _ in range(2):
        await client.send({"type": "confirm", "id": 1, "outcome": "skip", "text": "Never mind."})
        await client.until("ack", id=1)
    assert await until_ended(talk, manager) == ["Never mind."]


async def test_a_frame_about_the_outcome_of_a_call_that_waits_for_approval_is_a_conflict(
    talk: ConversationRef, manager: ConversationManager, join: Join, rest: httpx.AsyncClient
) -> None:
    await ask(talk, manager)
    asks = [each["asks"] for each in (await rest.get(PENDING)).json()["calls"]]
    client = await join(talk)
    await client.send({"type": "confirm", "id": 1, "outcome": "done"})
    error = await client.until("error", id=1)
    assert (asks, error["code"]) == (["approval", "approval"], "conflict")


# By the OpenHands wires


@pytest.fixture
def v1_talk(alice: User, manager: ConversationManager, configured: Callable[..., None]) -> ConversationRef:
    """An empty V1 conversation with an id that its wire takes."""
    configured(agent="tests.store.test_tool_runs.PaintingAgent")
    PaintingAgent.painted.clear()
    return creation.create(alice, conversation_id="5" * 32, version=Version.V1, title="A talk")


async def decide_by_v1(rest: httpx.AsyncClient, talk: ConversationRef, **decision: object) -> None:
    path = f"/agent/api/conversations/{UUID(talk.public_id)}/events/respond_to_confirmation"
    assert (await rest.post(path, json=decision)).status_code == 200


async def types_of_answers(talk: ConversationRef) -> list[str]:
    return [each["type"] for each in await log(talk) if each["kind"] in ("tool_result", "error")]


async def test_one_accept_of_a_v1_client_runs_all_calls_that_wait(
    v1_talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await ask(v1_talk, manager)
    await decide_by_v1(rest, v1_talk, accept=True)
    assert await until_over(v1_talk) == ["painted", "painted"]
    assert (await loop_of(v1_talk)).execution_status == ExecutionStatus.FINISHED


async def test_one_rejection_of_a_v1_client_rejects_each_call_that_waits(
    v1_talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await ask(v1_talk, manager)
    await decide_by_v1(rest, v1_talk, accept=False, reason="Not today.")
    assert await until_over(v1_talk) == ["Not today."] * 2
    assert await types_of_answers(v1_talk) == ["UserRejectObservation"] * 2
    assert (await loop_of(v1_talk)).execution_status == ExecutionStatus.IDLE


@pytest.mark.parametrize(("accept", "answer"), [(True, "painted"), (False, "It is red.")])
async def test_a_v1_client_accepts_an_unknown_call_to_run_it_again_and_rejects_it_to_skip_it(
    v1_talk: ConversationRef,
    manager: ConversationManager,
    rest: httpx.AsyncClient,
    accept: bool,
    answer: str,
) -> None:
    await started_and_left(v1_talk)
    await taken_over(v1_talk)
    await decide_by_v1(rest, v1_talk, accept=accept, reason="It is red.")
    assert await until_ended(v1_talk, manager) == [answer]
    assert len(PaintingAgent.painted) == accept


async def test_a_v1_client_that_only_requests_a_run_repeats_no_unknown_call(
    v1_talk: ConversationRef, manager: ConversationManager, rest: httpx.AsyncClient
) -> None:
    await started_and_left(v1_talk)
    await taken_over(v1_talk)
    answer = await rest.post(f"/agent/api/conversations/{v1_talk.public_id}/run")
    assert answer.status_code == 200, answer.text
    assert await until_ended(v1_talk, manager) == [turn_events.OUTCOME_UNKNOWN]
    assert PaintingAgent.painted == []


@pytest.mark.parametrize("talk", [Version.V0], indirect=True)
@pytest.mark.parametrize(
    ("state", "answer"), [("user_confirmed", "painted"), ("user_rejected", turn_events.SKIPPED)]
)
async def test_a_v0_client_confirms_an_unknown_call_to_run_it_again_and_rejects_it_to_skip_it(
    alice: User, talk: ConversationRef, manager: ConversationManager, state: str, answer: str
) -> None:
    await started_and_left(talk)
    await taken_over(talk)
    event = {"action": "change_agent_state", "args": {"agent_state": state}}
    await manager.send_event_to_conversation(talk, event, sender_id=alice.pk)
    assert await until_ended(talk, manager) == [answer]

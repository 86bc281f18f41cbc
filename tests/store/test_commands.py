"""Commands for loops of other processes: the loop that was meant obeys, whatever becomes of each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from conversations.exceptions import ConversationBusy, LoopUnavailable
from conversations.log import locks, reads, writes
from conversations.models import Conversation, ConversationRef
from conversations.store import creation
from sessions_app import astore
from sessions_app.loops import command_channel, commands, leases, recovery, turns
from sessions_app.loops.commands import CommandPending
from sessions_app.loops.manager import ConversationManager, StandaloneConversationManager
from sessions_app.loops.managers import stops
from sessions_app.loops.managers.stops import Stops
from sessions_app.models import AgentLoop, CommandOutcome, LoopCommand, LoopEnd, Verb
from sessions_app.openhands_v1 import steering
from sessions_app.processes import Process, this_process
from tests.conftest import on_postgresql
from tests.support.data.threads import is_somebody_waiting
from tests.support.people.scripted_agent import (
    Hooked,
    Stage,
    ask,
    asking,
    ends,
    hooked,
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
from tests.support.wires.app_face import child_of
from tests.support.wires.app_face import create as v1_conversation

__all__ = ["hooked", "manager", "stage"]

HERE = this_process()
ELSEWHERE = HERE._replace(host="elsewhere")
"""A process of which this host cannot know that it is gone."""
DEAD = HERE._replace(started=1.0)
STOPPED = "stopped: The agent was stopped."


@pytest.fixture
async def other(manager: ConversationManager) -> AsyncIterator[StandaloneConversationManager]:
    """The manager of another process, which hears hints, and whose sweep takes no loop from the first."""
    await manager.ensure_started()
    found = StandaloneConversationManager(ELSEWHERE)
    found._own(found._commands.listen())
    yield found
    Stage.current.go.set()
    await found.__aexit__(None, None, None)


async def held(conversation: ConversationRef, stage: Stage, text: str = "hold") -> None:
    """Let the first manager's agent hold its turn."""
    await ask(conversation, text)
    await stage.holding()


async def texts_of_ends(conversation: ConversationRef) -> list[str]:
    return [end["text"] for end in await ends(conversation)]


async def verbs_and_outcomes(conversation: ConversationRef) -> list[tuple[str, str]]:
    rows = LoopCommand.objects.filter(conversation_id=conversation.pk).order_by("pk")
    return await astore.call(lambda: list(rows.values_list("verb", "outcome")))


async def give(conversation: ConversationRef, verb: Verb) -> int:
    given = await astore.call(commands.give, conversation, verb, ELSEWHERE)
    assert given is not None
    return given


# What becomes of a command


async def test_a_stop_given_elsewhere_ends_the_turn_before_it_returns(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    await held(conversation, stage)
    await other.close_session(conversation.public_id)
    assert await texts_of_ends(conversation) == [STOPPED]
    assert (await loop_of(conversation)).ended_by == "stopped"


async def test_a_stop_given_elsewhere_gives_up_on_what_was_asked_before_it(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    await held(conversation, stage)
    await ask(conversation, "and this")
    await other.close_session(conversation.public_id)
    assert not (await row_of(conversation)).is_unanswered


async def test_a_pause_given_elsewhere_takes_effect_after_the_current_step(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    await held(conversation, stage)
    await other.pause(conversation)
    stage.go.set()
    await until_status(conversation, "paused")
    assert await said(conversation) == ["step 1"]


async def test_a_run_given_elsewhere_takes_back_a_pause_that_has_not_taken_effect(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    await held(conversation, stage)
    await other.pause(conversation)
    await other.run(conversation)
    stage.go.set()
    await until_said(conversation, "step 1", "step 2")


async def test_an_interruption_given_elsewhere_leaves_the_loop(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    await held(conversation, stage)
    await other.interrupt(conversation)
    await until_status(conversation, "idle")
    assert (await texts_of_ends(conversation), (await loop_of(conversation)).status) == ([STOPPED], "running")


async def test_an_approval_given_elsewhere_wakes_the_loop_that_waits(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    stage.go.set()
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    epoch = (await loop_of(conversation)).epoch
    await other.confirm(conversation, accept=True)
    await until_status(conversation, "finished")
    assert (await loop_of(conversation)).epoch == epoch


async def test_an_approval_of_a_call_that_waits_no_longer_is_refused(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    await other.close_session(conversation.public_id)
    with pytest.raises(LoopUnavailable):
        await other.confirm(conversation, accept=True)


async def test_a_run_of_v1_that_is_on_elsewhere_is_told_so(
    alice: User, manager: ConversationManager, stage: Stage, other: StandaloneConversationManager
) -> None:
    talk = await astore.call(v1_conversation, alice)
    await astore.append(talk, [asking("hold")])
    await manager.ask_run(talk)
    await stage.holding()
    assert await other.ask_run(talk) is False


async def test_a_message_stored_elsewhere_is_answered_by_the_loop_that_is_there(
    conversation: ConversationRef,
    manager: ConversationManager,
    other: StandaloneConversationManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    await astore.append(conversation, [asking("hello")])
    other.wake(conversation)
    await until_said(conversation, "answer to hello")
    assert (await loop_of(conversation)).epoch == 1


async def test_a_start_of_a_loop_that_runs_elsewhere_reports_it(
    conversation: ConversationRef, manager: ConversationManager, other: StandaloneConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    info = await other.maybe_start_agent_loop(conversation)
    assert (info.status, (await loop_of(conversation)).epoch) == ("running", 1)


async def test_a_new_loop_closes_an_idle_one_of_another_process_when_there_are_too_many(
    alice: User,
    conversation: ConversationRef,
    manager: ConversationManager,
    other: StandaloneConversationManager,
    configured: Callable[..., None],
) -> None:
    configured(max_concurrent=1)
    await manager.maybe_start_agent_loop(conversation)
    newer = await astore.call(lambda: creation.create(alice, conversation_id="newer"))
    await other.maybe_start_agent_loop(newer)
    loop = await loop_of(conversation)
    assert (loop.status, loop.ended_by) == ("stopped", "crowded_out")


@pytest.mark.no_second_try
async def test_a_command_whose_hint_was_lost_is_found_by_looking(
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_channel, "LOOK_S", 0.05)
    monkeypatch.setattr(commands, "group_of", lambda process: f"nobody.{process.pid}")
    await held(conversation, stage)
    await StandaloneConversationManager(ELSEWHERE).close_session(conversation.public_id)
    assert await texts_of_ends(conversation) == [STOPPED]


async def test_one_query_looks_for_the_commands_of_all_loops(
    alice: User, manager: ConversationManager, hooked: Hooked
) -> None:
    talks = await astore.call(lambda: [creation.create(alice, conversation_id=f"t{n}") for n in range(2)])
    for talk in talks:
        await manager.maybe_start_agent_loop(talk)
    assert isinstance(manager, StandaloneConversationManager)
    looks = hooked(commands, "pending")
    await manager._commands.look()
    assert looks.calls == 1


# An agent that does not let go


async def test_a_stop_that_an_agent_does_not_hear_yet_says_so_and_takes_effect_later(
    conversation: ConversationRef,
    stage: Stage,
    other: StandaloneConversationManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_channel, "WAIT_S", 0.3)
    await held(conversation, stage, "stubborn")
    with pytest.raises(CommandPending):
        await other.close_session(conversation.public_id)
    assert (await loop_of(conversation)).status == "running"
    stage.go.set()
    await until_no_loop(conversation)
    assert await verbs_and_outcomes(conversation) == [("stop", "done")]


async def test_a_stop_of_the_own_loop_says_as_well_that_the_agent_does_not_let_go(
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_channel, "WAIT_S", 0.1)
    await held(conversation, stage, "stubborn")
    with pytest.raises(CommandPending):
        await manager.close_session(conversation.public_id)
    stage.go.set()
    await until_no_loop(conversation)
    assert (await loop_of(conversation)).ended_by == "stopped"


async def test_a_conversation_is_deleted_though_its_agent_does_not_let_go(
    conversation: ConversationRef,
    stage: Stage,
    other: StandaloneConversationManager,
    manager: ConversationManager,
    rest: httpx.AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command_channel, "WAIT_S", 0.1)
    await held(conversation, stage, "stubborn")
    answer = await rest.delete(f"/api/native/conversations/{conversation.public_id}")
    stage.go.set()
    await until_no_loop(conversation)
    assert (answer.status_code, await said(conversation)) == (204, [])


# Races


@pytest.mark.no_second_try
async def test_a_later_loop_ignores_a_command_that_an_earlier_one_was_given(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await astore.call(lambda: leases.ready(conversation, leases.claim(conversation, ELSEWHERE, agent="")))
    command = await astore.call(commands.give, conversation, Verb.STOP, HERE)
    assert command is not None
    await astore.call(leases.release, conversation, 1)
    await manager.maybe_start_agent_loop(conversation)
    await ask(conversation, "hello")
    await until_said(conversation, "answer to hello")
    assert (await loop_of(conversation)).status == "running"


@pytest.mark.no_second_try
async def test_a_command_that_the_end_of_its_loop_overtakes_is_done_where_it_was_given(
    conversation: ConversationRef, hooked: Hooked, other: StandaloneConversationManager
) -> None:
    epoch = await astore.call(leases.claim, conversation, HERE, agent="")
    hooked(commands, "give").after(lambda: leases.release(conversation, epoch))
    await other.pause(conversation)
    assert await verbs_and_outcomes(conversation) == [("pause", "ended")]
    await until_status(conversation, "paused")


async def test_of_a_pause_and_a_stop_the_stop_wins(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    await held(conversation, stage)
    await other.pause(conversation)
    await other.close_session(conversation.public_id)
    assert await texts_of_ends(conversation) == [STOPPED]
    assert (await loop_of(conversation)).execution_status == "idle"


@pytest.mark.parametrize(
    ("ended_by", "outcome"),
    [(LoopEnd.STOPPED, CommandOutcome.DONE), (LoopEnd.EVICTED, CommandOutcome.ENDED)],
)
def test_a_pause_that_a_stop_overtakes_is_done_and_not_asked_for_again(
    conversation: ConversationRef, ended_by: LoopEnd, outcome: CommandOutcome
) -> None:
    epoch = leases.claim(conversation, ELSEWHERE, agent="")
    pause = commands.give(conversation, Verb.PAUSE, HERE)
    assert pause is not None
    leases.release(conversation, epoch, ended_by=ended_by)
    assert commands.settled(pause) == (outcome, "")


async def test_a_run_that_follows_a_stop_starts_a_new_loop(
    conversation: ConversationRef, stage: Stage, other: StandaloneConversationManager
) -> None:
    await held(conversation, stage)
    stop = asyncio.create_task(other.close_session(conversation.public_id))
    await until(lambda: LoopCommand.objects.filter(verb=Verb.STOP).exists())
    await other.run(conversation)
    await stop
    loop = await loop_of(conversation)
    assert (loop.status, loop.epoch) == ("running", 2)


@pytest.mark.no_second_try
@pytest.mark.parametrize(
    ("verb", "outcome", "end"),
    [
        (Verb.STOP, CommandOutcome.DONE, STOPPED),
        (Verb.INTERRUPT, CommandOutcome.DONE, STOPPED),
        (Verb.PAUSE, CommandOutcome.ENDED, f"error: {recovery.INTERRUPTED_REASON}"),
    ],
)
def test_what_a_dead_process_was_told_is_settled_by_the_recovery_of_its_loop(
    conversation: ConversationRef, verb: Verb, outcome: CommandOutcome, end: str
) -> None:
    playing(conversation, ELSEWHERE)
    command = commands.give(conversation, verb, HERE)
    assert command is not None
    writes.append(conversation, [asking("after it")])
    AgentLoop.objects.of(conversation).update(owner_host=DEAD.host, owner_started=DEAD.started)
    recovery.recover(conversation, HERE)
    settled = commands.settled(command)
    assert settled is not None
    assert settled.outcome == outcome
    assert [each["text"] for each in reads.read_after(conversation, -1) if each["kind"] == "turn"] == [end]
    assert Conversation.objects.get(pk=conversation.pk).is_unanswered


def playing(conversation: ConversationRef, process: Process) -> None:
    writes.append(conversation, [asking("hello")])
    epoch = leases.claim(conversation, process, agent="")
    leases.ready(conversation, epoch)
    turns.begin_turn(conversation, epoch)


def test_a_stop_ends_a_turn_that_waited_for_the_user_in_a_dead_process(conversation: ConversationRef) -> None:
    playing(conversation, ELSEWHERE)
    AgentLoop.objects.of(conversation).update(execution_status="waiting_for_confirmation")
    commands.give(conversation, Verb.STOP, HERE)
    AgentLoop.objects.of(conversation).update(owner_host=DEAD.host, owner_started=DEAD.started)
    recovery.recover(conversation, HERE)
    loop = AgentLoop.objects.of(conversation).get()
    assert (loop.turn_id, loop.execution_status) == (None, "idle")


@pytest.mark.no_second_try
@on_postgresql
def test_no_command_is_given_to_a_loop_that_is_just_being_released(
    conversation: ConversationRef, hooked: Hooked
) -> None:
    epoch = leases.claim(conversation, ELSEWHERE, agent="")
    given: list[int | None] = []
    giver = threading.Thread(target=_give_in_thread, args=(conversation, given))

    def give_meanwhile() -> None:
        giver.start()
        while not is_somebody_waiting() and giver.is_alive():
            pass

    hooked(commands, "settle_left").after(give_meanwhile)
    leases.release(conversation, epoch)
    giver.join()
    assert given == [None]


def _give_in_thread(conversation: ConversationRef, given: list[int | None]) -> None:
    given.append(commands.give(conversation, Verb.STOP, HERE))


# A conversation that is locked elsewhere


@pytest.mark.no_second_try
@on_postgresql
async def test_a_stop_of_a_locked_conversation_is_refused_within_its_bound(
    conversation: ConversationRef,
    stage: Stage,
    other: StandaloneConversationManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await held(conversation, stage)
    monkeypatch.setattr(command_channel, "WAIT_S", 0.2)
    monkeypatch.setattr(locks, "LOCK_TIMEOUT_S", 3600)
    with locked_elsewhere(conversation), pytest.raises(ConversationBusy):
        await asyncio.wait_for(other.close_session(conversation.public_id), 30)


@pytest.mark.no_second_try
@on_postgresql
async def test_a_stop_of_a_locked_conversation_of_v1_notes_nothing_behind_the_same_lock(
    alice: User,
    stage: Stage,
    manager: ConversationManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talk = await astore.call(v1_conversation, alice)
    monkeypatch.setattr(command_channel, "WAIT_S", 0.2)
    monkeypatch.setattr(locks, "LOCK_TIMEOUT_S", 3600)
    with locked_elsewhere(talk), pytest.raises(ConversationBusy):
        await asyncio.wait_for(steering.pause(talk), 30)


@contextmanager
def locked_elsewhere(conversation: ConversationRef) -> Iterator[None]:
    """Hold the conversation's row in another thread's transaction."""
    is_locked, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        try:
            with transaction.atomic():
                locks.lock(Conversation.objects.all(), conversation)
                is_locked.set()
                is_over.wait(60)
        finally:
            connection.close()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        assert is_locked.wait(30)
        yield
    finally:
        is_over.set()
        holder.join()


@pytest.mark.no_second_try
async def test_a_message_is_stored_though_a_pause_cannot_be_taken_back(
    alice: User, stage: Stage, other: StandaloneConversationManager, hooked: Hooked
) -> None:
    talk = await astore.call(v1_conversation, alice)

    def fail() -> None:
        raise ConversationBusy("It is locked.")

    hooked(commands, "give").after(fail)
    await other.take_input(talk, asking("hello"), run=True)
    await until_said(talk, "answer to hello")


def test_a_start_is_off_only_after_a_stop_of_its_conversation() -> None:
    noted, before = Stops(), 0
    noted.note(1)
    assert [noted.was_stopped(pk, since=before) for pk in (1, 2)] == [True, False]


def test_the_stops_that_are_remembered_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stops, "KEPT_MAX", 2)
    noted = Stops()
    for pk in range(5):
        noted.note(pk)
    seen = [noted.was_stopped(0, since=since) for since in (0, noted.now)]
    assert (len(noted._last), seen) == (2, [True, False])


# A family


async def test_a_stop_stops_all_conversations_below_in_other_processes_too(
    alice: User,
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    other: StandaloneConversationManager,
) -> None:
    child = await astore.call(child_of, conversation, alice)
    grandchild = await astore.call(child_of, child, alice)
    await held(grandchild, stage)
    await other.close_session(conversation.public_id)
    assert await texts_of_ends(grandchild) != []
    assert (await loop_of(grandchild)).status == "stopped"


async def test_a_delete_stops_all_conversations_below(
    alice: User, conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    child = await astore.call(child_of, conversation, alice)
    await held(child, stage)
    await steering.stop_to_delete(conversation)
    assert (await loop_of(child)).status == "stopped"


def settled_count() -> int:
    return LoopCommand.objects.exclude(outcome=CommandOutcome.PENDING).count()


async def test_settled_commands_are_forgotten_after_a_while(
    conversation: ConversationRef,
    stage: Stage,
    other: StandaloneConversationManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await held(conversation, stage)
    await other.close_session(conversation.public_id)
    await astore.call(commands.forget_settled)
    kept = await astore.call(settled_count)
    monkeypatch.setattr(commands, "KEPT_S", -1.0)
    await astore.call(commands.forget_settled)
    assert (kept, await astore.call(settled_count)) == (1, 0)

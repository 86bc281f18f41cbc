"""What the manager sees to by itself: room for loops, lost wake-ups, dead processes, who is connected."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial
from types import ModuleType

import pytest
from django.contrib.auth.models import User
from django.db import OperationalError
from django.utils import timezone

from conversations.events import ConversationRef
from conversations.exceptions import ConversationBusy, LoopUnavailable
from conversations.log import writes
from conversations.store import creation, deletion
from sessions_app import astore
from sessions_app.live import presence
from sessions_app.loops import leases, pending_work, recovery, registry
from sessions_app.loops import manager as manager_module
from sessions_app.loops import turns as loop_turns
from sessions_app.loops.manager import ConversationManager
from sessions_app.loops.playing import played_turn, streamed_answer
from sessions_app.models import AgentLoop, Connection
from sessions_app.processes import Process, this_process
from tests.conftest import Join
from tests.support.people.clients import WAIT_S
from tests.support.people.scripted_agent import (
    Hooked,
    Stage,
    ask,
    asking,
    ends,
    hooked,
    log,
    loop_of,
    manager,
    row_of,
    said,
    stage,
    until,
    until_here,
    until_no_loop,
    until_said,
    until_status,
    until_true,
)

pytestmark = pytest.mark.one_engine

__all__ = ["hooked", "manager", "stage"]

DEAD = this_process()._replace(started=1.0)
"""A process of this host that is gone: its number was given to another one."""


@pytest.fixture
def talks(alice: User) -> list[ConversationRef]:
    """Three empty conversations of alice's."""
    return [creation.create(alice, conversation_id=name) for name in ("a", "b", "c")]


@pytest.fixture
def quick_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the manager's tasks come round all the time."""
    for name in ("SWEEP_S", "RENEW_S", "HOUSEKEEPING_S"):
        monkeypatch.setattr(manager_module, name, 0.01)


@pytest.fixture
def forgetful(quick_rounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let an idle loop be forgotten at once."""
    monkeypatch.setattr(registry, "CLOSE_DELAY_S", 0.0)


# Room for new loops


async def test_a_new_loop_closes_an_idle_one_when_there_are_too_many(
    talks: list[ConversationRef], manager: ConversationManager, configured: Callable[..., None]
) -> None:
    configured(max_concurrent=1)
    await manager.maybe_start_agent_loop(talks[0])
    await manager.maybe_start_agent_loop(talks[1])
    assert await manager.get_running_agent_loops() == {"b"}


async def test_a_new_loop_closes_an_idle_one_before_one_that_works(
    talks: list[ConversationRef],
    manager: ConversationManager,
    stage: Stage,
    configured: Callable[..., None],
) -> None:
    configured(max_concurrent=2)
    await ask(talks[0], "hold")
    await stage.holding()
    await manager.maybe_start_agent_loop(talks[1])
    await manager.maybe_start_agent_loop(talks[2])
    assert await manager.get_running_agent_loops() == {"a", "c"}


async def test_the_loop_whose_conversation_moved_last_is_closed_last(
    talks: list[ConversationRef], manager: ConversationManager, configured: Callable[..., None]
) -> None:
    configured(max_concurrent=2)
    await manager.maybe_start_agent_loop(talks[1])
    await ask(talks[0], "hello")
    await until_said(talks[0], "answer to hello")
    await manager.maybe_start_agent_loop(talks[2])
    assert await manager.get_running_agent_loops() == {"a", "c"}


async def test_loops_of_other_users_do_not_count(
    talks: list[ConversationRef], bob: User, manager: ConversationManager, configured: Callable[..., None]
) -> None:
    configured(max_concurrent=1)
    bobs = await astore.call(creation.create, bob, conversation_id="bobs")
    await manager.maybe_start_agent_loop(talks[0])
    await manager.maybe_start_agent_loop(bobs)
    assert await manager.get_running_agent_loops() == {"a", "bobs"}


async def test_a_turn_that_is_crowded_out_is_interrupted_and_its_next_message_answered_later(
    talks: list[ConversationRef],
    manager: ConversationManager,
    stage: Stage,
    configured: Callable[..., None],
    quick_rounds: None,
) -> None:
    configured(max_concurrent=1)
    await ask(talks[0], "hold")
    await stage.holding()
    await ask(talks[0], "later")
    await ask(talks[1], "hello")
    await until_said(talks[1], "answer to hello")
    await until_said(talks[0], "step 1", "answer to later")
    assert [end["text"] for end in await ends(talks[0])] == [
        f"error: {recovery.CROWDED_OUT_REASON}",
        "awaiting_user_input",
    ]


async def test_the_sweep_closes_no_loop_that_is_about_to_answer(
    talks: list[ConversationRef],
    manager: ConversationManager,
    configured: Callable[..., None],
    quick_rounds: None,
    hooked: Hooked,
) -> None:
    configured(max_concurrent=1)
    beginning = hooked(loop_turns, "begin_turn").hold()
    await ask(talks[1], "hello")
    await beginning.reached()
    await astore.append(talks[0], [asking("later")])
    await hooked(pending_work, "needing_a_loop").called(2)
    beginning.let_go.set()
    await until_said(talks[1], "answer to hello")
    await until_said(talks[0], "answer to later")


async def test_a_turn_that_waits_for_approval_goes_on_after_it_was_crowded_out(
    talks: list[ConversationRef],
    manager: ConversationManager,
    stage: Stage,
    configured: Callable[..., None],
) -> None:
    configured(max_concurrent=1)
    stage.go.set()
    await ask(talks[0], "approve")
    await until_status(talks[0], "waiting_for_confirmation")
    await manager.maybe_start_agent_loop(talks[1])
    await manager.confirm(talks[0], accept=True)
    await until_said(talks[0])
    assert [event["kind"] for event in await log(talks[0])][-2:] == ["tool_result", "turn"]


async def test_the_sweep_interrupts_nobody_to_make_room(
    talks: list[ConversationRef],
    manager: ConversationManager,
    stage: Stage,
    configured: Callable[..., None],
    quick_rounds: None,
    hooked: Hooked,
) -> None:
    configured(max_concurrent=1)
    sweeps = hooked(pending_work, "needing_a_loop")
    await ask(talks[0], "hold")
    await stage.holding()
    await astore.call(writes.append, talks[1], [asking("hello")])
    await sweeps.called(3)
    assert await ends(talks[0]) == []
    stage.go.set()
    await until_said(talks[1], "answer to hello")
    assert await said(talks[0]) == ["step 1", "step 2"]


# Forgotten loops


@pytest.mark.usefixtures("forgetful")
async def test_an_idle_loop_that_nobody_uses_is_closed(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    await until_no_loop(conversation)
    assert (await loop_of(conversation)).status == "stopped"


@pytest.mark.usefixtures("forgetful")
async def test_a_loop_is_not_forgotten_while_somebody_is_connected(
    conversation: ConversationRef, manager: ConversationManager, alice: User, hooked: Hooked
) -> None:
    rounds = hooked(registry, "forgotten")
    async with presence.connected("tab", conversation, alice.pk, door="native"):
        await manager.maybe_start_agent_loop(conversation)
        await rounds.called(3)
        assert await manager.is_agent_loop_running(conversation.public_id)
    await until_no_loop(conversation)


@pytest.mark.usefixtures("forgetful")
async def test_a_loop_that_works_is_not_forgotten(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage, hooked: Hooked
) -> None:
    rounds = hooked(registry, "forgotten")
    await ask(conversation, "hold")
    await stage.holding()
    await rounds.called(3)
    stage.go.set()
    await until_said(conversation, "step 1", "step 2")


@pytest.mark.no_second_try
@pytest.mark.usefixtures("forgetful")
async def test_a_message_that_comes_as_a_forgotten_loop_ends_is_answered(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    hooked(leases, "release").before(lambda: writes.append(conversation, [asking("hello")]))
    await manager.maybe_start_agent_loop(conversation)
    await until_said(conversation, "answer to hello")


@pytest.mark.usefixtures("forgetful")
async def test_an_approval_is_waited_for_however_long(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "approve")
    await until_status(conversation, "waiting_for_confirmation")
    await until_no_loop(conversation)
    stage.go.set()
    await manager.confirm(conversation, accept=True)
    await until_said(conversation)
    assert [event["kind"] for event in await log(conversation)][-2:] == ["tool_result", "turn"]


# Lost wake-ups, dead processes


@pytest.mark.needs_engine
@pytest.mark.no_second_try
@pytest.mark.usefixtures("quick_rounds")
async def test_a_message_whose_wake_up_was_lost_is_found(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.ensure_started()
    await astore.call(writes.append, conversation, [asking("hello")])
    await until_said(conversation, "answer to hello")


@pytest.mark.needs_engine
@pytest.mark.usefixtures("quick_rounds")
async def test_a_message_that_somebody_else_stored_is_found_while_the_loop_idles(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    looks = hooked(loop_turns, "begin_turn")
    await manager.maybe_start_agent_loop(conversation)
    await until_here(lambda: looks.calls == 2)  # the first look, and the one that every start asks for
    await astore.call(writes.append, conversation, [asking("hello")])
    await until_said(conversation, "answer to hello")


@pytest.mark.needs_engine
@pytest.mark.no_second_try
@pytest.mark.usefixtures("quick_rounds")
async def test_leases_are_renewed_while_every_thread_of_the_store_waits(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    renewals = hooked(leases, "renew")
    await manager.maybe_start_agent_loop(conversation)
    go = threading.Event()
    waiting = [asyncio.create_task(astore.call(go.wait, WAIT_S)) for _ in range(astore.READERS)]
    try:
        await renewals.called(3)
        assert not any(task.done() for task in waiting)
    finally:
        go.set()
        await asyncio.gather(*waiting)


# Locks and hiccups of the database


def refuse() -> None:
    raise ConversationBusy("Somebody has locked it.")


def fail() -> None:
    raise OperationalError("The connection broke.")


@pytest.mark.needs_engine
@pytest.mark.no_second_try
@pytest.mark.parametrize("trouble", [refuse, fail])
@pytest.mark.parametrize(
    ("rows", "act"), [(recovery, "repair"), (leases, "ready"), (loop_turns, "begin_turn")]
)
async def test_a_loop_outlives_a_locked_conversation_and_a_broken_connection(
    conversation: ConversationRef,
    manager: ConversationManager,
    hooked: Hooked,
    rows: ModuleType,
    act: str,
    trouble: Callable[[], None],
) -> None:
    hooked(rows, act).before(trouble)
    await ask(conversation, "hello")
    await until_said(conversation, "answer to hello")
    assert (await row_of(conversation)).loop_epoch == 1


@pytest.mark.needs_engine
@pytest.mark.parametrize("trouble", [refuse, fail])
async def test_a_turn_whose_beginning_cannot_be_read_reads_it_again(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked, trouble: Callable[[], None]
) -> None:
    hooked(played_turn.PlayedTurn, "_read").before(trouble)
    await ask(conversation, "hello")
    await until_said(conversation, "answer to hello")


@pytest.mark.needs_engine
@pytest.mark.parametrize("trouble", [refuse, fail])
async def test_an_answer_goes_on_when_a_snapshot_of_it_fails(
    conversation: ConversationRef,
    manager: ConversationManager,
    stage: Stage,
    hooked: Hooked,
    trouble: Callable[[], None],
) -> None:
    hooked(streamed_answer, "_store_snapshot").before(trouble)
    stage.go.set()
    await ask(conversation, "speak")
    await until_said(conversation, "half of an answer")


def left_behind(conversation: ConversationRef, process: Process) -> None:
    """Leave a turn as a process does that is killed in it."""
    writes.append(conversation, [asking("hello")])
    epoch = leases.claim(conversation, process, agent="")
    leases.ready(conversation, epoch)
    loop_turns.begin_turn(conversation, epoch)


@pytest.mark.needs_engine
@pytest.mark.no_second_try
async def test_a_turn_of_a_dead_process_is_ended_once_at_the_start(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await astore.call(left_behind, conversation, DEAD)
    await manager.ensure_started()
    await until(lambda: AgentLoop.objects.of(conversation).get().status == "stopped")
    assert [end["text"] for end in await ends(conversation)] == [f"error: {recovery.INTERRUPTED_REASON}"]
    assert not (await row_of(conversation)).is_unanswered


@pytest.mark.needs_engine
@pytest.mark.no_second_try
@pytest.mark.usefixtures("quick_rounds")
async def test_a_turn_of_another_host_is_left_alone_until_its_lease_has_run_out(
    conversation: ConversationRef, manager: ConversationManager, hooked: Hooked
) -> None:
    sweeps = hooked(pending_work, "needing_a_loop")
    await astore.call(left_behind, conversation, Process("elsewhere", 1, 1.0))
    await manager.ensure_started()
    await sweeps.called(2)
    assert await ends(conversation) == []
    await astore.call(run_out, conversation)
    await until_said(conversation)
    assert len(await ends(conversation)) == 1


def run_out(conversation: ConversationRef) -> None:
    AgentLoop.objects.of(conversation).update(lease_expires_at=timezone.now() - timedelta(seconds=1))


# Presence


@pytest.fixture
async def present(conversation: ConversationRef, alice: User) -> Connection:
    """A connection that a killed process left behind."""
    row = Connection(id="ghost", conversation_id=conversation.pk, user=alice, door="native")
    row.last_seen_at = timezone.now() - timedelta(minutes=5)
    await astore.call(partial(row.save, force_insert=True))
    return row


async def test_who_is_connected_is_known_until_they_leave(
    conversation: ConversationRef, manager: ConversationManager, join: Join
) -> None:
    client = await join(conversation)
    await client.until("replay_complete")
    present = await until_true(manager.get_connections)  # it is noted beside the join
    assert list(present.values()) == [conversation.public_id]
    await client.leave()
    await until(lambda: not Connection.objects.exists())


@pytest.mark.needs_engine
async def test_a_connection_that_was_not_seen_for_long_does_not_count(
    present: Connection, manager: ConversationManager
) -> None:
    assert await manager.get_connections() == {}


@pytest.mark.needs_engine
@pytest.mark.usefixtures("quick_rounds", "present")
async def test_what_a_killed_process_left_behind_is_removed(manager: ConversationManager) -> None:
    await manager.ensure_started()
    await until(lambda: not Connection.objects.exists())


@pytest.mark.usefixtures("quick_rounds")
async def test_who_stays_is_seen_again_and_again(
    conversation: ConversationRef, manager: ConversationManager, alice: User
) -> None:
    await manager.join_conversation(conversation, "tab", str(alice.pk))
    joined = await astore.call(lambda: Connection.objects.get(pk="tab").last_seen_at)
    await until(lambda: Connection.objects.filter(pk="tab", last_seen_at__gt=joined).exists())
    await manager.disconnect_from_session("tab")
    assert await manager.get_connections() == {}


# Questions, and what is sent past a socket


@pytest.mark.needs_engine
async def test_loops_are_told_by_user_and_by_conversation(
    talks: list[ConversationRef], bob: User, alice: User, manager: ConversationManager
) -> None:
    for talk in talks[:2]:
        await manager.maybe_start_agent_loop(talk)
    running = manager.get_running_agent_loops
    assert await running(str(alice.pk)) == {"a", "b"}
    assert await running(str(bob.pk)) == set()
    assert await running(filter_to_sids={"b", "c"}) == {"b"}
    assert await running(filter_to_sids=set()) == set()
    assert await manager.get_agent_loop_info(filter_to_sids=[]) == []


@pytest.mark.needs_engine
async def test_connections_are_told_by_user_and_by_conversation(
    talks: list[ConversationRef], bob: User, alice: User, manager: ConversationManager
) -> None:
    for connection_id, talk in zip(("one", "two"), talks[:2], strict=True):
        await manager.join_conversation(talk, connection_id, str(alice.pk))
    connections = manager.get_connections
    assert await connections(str(alice.pk)) == {"one": "a", "two": "b"}
    assert await connections(str(bob.pk)) == {}
    assert await connections(filter_to_sids={"b", "c"}) == {"two": "b"}
    assert await connections(filter_to_sids=set()) == {}


async def test_what_is_read_about_a_user_is_read_in_that_users_share(
    conversation: ConversationRef,
    alice: User,
    manager: ConversationManager,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    payers, user_of = [], astore._user_of

    def noted(args: Sequence[object]) -> int | None:
        payers.append(user_of(args))
        return payers[-1]

    monkeypatch.setattr(astore, "_user_of", noted)
    await manager.get_agent_loop_info(str(alice.pk))
    await manager.get_connections(str(alice.pk))
    await manager.attach_to_conversation("talk", str(alice.pk))
    assert payers == [alice.pk] * 3


async def test_a_loop_tells_what_it_is_doing(
    conversation: ConversationRef, manager: ConversationManager, stage: Stage
) -> None:
    await ask(conversation, "hold")
    await stage.holding()
    (info,) = await manager.get_agent_loop_info()
    assert (info.conversation_id, info.status, info.execution_status) == ("talk", "running", "running")


async def test_a_loop_runs_from_its_start_to_its_stop(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    is_running = partial(manager.is_agent_loop_running, conversation.public_id)
    before = await is_running()
    await manager.maybe_start_agent_loop(conversation)
    during = await is_running()
    await manager.close_session(conversation.public_id)
    assert [before, during, await is_running()] == [False, True, False]


async def test_a_conversation_is_attached_for_its_owner_alone(
    conversation: ConversationRef, alice: User, bob: User, manager: ConversationManager
) -> None:
    attach = partial(manager.attach_to_conversation, conversation.public_id)
    assert await attach() == await attach(str(alice.pk)) == conversation
    assert await attach(str(bob.pk)) is None
    assert await manager.attach_to_conversation("unknown") is None
    await manager.detach_from_conversation(conversation)


async def test_a_deleted_conversation_is_not_attached(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await astore.call(deletion.soft_delete, conversation)
    assert await manager.attach_to_conversation(conversation.public_id) is None


V0_MESSAGE = {"action": "message", "args": {"content": "hello"}}


async def test_a_message_sent_by_a_connection_is_answered(
    conversation: ConversationRef, manager: ConversationManager, alice: User
) -> None:
    await manager.join_conversation(conversation, "tab", str(alice.pk))
    await manager.send_to_event_stream("tab", V0_MESSAGE)
    await until_said(conversation, "answer to hello")


async def test_an_event_sent_to_a_conversation_is_its_users(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.send_event_to_conversation(conversation.public_id, {**V0_MESSAGE, "source": "agent"})
    assert [event["source"] for event in (await log(conversation))[:1]] == ["user"]
    await until_said(conversation, "answer to hello")


async def test_what_is_sent_to_nobody_is_refused(database: None, manager: ConversationManager) -> None:
    with pytest.raises(LoopUnavailable, match="no_connected_session:nobody"):
        await manager.send_to_event_stream("nobody", V0_MESSAGE)
    with pytest.raises(LoopUnavailable, match="no_conversation:nowhere"):
        await manager.send_event_to_conversation("nowhere", V0_MESSAGE)


async def test_a_question_beside_the_conversation_is_answered_by_its_loop(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    await manager.maybe_start_agent_loop(conversation)
    question = [{"role": "user", "content": "a title?"}]
    answer = await manager.request_llm_completion(conversation.public_id, "titles", None, question)
    assert answer == "A TITLE?"
    assert [event["kind"] for event in await log(conversation)] == ["state"]  # that it waits for the user


async def test_a_question_without_a_loop_is_refused(
    conversation: ConversationRef, manager: ConversationManager
) -> None:
    with pytest.raises(LoopUnavailable, match="no_conversation:talk"):
        await manager.request_llm_completion(conversation.public_id, "titles", None, [])


# Deactivated users


async def test_what_agents_do_for_a_user_ends_once_the_user_is_deactivated(
    accounts: None,
    talks: list[ConversationRef],
    alice: User,
    bob: User,
    manager: ConversationManager,
    stage: Stage,
    quick_rounds: None,
) -> None:
    bobs = await astore.call(creation.create, bob)
    for conversation in (talks[0], bobs):
        await ask(conversation, "hold")
        await stage.holding()
    alice.is_active = False
    await astore.call(alice.save)
    await until_no_loop(talks[0])
    assert [end["text"] for end in await ends(talks[0])] == ["stopped: The agent was stopped."]
    await astore.call(writes.append, talks[1], [asking("from before")])
    manager.wake(talks[1])
    await until(lambda: not pending_work.has_work(talks[1]) and not AgentLoop.objects.there().of(talks[1]))
    assert (await loop_of(bobs)).status == "running"

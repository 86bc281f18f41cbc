"""A message that arrives while the agent works waits, steers or interrupts, and is answered exactly once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.dialects import AgentState
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.loops import leases, pauses, recovery, runs, turns
from sessions_app.loops.manager import ConversationManager, get_manager
from sessions_app.loops.turns import PendingTurn, TurnStart
from sessions_app.models import AgentLoop, ExecutionStatus, InputReceipt, WhileWorking
from sessions_app.processes import this_process
from sessions_app.settings import run_options
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
    until_said,
    until_status,
)

pytestmark = pytest.mark.one_engine

__all__ = ["hooked", "manager", "stage"]

STEER, QUEUE, INTERRUPT, REJECT = (
    WhileWorking.STEER,
    WhileWorking.QUEUE,
    WhileWorking.INTERRUPT,
    WhileWorking.REJECT,
)
INTERRUPTED = "The agent was interrupted by a newer message."


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(request: pytest.FixtureRequest, alice: User) -> ConversationRef:
    """An empty conversation, of either wire."""
    return creation.create(alice, conversation_id="talk", version=request.param)


@pytest.fixture
def listening(manager: ConversationManager, configured: Callable[..., None]) -> ConversationManager:
    """The manager, whose agents take up what is said while they work."""
    configured(agent="tests.support.people.listening_agent.ListeningAgent")
    return manager


def choose(conversation: ConversationRef, choice: WhileWorking) -> None:
    run_options.change(conversation, {"while_working": choice})


async def chosen(conversation: ConversationRef, choice: WhileWorking) -> None:
    await astore.change(choose, conversation, choice)


async def seen(conversation: ConversationRef) -> dict[str, str]:
    """Return the turn that has seen each message, as `1`, `2`, …, by the message's text."""
    receipts = await astore.call(lambda: list(InputReceipt.objects.of(conversation)))
    ids = list(dict.fromkeys(receipt.turn_id for receipt in receipts))
    texts = {event["seq"]: event["text"] for event in await log(conversation)}
    return {texts[receipt.seq]: str(ids.index(receipt.turn_id) + 1) for receipt in receipts}


# Steering


async def test_a_message_steers_the_agent_before_its_next_step(
    talk: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    await chosen(talk, STEER)
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "more")
    stage.go.set()
    await until_said(talk, "answer to hold", "answer to more")
    assert len(await ends(talk)) == 1
    assert await seen(talk) == {"hold": "1", "more": "1"}


async def test_a_receipt_names_the_newest_event_when_the_agent_saw_the_message(
    conversation: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    await chosen(conversation, STEER)
    await ask(conversation, "hold")
    await stage.holding()
    await ask(conversation, "more")
    stage.go.set()
    await until_said(conversation, "answer to hold", "answer to more")
    # 0 hold, 1 running, 2 more, 3 the first answer, 4 the second one
    receipts = await astore.call(lambda: list(InputReceipt.objects.of(conversation)))
    assert [(receipt.seq, receipt.seen_seq) for receipt in receipts] == [(0, 0), (2, 3)]


async def test_a_message_that_waits_is_answered_by_the_next_turn(
    talk: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    await chosen(talk, QUEUE)
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "more")
    stage.go.set()
    await until_said(talk, "answer to hold", "answer to more")
    assert len(await ends(talk)) == 2
    assert await seen(talk) == {"hold": "1", "more": "2"}


async def test_by_default_messages_steer_on_v1_and_wait_elsewhere(
    talk: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "more")
    stage.go.set()
    await until_said(talk, "answer to hold", "answer to more")
    assert len(await ends(talk)) == (1 if talk.version == Version.V1 else 2)


async def test_where_the_native_door_refuses_messages_those_of_the_wires_do_as_by_default(
    talk: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    await chosen(talk, REJECT)
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "more")
    stage.go.set()
    await until_said(talk, "answer to hold", "answer to more")
    assert len(await ends(talk)) == (1 if talk.version == Version.V1 else 2)


async def test_an_agent_that_does_not_look_for_messages_is_not_steered(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await chosen(talk, STEER)
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "more")
    stage.go.set()
    await until_said(talk, "step 1", "step 2", "answer to more")
    assert len(await ends(talk)) == 2


async def test_a_message_that_arrives_when_the_agent_is_done_is_answered_by_a_new_turn(
    talk: ConversationRef, stage: Stage, listening: ConversationManager, hooked: Hooked
) -> None:
    await chosen(talk, STEER)
    hooked(runs, "finish").before(lambda: writes.append(talk, [asking("more")]))
    await ask(talk, "hello")
    await until_said(talk, "answer to hello", "answer to more")
    assert await seen(talk) == {"hello": "1", "more": "2"}


@pytest.mark.no_second_try
async def test_a_message_that_steered_is_not_answered_again_after_the_turn_has_failed(
    talk: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    await chosen(talk, STEER)
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "fail")
    stage.go.set()
    await until_status(talk, "error")
    await ask(talk, "then")
    await until_said(talk, "answer to hold", "answer to then")
    assert await seen(talk) == {"hold": "1", "fail": "1", "then": "2"}


async def test_a_paused_turn_takes_up_what_was_said_meanwhile_once_it_goes_on(
    conversation: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    await chosen(conversation, STEER)
    await ask(conversation, "hold")
    await stage.holding()
    await listening.pause(conversation)
    stage.go.set()
    await until_status(conversation, "paused")
    await ask(conversation, "more")
    await listening.run(conversation)
    await until_said(conversation, "answer to hold", "answer to more")
    assert len(await ends(conversation)) == 1


async def test_a_stop_gives_up_what_has_steered(
    talk: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    await chosen(talk, STEER)
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "hold again")
    stage.go.set()
    await until(lambda: InputReceipt.objects.of(talk).count() == 2)
    await listening.close_session(talk.public_id)
    assert not (await row_of(talk)).is_unanswered


async def test_a_message_after_an_interruption_is_answered_though_the_turn_has_seen_it(
    talk: ConversationRef, stage: Stage, listening: ConversationManager, hooked: Hooked
) -> None:
    await chosen(talk, STEER)
    taking_up = hooked(turns, "take_up")
    held = taking_up.hold()
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "more")
    stage.go.set()
    await held.reached()
    await listening.interrupt(talk)
    await ask(talk, "and then")
    held.let_go.set()
    if talk.version == Version.V1:  # an interruption pauses it
        await until_status(talk, "running")
    await until_said(talk, "answer to hold", "answer to and then")


# Approvals


async def test_a_message_decides_no_approval_and_waits_with_it(
    talk: ConversationRef, stage: Stage, listening: ConversationManager
) -> None:
    for choice in (STEER, INTERRUPT, QUEUE, REJECT):
        await chosen(talk, choice)
        if choice is STEER:
            await ask(talk, "approve")
            await until_status(talk, "waiting_for_confirmation")
        await ask(talk, f"while it asks {choice}")
    loop = await loop_of(talk)
    assert (loop.execution_status, loop.decision) == ("waiting_for_confirmation", None)
    await listening.confirm(talk, accept=True)
    await until(lambda: not Conversation.objects.get(pk=talk.pk).is_unanswered)
    assert "answer to while it asks queue" in await said(talk)


# Interrupting


async def test_a_message_interrupts_the_turn_and_is_answered(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await chosen(talk, INTERRUPT)
    await ask(talk, "speak")
    await stage.holding()
    await ask(talk, "more")
    await until_said(talk, "half of ", "answer to more")
    (interrupted, _) = await ends(talk)
    assert interrupted["text"] in ("paused", f"stopped: {INTERRUPTED}")
    assert await seen(talk) == {"speak": "1", "more": "2"}


async def test_what_was_shown_of_an_interrupted_answer_is_marked(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await chosen(conversation, INTERRUPT)
    await ask(conversation, "speak")
    await stage.holding()
    await ask(conversation, "more")
    await until_said(conversation, "half of ", "answer to more")
    (partial,) = [event for event in await log(conversation) if event["text"] == "half of "]
    assert '"interrupted":true' in partial["payload"].replace(" ", "")


@pytest.mark.no_second_try
async def test_messages_in_quick_succession_are_all_answered(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await chosen(talk, INTERRUPT)
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, *(f"more {number}" for number in range(5)))
    await until(lambda: not Conversation.objects.get(pk=talk.pk).is_unanswered)
    receipts = await seen(talk)
    assert set(receipts) == {"hold", *(f"more {number}" for number in range(5))}
    assert receipts["more 4"] != receipts["hold"]


async def test_a_message_does_not_interrupt_the_turn_that_answers_it(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await chosen(conversation, INTERRUPT)
    await ask(conversation, "hold")
    await stage.holding()
    for _ in range(3):
        get_manager().wake(conversation)
        await asyncio.sleep(0)
    stage.go.set()
    await until_said(conversation, "step 1", "step 2")
    assert len(await ends(conversation)) == 1


async def test_an_approval_that_is_asked_for_as_a_message_interrupts_keeps_waiting(
    talk: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await chosen(talk, INTERRUPT)
    await ask(talk, "deaf-approve")
    await stage.holding()
    await ask(talk, "more")
    await until_status(talk, "waiting_for_confirmation")
    assert (await ends(talk), (await loop_of(talk)).decision) == ([], None)
    assert await seen(talk) == {"deaf-approve": "1"}


async def test_a_pause_that_was_asked_for_is_not_undone_by_a_message(
    conversation: ConversationRef, stage: Stage, manager: ConversationManager
) -> None:
    await chosen(conversation, INTERRUPT)
    await ask(conversation, "hold")
    await stage.holding()
    await manager.pause(conversation)
    await ask(conversation, "more")
    stage.go.set()
    await until_status(conversation, "paused")
    await manager.run(conversation)
    await until(lambda: not Conversation.objects.get(pk=conversation.pk).is_unanswered)
    assert "answer to more" in await said(conversation)


@pytest.mark.parametrize("talk", [Version.V1], indirect=True)
async def test_a_v1_run_goes_on_through_the_interruption(
    talk: ConversationRef, stage: Stage, manager: ConversationManager, hooked: Hooked
) -> None:
    await chosen(talk, INTERRUPT)
    statuses: list[str] = []
    row = AgentLoop.objects.of(talk).values_list("execution_status", flat=True)
    hooked(recovery, "stop_turn").after(lambda: statuses.append(row.get()))
    await ask(talk, "hold")
    await stage.holding()
    await ask(talk, "more")
    await until_said(talk, "step 1", "answer to more")
    types = [event["type"] for event in await log(talk)]
    assert (types.count("InterruptEvent"), statuses) == (1, ["running"])


# Exactly once, whatever happens when


@dataclass
class World:
    """One conversation, the agent's turn as a test plays it, and what became of each message."""

    conversation: ConversationRef
    chance: Random
    epoch: int = 0
    playing: TurnStart | None = None
    """The turn that is being played, with what the agent has seen of its inputs."""
    said: list[int] = field(default_factory=list)
    settled: dict[int, str] = field(default_factory=dict)
    """What each message has come to: it was in a turn that is over, or given up by a stop."""

    def claim(self) -> None:
        self.epoch = leases.claim(self.conversation, this_process(), agent="an agent")
        recovery.repair(self.conversation, self.epoch)
        leases.ready(self.conversation, self.epoch)

    def say(self) -> None:
        (appended,) = writes.append(self.conversation, [asking(f"message {len(self.said)}")])
        self.said.append(appended.seq)

    def begin(self) -> None:
        if self.playing is None:
            self.playing = turns.begin_turn(self.conversation, self.epoch)
            if self.playing is not None:
                self.meet(self.playing.answered_through, self.playing.through)

    def look(self, *, is_lost: bool = False) -> None:
        """Take up what was said; or lose the answer, as where the connection breaks after the commit."""
        if self.playing is not None:
            through = turns.take_up(self.conversation, self.epoch, self.playing.turn_id)
            if not is_lost and through > self.playing.through:
                self.meet(self.playing.through, through)
                self.playing = replace(self.playing, through=through)

    def meet(self, after: int, through: int) -> None:
        """See messages; none of them may have been dealt with before."""
        met = [seq for seq in self.said if after < seq <= through]
        assert [seq for seq in met if seq in self.settled] == []
        assert [event["seq"] for event in self.inputs(after, through)] == met

    def inputs(self, after: int, through: int) -> list[Any]:
        return reads.read_inputs(self.conversation, after=after, through=through)

    def settle(self, after: int, through: int, how: str) -> None:
        for seq in self.said:
            if after < seq <= through:
                assert seq not in self.settled
                self.settled[seq] = how

    def over(self, through: int, how: str) -> None:
        """Settle what the turn has seen, up to `through`: it is over."""
        assert self.playing is not None
        self.settle(self.playing.answered_through, through, how)
        self.playing = None

    def finish(self) -> None:
        if (turn := self.playing) is not None:
            runs.finish(self.conversation, self.epoch, turn, turn.counted)
            self.over(turn.through, "answered")

    def fail(self) -> None:
        if (turn := self.playing) is not None:
            ended = PendingTurn(turn.turn_id, turn.through, is_suspended=False)
            ending = (AgentState.ERROR, ExecutionStatus.ERROR)
            recovery.cut_off(self.conversation, self.epoch, ended, *ending, reason="No luck.")
            self.over(turn.through, "failed")

    def stop(self) -> None:
        """Interrupt the turn; more may be said and seen before it has ended."""
        if (turn := self.playing) is None:
            return
        through = Conversation.objects.get(pk=self.conversation.pk).asked_through
        self.more(self.say, self.look)
        recovery.stop_turn(self.conversation, self.epoch, through=through)
        self.playing = None
        self.settle(turn.answered_through, through, "given up")
        pauses.resume(self.conversation)

    def supersede(self) -> None:
        """Interrupt the turn for a message."""
        if (turn := self.playing) is None:
            return
        self.say()
        loop = AgentLoop.objects.of(self.conversation).get()
        recovery.stop_turn(self.conversation, self.epoch, through=loop.turn_through)
        self.over(max(turn.through, loop.turn_through), "interrupted")
        pauses.resume(self.conversation)

    def pause(self) -> None:
        """Suspend the turn; more is said before it continues, under its own id."""
        if self.playing is None:
            return
        before = self.playing
        suspend = turns.suspend_turn(self.conversation, ExecutionStatus.PAUSED)
        writes.append(self.conversation, [asking("pause", asks=False)], epoch=self.epoch, also=suspend)
        self.said.append(reads.last_seq(self.conversation))
        self.more(self.say)
        pauses.resume(self.conversation)
        self.playing = turns.begin_turn(self.conversation, self.epoch)
        assert self.playing is not None
        assert self.playing.turn_id == before.turn_id

    def crash(self) -> None:
        """Lose the process: what the database says the turn has taken up goes with it."""
        loop = AgentLoop.objects.of(self.conversation).get()
        turn, self.playing = self.playing, None
        self.claim()
        if turn is not None:
            self.settle(turn.answered_through, loop.turn_through, "interrupted")

    def more(self, *steps: Callable[[], None]) -> None:
        for _ in range(self.chance.randrange(3)):
            self.chance.choice(steps)()

    def choose(self) -> None:
        choose(self.conversation, self.chance.choice([STEER, STEER, QUEUE]))


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_every_message_is_dealt_with_exactly_once_whatever_happens_when(
    alice: User, chance: Random, is_full: bool
) -> None:
    for number in range(400 if is_full else 25):
        version = chance.choice([Version.V0, Version.V1])
        conversation = creation.create(alice, conversation_id=f"talk-{number}", version=version)
        world = World(conversation, chance)
        world.choose()
        world.claim()
        lose = lambda world=world: world.look(is_lost=True)  # noqa: E731
        steps = [world.say, world.begin, world.look, lose, world.finish, world.fail, world.choose]
        rare = [world.stop, world.supersede, world.pause, world.crash]
        for _ in range(24):
            chance.choice([*steps, *steps, world.say, world.begin, world.look, *rare])()
        for _ in range(3):
            world.begin()
            world.look()
            world.finish()
        assert sorted(world.settled) == sorted(
            seq for seq in world.said if seq <= Conversation.objects.get(pk=conversation.pk).asked_through
        )
        assert set(InputReceipt.objects.of(conversation).values_list("seq", flat=True)) >= {
            seq for seq, how in world.settled.items() if how == "answered"
        }


@pytest.mark.needs_engine
@pytest.mark.no_second_try
async def test_messages_at_any_moment_are_each_answered_once(
    talk: ConversationRef, stage: Stage, listening: ConversationManager, chance: Random, is_full: bool
) -> None:
    await chosen(talk, STEER)
    stage.go.set()
    count = 200 if is_full else 30
    for number in range(count):
        await ask(talk, f"message {number}")
        for _ in range(chance.randrange(6)):
            await asyncio.sleep(chance.choice([0, 0, 0.002]))
    await until(lambda: not Conversation.objects.get(pk=talk.pk).is_unanswered)
    await until_status(talk, "finished")
    assert await said(talk) == [f"answer to message {number}" for number in range(count)]
    assert len(await seen(talk)) == count

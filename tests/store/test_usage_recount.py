"""What users, models and days have used, after any sequence of turns, titles, questions and crashes.

Each sequence is one of chance, whose seed is the name of the test.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations import dialects
from conversations.events import Dialect
from conversations.exceptions import Fenced
from conversations.log import reads, writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents import model_use
from sessions_app.agents.base import AgentFailure, CallUsage
from sessions_app.agents.turn_usage import TurnUsage
from sessions_app.loops import leases, recovery, runs, turns
from sessions_app.loops.playing.played_turn import PlayedTurn
from sessions_app.models import ModelUse, RunMeter
from sessions_app.models.model_use import NANOS
from sessions_app.processes import this_process
from tests.support.people.scripted_agent import asking, manager, stage

# The end of the manager closes the threads of the store.
pytestmark = [pytest.mark.usefixtures("manager"), pytest.mark.no_second_try]

__all__ = ["manager", "stage"]

ACTS = 12
Place = tuple[int, int, str, str]
"""A user, a conversation, a model and a day."""
Sums = Counter[tuple[Place, str]]


class Life:
    """One conversation, and what it should have used by now."""

    def __init__(self, talk: ConversationRef, chance: random.Random, expected: Sums) -> None:
        self.talk = talk
        self._chance = chance
        self._expected = expected
        self._epoch = 0

    def _usage(self) -> CallUsage:
        chance = self._chance
        cost = chance.choice([None, 0.0, chance.randrange(1, 5_000) / 10_000])
        tokens = {"prompt_tokens": chance.randrange(500), "completion_tokens": chance.randrange(50)}
        return CallUsage(model=chance.choice(["openai/a", "ollama/b"]), cost=cost, **tokens)

    def _expect(self, *usages: CallUsage) -> None:
        day = timezone.now().date().isoformat()
        for usage in usages:
            place = (self.talk.owner_id, self.talk.pk, usage.model, day)
            self._expected[place, "calls"] += 1
            self._expected[place, "unpriced"] += usage.cost is None
            self._expected[place, "prompt"] += usage.prompt_tokens
            self._expected[place, "completion"] += usage.completion_tokens
            self._expected[place, "nanos"] += round((usage.cost or 0.0) * NANOS)

    async def act(self) -> None:
        acts = (self.turn, self.question, self.failed_question, self.crash, self.fenced, self.repeated)
        await self._chance.choice(acts)()

    async def _begun(self) -> PlayedTurn:
        """Claim the loop, as a new process does, and begin a turn."""
        self._epoch = await astore.change(leases.claim, self.talk, this_process(), agent="an agent")
        await astore.change(recovery.repair, self.talk, self._epoch)
        await astore.change(writes.append, self.talk, [asking("hello")])
        await astore.change(runs.ask, self.talk)
        start = await astore.change(turns.begin_turn, self.talk, self._epoch)
        assert start is not None
        turn = PlayedTurn(self.talk, self._epoch, start)
        await turn.prepare()
        return turn

    async def _steps(self, turn: PlayedTurn) -> None:
        """Let the agent do some things, each after none, one or two calls of a model."""
        for _ in range(self._chance.randrange(1, 4)):
            for _ in range(self._chance.randrange(3)):
                await self._ask(turn)
            match self._chance.choice(["say", "call", "condense"]):
                case "say":
                    await turn.say("I think so.")
                case "call":
                    call = await turn.call_tool("look", {"at": 1})
                    await turn.tool_result(call, "nothing")
                case _:
                    await turn.condense(turn.inputs, "They said hello.")

    async def _ask(self, turn: PlayedTurn) -> CallUsage:
        usage = self._usage()
        await turn.reserve(self._usage())
        turn.count(usage)
        self._expect(usage)
        return usage

    async def turn(self) -> None:
        """Play a turn to its end; the last call of a model adds no event."""
        turn = await self._begun()
        await self._steps(turn)
        await self._ask(turn)
        await turn.settle()
        await astore.change(runs.finish, self.talk, self._epoch, turn.start, turn.start.counted)

    async def question(self) -> None:
        """Ask beside the turns: for a title, a summary or an answer."""
        async with model_use.reserved_beside(self.talk, self._usage()) as usages:
            usages.append(self._usage())
        self._expect(*usages)

    async def failed_question(self) -> None:
        """Ask a model that fails, after it has begun to answer or before."""
        with suppress(AgentFailure):
            async with model_use.reserved_beside(self.talk, self._usage()) as usages:
                usages += [self._usage() for _ in range(self._chance.randrange(2))]
                self._expect(*usages)
                raise AgentFailure("The connection broke.")

    async def crash(self) -> None:
        """Lose the process in the middle of a turn: what no event has counted is lost with it."""
        turn = await self._begun()
        await self._steps(turn)
        if self._chance.random() < 0.5:
            await turn.reserve(self._usage())
            turn.count(self._usage())

    async def fenced(self) -> None:
        """Let another process take the loop over: the last call is counted without an event."""
        turn = await self._begun()
        await self._steps(turn)
        await self._ask(turn)
        self._epoch = await astore.change(leases.claim, self.talk, this_process(), agent="an agent")
        with pytest.raises(Fenced):
            await turn.say("Am I late?")
        await turn.settle()

    async def repeated(self) -> None:
        """Store an event twice, as after a commit whose outcome is unknown, and lose the process then."""
        turn = await self._begun()
        await turn.reserve(self._usage())
        author = dialects.author(self.talk.dialect)
        counting = TurnUsage(self.talk, author, turn.start.counted)
        usage = self._usage()
        counting.add(usage)
        self._expect(usage)
        event_id, usages = str(uuid4()), counting.take()
        authored = author.agent_message(text="Once.", event_id=event_id)
        new = counting.shown_in(authored.event(event_id, turn_id=turn.turn_id))
        for _ in range(2):
            also = counting.counting(usages, None)
            await astore.append(self.talk, [new], epoch=self._epoch, also=also)


def created(number: int, owner: User, version: Version) -> ConversationRef:
    return creation.create(owner, conversation_id=f"talk{number}", version=version, title="A talk")


def counted() -> Sums:
    """Return what the table has."""
    found: Sums = Counter()
    for row in ModelUse.objects.all():
        place = (row.user_id, row.conversation_id or 0, row.model, row.day.isoformat())
        used = row.used
        found[place, "calls"] += used.calls
        found[place, "unpriced"] += used.unpriced_calls
        found[place, "prompt"] += used.prompt_tokens
        found[place, "completion"] += used.completion_tokens
        found[place, "nanos"] += used.cost_nanos
    return +found


def told(talk: ConversationRef) -> tuple[int, int, int] | None:
    """Return the totals that the newest event tells which tells any."""
    for event in reversed(reads.read_after(talk, -1, limit=5_000)):
        payload: dict[str, Any] = json.loads(event["payload"])
        totals = payload.get("llm_metrics")
        if event["dialect"] == Dialect.V1 and payload.get("key") == "stats":
            totals = payload["value"]["usage_to_metrics"]["agent"]
        if totals is not None:
            tokens = totals["accumulated_token_usage"]
            cost = round(totals["accumulated_cost"] * NANOS)
            return tokens["prompt_tokens"], tokens["completion_tokens"], cost
    return None


def sums_of(talk: ConversationRef) -> tuple[int, int, int]:
    used = ModelUse.objects.of(talk.pk).total()
    return used.prompt_tokens, used.completion_tokens, used.cost_nanos


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.sampled(3)
async def test_usage_by_user_model_and_day_equals_a_recount_after_any_sequence(
    alice: User, bob: User, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance, expected = random.Random(seed), Counter[tuple[Place, str]]()
    owners = [(alice, Version.V0), (alice, Version.V1), (bob, Version.V0)]

    talks = [await astore.call(created, number, *owner) for number, owner in enumerate(owners)]
    lives = [Life(talk, chance, expected) for talk in talks]
    clock = _Clock()
    monkeypatch.setattr(timezone, "now", clock)
    for _ in range(ACTS):
        clock.days += chance.randrange(2)
        await chance.choice(lives).act()
    for life in lives:
        await life.turn()
    assert await astore.call(counted) == +expected
    for talk in talks:
        used = await astore.call(sums_of, talk)
        row = await astore.call(Conversation.objects.get, pk=talk.pk)
        meter = await astore.call(RunMeter.objects.get, pk=talk.pk)
        assert (row.prompt_tokens, row.completion_tokens, round(row.accumulated_cost * NANOS)) == used
        assert (meter.tokens, meter.cost_nanos, meter.running) == (used[0] + used[1], used[2], {})


async def test_the_totals_that_the_log_tells_after_a_turn_are_the_sums_of_the_table(
    alice: User, chance: random.Random
) -> None:
    for number, version in enumerate([Version.V0, Version.V1]):
        talk = await astore.call(created, number, alice, version)
        life = Life(talk, chance, Counter())
        for act in (life.crash, life.question, life.turn):
            await act()
        turn = await life._begun()
        await life._ask(turn)
        await turn.say("All told.")
        await turn.settle()
        await astore.change(runs.finish, talk, life._epoch, turn.start, turn.start.counted)
        assert await astore.call(told, talk) == await astore.call(sums_of, talk)


class _Clock:
    """The time, some days on."""

    def __init__(self) -> None:
        self.days = 0

    def __call__(self) -> datetime:
        return datetime.now(UTC) + timedelta(days=self.days)

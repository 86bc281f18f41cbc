"""Limits of agents: what a turn and a conversation may use, reserved before each call of a model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from decimal import Decimal
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.db import connection, connections, transaction
from django.test.utils import CaptureQueriesContext

from conversations.models import Conversation, ConversationRef, Version
from conversations.store import creation
from convserver.quotas import RunLimits
from sessions_app import astore
from sessions_app.agents import metering
from sessions_app.agents.base import AgentFailure
from sessions_app.agents.llm import library
from sessions_app.agents.llm.agent import LlmAgent
from sessions_app.agents.llm.models import Wire
from sessions_app.agents.metering import TurnShare
from sessions_app.agents.turn_meter import TurnMeter
from sessions_app.loops import loop
from sessions_app.models import Amounts, ModelUse, RunMeter
from sessions_app.settings import agent_setups, run_limits, run_options, user_settings
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.settings.run_limits import Origin
from tests.conftest import Join, on_postgresql
from tests.store.test_llm_tools import give, program
from tests.support.data.threads import is_somebody_waiting
from tests.support.people.clients import Client
from tests.support.people.model_talks import answers_of, events, model, notices_of, said, until_paused
from tests.support.people.scripted_agent import manager, stage
from tests.support.servers.model_server import Answer, Asked, calling, completion
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]


@pytest.fixture
async def priced() -> Any:
    """Let every token of every model on loopback cost a dollar."""
    await library.client_of(Wire.OPENAI)
    from genai_prices import data_snapshot, types

    price = types.ModelPrice(input_mtok=Decimal(1_000_000), output_mtok=Decimal(1_000_000))
    gpt = types.ModelInfo(id="gpt-x", match=types.ClauseContains(contains=""), prices=price)
    openai = data_snapshot.get_snapshot().find_provider(None, "openai", None)
    loopback = replace(openai, api_pattern="http://127", models=[gpt])
    data_snapshot.set_custom_snapshot(data_snapshot.DataSnapshot([loopback], from_auto_update=False))
    yield
    data_snapshot.set_custom_snapshot(None)


def limit(talk: ConversationRef, **options: Any) -> None:
    run_options.change(talk, options)


def endless() -> Callable[[Asked], Answer]:
    """Return answers that want one tool after the other, none of which there is; each uses ten tokens."""
    numbers = count()
    return lambda asked: calling(("nowhere", {"number": next(numbers)}))


async def until_ended(client: Client, talk: ConversationRef, code: str) -> None:
    """Return once the turn has ended at a limit, or waits at one, as its wire has it."""
    if talk.version == Version.V0:
        await until_paused(client)
        return
    end = await client.until("event", kind="turn")
    assert end["text"].startswith("error")
    error = await client.until("event", kind="error")
    assert error["event"]["code"] == code


@pytest.mark.parametrize(
    ("options", "code", "notice"),
    [
        ({"max_turn_iterations": 2}, "MaxIterationsReached", "has taken 2 steps for this message"),
        (
            {"max_turn_tokens": 15},
            "MaxBudgetReached",
            "have used 20 tokens for this message; the limit is 15",
        ),
        (
            {"max_turn_cost": 15.5},
            "MaxBudgetReached",
            "have cost $20.00 for this message; the limit is $15.50",
        ),
    ],
)
@pytest.mark.sampled(3)
async def test_a_limit_of_the_turn_ends_it_or_pauses_it_and_resuming_grants_it_once_more(
    talk: ConversationRef, alice: User, join: Join, priced: None, options: Any, code: str, notice: str
) -> None:
    await astore.call(limit, talk, **options)
    async with model(alice, endless()) as asked:
        client = await join(talk)
        await client.send({"type": "message", "text": "Go."})
        await until_ended(client, talk, code)
        assert len(asked) == 2
        if talk.version == Version.V1:
            assert notice in events(client.frames, "error")[-1]["text"]
            await client.send({"type": "message", "text": "Go on."})
        else:
            assert notice in notices_of(client.frames)[-1]
            assert "Resume it to let it go on for as much again" in notices_of(client.frames)[-1]
            await client.send({"type": "run"})
        await until_ended(client, talk, code)
        assert len(asked) == 4


@pytest.mark.parametrize(
    ("name", "most", "more", "code"),
    [
        ("max_iterations", 2, 4, "MaxIterationsReached"),
        ("max_tokens", 15, 35, "MaxBudgetReached"),
        ("max_cost", 15, 35, "MaxBudgetReached"),
    ],
)
@pytest.mark.sampled(3)
async def test_a_limit_of_the_conversation_stays_reached_until_it_is_raised(
    talk: ConversationRef,
    alice: User,
    join: Join,
    priced: None,
    name: str,
    most: int,
    more: int,
    code: str,
) -> None:
    await astore.call(limit, talk, **{name: most})
    async with model(alice, endless()) as asked:
        client = await join(talk)
        go = {"type": "run"} if talk.version == Version.V0 else {"type": "message", "text": "Go on."}
        await client.send({"type": "message", "text": "Go."})
        await until_ended(client, talk, code)
        told = events(client.frames, "error") if talk.version == Version.V1 else []
        last = told[-1]["text"] if told else notices_of(client.frames)[-1]
        assert "To go on, raise it in the conversation's menu, under Limits" in last
        await client.send(go)
        await until_ended(client, talk, code)
        assert len(asked) == 2
        await astore.call(limit, talk, **{name: more})
        await client.send(go)
        await until_ended(client, talk, code)
        assert len(asked) == 4


async def test_the_time_of_a_turn_bounds_an_answer_under_way_and_what_was_said_is_kept(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    await astore.call(limit, talk, max_turn_seconds=1)
    async with model(alice, completion(["Once upon ", threading.Event()])):
        client = await join(talk)
        await client.send({"type": "message", "text": "Tell me a story."})
        await until_ended(client, talk, "MaxTimeReached")
    assert answers_of(client.frames)[0] == "Once upon "
    meter = await astore.call(RunMeter.objects.get, pk=talk.pk)
    assert 1000 <= meter.worked_ms == meter.turn_worked_ms


async def test_the_time_of_a_conversation_bounds_a_call_under_way_which_gets_a_result(
    talk: ConversationRef, alice: User, join: Join, tmp_path: Path
) -> None:
    await astore.call(limit, talk, max_seconds=3)
    await give(alice, program("parent", tmp_path / "runs"))
    async with model(alice, calling(("hang", {}))):
        client = await join(talk)
        await client.send({"type": "message", "text": "Go."})
        await until_ended(client, talk, "MaxTimeReached")
    [result] = events(client.frames, "tool_result")
    assert "What the call has done by then is unknown" in result["text"]


async def test_a_limit_of_cost_says_once_that_it_does_not_count_a_model_without_a_price(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    await astore.call(limit, talk, max_cost=1.0)
    async with model(alice, completion(["Yes."])):
        client = await join(talk)
        await said(client, "One?")
        await said(client, "Two?")
    told = [text for text in notices_of(client.frames) if "price of the model" in text]
    assert told == ["The price of the model openai/gpt-x is unknown: the cost limit does not count it."]


async def test_a_question_beside_the_turns_is_refused_at_a_limit_of_the_conversation(
    talk: ConversationRef, alice: User
) -> None:
    await astore.call(limit, talk, max_tokens=15, max_iterations=1, max_turn_tokens=1)
    async with model(alice, completion(["Yes."])) as asked:
        agent = LlmAgent(talk)
        question = [{"role": "user", "content": "Is it?"}]
        assert [await agent.complete(question) for _ in range(2)] == ["Yes.", "Yes."]
        with pytest.raises(AgentFailure, match="have used 20 tokens in this conversation; the limit is 15"):
            await agent.complete(question)
    assert len(asked) == 2
    meter = await astore.call(RunMeter.objects.get, pk=talk.pk)
    assert (meter.iterations, meter.tokens, meter.running) == (0, 20, {})


@pytest.fixture
def operator() -> Iterator[Callable[..., None]]:
    """Set limits as the server's operator."""
    before = settings.CONFIGURATION

    def set_limits(**limits: Any) -> None:
        settings.CONFIGURATION = replace(before, run_limits=RunLimits(**limits))

    yield set_limits
    settings.CONFIGURATION = before


def found(talk: ConversationRef) -> dict[str, tuple[float, Origin]]:
    limits = run_limits.family_limits(talk)[0].limits
    return {name: (limit.most, limit.origin) for name, limit in limits.items()}


def test_the_conversations_option_comes_first_and_the_operators_limit_bounds_all(
    database: None, alice: User, operator: Callable[..., None]
) -> None:
    talk = agent_setups.create(alice, NewSetup(), conversation_id="talk")
    assert found(talk) == {"turn_iterations": (500, Origin.DEFAULT)}
    own = {"max_iterations": 40, "max_budget_per_task": 4.0}
    user_settings.change_settings(alice.pk, own, secrets={})
    of_owner = {"turn_iterations": (40, Origin.SETTINGS), "cost": (4.0, Origin.SETTINGS)}
    assert found(talk) == of_owner
    started = agent_setups.create(alice, NewSetup(max_iterations=30), conversation_id="started")
    assert found(started) == of_owner | {"turn_iterations": (30, Origin.START)}
    limit(started, max_turn_iterations=50, max_cost=5.0, max_seconds=60)
    chosen = {"turn_iterations": (50, Origin.OPTION), "cost": (5.0, Origin.OPTION)}
    assert found(started) == chosen | {"seconds": (60, Origin.OPTION)}
    operator(turn_iterations=45, cost=9.0, turn_tokens=1000)
    assert found(started) == {
        "turn_iterations": (45, Origin.OPERATOR),
        "cost": (5.0, Origin.OPTION),
        "seconds": (60, Origin.OPTION),
        "turn_tokens": (1000, Origin.OPERATOR),
    }


def test_settings_that_are_no_limits_are_none(database: None, alice: User) -> None:
    talk = creation.create(alice, conversation_id="talk", version=Version.V0)
    nothing = {"max_iterations": 0, "max_budget_per_task": 0.0}
    user_settings.change_settings(alice.pk, nothing, secrets={})
    assert found(talk) == {"turn_iterations": (500, Origin.DEFAULT)}


async def test_an_agent_that_does_not_look_at_its_time_is_ended(
    talk: ConversationRef, join: Join, manager: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "LATE_S", 0.1)
    await astore.call(limit, talk, max_turn_seconds=1)
    client = await join(talk)
    await client.send({"type": "message", "text": "speak"})
    end = await client.until("event", kind="turn")
    assert end["text"].startswith("error")
    assert answers_of(client.frames) == ["half of "]
    await client.send({"type": "message", "text": "hello"})
    await client.until("event", kind="turn")
    assert answers_of(client.frames)[-1] == "answer to hello"


# Reservations


@pytest.fixture
def family(database: None, alice: User) -> list[ConversationRef]:
    """A conversation and three that it has started."""
    top = creation.create(alice, conversation_id="top", version=Version.V1)
    ids = ("one", "two", "three")
    rows = Conversation.objects.filter(pk=top.pk)
    children = [creation.create(alice, conversation_id=each, version=Version.V1) for each in ids]
    Conversation.objects.filter(pk__in=[each.pk for each in children]).update(parent=rows.get())
    return [top, *children]


def share(**changes: Any) -> TurnShare:
    usual: dict[str, Any] = {"turn_id": "t", "epoch": 0, "ended": Amounts(), "is_first": False, "asks": False}
    return TurnShare(**usual | {"call_id": uuid4().hex} | changes)


def reserve(talk: ConversationRef, expected: Amounts, **changes: Any) -> bool:
    """Reserve a call for a turn; say whether there was room."""
    limits = run_limits.family_limits(talk)
    reached, _ = metering.reserve(talk, limits, share(**changes), expected)
    return reached is None


def in_threads(calls: list[Callable[[], bool]]) -> list[bool]:
    def call(each: Callable[[], bool]) -> bool:
        try:
            return each()
        finally:
            connections.close_all()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(call, calls))


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_loops_and_questions_at_the_same_time_go_no_further_than_what_they_reserve(
    family: list[ConversationRef],
) -> None:
    limit(family[0], max_tokens=100)
    metering.settle_beside(family[0], run_limits.family_limits(family[0]), "", Amounts())  # makes the row
    expected = Amounts(tokens=10)

    def ask(talk: ConversationRef) -> bool:
        limits = run_limits.family_limits(talk)
        return metering.reserve_beside(talk, limits, uuid4().hex, expected) is None

    calls: list[Callable[[], bool]] = [lambda each=each: ask(each) for each in family for _ in range(4)]  # type: ignore[misc]
    assert sum(in_threads(calls)) == 10


@pytest.mark.needs_engine
@pytest.mark.no_second_try
@on_postgresql
def test_a_first_reservation_counts_for_whoever_waited_while_it_was_made(
    family: list[ConversationRef],
) -> None:
    limit(family[0], max_tokens=10)
    metering.settle_beside(family[0], run_limits.family_limits(family[0]), "", Amounts())  # makes the row

    def ask(talk: ConversationRef) -> bool:
        limits = run_limits.family_limits(talk)
        return metering.reserve_beside(talk, limits, uuid4().hex, Amounts(tokens=10)) is None

    with ThreadPoolExecutor(1) as pool:
        with transaction.atomic():
            assert ask(family[1])
            asked = pool.submit(in_threads, [lambda: ask(family[0])])
            wait_until(is_somebody_waiting)
        assert asked.result() == [False]


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_steps_of_a_conversation_and_of_those_that_it_has_started_are_never_more_than_its_limit(
    family: list[ConversationRef],
) -> None:
    limit(family[0], max_iterations=10)

    def play(talk: ConversationRef) -> int:
        """Make calls one after the other, as a loop does, until there is no room."""
        ended, made = Amounts(), 0
        while reserve(talk, Amounts(1, 5), ended=ended):
            ended, made = Amounts(1, 5), made + 1
        metering.settle(talk, run_limits.family_limits(talk), share(call_id="", ended=Amounts()))
        return made

    made = in_threads([lambda each=each: play(each) for each in family])  # type: ignore[misc]
    assert sum(made) == 10
    assert sum(row.iterations for row in RunMeter.objects.all()) == 10


@pytest.mark.needs_engine
def test_each_loop_goes_beyond_a_limit_by_at_most_its_call_under_way(family: list[ConversationRef]) -> None:
    limit(family[0], max_tokens=100)
    assert all(reserve(each, Amounts(1, 30)) for each in family[:3])
    assert reserve(family[3], Amounts(1, 30))  # 90 are reserved
    assert not reserve(family[0], Amounts(1, 30), ended=Amounts(1, 900))  # and now more than all is used
    assert not any(reserve(each, Amounts(1, 1), ended=Amounts(1, 30)) for each in family[1:])
    assert sum(row.tokens for row in RunMeter.objects.all()) == 990


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_what_a_dead_loop_has_reserved_counts_until_the_next_one_runs_and_then_what_it_used(
    family: list[ConversationRef], alice: User
) -> None:
    talk = family[1]
    limit(family[0], max_tokens=100)
    assert reserve(talk, Amounts(1, 200), epoch=1, turn_id="dead")
    Conversation.objects.filter(pk=talk.pk).update(loop_epoch=1)
    assert not reserve(family[0], Amounts(1, 1))
    Conversation.objects.filter(pk=talk.pk).update(loop_epoch=2)
    assert reserve(family[0], Amounts(1, 1))
    ModelUse.objects.create(
        user=alice, conversation_id=talk.pk, model="m", day="2026-01-01", calls=1, prompt_tokens=50
    )
    assert reserve(talk, Amounts(1, 1), epoch=2, turn_id="dead")
    meter = RunMeter.objects.get(pk=talk.pk)
    assert (meter.tokens, meter.iterations, meter.turn_iterations) == (50, 1, 1)


@pytest.mark.needs_engine
@pytest.mark.no_second_try
def test_a_reservation_that_is_repeated_counts_once(family: list[ConversationRef]) -> None:
    for _ in range(2):
        assert reserve(family[0], Amounts(1, 5), call_id="c", ended=Amounts(1, 7, 8, 9))
    assert RunMeter.objects.get(pk=family[0].pk).used == Amounts(1, 7, 8, 9)
    for _ in range(2):
        limits = run_limits.family_limits(family[0])
        metering.settle(family[0], limits, share(call_id="c", ended=Amounts(1, 1, 1, 1)))
    assert RunMeter.objects.get(pk=family[0].pk).used == Amounts(2, 8, 9, 10)


@pytest.mark.needs_engine
def test_a_call_costs_two_statements_beside_its_transaction_and_a_lock_where_rows_have_one(
    family: list[ConversationRef],
) -> None:
    limits = run_limits.family_limits(family[1])
    metering.reserve(family[1], limits, share(), Amounts(1, 5))
    with CaptureQueriesContext(connection) as statements:
        metering.reserve(family[1], limits, share(), Amounts(1, 5))
    made = [each["sql"].split()[0] for each in statements.captured_queries]
    locks = ["SELECT"] * connection.features.has_select_for_update
    assert [each for each in made if each not in ("BEGIN", "COMMIT")] == [*locks, "SELECT", "UPDATE"]


def test_agents_play_in_a_line_of_conversations_that_is_longer_than_is_looked_at(
    database: None, alice: User
) -> None:
    line: list[ConversationRef] = []
    for number in range(run_limits.FAMILY_MAX + 2):
        parent_id = line[-1].pk if line else None
        line.append(
            creation.create(alice, conversation_id=f"c{number}", version=Version.V1, parent_id=parent_id)
        )
    limit(line[-2], max_tokens=10)
    assert all(reserve(line[number], Amounts(tokens=1)) for number in (3, -1, 3, -1))
    assert reserve(line[-1], Amounts(tokens=1), ended=Amounts(tokens=9))
    assert not reserve(line[-1], Amounts(tokens=1), ended=Amounts(tokens=1))


def test_the_time_counts_while_the_agent_works_and_not_while_it_waits(family: list[ConversationRef]) -> None:
    limit(family[0], max_turn_seconds=10)
    clock = [100.0]

    def work(seconds: float) -> float | None:
        """Work as one play of the turn, and return what is left of its time."""
        meter = TurnMeter(family[0], "t", 0, now=lambda: clock[0])
        meter.read()
        clock[0] += seconds
        metering.settle(family[0], meter.family, meter.share(reserves=False))
        return meter.seconds_left

    assert work(4) == 6.0
    clock[0] += 1000  # it waits for an approval
    assert work(5) == 1.0
    assert work(3) == 0.0

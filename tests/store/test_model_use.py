"""What models use is counted for each conversation, user, model and day."""

from __future__ import annotations

import json
import threading
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from conversations.events import Dialect
from conversations.log import reads
from conversations.models import Conversation, ConversationRef, Version
from sessions_app import astore
from sessions_app.agents import model_use
from sessions_app.agents.base import CallUsage
from sessions_app.agents.llm import agent as llm_agent
from sessions_app.loops.inputs import titles
from sessions_app.models import ModelUse, Used
from tests.conftest import Join
from tests.support.people.model_talks import events, model, said, until_shown
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import Answer, completion

__all__ = ["manager"]


def used_in(talk: ConversationRef) -> list[tuple[str, Used]]:
    return [(row.model, row.used) for row in ModelUse.objects.of(talk.pk).order_by("day", "model")]


def recounted(talk: ConversationRef) -> Counter[tuple[str, str, str]]:
    """Return what the log says was used: by model, day and kind, the growth of the totals that it tells."""
    totals: Counter[str] = Counter()
    found: Counter[tuple[str, str, str]] = Counter()
    for event in reads.read_after(talk, -1, limit=500):
        payload = json.loads(event["payload"])
        told = payload.get("llm_metrics")
        if event["dialect"] == Dialect.V1 and payload.get("key") == "stats":
            told = payload["value"]["usage_to_metrics"]["agent"]
        if told is None:
            continue
        tokens = told["accumulated_token_usage"]
        now = Counter(
            {
                "prompt": tokens["prompt_tokens"],
                "completion": tokens["completion_tokens"],
                "nanos": round(told["accumulated_cost"] * 1e9),
            }
        )
        for kind, grown in (now - totals).items():
            found[tokens["model"], event["timestamp"][:10], kind] += grown
        totals = now
    return found


def counted(talk: ConversationRef) -> Counter[tuple[str, str, str]]:
    """Return the same of the table."""
    found: Counter[tuple[str, str, str]] = Counter()
    for row in ModelUse.objects.of(talk.pk):
        day = row.day.isoformat()
        found[row.model, day, "prompt"] += row.prompt_tokens
        found[row.model, day, "completion"] += row.completion_tokens
        found[row.model, day, "nanos"] += row.cost_nanos
    return +found


async def test_usage_by_user_model_and_day_equals_a_recount_of_the_events(
    talk: ConversationRef, alice: User, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await join(talk)
    now = datetime.now(UTC)
    used = iter([(101, 11), (220, 20), (303, 7), (40, 4), (5, 500)])
    for day, name in [(0, "openai/a"), (0, "openai/b"), (1, "openai/a"), (1, "openai/a"), (2, "openai/b")]:
        with monkeypatch.context() as clock:
            clock.setattr(timezone, "now", lambda day=day: now + timedelta(days=day))
            async with model(alice, completion(["Yes."], usage=next(used)), name=name):
                await astore.call(Conversation.objects.filter(pk=talk.pk).update, llm_model=name)
                await said(client, "Yes?")
    assert await astore.call(recounted, talk) == await astore.call(counted, talk) != Counter()
    assert len(await astore.call(used_in, talk)) == 4
    row = await astore.call(Conversation.objects.get, pk=talk.pk)
    total = await astore.call(ModelUse.objects.all().total)
    assert (total.calls, total.prompt_tokens, total.completion_tokens) == (5, 669, 542)
    assert (row.prompt_tokens, row.completion_tokens, row.total_tokens) == (669, 542, 1211)


async def test_a_known_price_is_counted_and_an_unknown_one_is_said_as_unknown(
    talk: ConversationRef, alice: User
) -> None:
    calls = [
        CallUsage(model="a", prompt_tokens=10, completion_tokens=1, cost=0.1),
        CallUsage(model="a", prompt_tokens=20, completion_tokens=2, cost=0.2),
        CallUsage(model="a", prompt_tokens=30, completion_tokens=3),
        CallUsage(model="b", cost=0.0),
    ]
    await model_use.record_beside(talk, calls)
    assert await astore.call(used_in, talk) == [
        ("a", Used(3, 1, 60, 6, 300_000_000)),
        ("b", Used(1, 0, 0, 0, 0)),
    ]


async def test_a_title_is_counted_also_in_the_middle_of_a_turn(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    going_on = threading.Event()
    answers = [
        completion(["One ", going_on, "two."], usage=(100, 10)),
        completion(["Counting"], usage=(7, 3)),
    ]
    async with model(alice, *answers):
        client = await join(talk)
        await client.send({"type": "message", "text": "Count."})
        await until_shown(client, "One ")
        agent = llm_agent.LlmAgent(talk)
        assert await titles.made_of("Count.", agent.complete, 50) == "Counting"
        going_on.set()
        await client.until("event", kind="turn")
    row = await astore.call(Conversation.objects.get, pk=talk.pk)
    assert (row.prompt_tokens, row.completion_tokens) == (107, 13)
    assert await astore.call(used_in, talk) == [("openai/gpt-x", Used(2, 2, 107, 13, 0))]


async def test_an_answer_that_was_stopped_has_an_unknown_price(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, completion(["Once upon ", threading.Event()])):
        client = await join(talk)
        await client.send({"type": "message", "text": "Tell me a story."})
        await until_shown(client, "upon ")
        await client.send({"type": "stop"})
        await client.until("event", kind="turn")
    assert await astore.call(used_in, talk) == [("openai/gpt-x", Used(1, 1, 0, 0, 0))]


async def test_an_empty_answer_is_counted_although_nothing_is_stored_of_it(
    talk: ConversationRef, alice: User, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(llm_agent, "WAITS_S", (0.0,))
    async with model(alice, completion([], usage=(50, 1)), completion(["Hello."], usage=(60, 2))):
        await said(await join(talk), "hello")
    assert await astore.call(used_in, talk) == [("openai/gpt-x", Used(2, 2, 110, 3, 0))]


async def test_a_request_that_the_server_refused_is_not_counted(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, Answer(401, {"error": {"message": "no"}})):
        await said(await join(talk), "hello")
    assert await astore.call(used_in, talk) == []


async def test_v0_readers_get_the_totals_with_each_answer(
    alice: User, join: Join, talk: ConversationRef
) -> None:
    async with model(alice, completion(["1."], usage=(100, 10)), completion(["2."], usage=(120, 11))):
        client = await join(talk)
        await said(client, "1?")
        frames = await said(client, "2?")
    [answer] = events(frames, "message", "agent")
    if talk.version == Version.V1:
        assert "llm_metrics" not in answer["event"]
        return
    metrics: dict[str, Any] = answer["event"]["llm_metrics"]
    usage = metrics["accumulated_token_usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["per_turn_token"]) == (220, 21, 131)
    assert usage["model"] == "openai/gpt-x"


async def test_what_a_purged_conversation_used_stays_in_its_owners_sums(
    talk: ConversationRef, alice: User
) -> None:
    used = [CallUsage(model="a", prompt_tokens=5, completion_tokens=1, cost=0.5)]
    await model_use.record_beside(talk, used)
    await astore.call(Conversation.objects.filter(pk=talk.pk).delete)
    await model_use.record_beside(talk, used)  # nothing is left to count for, and nothing fails
    [row] = await astore.call(lambda: list(ModelUse.objects.filter(user=alice)))
    assert (row.conversation_id, row.used) == (None, Used(1, 0, 5, 1, 500_000_000))

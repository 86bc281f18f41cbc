"""A conversation that is too long for its model is summed up by it; the log keeps everything."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.log import reads, writes
from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.llm import agent as llm_agent
from sessions_app.agents.llm import condensing, prompts, record
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.models import ModelUse
from tests.conftest import Join
from tests.support.data.events import event
from tests.support.people.model_talks import answers_of, model, notices_of, said, told, until_paused
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import Answer, Asked, completion

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

SUMMARY = "They talked about the letter x."
HEADING = "A summary of the earlier conversation:\n\n"
MAX_CHARS = 8_000


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(
    request: pytest.FixtureRequest,
    alice: User,
    configured: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> ConversationRef:
    """An empty conversation of either wire, on a server whose models take little."""
    configured(agent=BUILT_IN_AGENTS["auto"])
    monkeypatch.setattr(llm_agent, "HISTORY_MAX_CHARS", MAX_CHARS)
    return creation.create(alice, conversation_id="talk", version=request.param, title="A talk")


def is_summary(asked: Asked) -> bool:
    return prompts.SUMMARIZE[:40] in json.dumps(asked.body)


def answering(asked: Asked) -> Answer:
    """Sum up, or say yes."""
    return completion([SUMMARY] if is_summary(asked) else ["Yes."], usage=(100, 10))


def condensations(talk: ConversationRef) -> list[dict[str, Any]]:
    found = [json.loads(each["payload"]) for each in reads.read_before(talk, 2**62, limit=100)]
    named = [each for each in found if "condensation" in (each.get("action"), str(each.get("kind")).lower())]
    return [each.get("args", each) for each in named]


async def test_the_older_part_becomes_a_summary_with_which_the_history_begins(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, answering) as asked:
        client = await join(talk)
        for number in range(5):
            frames = await said(client, f"{number} {'x' * 2_000}")
            assert answers_of(frames) == ["Yes."]
    newest = told(asked[-1])
    assert newest[0][1].startswith(f"{HEADING}{SUMMARY}")
    assert newest[-1] == ("user", f"4 {'x' * 2_000}")
    assert "0 xxx" not in json.dumps(asked[-1].body)
    stored = await astore.call(reads.read_after, talk, -1, limit=500)
    assert sum("xxx" in each["text"] for each in stored) == 5
    [condensed] = await astore.call(condensations, talk)
    assert (condensed["summary"], condensed["summary_offset"]) == (SUMMARY, 0)
    used = await astore.call(ModelUse.objects.all().total)
    assert (used.calls, used.prompt_tokens) == (6, 600)


async def test_a_log_longer_than_what_is_read_of_it_is_condensed_as_a_whole(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    await astore.call(writes.append, talk, [event(f"{number} {'y' * 50}") for number in range(1_200)])
    async with model(alice, answering) as asked:
        client = await join(talk)
        assert answers_of(await said(client, "Hello?")) == ["Yes."]
        assert answers_of(await said(client, "Still there?")) == ["Yes."]
    assert [is_summary(each) for each in asked] == [True, False, False]
    for each in asked[1:]:
        assert told(each)[0][1].startswith(f"{HEADING}{SUMMARY}")
    [condensed] = await astore.call(condensations, talk)
    assert len(condensed["forgotten_event_ids"]) > 1_000


async def test_what_a_turn_answers_is_never_summed_up_however_much_it_has_done_since(
    talk: ConversationRef, alice: User
) -> None:
    said_since = {"action": "message", "source": "agent", "args": {"content": "z" * 50}}
    done = [event(raw=json.dumps(said_since), turn_id="t") for _ in range(700)]
    await astore.call(writes.append, talk, [event("Count."), *done])
    found = await astore.call(lambda: record.read(talk, turn_id="t", inputs=[0], max_chars=1_000))
    unread = await astore.call(lambda: record.before(talk, found, inputs=[0]))
    older, newer = condensing.parted(found, inputs=[0], kept_chars=500)
    assert newer[0]["seq"] == 0
    assert [each["seq"] for each in (*unread, *older, *newer[1:])] == list(range(1, 701))


async def test_after_two_condensations_without_progress_the_user_is_told(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    def long_winded(asked: Asked) -> Answer:
        return completion(["s" * 3_000]) if is_summary(asked) else completion(["Yes."])

    async with model(alice, long_winded) as asked:
        client = await join(talk)
        await said(client, "x" * 3_000)
        await said(client, "x" * 3_000)
        frames = await said(client, "x" * (MAX_CHARS + 1))
    assert (notices_of(frames), answers_of(frames)) == ([prompts.CUT_NOTICE], ["Yes."])
    assert sum(map(is_summary, asked)) <= 2


async def test_a_pause_takes_effect_while_the_model_sums_up(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    never, summing_up = threading.Event(), threading.Event()
    hangs = True

    def hanging(asked: Asked) -> Answer:
        if hangs and is_summary(asked):
            summing_up.set()
            return Answer(stream=[never])
        return answering(asked)

    async with model(alice, hanging):
        client = await join(talk)
        await said(client, "x" * 6_000)
        await client.send({"type": "message", "text": "y" * 6_000})
        assert await asyncio.to_thread(summing_up.wait, 60)
        await client.send({"type": "pause"})
        await until_paused(client)
        hangs = False
        start = len(client.frames)
        await client.send({"type": "run"})
        await client.until("event", kind="turn")
    assert answers_of(client.frames[start:]) == ["Yes."]
    assert len(await astore.call(condensations, talk)) == 1

"""The reasoning behind an answer is shown as it comes, kept where the answer is cut off, and masked."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.redaction.masking import MASK
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.base import Turn
from sessions_app.loops.playing import streamed_answer
from sessions_app.models import SecretKind, UnfinishedAnswer
from sessions_app.settings import user_settings
from tests.conftest import Join
from tests.support.people.clients import Client
from tests.support.people.dictation import Dictate, SilentAgent, Thought, dictate, end_answer
from tests.support.people.scripted_agent import manager

__all__ = ["dictate", "manager"]

Frame = dict[str, Any]
SECRET = "xyzzy-and-plugh"
pytestmark = [pytest.mark.one_engine, pytest.mark.usefixtures("live")]


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(request: pytest.FixtureRequest, alice: User) -> ConversationRef:
    """An empty conversation of either wire, which has a title."""
    return creation.create(alice, conversation_id="talk", version=request.param, title="A talk")


def assembled(frames: list[Frame]) -> tuple[str, str]:
    """Put the pieces of the one answer together, reasoning and text; fail if one is missing."""
    reasoning, text, following = "", "", 0
    for frame in frames:
        if frame["type"] == "answer":
            reasoning, text, following = frame.get("reasoning", ""), frame["text"], frame["through"] + 1
        elif frame["type"] == "delta":
            assert frame["index"] == following
            reasoning, text = reasoning + frame.get("reasoning", ""), text + frame["text"]
            following += 1
    return reasoning, text


def reasoning_of(frame: Frame) -> str:
    """Return the reasoning that is stored in an event."""
    event = frame["event"]
    return str(event.get("llm_message", event).get("reasoning_content", ""))


async def answer_to(client: Client) -> Frame:
    return await client.until("event", kind="message", source="agent")


async def begun(client: Client, dictate: Dictate, *pieces: str) -> None:
    """Ask, and have the agent say these pieces of its answer."""
    await client.send({"type": "message", "text": "hello"})
    await client.send({"type": "run"})
    await dictate(*pieces)


async def test_a_reader_ends_with_exactly_what_is_stored_whenever_it_has_come(
    talk: ConversationRef, join: Join, dictate: Dictate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streamed_answer, "SNAPSHOT_S", 0.0)
    readers = [await join(talk)]
    await begun(readers[0], dictate, Thought("The capital "))
    for piece in (Thought("of "), Thought("France."), "Par", "is."):
        readers.append(await join(talk))
        await readers[-1].until("answer")
        await dictate(piece)
    whole = ("The capital of France.", "Paris.")
    for reader in readers:
        while assembled(reader.frames) != whole:  # until then the stored message might overtake
            await reader.receive()
    end_answer()
    for reader in readers:
        stored = await answer_to(reader)
        assert (reasoning_of(stored), stored["text"]) == whole


async def test_what_was_thought_before_a_stop_is_stored_and_marked(
    talk: ConversationRef, join: Join, dictate: Dictate
) -> None:
    client = await join(talk)
    await begun(client, dictate, Thought("The capital "))
    await client.send({"type": "stop"})
    stored = await answer_to(client)
    assert (reasoning_of(stored), stored["text"]) == ("The capital ", "")
    assert "interrupted" in str(stored["event"])


async def test_a_secret_is_hidden_in_reasoning_though_pieces_cut_it(
    talk: ConversationRef, alice: User, join: Join, dictate: Dictate
) -> None:
    await astore.call(user_settings.store_secret, alice.pk, SecretKind.CUSTOM, name="KEY", value=SECRET)
    client = await join(talk)
    await begun(client, dictate, Thought("It is "), Thought(SECRET[:5]), Thought(f"{SECRET[5:]}, so "), "So.")
    while not assembled(client.frames)[1]:
        await client.receive()
    end_answer()
    stored = await answer_to(client)
    assert assembled(client.frames)[0] == reasoning_of(stored) == f"It is {MASK}, so "
    assert SECRET[:5] not in str(client.frames)


class ThoughtfulAgent(SilentAgent):
    """Thinks, and calls a tool without a word."""

    async def play(self, turn: Turn) -> None:
        async with turn.answer() as answer:
            answer.think("The clock ")
            await answer.write("")
        async with turn.answer() as answer:
            answer.think("knows.")
            await answer.write("")
        call = await turn.call_tool("clock", {})
        await turn.tool_result(call, "noon")
        await turn.say("Noon.")


async def test_reasoning_without_an_answer_is_stored_with_the_call_that_follows(
    talk: ConversationRef, join: Join, configured: Any
) -> None:
    configured(agent="tests.store.test_reasoning.ThoughtfulAgent")
    client = await join(talk)
    await client.send({"type": "message", "text": "hello"})
    await client.send({"type": "run"})
    await client.until("event", kind="turn")
    shown = [frame for frame in client.frames if frame["type"] == "event" and frame["source"] == "agent"]
    told = [
        (frame["kind"], reasoning_of(frame)) for frame in shown if frame["kind"] in ("message", "tool_call")
    ]
    assert told == [("tool_call", "The clock \n\nknows."), ("message", "")]
    assert len({frame["answer"] for frame in client.frames if frame["type"] in ("delta", "answer")}) == 1
    assert not await astore.call(UnfinishedAnswer.objects.exists)

"""Messages that steer or interrupt a model while it works; its server is on loopback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.models import WhileWorking
from sessions_app.settings import run_options
from tests.conftest import Join
from tests.store.test_llm_tools import give, program
from tests.support.people.model_talks import Answers, answers_of, events, model, said, told, until_shown
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import Answer, Asked, calling, completion

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]


@pytest.fixture
def talk(alice: User, configured: Callable[..., None]) -> ConversationRef:
    """An empty conversation in which messages steer, on a server that lets a model answer."""
    configured(agent=BUILT_IN_AGENTS["auto"])
    return creation.create(alice, conversation_id="talk", version=Version.V1, title="A talk")


def held(answer: Answer, asked: threading.Event, go: threading.Event) -> Answers:
    """Return what gives an answer once it may `go`, and says when it is asked for."""

    def give(_: Asked) -> Answer:
        asked.set()
        assert go.wait(60)
        return answer

    return give


async def test_what_is_said_while_a_model_answers_is_answered_in_the_same_turn(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    go = threading.Event()
    async with model(alice, completion(["One ", go, "moment."]), completion(["Two."])) as asked:
        client = await join(talk)
        await client.send({"type": "message", "text": "Count to one."})
        await until_shown(client, "One ")
        await client.send({"type": "message", "text": "To two, please.", "id": 1})
        await client.until("ack", id=1)
        go.set()
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == ["One moment.", "Two."]
    assert told(asked[1]) == [
        ("user", "Count to one."),
        ("assistant", "One moment."),
        ("user", "To two, please."),
    ]


async def test_what_is_said_before_a_call_has_its_result_stands_behind_it_in_this_turn_and_the_next(
    talk: ConversationRef, alice: User, join: Join, tmp_path: Path
) -> None:
    is_asked, go = threading.Event(), threading.Event()
    calls = held(calling(("add", {"a": 1, "b": 2})), is_asked, go)
    await give(alice, program("library", tmp_path / "runs"))
    async with model(alice, calls, completion(["Three."]), completion(["Bye."])) as asked:
        client = await join(talk)
        await client.send({"type": "message", "text": "Add."})
        assert await asyncio.to_thread(is_asked.wait, 60)
        await client.send({"type": "message", "text": "Briefly!", "id": 1})
        await client.until("ack", id=1)
        go.set()
        await client.until("event", kind="turn")
        await said(client, "Thanks.")
    order = ["user", "assistant", "tool", "user"]
    assert [role for role, _ in told(asked[1])] == order
    assert told(asked[1])[3] == ("user", "Briefly!")
    assert told(asked[2]) == [*told(asked[1]), ("assistant", "Three."), ("user", "Thanks.")]


async def test_a_message_interrupts_a_model_in_the_middle_of_its_answer(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    await astore.change(run_options.change, talk, {"while_working": WhileWorking.INTERRUPT})
    async with model(alice, completion(["Once ", threading.Event()]), completion(["Bye."])) as asked:
        client = await join(talk)
        await client.send({"type": "message", "text": "Tell me a story."})
        await until_shown(client, "Once ")
        await client.send({"type": "message", "text": "Stop that."})
        await client.until("event", kind="turn")
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == ["Once ", "Bye."]
    assert told(asked[1]) == [
        ("user", "Tell me a story."),
        ("assistant", "Once "),
        ("user", "Stop that."),
    ]
    assert len(events(client.frames, "turn")) == 2

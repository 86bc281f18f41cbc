"""Halves of emojis in what agents of other people's making do: each step is stored, and each turn ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pytest
from django.contrib.auth.models import User

from conversations.log import reads
from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.base import AgentFailure, Turn
from sessions_app.loops.inputs import titles
from sessions_app.loops.manager import ConversationManager
from tests.conftest import Join
from tests.support.people.model_talks import answers_of, events, said
from tests.support.people.scripted_agent import manager, stage

pytestmark = pytest.mark.needs_engine

__all__ = ["manager", "stage"]

FIRST, SECOND = "\ud83c", "\udf27"


class HalvingAgent:
    """Does with halves whatever the user names."""

    async def play(self, turn: Turn) -> None:
        match turn.inputs[-1]["text"]:
            case "stream":
                async with turn.answer() as answer:
                    answer.think(FIRST)
                    await answer.write(f"rain {FIRST}")
                    answer.think(SECOND)
                    await answer.write(SECOND)
            case "replace":
                async with turn.answer() as answer:
                    await answer.write(f"rain {FIRST}")
                    answer.replace(f"sun {FIRST}{SECOND}{SECOND}")
            case "say":
                await turn.say(f"rain {FIRST}")
            case "call":
                call = await turn.call_tool(f"look{FIRST}", {FIRST: [SECOND]}, thought=FIRST)
                await turn.start_tool(call)
                await turn.tool_result(call, f"On branch {FIRST}")
            case "checkout":
                call = await turn.call_tool("run", {"command": f"git checkout -b x{FIRST}"})
                await turn.tool_result(call, f"Switched to a new branch 'x{FIRST}'")
            case "finish":
                await turn.finish(f"done {FIRST}", thought=FIRST)
            case "fail":
                raise AgentFailure(f"No luck {FIRST}", code=f"Code{FIRST}")
            case "break":
                raise ValueError(f"No luck {FIRST}")

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return f"Rain {FIRST} {FIRST}{SECOND}"


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(request: pytest.FixtureRequest, alice: User, configured: Callable[..., None]) -> ConversationRef:
    """An empty conversation of either wire."""
    configured(agent=f"{__name__}.HalvingAgent")
    return creation.create(
        alice, conversation_id="talk", version=request.param, repository="owner/name", branch="main"
    )


async def test_each_step_with_a_half_is_stored_and_the_turn_ends(
    manager: ConversationManager,
    talk: ConversationRef,
    configured: Callable[..., None],
    join: Join,
    subtests: pytest.Subtests,
) -> None:
    configured(agent=f"{__name__}.HalvingAgent")
    client = await join(talk)
    found = {}
    for step in ("stream", "replace", "say", "call", "checkout", "finish", "fail", "break", "stream"):
        with subtests.test(step):
            found[step] = frames = await said(client, step)
            assert events(frames, "turn")
    assert answers_of(found["stream"]) == ["rain 🌧"]
    assert answers_of(found["replace"]) == ["sun 🌧\ufffd"]
    assert answers_of(found["say"]) == ["rain \ufffd"]
    title = await titles.made_of("How is it?", HalvingAgent().complete, 50)
    assert title == "Rain \ufffd 🌧"
    stored = await astore.call(reads.read_after, talk, -1, limit=200)
    for event in stored:
        event["text"].encode()
    assert not [each for each in stored if each["kind"] == "error" and "surrogate" in each["text"]]

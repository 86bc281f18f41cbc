"""What a client sees of an agent: answers, tool calls, approvals and failures, on either wire."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.contrib.auth.models import User

from conversations.log import reads
from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.demo import COMMANDS, INTRODUCTION, SLOW_ANSWER
from sessions_app.loops import turn_events
from tests.conftest import Join
from tests.support.people.clients import Client
from tests.support.people.scripted_agent import Stage, manager, stage

pytestmark = pytest.mark.one_engine

__all__ = ["manager", "stage"]

Frame = dict[str, Any]

AGENTS_PAGE = Path(__file__).parents[2] / "docs" / "agents.md"


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(request: pytest.FixtureRequest, alice: User) -> ConversationRef:
    """An empty conversation, of either wire."""
    return creation.create(alice, conversation_id="talk", version=request.param)


async def following(join: Join, talk: ConversationRef) -> Client:
    """Join, and return once pieces of answers are shown as they come, and not the snapshot of them all."""
    client = await join(talk)
    await client.until("replay_complete")
    await client.send({"type": "event", "event": {"observation": "run", "content": "seen as it came"}})
    await client.until("event")
    return client


async def ask(client: Client, text: str) -> list[Frame]:
    """Send a message and return what comes until its turn ends."""
    await client.send({"type": "message", "text": text})
    return await through_the_turn(client)


async def through_the_turn(client: Client) -> list[Frame]:
    """Return the frames through the next `turn` event."""
    start = len(client.frames)
    await client.until("event", kind="turn")
    return client.frames[start:]


async def until_status(client: Client, status: str) -> list[Frame]:
    """Return the frames until the agent is said to be in this state."""
    start = len(client.frames)
    while _status(await client.until("conversation")) != status:
        pass
    return client.frames[start:]


def _status(frame: Frame) -> str | None:
    """Return what the agent is said to do; None for the news of a title."""
    loop = frame["changes"].get("loop")
    return loop and str(loop["execution_status"])


async def ask_for_approval(client: Client) -> list[Frame]:
    """Make the agent wait for approval, and return the frames until it does."""
    await client.send({"type": "message", "text": "/approve"})
    return await until_status(client, "waiting_for_confirmation")


async def waiting_call(client: Client) -> int:
    """Make the agent wait for approval; return the seq of its call, which may come after the news of it."""
    start = len(client.frames)
    await ask_for_approval(client)
    calls = [each for each in events(client.frames[start:]) if each["kind"] == "tool_call"]
    call = calls[0] if calls else await client.until("event", kind="tool_call")
    return int(call["seq"])


def events(frames: list[Frame]) -> list[Frame]:
    return [frame for frame in frames if frame["type"] == "event"]


def kinds(frames: list[Frame]) -> list[str]:
    return [event["kind"] for event in events(frames)]


def the_one(frames: list[Frame], kind: str) -> Frame:
    (event,) = [event for event in events(frames) if event["kind"] == kind]
    return event


def the_answer(frames: list[Frame]) -> str:
    (said,) = [
        each["text"] for each in events(frames) if each["kind"] == "message" and each["source"] == "agent"
    ]
    return str(said)


def tool_call_id(event: Frame) -> str:
    payload = event["event"]
    return str(payload.get("tool_call_id") or payload["tool_call_metadata"]["tool_call_id"])


@pytest.mark.needs_engine
async def test_a_message_is_answered_by_one_turn(talk: ConversationRef, join: Join) -> None:
    frames = await ask(await join(talk), "hello")
    assert kinds(frames) == ["message", "state", "message", "turn"]
    assert events(frames)[2]["text"].startswith("You said: hello")


async def test_the_agent_is_said_to_work_and_then_to_have_finished(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await client.send({"type": "message", "text": "hello"})
    frames = await until_status(client, "finished")
    assert the_one(frames, "state")["text"] == "running"


async def test_what_is_shown_of_an_answer_is_the_beginning_of_what_is_stored(
    talk: ConversationRef, join: Join
) -> None:
    # The stored answer may overtake the last pieces of it, which are then not shown any more.
    frames = await ask(await following(join, talk), "hello")
    shown = ""
    for frame in frames:
        if frame["type"] == "delta":
            shown += frame["text"]
        elif frame["type"] == "answer":
            shown = frame["text"]
    assert shown.startswith("You")
    assert events(frames)[2]["text"].startswith(shown)


@pytest.mark.needs_engine
@pytest.mark.usefixtures("manager")
async def test_an_answer_is_shown_while_it_is_given(talk: ConversationRef, join: Join, stage: Stage) -> None:
    client = await following(join, talk)
    await client.send({"type": "message", "text": "speak"})
    await stage.holding()
    delta = await client.until("delta")
    stage.go.set()
    answer = the_one((await through_the_turn(client)), "message")
    assert (delta["text"], answer["text"]) == ("half of ", "half of an answer")
    assert delta["answer"] == answer["id"]


@pytest.mark.no_second_try
@pytest.mark.needs_engine
@pytest.mark.usefixtures("manager")
async def test_a_turn_ends_once_though_a_client_takes_the_ids_of_its_answer_and_its_end(
    talk: ConversationRef, join: Join, stage: Stage
) -> None:
    client = await following(join, talk)
    await client.send({"type": "message", "text": "speak"})
    turn = await stage.holding()
    answer_id = (await client.until("delta"))["answer"]
    for taken in (answer_id, turn_events.turn_event_id(turn.turn_id, "end")):
        await client.send({"type": "event", "id": taken, "event": {"observation": "run", "content": "mine"}})
        await client.until("ack", id=taken)
    stage.go.set()
    frames = await through_the_turn(client)
    assert the_one(frames, "message")["text"] == "half of an answer"
    assert kinds(await ask(client, "hello")) == ["message", "state", "message", "turn"]


async def test_a_tool_call_is_followed_by_its_result(talk: ConversationRef, join: Join) -> None:
    frames = await ask(await join(talk), "/tool")
    assert kinds(frames) == ["message", "state", "tool_call", "tool_result", "message", "turn"]
    call, result = the_one(frames, "tool_call"), the_one(frames, "tool_result")
    assert result["cause"] == call["seq"]
    assert tool_call_id(result) == tool_call_id(call)


async def test_a_call_that_needs_approval_waits(talk: ConversationRef, join: Join) -> None:
    frames = await ask_for_approval(await join(talk))
    # The V0 web client offers a decision only for a call that follows the state.
    waiting = ["state", "tool_call"] if talk.version == Version.V0 else ["tool_call", "state"]
    assert kinds(frames) == ["message", "state", *waiting]


async def test_a_decision_is_taken_as_soon_as_its_call_is_shown(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await client.send({"type": "message", "text": "/approve"})
    await client.until("event", kind="tool_call")
    await client.send({"type": "confirm", "id": 1, "accept": True})
    assert await client.until("ack", id=1)


@pytest.mark.needs_engine
async def test_an_accepted_call_is_carried_out_in_the_same_turn(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    call = the_one(await ask_for_approval(client), "tool_call")
    await client.send({"type": "confirm", "id": 1, "accept": True})
    frames = await through_the_turn(client)
    result = the_one(frames, "tool_result")
    assert (result["cause"], tool_call_id(result)) == (call["seq"], tool_call_id(call))
    assert [event["text"] for event in events(frames) if event["kind"] == "message"] == [
        f"Done.\n\n{INTRODUCTION}"
    ]


async def test_the_result_of_an_accepted_call_names_the_tool_that_was_called(
    talk: ConversationRef, join: Join
) -> None:
    client = await join(talk)
    call = the_one(await ask_for_approval(client), "tool_call")["event"]
    await client.send({"type": "confirm", "accept": True})
    result = the_one(await through_the_turn(client), "tool_result")["event"]
    if talk.version == Version.V0:
        assert result["observation"] == call["action"] == "run"
        assert result["extras"]["command"] == call["args"]["command"]
    else:
        assert result["observation"]["kind"] == "TerminalObservation"
        assert result["observation"]["command"] == call["action"]["command"]


async def test_a_rejected_call_is_refused_with_the_reason_and_then_answered(
    talk: ConversationRef, join: Join
) -> None:
    client = await join(talk)
    call = the_one(await ask_for_approval(client), "tool_call")
    await client.send({"type": "confirm", "accept": False, "reason": "I need it"})
    frames = await through_the_turn(client)
    result = the_one(frames, "tool_result")
    assert (result["cause"], result["text"]) == (call["seq"], "I need it")
    assert [event["text"] for event in events(frames) if event["kind"] == "message"] == [
        f"OK, I won't.\n\n{INTRODUCTION}"
    ]


async def test_a_message_is_never_an_approval(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await ask_for_approval(client)
    await client.send({"type": "message", "id": 1, "text": "/approve"})
    await client.until("ack", id=1)
    await client.send({"type": "confirm", "id": 2, "accept": False, "reason": "no"})
    frames = await through_the_turn(client)
    assert the_one(frames, "tool_result")["text"] == "no"


async def test_a_message_sent_while_waiting_is_stored_and_answered_by_the_next_turn(
    talk: ConversationRef, join: Join
) -> None:
    client = await join(talk)
    await ask_for_approval(client)
    await client.send({"type": "message", "id": 1, "text": "and hurry"})
    await client.until("event", kind="message", text="and hurry")
    await client.send({"type": "confirm", "accept": True})
    frames = [await through_the_turn(client) for _ in range(2)]
    assert [the_one(turn, "message")["text"] for turn in frames] == [
        f"Done.\n\n{INTRODUCTION}",
        "You said: and hurry",
    ]


@pytest.mark.needs_engine
async def test_a_second_decision_is_refused(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await ask_for_approval(client)
    await client.send({"type": "confirm", "id": 1, "accept": True})
    await client.send({"type": "confirm", "id": 2, "accept": False})
    assert (await client.until("error"))["id"] == 2
    assert client.frames[-1]["code"] == "loop_unavailable"


@pytest.mark.no_second_try
@pytest.mark.needs_engine
async def test_a_decision_that_is_repeated_decides_about_no_later_call(
    talk: ConversationRef, join: Join
) -> None:
    client = await join(talk)
    await ask_for_approval(client)
    decision = {"type": "confirm", "id": 1, "accept": True}
    await client.send(decision)
    await through_the_turn(client)
    await ask_for_approval(client)
    await client.send(decision)
    await client.until("ack", id=1)
    await client.send({"type": "confirm", "id": 2, "accept": False})  # it is there to be decided about
    await client.until("ack", id=2)


async def test_a_decision_about_another_call_than_the_one_that_waits_is_refused(
    talk: ConversationRef, join: Join
) -> None:
    client = await join(talk)
    first = await waiting_call(client)
    await client.send({"type": "confirm", "id": 1, "accept": True, "seq": first})
    await through_the_turn(client)
    second = await waiting_call(client)
    await client.send({"type": "confirm", "id": 2, "accept": True, "seq": first})
    assert (await client.until("error", id=2))["code"] == "conflict"
    await client.send({"type": "confirm", "id": 3, "accept": True, "seq": second})
    assert the_one(await through_the_turn(client), "tool_result")["cause"] == second


async def test_an_id_that_has_decided_otherwise_is_refused(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await ask_for_approval(client)
    for accept in (True, False):
        await client.send({"type": "confirm", "id": 1, "accept": accept})
    assert (await client.until("error", id=1))["code"] == "conflict"


async def test_a_decision_that_nothing_waits_for_is_refused(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await client.send({"type": "confirm", "id": 1, "accept": True})
    assert (await client.until("error", id=1))["code"] == "loop_unavailable"


async def test_an_agent_that_fails_ends_its_turn_with_the_error(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await client.send({"type": "message", "text": "/fail"})
    frames = await until_status(client, "error")
    ending = ["error", "turn"] if talk.version == Version.V0 else ["turn", "error"]
    assert kinds(frames) == ["message", "state", *ending]
    assert the_one(frames, "error")["text"] == "The demo agent failed because you asked it to."


@pytest.mark.needs_engine
async def test_what_a_failing_database_says_stands_in_no_event(
    talk: ConversationRef, join: Join, configured: Callable[..., None]
) -> None:
    configured(agent="tests.support.data.faulty.UnstoredAgent")
    client = await join(talk)
    await client.send({"type": "message", "text": "Hello"})
    frames = await until_status(client, "error")
    assert the_one(frames, "error")["text"] == "The server failed. See its log for the cause."
    assert "10.0.0.5" not in json.dumps(client.frames)


async def test_the_demo_agent_introduces_itself_once(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    answers = [the_answer(await ask(client, text)) for text in ("Good morning", "Good evening")]
    assert answers == [f"You said: Good morning\n\n{INTRODUCTION}", "You said: Good evening"]


@pytest.mark.parametrize(
    "text",
    ["Why does the test fail?", "Approve nothing", "Which tool is slow?", "try /fail", "/usr/bin is full"],
)
@pytest.mark.sampled(3)
async def test_words_that_are_commands_elsewhere_are_answered_like_any_others(
    talk: ConversationRef, join: Join, text: str
) -> None:
    frames = await ask(await join(talk), text)
    assert kinds(frames) == ["message", "state", "message", "turn"]
    assert the_answer(frames).startswith(f"You said: {text}\n")


async def test_a_command_counts_in_any_case_and_with_spaces_around(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await ask(client, "hello")
    assert the_answer(await ask(client, "  /Slow\n")) == SLOW_ANSWER


async def test_an_unknown_command_is_answered_with_those_that_there_are(
    talk: ConversationRef, join: Join
) -> None:
    client = await join(talk)
    await ask(client, "hello")
    answer = the_answer(await ask(client, "/dance"))
    assert answer == f"There is no command `/dance`. The commands are:\n\n{COMMANDS}"


async def test_the_demo_agent_finishes_on_cue(talk: ConversationRef, join: Join) -> None:
    frames = await ask(await join(talk), "/finish")
    last_words = [each["text"] for each in events(frames) if each["source"] == "agent"]
    assert last_words[0] == "The task is done."


async def test_the_message_after_a_failure_is_answered(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await client.send({"type": "message", "text": "/fail"})
    await until_status(client, "error")
    frames = await ask(client, "hello")
    assert kinds(frames) == ["message", "state", "message", "turn"]


async def test_each_event_of_the_v1_wire_bears_a_later_time_than_the_one_before(join: Join) -> None:
    client = await join("talk", version="V1")
    for text in ("hello", "/tool", "/fail"):
        await ask(client, text)
    await ask_for_approval(client)
    await client.send({"type": "confirm", "accept": True})
    await through_the_turn(client)
    times = [datetime.fromisoformat(event["event"]["timestamp"]) for event in events(client.frames)]
    assert len(times) > 15
    assert all(earlier < later for earlier, later in pairwise(times))


@pytest.fixture
def documented_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, configured: Callable[..., None]
) -> Iterator[None]:
    """Let the agent of docs/agents.md answer."""
    found = re.search(r"```python\n(.*?)```", AGENTS_PAGE.read_text(), re.DOTALL)
    assert found is not None
    (tmp_path / "dice_agent.py").write_text(found[1])
    monkeypatch.syspath_prepend(str(tmp_path))
    configured(agent="dice_agent.DiceAgent")
    yield
    sys.modules.pop("dice_agent", None)


@pytest.mark.usefixtures("documented_agent")
async def test_the_documented_agent_calls_its_tool(talk: ConversationRef, join: Join) -> None:
    frames = await ask(await join(talk), "roll 3 dice")
    rolled = json.loads(the_one(frames, "tool_result")["text"])
    assert len(rolled) == 3
    assert events(frames)[-2]["text"] == f"You rolled {sum(rolled)}."


@pytest.mark.usefixtures("documented_agent")
async def test_the_documented_agent_asks_before_it_rolls_many(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await client.send({"type": "message", "text": "roll 200 dice"})
    await until_status(client, "waiting_for_confirmation")
    await client.send({"type": "confirm", "accept": True})
    frames = await through_the_turn(client)
    assert len(json.loads(the_one(frames, "tool_result")["text"])) == 200


@pytest.mark.usefixtures("documented_agent")
async def test_the_documented_agent_takes_a_refusal(talk: ConversationRef, join: Join) -> None:
    client = await join(talk)
    await client.send({"type": "message", "text": "roll 200 dice"})
    await until_status(client, "waiting_for_confirmation")
    await client.send({"type": "confirm", "accept": False, "reason": "too many"})
    frames = await through_the_turn(client)
    assert the_one(frames, "tool_result")["text"] == "too many"


async def test_the_demo_agent_pauses_between_two_words_and_then_says_the_rest(
    talk: ConversationRef, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settings, "DEMO_AGENT_WORD_S", 0.01)
    client = await following(join, talk)
    greeted = events(await ask(client, "hello"))[-1]["seq"]
    await client.send({"type": "message", "text": "/slow"})
    await client.until("delta")
    await client.send({"type": "pause"})
    await until_status(client, "paused")
    begun = await said_by_agent(talk, greeted)
    assert SLOW_ANSWER.startswith(begun)
    assert begun != SLOW_ANSWER
    await client.send({"type": "run"})
    await through_the_turn(client)
    assert await said_by_agent(talk, greeted) == SLOW_ANSWER


async def said_by_agent(talk: ConversationRef, after: int) -> str:
    log = await astore.call(reads.read_after, talk, after)
    return " ".join(each["text"] for each in log if (each["kind"], each["source"]) == ("message", "agent"))

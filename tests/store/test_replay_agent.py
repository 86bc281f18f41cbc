"""The agent that plays a recorded conversation again, on either wire."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import EventEnvelope
from conversations.models import Conversation, ConversationRef, CreationParameters, Event, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.replay.agent import NO_RECORDING, OVER
from sessions_app.agents.replay.sources import UNREADABLE
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.loops.manager import get_manager
from sessions_app.settings import run_options
from sessions_app.storage import attachments
from sessions_app.storage.attachments import NewFile
from tests.support.people.scripted_agent import ask, log, said, until, until_said, until_status

pytestmark = pytest.mark.one_engine

RUN = (Path(__file__).parents[1] / "data" / "openhands-v0-agent-run.json").read_text()
AN_HOUR_LATER = "2026-01-01T11:00:00"
QUESTION = {"action": "message", "source": "user", "args": {"content": "Well?"}}


def answer(text: str, at: str = "2026-01-01T10:00:00") -> dict[str, Any]:
    return {"action": "message", "source": "agent", "timestamp": at, "args": {"content": text}}


@pytest.fixture(autouse=True)
def demo(configured: Callable[..., None]) -> None:
    """Let the demo agent be the default one."""
    configured(agent=BUILT_IN_AGENTS["demo"])


async def created(rest: httpx.AsyncClient, *events: dict[str, Any], **body: Any) -> ConversationRef:
    """Create a conversation that replays these events, by V0."""
    text = json.dumps([QUESTION, *events])
    response = await rest.post("/api/conversations", json={"replay_json": text, **body})
    assert response.status_code == 200, response.text
    rows = Conversation.objects.with_public_ids([response.json()["conversation_id"]])
    return await astore.call(lambda: rows.get().ref)


@pytest.fixture(params=[Version.V0, Version.V1])
def talk(request: pytest.FixtureRequest, live: None, alice: User) -> ConversationRef:
    """A conversation of either wire that is to be answered by a replay."""
    made = creation.create(alice, conversation_id="talk", version=request.param)
    run_options.change(made, {"agent": "replay"})
    return made


async def give(talk: ConversationRef, name: str, content: str) -> None:
    await astore.call(attachments.attach, talk, [NewFile(name=name, content=content.encode())])


async def hurry(talk: ConversationRef) -> None:
    """Let nothing be waited for any more."""

    def change() -> None:
        row = CreationParameters.objects.get(pk=talk.pk)
        row.parameters["replay_pace"] = 0
        row.save(update_fields=["parameters"])

    await astore.call(change)


def told(events: list[EventEnvelope]) -> list[tuple[str, str]]:
    """Return the messages, calls and results of an agent."""
    kinds = ("message", "tool_call", "tool_result")
    return [
        (each["type"], each["text"])
        for each in events
        if each["kind"] in kinds and each["source"] in ("agent", "environment")
    ]


# By V0


async def test_a_recorded_run_is_played_as_it_was(rest: httpx.AsyncClient) -> None:
    response = await rest.post("/api/conversations", json={"replay_json": RUN})
    row = Conversation.objects.with_public_ids([response.json()["conversation_id"]])
    talk = await astore.call(lambda: row.get().ref)
    await until_status(talk, "finished")
    recorded = [each for each in json.loads(RUN) if each["source"] == "agent"]
    ran = [(each["action"], each["args"]["command"]) for each in recorded if each.get("action") == "run"]
    results = [each["content"] for each in recorded if each.get("observation") == "run"]
    played = [json.loads(each["payload"]) for each in await log(talk)]
    assert [
        (each["action"], each["args"]["command"]) for each in played if each.get("action") == "run"
    ] == ran
    assert [each["content"] for each in played if each.get("observation") == "run"] == results
    assert [each["action"] for each in played if each.get("action") == "finish"] == ["finish"]


async def test_what_the_user_had_said_is_quoted(rest: httpx.AsyncClient) -> None:
    again = {"action": "message", "source": "user", "args": {"content": "And\nthen?"}}
    talk = await created(rest, answer("one"), again, answer("two"))
    await until_said(talk, "one", "*The user said:*\n\n> And\n> then?", "two")


async def test_a_pause_takes_effect_while_nothing_is_played_and_a_resumption_goes_on_there(
    rest: httpx.AsyncClient,
) -> None:
    talk = await created(rest, answer("one"), answer("two", AN_HOUR_LATER), replay_pace=1)
    await until(lambda: Conversation.objects.filter(pk=talk.pk, last_message="one").exists())
    await get_manager().pause(talk)
    await until_status(talk, "paused")
    await hurry(talk)
    await get_manager().run(talk)
    await until_said(talk, "one", "two")


async def test_a_message_after_a_stop_goes_on_where_the_recording_was(rest: httpx.AsyncClient) -> None:
    talk = await created(rest, answer("one"), answer("two", AN_HOUR_LATER), replay_pace=1)
    await until(lambda: Conversation.objects.filter(pk=talk.pk, last_message="one").exists())
    await get_manager().close_session(talk.public_id)
    await hurry(talk)
    await ask(talk, "Go on.")
    await until_said(talk, "one", "two")


async def test_a_call_that_was_stored_gets_its_result_once_the_turn_goes_on(rest: httpx.AsyncClient) -> None:
    call = {"action": "run", "source": "agent", "timestamp": "2026-01-01T10:00:00", "args": {"command": "ls"}}
    result = {"observation": "run", "source": "agent", "timestamp": AN_HOUR_LATER, "content": "a.txt"}
    talk = await created(rest, call, result, answer("two"), replay_pace=1)
    await until(lambda: Event.objects.of(talk).filter(kind="tool_call").exists())
    await hurry(talk)
    await get_manager().pause(talk)
    await until_status(talk, "paused")
    await get_manager().run(talk)
    await until_said(talk, "two")
    assert told(await log(talk)) == [("run", "ls"), ("run", "a.txt"), ("message", "two")]


async def test_after_the_recording_the_default_agent_answers(rest: httpx.AsyncClient) -> None:
    talk = await created(rest, answer("one"))
    await until_said(talk, "one")
    await ask(talk, "hello")
    await until_said(talk, "one", "You said: hello")
    await ask(talk, "/finish")
    await until_said(talk, "one", "You said: hello", "The task is done.")


async def test_where_replays_are_not_offered_the_default_agent_answers(
    rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(agents=("demo",))
    talk = await created(rest, answer("one"))
    await until_status(talk, "finished")
    assert (await said(talk))[0].startswith("You said: Well?")


@pytest.mark.parametrize("pace", [-1, 101, "1e999", "fast"])
async def test_a_pace_that_is_none_is_refused(rest: httpx.AsyncClient, alice: User, pace: Any) -> None:
    body = {"replay_json": json.dumps([QUESTION]), "replay_pace": pace}
    assert (await rest.post("/api/conversations", json=body)).status_code == 422
    assert not await astore.call(Conversation.objects.exists)


# By a file


async def test_a_file_is_played_on_either_wire(talk: ConversationRef) -> None:
    call = {"action": "run", "source": "agent", "args": {"command": "ls"}}
    result = {"observation": "run", "source": "agent", "content": "a.txt"}
    await give(talk, "run.json", json.dumps([QUESTION, call, result, answer("Done.")]))
    await ask(talk, "Play it.")
    await until_said(talk, "Done.")
    texts = [text for _, text in told(await log(talk))]
    assert ("ls" in texts[0], texts[1:]) == (True, ["a.txt", "Done."])


async def test_lines_of_the_other_wire_are_played(talk: ConversationRef) -> None:
    path = Path(__file__).parents[1] / "data" / "openhands-v1-examples.jsonl"
    action, seen = (
        next(line for line in path.read_text().splitlines() if f'"kind":"{kind}"' in line)
        for kind in ("ActionEvent", "ObservationEvent")
    )
    await give(talk, "run.jsonl", f"{action}\n{seen}\n")
    await ask(talk, "Play it.")
    await until_status(talk, "finished")
    assert [text for kind, text in told(await log(talk)) if "Message" not in kind][-1] == "a.txt"


async def test_without_a_recording_the_user_is_told_what_to_do(talk: ConversationRef) -> None:
    await ask(talk, "Play it.")
    await until_said(talk, NO_RECORDING)
    await give(talk, "run.json", '[{"type": "nothing"}]')
    await ask(talk, "Play it.")
    await until_said(talk, NO_RECORDING, UNREADABLE.format(name="run.json"))


async def test_a_server_of_nothing_but_replays_says_when_one_is_over(
    talk: ConversationRef, configured: Callable[..., None]
) -> None:
    configured(agent=BUILT_IN_AGENTS["replay"])
    await give(talk, "run.json", json.dumps([answer("one")]))
    await ask(talk, "Play it.")
    await until_said(talk, "one")
    await ask(talk, "And now?")
    await until_said(talk, "one", OVER)

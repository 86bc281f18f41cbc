"""Halves of emojis in what models and tools say: no conversation ends by one, and none is sent on."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.log import reads
from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.sources import BUILT_IN_AGENTS
from tests.conftest import Join
from tests.store.test_llm_tools import give, program, ran, results_of
from tests.support.data.events import event
from tests.support.people.model_talks import answers_of, events, model, said, told
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import DONE, Answer, calling, chunk, completion, cut_completion
from tests.support.servers.tool_server import tool_server

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

FIRST, SECOND = "\ud83c", "\udf27"
"""The halves of 🌧."""


async def test_halves_in_two_pieces_are_one_character_and_others_are_replaced(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    pieces = [f"It rains {FIRST}", f"{SECOND} and {SECOND} and {FIRST}", f" and {FIRST}"]
    reasoning = [f"Rain is {FIRST}", f"{SECOND}.", FIRST]
    async with model(alice, completion(pieces, reasoning=reasoning), completion(["Yes."])) as asked:
        client = await join(talk)
        frames = await said(client, "How is the weather?")
        assert answers_of(await said(client, "Still?")) == ["Yes."]
    [answer] = events(frames, "message", "agent")
    assert answer["text"] == "It rains 🌧 and \ufffd and \ufffd and \ufffd"
    holder = answer["event"]["llm_message"] if talk.version == Version.V1 else answer["event"]
    assert holder["reasoning_content"] == "Rain is 🌧.\ufffd"
    shown = "".join(frame["text"] for frame in frames if frame["type"] == "delta")
    assert answer["text"].startswith(shown)
    assert told(asked[1])[1] == ("assistant", answer["text"])


async def test_an_answer_that_breaks_off_in_a_character_is_kept_and_continued(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    async with model(alice, cut_completion([f"It rains {FIRST}"]), completion([" a lot."])):
        frames = await said(await join(talk), "How is the weather?")
    assert answers_of(frames) == ["It rains \ufffd", " a lot."]


async def test_a_tool_is_called_without_halves_and_its_result_is_read(
    talk: ConversationRef, alice: User, join: Join, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    await give(alice, program("halving", runs))
    # One half as an escape of the arguments' own JSON, others in two pieces of the stream's.
    call = {"index": 0, "id": "c0", "type": "function", "function": {"name": "halve", "arguments": ""}}
    parts = ['{"a": "', f"x {FIRST}", f'{SECOND}", ', '"b": "\\ud83c", "\\udf27": "y ', f'{SECOND}"}}']
    deltas = [{"index": 0, "function": {"arguments": part}} for part in parts]
    wanted = Answer(
        stream=[
            *(chunk({"tool_calls": [each]}) for each in (call, *deltas)),
            chunk({}, finish_reason="tool_calls"),
            DONE,
        ]
    )
    async with model(alice, wanted, completion(["Halved."]), completion(["Again."])) as asked:
        client = await join(talk)
        frames = await said(client, "Halve it.")
        await said(client, "And again.")
    given = {"a": "x 🌧", "b": "\ufffd", "\ufffd": "y \ufffd"}
    assert ran(runs) == [f"halve {given!a}"]
    assert results_of(frames) == ["rain \ufffd, caf\ufffd"]
    assert answers_of(frames) == ["Halved."]
    [offered] = asked[0].body["tools"]
    assert offered["function"]["description"] == "Half of 🌧: \ufffd"
    properties = offered["function"]["parameters"]["properties"]
    assert properties == {"_": {"default": "\ufffd"}}  # a name that every provider takes
    messages = asked[2].body["messages"]
    [sent] = [each for message in messages for each in message.get("tool_calls") or ()]
    assert json.loads(sent["function"]["arguments"]) == given


async def test_what_servers_at_addresses_return_is_read(
    alice: User, join: Join, configured: Callable[..., None], subtests: pytest.Subtests
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"])
    for kind in ("shttp", "sse"):
        with subtests.test(kind):
            talk = await astore.call(partial(creation.create, alice, conversation_id=kind, title="A talk"))
            async with tool_server(kind) as (url, _):
                await give(alice, **{f"{kind}_servers": [{"url": url}]})
                async with model(alice, calling(("halve", {})), completion(["Halved."])):
                    frames = await said(await join(talk), "Halve it.")
            assert results_of(frames) == ["rain \ufffd, a pair 🌧"]


Payload = dict[str, Any]
RUN: Payload = {
    "action": "run",
    "source": "agent",
    "args": {"command": f"echo {FIRST}", "thought": FIRST},
}
OUTPUT: Payload = {"observation": "run", "content": f"out {SECOND}", "extras": {"command": "echo"}}
ACTION: Payload = {
    "kind": "ActionEvent",
    "source": "agent",
    "tool_name": f"halve{FIRST}",
    "tool_call_id": "t1",
    "tool_call": {"id": "t1", "name": "halve", "arguments": '{"p": "half \\ud83c"}', "origin": "completion"},
    "action": {"kind": "MCPToolAction", "data": {"p": f"half {FIRST}", FIRST: [SECOND]}},
    "thought": [{"type": "text", "text": f"I think {FIRST}"}],
}
MESSAGE: Payload = {
    "action": "message",
    "source": "user",
    "args": {"content": "See", "image_urls": [f"http://{FIRST}"]},
}
SUMMARY: Payload = {
    "action": "condensation",
    "source": "agent",
    "args": {"forgotten_event_ids": [99], "summary": f"It rained {FIRST}", "summary_offset": 0},
}


async def test_what_a_client_has_recorded_with_halves_is_told_to_the_model(
    alice: User, join: Join, configured: Callable[..., None], subtests: pytest.Subtests
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"])
    for number, payloads in enumerate([[RUN, OUTPUT], [ACTION], [MESSAGE], [SUMMARY], [RUN, ACTION]]):
        with subtests.test(str(payloads)):
            version = Version.V1 if "kind" in payloads[0] else Version.V0
            texts = [json.dumps(each) for each in payloads]
            new = [event(raw=text) for text in texts]
            talk = await astore.call(
                partial(
                    creation.create,
                    alice,
                    conversation_id=f"talk-{number}",
                    version=version,
                    parameters={"instructions": f"Be brief {FIRST}"},
                    events=new,
                    title="A talk",
                )
            )
            async with model(alice, completion(["Yes."])) as asked:
                assert answers_of(await said(await join(talk), "Still there?")) == ["Yes."]
            assert "\ufffd" in json.dumps(asked[0].body, ensure_ascii=False)
            stored = await astore.call(reads.read_after, talk, -1, limit=len(texts))
            assert [each["payload"] for each in stored] == texts  # the log keeps what came

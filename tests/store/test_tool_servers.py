"""Tool servers as they are in the wild: what one of them does wrong costs no more than it must."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef, Dialect
from sessions_app import astore
from sessions_app.agents.llm.tools import messages
from sessions_app.settings import user_settings
from tests.conftest import Join
from tests.store.test_llm_tools import ROOT, give, results_of
from tests.support.people.model_talks import answers_of, events, model, notices_of, said, told
from tests.support.people.scripted_agent import manager, until_here
from tests.support.people.web_browser import Browser
from tests.support.servers.mcp_fixtures import PNG
from tests.support.servers.model_server import Answer, Asked, calling, completion

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

IMAGE = f"data:image/png;base64,{PNG}"


def scripted(folder: Path, *tools: Any, answers: Any = None, **script: Any) -> dict[str, Any]:
    """Return a tool server that has these tools, or whose `pages` are given, and gives these answers."""
    pages = {"cursors": [None], "following": [None], "tools": [tools]}
    file = folder / "script.json"
    file.write_text(json.dumps({"pages": pages, "answers": answers or {}, **script}))
    return {
        "name": "maps",
        "command": sys.executable,
        "args": ["-m", "tests.support.servers.tool_program", "scripted", str(file)],
        "env": {"PYTHONPATH": str(ROOT), "MAPS_KEY": "of-the-maps-1234"},
    }


def tool(name: object = "look", **members: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": {"type": "object"}, **members}


def offered(asked: Asked) -> list[str]:
    return [each["function"]["name"] for each in asked.body.get("tools", [])]


ODD: dict[str, tuple[Any, str]] = {
    "no name": ({"inputSchema": {"type": "object"}}, "one without a name"),
    "a number as its name": (tool(5), "one without a name"),
    "a blank name": (tool(" "), "one without a name"),
    "no object": ("fly", "one that is no JSON object"),
    "a list as its schema": (tool("fly", inputSchema=[]), "`fly` (its schema is no JSON object)"),
    "a schema of a text": (
        tool("fly", inputSchema={"type": "string"}),
        "`fly` (its arguments are no JSON object)",
    ),
    "a name that another one has": (
        tool("look", description="again"),
        "`look` (it has the name of another one)",
    ),
}
USED: dict[str, dict[str, Any]] = {
    "null as its schema": tool("fly", inputSchema=None),
    "no schema": {"name": "fly"},
    "an empty schema": tool("fly", inputSchema={}),
    "a choice of schemas": tool(
        "fly", inputSchema={"anyOf": [{"properties": {"to": {"type": "string"}}}, True]}
    ),
    "an unknown type": tool("fly", inputSchema={"type": "object", "properties": {"to": {"type": "str"}}}),
    "a number as its description": tool("fly", description=5),
    "a bad schema of results": tool("fly", outputSchema=[5]),
    "hints that are none": tool("fly", annotations=["readOnlyHint"], icons=5, _meta=0),
}


async def test_a_tool_that_cannot_be_offered_costs_only_itself_and_is_named(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    client = await join(v0_talk)
    for number, (name, (odd, words)) in enumerate(ODD.items()):
        with subtests.test(name):
            await give(alice, {**scripted(tmp_path, tool(), odd), "name": f"maps{number}"})
            async with model(alice, completion(["Hello."])) as asked:
                frames = await said(client, f"Hello, {number}.")
            told_ = f"The tool server `maps{number}` has tools that can't be offered to a model: {words}."
            assert notices_of(frames) == [f"{told_} The others are used."]
            assert (offered(asked[0]), answers_of(frames)) == (["look"], ["Hello."])


async def test_a_tool_with_an_odd_description_of_itself_is_offered_in_a_form_that_providers_take(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    client = await join(v0_talk)
    for name, odd in USED.items():
        with subtests.test(name):
            await give(alice, scripted(tmp_path, tool(), odd))
            async with model(alice, completion(["Hello."])) as asked:
                frames = await said(client, f"Hello, {name}.")
            assert (offered(asked[0]), notices_of(frames)) == (["look", "fly"], [])
            schema = asked[0].body["tools"][1]["function"]["parameters"]
            assert schema["type"] == "object"
            assert set(schema) <= {"type", "properties", "additionalProperties"}
            assert schema["properties"] in ({}, {"to": {}}, {"to": {"type": "string"}})


async def test_a_list_of_tools_ends_where_its_cursor_does_not_lead_on(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path, subtests: pytest.Subtests
) -> None:
    client = await join(v0_talk)
    pages = [[tool("a")], [tool("b")], [tool("c")]]
    rows = {
        "the end": ([None, "2", "3"], ["2", "3", None], ["a", "b", "c"]),
        "an empty one": ([None], [""], ["a"]),
        "one that stands still": ([None, "2"], ["2", "2"], ["a", "b"]),
        "a page that comes again": ([None, "1"], ["1", "1"], ["a"]),
        "one that goes back": ([None, "2", "3"], ["2", "3", "2"], ["a", "b", "c"]),
        "a number": ([None], [2], ["a"]),
    }
    for name, (cursors, following, names) in rows.items():
        with subtests.test(name):
            found = pages if names != ["a"] else [pages[0]] * 2
            script = {"cursors": cursors, "following": following, "tools": found}
            await give(alice, scripted(tmp_path, pages=script))
            async with model(alice, completion(["Hello."])) as asked:
                frames = await said(client, f"Hello, {name}.")
            assert (offered(asked[0]), notices_of(frames)) == (names, [])


async def test_an_answer_that_cannot_be_read_is_called_that_and_the_same_program_serves_the_next_call(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path
) -> None:
    half = '{"jsonrpc":"2.0","id":ID,"result":{"content":[{"type":"text","text":"half \\ud83d"}]}}'
    answers = ['{"jsonrpc":"2.0","id":ID,"result":"words"}', '{"jsonrpc":"2.0","id":ID,"result":{', half]
    await give(alice, scripted(tmp_path, tool(), answers={"look": answers}))
    call = [calling(("look", {"at": number})) for number in range(3)]
    async with model(alice, *call, completion(["Done."])):
        frames = await said(await join(v0_talk), "Look.")
    assert results_of(frames) == [messages.UNREADABLE, messages.UNREADABLE, "half \ufffd"]
    assert sum("initialize" in line for line in heard(tmp_path)) == 2  # and its notification


def heard(folder: Path) -> list[str]:
    """Return what the program has been told."""
    return (folder / "heard").read_text().splitlines()


async def test_a_failed_call_is_stored_and_shown_as_failed(
    alice: User, talk: ConversationRef, join: Join, tmp_path: Path, visitor: Browser
) -> None:
    failed = {"content": [{"type": "text", "text": "no such place"}], "isError": True}
    await give(alice, scripted(tmp_path, tool(), answers={"look": [failed]}))
    async with model(alice, calling(("look", {})), completion(["Sorry."])):
        frames = await said(await join(talk), "Look.")
    [result] = events(frames, "tool_result")
    event = result["event"]
    assert (event["observation"]["is_error"] if talk.dialect == Dialect.V1 else event["is_error"]) is True
    page = (await visitor.get(f"/c/{talk.public_id}")).text
    assert '<p class="outcome">Failed</p>' in page


async def test_an_image_of_a_result_is_kept_shown_and_given_to_the_model(
    alice: User, talk: ConversationRef, join: Join, tmp_path: Path, visitor: Browser
) -> None:
    returned = [
        {"type": "text", "text": "a map"},
        {"type": "image", "data": PNG, "mimeType": "image/png"},
        {"type": "audio", "data": "UklGRg==", "mimeType": "audio/wav"},
    ]
    await give(alice, scripted(tmp_path, tool(), answers={"look": [{"content": returned}]}))
    async with model(alice, calling(("look", {})), completion(["Nice."])) as asked:
        frames = await said(await join(talk), "Look.")
    [result] = events(frames, "tool_result")
    size = len(base64.b64decode(PNG))
    assert result["text"] == f"a map\n(image/png with {size} bytes.)\n(audio/wav with 4 bytes.)"
    [call_result, seen] = asked[1].body["messages"][-2:]
    assert (call_result["role"], seen["role"]) == ("tool", "user")
    assert [part["image_url"]["url"] for part in seen["content"] if part["type"] == "image_url"] == [IMAGE]
    page = (await visitor.get(f"/c/{talk.public_id}")).text
    assert f'<img src="{IMAGE}"' in page
    assert '<audio controls preload="none" src="data:audio/wav;base64,UklGRg=="' in page


async def test_a_model_that_refuses_the_images_of_tools_is_asked_without_them(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path
) -> None:
    def blind(asked: Asked) -> Answer:
        if "image_url" in json.dumps(asked.body):
            return Answer(400, {"error": {"message": "No images."}})
        return completion(["It is a map."])

    returned = [{"type": "image", "data": PNG, "mimeType": "image/png"}]
    await give(alice, scripted(tmp_path, tool(), answers={"look": [{"content": returned}]}))
    async with model(alice, calling(("look", {})), blind) as asked:
        client = await join(v0_talk)
        first = await said(client, "Look.")
        second = await said(client, "And now?")
    assert answers_of(first) == answers_of(second) == ["It is a map."]
    assert ["image_url" in json.dumps(each.body) for each in asked] == [False, True, False, False]
    assert told(asked[-1])[-1] == ("user", "And now?")


async def test_a_program_that_ends_shows_the_last_lines_of_its_standard_error_without_its_keys(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path
) -> None:
    trace = "early\n" * 50 + "Traceback (most recent call last):\n<b>KeyError</b>: 'of-the-maps-1234'\n"
    await give(alice, scripted(tmp_path, stderr=trace, exit=1))
    async with model(alice, completion(["Hello."])) as asked:
        frames = await said(await join(v0_talk), "Hello.")
    [notice] = notices_of(frames)
    assert notice.startswith("The tool server `maps` can't be used: it has ended.\n\nThe last lines of ")
    assert notice.endswith("Traceback (most recent call last):\n<b>KeyError</b>: '***'")
    assert told(asked[0]) == [("user", "Hello.")]


async def test_a_program_that_ends_in_a_call_says_why_and_is_started_for_the_next_one(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path
) -> None:
    fine = {"content": [{"type": "text", "text": "fine"}]}
    await give(
        alice,
        scripted(
            tmp_path, tool(), tool("fall"), answers={"fall": [3], "look": [fine]}, stderr="out of maps\n"
        ),
    )
    async with model(alice, calling(("fall", {}), ("look", {})), completion(["Done."])):
        frames = await said(await join(v0_talk), "Look.")
    ended, seen = results_of(frames)
    assert ended.startswith(
        "The call of `fall` has no result: the tool server `maps` failed, because it has ended"
    )
    assert ended.endswith("out of maps")
    assert seen == "fine"


async def test_a_call_that_takes_too_long_is_cancelled_and_its_program_stays(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path
) -> None:
    fine = {"content": [{"type": "text", "text": "fine"}]}
    slow = scripted(tmp_path, tool(), answers={"look": [None, fine]})
    await give(alice, {**slow, "timeout": 0.3})
    async with model(alice, calling(("look", {"at": 1}), ("look", {"at": 2})), completion(["Done."])):
        frames = await said(await join(v0_talk), "Look.")
    late, seen = results_of(frames)
    assert "it didn't answer in time (0.3 seconds)" in late
    assert seen == "fine"
    lines = [json.loads(line) for line in heard(tmp_path)]
    asked = [each["id"] for each in lines if each["method"] == "tools/call"]
    cancelled = [each["params"]["requestId"] for each in lines if each["method"] == "notifications/cancelled"]
    assert cancelled == asked[:1]
    assert [each["method"] for each in lines].count("initialize") == 1


async def test_a_stopped_call_is_cancelled(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path
) -> None:
    await give(alice, scripted(tmp_path, tool(), answers={"look": [None]}))
    async with model(alice, calling(("look", {}))):
        client = await join(v0_talk)
        await client.send({"type": "message", "text": "Look."})
        await until_here(lambda: any("tools/call" in line for line in heard_so_far(tmp_path)))
        await client.send({"type": "stop"})
        await client.until("event", kind="turn")
        await until_here(lambda: any("notifications/cancelled" in line for line in heard_so_far(tmp_path)))


def heard_so_far(folder: Path) -> list[str]:
    return heard(folder) if (folder / "heard").exists() else []


async def test_wrong_arguments_are_neither_run_nor_asked_about(
    alice: User, talk: ConversationRef, join: Join, tmp_path: Path
) -> None:
    schema = {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}
    await give(alice, scripted(tmp_path, tool(inputSchema=schema), answers={"look": [{"content": []}]}))
    await astore.call(user_settings.change_settings, alice.pk, {"confirmation_mode": True}, secrets={})
    wrong = calling(("look", {}), ("look", {"at": "here"}))
    async with model(alice, wrong, completion(["Sorry."])) as asked:
        frames = await said(await join(talk), "Look.")
    missing, mistyped = results_of(frames)
    assert "`at` is missing" in missing
    assert "`at` must be an integer, and is a string" in mistyped
    assert [text for role, text in told(asked[1]) if role == "tool"] == [missing, mistyped]
    assert not any("tools/call" in line for line in heard(tmp_path))


async def test_a_server_of_an_unknown_version_of_the_protocol_is_called_that(
    alice: User, v0_talk: ConversationRef, join: Join, tmp_path: Path
) -> None:
    await give(alice, scripted(tmp_path, tool(), about={"protocolVersion": "1999-01-01"}))
    async with model(alice, completion(["Hello."])):
        frames = await said(await join(v0_talk), "Hello.")
    assert "it speaks a version of the protocol that this server doesn't know" in notices_of(frames)[0]

"""Tools that a V1 client declares: a model calls them, and the client carries them out by itself."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.agents.llm.tools import calls, clients
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from tests.conftest import Connect, Join
from tests.store.test_llm_tools import called, give, program, results_of
from tests.support.people.model_talks import answers_of, events, model, said, told
from tests.support.people.scripted_agent import manager, until_status
from tests.support.people.web_browser import Browser, words
from tests.support.servers.model_server import calling, completion
from tests.support.wires.v1_socket import ID

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

CHART: dict[str, Any] = {
    "name": "show_chart",
    "description": "Show a chart.",
    "parameters": {
        "type": "object",
        "properties": {"title": {"type": "string"}, "values": {"type": "array", "items": {"type": "number"}}},
        "required": ["title"],
    },
}
GIVEN = {"title": "Sales", "values": [1, 2.5]}

Make = Callable[..., Awaitable[ConversationRef]]


@pytest.fixture
def make(alice: User, configured: Callable[..., None]) -> Make:
    """Create a conversation whose client has these tools."""
    configured(agent=BUILT_IN_AGENTS["auto"])

    async def made(*tools: dict[str, Any], **members: Any) -> ConversationRef:
        setup = NewSetup(facts={"client_tools": list(tools)}, **members)
        return await astore.call(agent_setups.create, alice, setup, conversation_id=ID, title="A talk")

    return made


async def test_a_call_is_an_action_of_the_clients_own_kind_and_the_agent_goes_on(
    make: Make, alice: User, join: Join
) -> None:
    talk = await make(CHART, {"name": "beep"})
    async with model(alice, calling(("show_chart", GIVEN)), completion(["There it is."])) as asked:
        frames = await said(await join(talk), "Show the sales.")
    offered = {each["function"]["name"]: each["function"] for each in asked[0].body["tools"]}
    assert CHART["parameters"].items() <= offered["show_chart"]["parameters"].items()
    assert offered["beep"]["parameters"]["properties"] == {}
    [action], [observation] = events(frames, "tool_call"), events(frames, "tool_result")
    assert action["event"]["action"] == {"kind": "ClientAction_show_chart", **GIVEN}
    assert action["event"]["tool_name"] == "show_chart"
    assert observation["event"]["observation"]["kind"] == "ClientToolObservation"
    assert told(asked[1])[-1] == ("tool", clients.HANDED_OVER.text)
    assert answers_of(frames) == ["There it is."]


async def test_arguments_that_the_client_could_not_read_are_no_action_of_its_kind(
    make: Make, alice: User, join: Join
) -> None:
    talk = await make(CHART)
    bad = {"title": 7, "colour": "red"}
    async with model(alice, calling(("show_chart", bad)), completion(["Sorry."])):
        frames = await said(await join(talk), "Show the sales.")
    [action], [observation] = events(frames, "tool_call"), events(frames, "tool_result")
    assert action["event"]["action"] == {"kind": "MCPToolAction", "data": bad}
    assert observation["event"]["observation"]["kind"] == "MCPToolObservation"
    problem = "`title` must be a string, and is an integer"
    assert results_of(frames) == [calls.NOT_VALID.format(problems=problem)]


async def test_a_summary_beside_the_arguments_is_a_member_of_the_event(
    make: Make, alice: User, join: Join
) -> None:
    talk = await make(CHART)
    given = {**GIVEN, "summary": "Show the sales of May", "security_risk": "LOW"}
    async with model(alice, calling(("show_chart", given)), completion(["There it is."])):
        frames = await said(await join(talk), "Show the sales.")
    [action] = events(frames, "tool_call")
    assert action["event"]["action"] == {"kind": "ClientAction_show_chart", **GIVEN}
    assert action["event"]["summary"] == "Show the sales of May"
    assert results_of(frames) == [clients.HANDED_OVER.text]


async def test_a_tool_of_a_server_with_the_same_name_gets_another(
    make: Make, alice: User, join: Join, tmp_path: Path
) -> None:
    talk = await make({**CHART, "name": "add"})
    await give(alice, program("counting", tmp_path / "runs"))
    both = calling(("add", GIVEN), ("tools_add", {"a": 1, "b": 2}))
    async with model(alice, both, completion(["Done."])):
        frames = await said(await join(talk), "Do both.")
    assert results_of(frames) == [clients.HANDED_OVER.text, "3"]


@pytest.mark.parametrize("accepts", [True, False])
async def test_a_call_waits_for_approval_where_the_user_wants_to_decide(
    make: Make, alice: User, join: Join, accepts: bool
) -> None:
    talk = await make(CHART, confirmation_policy={"kind": "AlwaysConfirm"})
    async with model(alice, calling(("show_chart", GIVEN)), completion(["OK."])):
        client = await join(talk)
        await client.send({"type": "message", "text": "Show the sales."})
        await until_status(talk, "waiting_for_confirmation")
        await client.send({"type": "confirm", "accept": accepts, "reason": "Not now."})
        await client.until("event", kind="turn")
    assert called(client.frames) == [("show_chart", GIVEN)]
    assert results_of(client.frames) == [clients.HANDED_OVER.text if accepts else "Not now."]


async def test_readers_of_the_other_wire_and_the_page_see_the_call(
    make: Make, alice: User, join: Join, connect: Connect, visitor: Browser
) -> None:
    talk = await make(CHART)
    async with model(alice, calling(("show_chart", GIVEN)), completion(["There it is."])):
        await said(await join(talk), "Show the sales.")
    reader = await connect(ID)
    action = await reader.until(action="call_tool_mcp")
    assert (action["args"]["name"], action["args"]["arguments"]) == ("show_chart", GIVEN)
    assert (await reader.until(observation="mcp"))["content"] == clients.HANDED_OVER.text
    assert "Sales" in words(await visitor.get(f"/c/{talk.public_id}"))

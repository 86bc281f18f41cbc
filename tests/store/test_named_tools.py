"""The tools `think` and `finish`: an agent has them if its start names them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.agents.llm.tools import named
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.settings import agent_setups
from sessions_app.settings.agent_setups import NewSetup
from tests.conftest import Connect, Join
from tests.store.test_llm_tools import called, results_of
from tests.support.people.model_talks import answers_of, events, model, said, told
from tests.support.people.scripted_agent import manager, until_status
from tests.support.servers.model_server import calling, completion
from tests.support.wires.v1_socket import ID

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

BOTH = {"include_default_tools": ["FinishTool", "ThinkTool"]}
THOUGHT = {"thought": "The test fails first."}
DONE = {"message": "The test passes."}
CHART = {"name": "show_chart", "description": "Show a chart."}

Make = Callable[..., Awaitable[ConversationRef]]


@pytest.fixture
def make(alice: User, configured: Callable[..., None]) -> Make:
    """Create a conversation with the agent that a client has set up."""
    configured(agent=BUILT_IN_AGENTS["auto"])

    async def made(agent: dict[str, Any], **members: Any) -> ConversationRef:
        setup = NewSetup(agent={"kind": "Agent", "tools": [], **agent}, **members)
        return await astore.call(agent_setups.create, alice, setup, conversation_id=ID, title="A talk")

    return made


async def test_a_thought_is_in_the_log_and_finish_ends_the_task(
    make: Make, alice: User, join: Join, connect: Connect
) -> None:
    talk = await make(BOTH)
    async with model(alice, calling(("think", THOUGHT)), calling(("finish", DONE))) as asked:
        frames = await said(await join(talk), "Mend it.")
    assert {each["function"]["name"] for each in asked[0].body["tools"]} == {"think", "finish"}
    think, finish = [each["event"] for each in frames if each.get("event", {}).get("kind") == "ActionEvent"]
    assert think["action"] == {"kind": "ThinkAction", **THOUGHT}
    assert finish["action"] == {"kind": "FinishAction", **DONE}
    [thought] = events(frames, "tool_result")[:1]
    assert thought["event"]["observation"]["kind"] == "ThinkObservation"
    assert told(asked[1])[-1] == ("tool", named.THOUGHT_KEPT.text)
    assert answers_of(frames) == [DONE["message"]]
    await until_status(talk, "finished")
    reader = await connect(ID)
    assert (await reader.until(action="call_tool_mcp"))["args"]["arguments"] == THOUGHT
    assert (await reader.until(action="finish"))["args"]["final_thought"] == DONE["message"]


@pytest.mark.parametrize(
    "agent",
    [{}, {"include_default_tools": []}, {"include_default_tools": "ThinkTool"}, {"tools": [{"name": 7}]}],
)
async def test_an_agent_whose_start_does_not_name_them_has_neither(
    make: Make, alice: User, join: Join, agent: dict[str, Any]
) -> None:
    talk = await make(agent)
    async with model(alice, completion(["Hello."])) as asked:
        await said(await join(talk), "Mend it.")
    assert "tools" not in asked[0].body


async def test_a_tool_of_the_start_may_be_named_by_itself(make: Make, alice: User, join: Join) -> None:
    talk = await make({"tools": [{"name": "finish", "params": {}}]})
    async with model(alice, calling(("finish", DONE))) as asked:
        frames = await said(await join(talk), "Mend it.")
    assert {each["function"]["name"] for each in asked[0].body["tools"]} == {"finish"}
    assert answers_of(frames) == [DONE["message"]]


async def test_what_follows_finish_is_not_run(make: Make, alice: User, join: Join) -> None:
    talk = await make(BOTH, facts={"client_tools": [CHART]})
    async with model(alice, calling(("think", THOUGHT), ("finish", DONE), ("show_chart", {}))):
        frames = await said(await join(talk), "Mend it.")
    assert called(frames) == [("think", THOUGHT)]
    assert answers_of(frames) == [DONE["message"]]


async def test_nobody_is_asked_to_approve_them_and_a_task_ends_after_what_is_approved(
    make: Make, alice: User, join: Join
) -> None:
    talk = await make(BOTH, facts={"client_tools": [CHART]}, confirmation_policy={"kind": "AlwaysConfirm"})
    wanted = calling(("think", THOUGHT), ("show_chart", {}), ("finish", DONE))
    async with model(alice, wanted, calling(("finish", DONE))):
        client = await join(talk)
        await client.send({"type": "message", "text": "Mend it."})
        await client.until("event", kind="tool_call")
        await client.until("event", kind="tool_call")
        await until_status(talk, "waiting_for_confirmation")
        assert called(client.frames) == [("think", THOUGHT), ("show_chart", {})]
        assert results_of(client.frames) == [named.THOUGHT_KEPT.text]
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    assert answers_of(client.frames) == [DONE["message"]]


async def test_arguments_that_do_not_fit_are_told_to_the_model(make: Make, alice: User, join: Join) -> None:
    talk = await make(BOTH)
    async with model(alice, calling(("finish", {"text": "Done."})), completion(["Done, then."])):
        frames = await said(await join(talk), "Mend it.")
    [result] = results_of(frames)
    assert "`message`" in result
    assert answers_of(frames) == ["Done, then."]

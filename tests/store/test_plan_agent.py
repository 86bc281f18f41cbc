"""The agent that plans: what it is told, which tools it gets, and where its plan is seen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, ConversationRef
from sessions_app import astore
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.settings import run_options, user_settings
from sessions_app.settings.user_settings import SettingSecret
from tests.store.test_llm_tools import program
from tests.support.people.model_talks import model, told
from tests.support.people.scripted_agent import log, until_said
from tests.support.people.scripted_agent import said as answers
from tests.support.servers.model_server import Asked, calling, completion
from tests.support.wires.app_face import CONVERSATIONS, HEX, ID, create, said

pytestmark = pytest.mark.one_engine


@pytest.fixture(autouse=True)
def auto(configured: Any) -> None:
    """Let a model answer where one is set."""
    configured(agent=BUILT_IN_AGENTS["auto"])


def system_prompt_of(asked: Asked) -> str:
    return "\n".join(str(each["content"]) for each in asked.body["messages"] if each["role"] == "system")


async def plan(rest: httpx.AsyncClient, text: str, **body: Any) -> ConversationRef:
    """Start a planning conversation below the one with ID, and return it."""
    wanted = {"parent_conversation_id": ID, "agent_type": "plan", "initial_message": said(text), **body}
    task = (await rest.post(CONVERSATIONS, json=wanted)).json()
    (started,) = (await rest.get(f"{CONVERSATIONS}/start-tasks", params={"ids": task["id"]})).json()
    rows = Conversation.objects.with_public_ids([started["app_conversation_id"]])
    return await astore.call(lambda: rows.get().ref)


async def test_a_plan_is_made_for_the_conversation_that_it_was_started_from(
    rest: httpx.AsyncClient, alice: User
) -> None:
    parent = await astore.call(lambda: create(alice, title="A shop"))
    asked_first, asked_later = "The shop needs a search.", "Now do it."
    async with model(alice, completion(["I see."]), completion(["1. Index the titles."])) as asked:
        await rest.post(f"{CONVERSATIONS}/{ID}/send-message", json=said(asked_first))
        await until_said(parent, "I see.")
        child = await plan(rest, "Plan the search.", title="A plan")
        await until_said(child, "1. Index the titles.")
        planning = next(each for each in asked if told(each)[-1][1] == "Plan the search.")
        assert "You plan, and you change nothing" in system_prompt_of(planning)
        assert f"User: {asked_first}\n\nAssistant: I see." in system_prompt_of(planning)
        await rest.post(f"{CONVERSATIONS}/{ID}/send-message", json=said(asked_later))
        await until_said(parent, "I see.", "1. Index the titles.")
        doing = next(each for each in asked if told(each)[-1][1] == asked_later)
        assert "You plan" not in system_prompt_of(doing)
        assert "had this planned" in system_prompt_of(doing)
        assert "1. Index the titles." in system_prompt_of(doing)
    assert (
        await astore.call(run_options.agent_of, child),
        await astore.call(run_options.agent_of, parent),
    ) == (
        "plan",
        "",
    )


async def test_a_planning_model_gets_only_tools_that_read(
    rest: httpx.AsyncClient, alice: User, tmp_path: Path
) -> None:
    await astore.call(create, alice)
    config = json.dumps({"stdio_servers": [program("counting", tmp_path / "runs")]})
    secrets = {SettingSecret.MCP_CONFIG: config}
    await astore.call(lambda: user_settings.change_settings(alice.pk, {}, secrets=secrets))
    answers_ = calling(("add", {"a": 1, "b": 2})), completion(["A plan."])
    async with model(alice, *answers_) as asked:
        child = await plan(rest, "Plan it.", title="A plan")
        await until_said(child, "A plan.")
        offered = [tool["function"]["name"] for tool in asked[0].body["tools"]]
    assert offered == ["repeat"]
    results = [each["text"] for each in await log(child) if each["kind"] == "tool_result"]
    assert "There is no tool `add`" in results[0]


async def test_without_a_model_the_demo_agent_answers_a_plan(rest: httpx.AsyncClient, alice: User) -> None:
    await astore.call(create, alice)
    child = await plan(rest, "/finish")
    await until_said(child, "The task is done.")
    assert await answers(child) == ["The task is done."]
    assert (await rest.get(CONVERSATIONS, params={"ids": ID})).json()[0]["sub_conversation_ids"] == [
        child.public_id
    ]
    assert child.public_id != HEX


async def test_where_plans_are_not_offered_the_default_agent_answers(
    rest: httpx.AsyncClient, alice: User, configured: Any
) -> None:
    configured(agent=BUILT_IN_AGENTS["demo"], agents=("llm",))
    await astore.call(create, alice)
    child = await plan(rest, "/finish")
    await until_said(child, "The task is done.")
    assert await astore.call(run_options.agent_of, child) == ""

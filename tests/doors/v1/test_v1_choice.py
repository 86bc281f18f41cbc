"""What V1 clients see and decide of a conversation's agent and model."""

from __future__ import annotations

import httpx
import pytest
from django.contrib.auth.models import User

from sessions_app import astore
from sessions_app.settings import agent_setups, run_options
from sessions_app.settings.agent_setups import NewSetup
from tests.support.wires.app_face import CONVERSATIONS, ID, answered

pytestmark = pytest.mark.one_engine


async def test_both_faces_show_the_model_that_was_chosen(rest: httpx.AsyncClient, alice: User) -> None:
    llm = {"model": "openai/gpt-5", "usage_id": "agent", "api_key": "sk-1234567890"}
    setup = NewSetup(agent={"kind": "Agent", "llm": llm, "tools": []})
    talk = await astore.call(
        lambda: agent_setups.create(alice, setup, conversation_id=ID, llm_model="openai/gpt-5")
    )

    async def shown() -> tuple[str, str]:
        (app,) = await answered(rest, CONVERSATIONS, ids=ID)
        agent = (await answered(rest, f"/agent/api/conversations/{ID}"))["agent"]
        assert (agent["llm"]["usage_id"], agent["llm"]["api_key"]) == ("agent", "**********")
        return app["llm_model"], agent["llm"]["model"]

    assert await shown() == ("openai/gpt-5", "openai/gpt-5")
    await astore.call(run_options.change, talk, {"model": "openai/gpt-5-mini"})
    assert await shown() == ("openai/gpt-5-mini", "openai/gpt-5-mini")
    await astore.call(run_options.change, talk, {"model": ""})
    assert await shown() == ("openai/gpt-5", "openai/gpt-5")

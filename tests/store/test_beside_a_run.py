"""Questions, titles and instructions to remember: asked of the conversation's model beside its run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.models import ModelUse
from sessions_app.settings import run_options
from tests.support.people.model_talks import model, told
from tests.support.people.scripted_agent import ask, log, loop_of, until, until_said
from tests.support.servers.model_server import Answer, Asked, completion
from tests.support.wires.app_face import ID, create

pytestmark = pytest.mark.one_engine

RUN = "Tell me a long story."
CHOSEN = "openai/gpt-chosen"


class Held:
    """A model that holds the answer to RUN open, and answers everything else at once."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def answer(self, asked: Asked) -> Answer:
        _, question = told(asked)[-1]
        if question == RUN and "title" not in str(asked.body["messages"][0]["content"]):
            return completion(["Once ", self.go_on, "upon a time."])
        if "<update_prompt>" in str(asked.body["messages"]):
            return completion(["<update_prompt>Remember the story.</update_prompt>"])
        return completion(["Aside."], usage=(100, 10))


@pytest.fixture(autouse=True)
def other_default(configured: Callable[..., None]) -> None:
    """Let another agent than the chosen one be the default."""
    configured(agent=BUILT_IN_AGENTS["demo"])


def used(talk: ConversationRef) -> dict[str, int]:
    """Return the calls of models that were counted for a conversation, by their names."""
    rows = ModelUse.objects.filter(conversation_id=talk.pk)
    return dict(rows.values_list("model", "calls"))


async def test_questions_go_to_the_chosen_model_and_leave_the_run_alone(
    rest: httpx.AsyncClient, alice: User
) -> None:
    talk = await astore.call(lambda: create(alice))
    await astore.call(run_options.change, talk, {"agent": "llm", "model": CHOSEN})
    held = Held()
    async with model(alice, held.answer) as asked:
        await ask(talk, RUN)
        await until(lambda: used(talk).get(CHOSEN) == 1)  # the title, made beside the first turn
        address = f"/agent/api/conversations/{ID}"
        answer = await rest.post(f"{address}/ask_agent", json={"question": "How is it going?"})
        title = await rest.post(f"{address}/generate_title", json={"max_length": 50})
        assert (answer.json(), title.json()) == ({"response": "Aside."}, {"title": "Aside."})
        assert (await loop_of(talk)).execution_status == "running"
        assert await astore.call(used, talk) == {CHOSEN: 3}
        before = [each["kind"] for each in await log(talk)]
        assert "turn" not in before
        assert before.count("message") == 1
        held.go_on.set()
        await until_said(talk, "Once upon a time.")
        assert {each.body["model"] for each in asked} == {"gpt-chosen"}
    assert await astore.call(used, talk) == {CHOSEN: 4}


async def test_an_instruction_to_remember_is_made_beside_a_run(
    rest: httpx.AsyncClient, conversation: ConversationRef, alice: User
) -> None:
    await astore.call(run_options.change, conversation, {"agent": "llm", "model": CHOSEN})
    held = Held()
    async with model(alice, held.answer) as asked:
        await ask(conversation, RUN)
        await until(lambda: used(conversation).get(CHOSEN) == 1)
        answer = await rest.get("/api/conversations/talk/remember-prompt", params={"event_id": 0})
        assert answer.json() == {"status": "success", "prompt": "Remember the story."}
        assert (await loop_of(conversation)).execution_status == "running"
        held.go_on.set()
        await until_said(conversation, "Once upon a time.")
        assert {each.body["model"] for each in asked} == {"gpt-chosen"}
    assert await astore.call(used, conversation) == {CHOSEN: 3}


async def test_a_question_without_a_loop_goes_to_the_chosen_model(
    rest: httpx.AsyncClient, alice: User
) -> None:
    talk = await astore.call(lambda: create(alice))
    await astore.call(run_options.change, talk, {"agent": "llm", "model": CHOSEN})
    async with model(alice, completion(["Aside."])) as asked:
        address = f"/agent/api/conversations/{ID}/ask_agent"
        answers = await asyncio.gather(*(rest.post(address, json={"question": "Well?"}) for _ in range(2)))
        assert [each.json() for each in answers] == [{"response": "Aside."}] * 2
        assert [each.body["model"] for each in asked] == ["gpt-chosen"] * 2
    assert await astore.call(used, talk) == {CHOSEN: 2}
    kinds: Any = [each["kind"] for each in await log(talk)]
    assert kinds == []

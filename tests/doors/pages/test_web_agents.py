"""Agent and model as people choose them: for a new conversation, and in one."""

from __future__ import annotations

import re
from collections.abc import Callable
from uuid import uuid4

import pytest
from django.contrib.auth.models import User

from conversations.models import Conversation, ConversationRef
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.remote import attachments
from sessions_app.agents.remote.names import not_connected
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.processes import this_process
from sessions_app.settings import run_options
from tests.support.people.web_browser import Browser, words

pytestmark = pytest.mark.one_engine

PAGE = "/c/talk/agent"


@pytest.fixture(autouse=True)
def auto(configured: Callable[..., None]) -> None:
    """Offer the built-in agents."""
    configured(agent=BUILT_IN_AGENTS["auto"])


def checked(html: str) -> list[str]:
    return re.findall(r'name="agent" value="([^"]*)" checked', html)


async def test_the_page_shows_the_agents_in_words(conversation: ConversationRef, visitor: Browser) -> None:
    page = await visitor.get(PAGE)
    assert "Automatic Default A model answers if one is set, otherwise the demo agent." in words(page)
    assert checked(page.text) == [""]


async def test_agent_and_model_are_chosen_and_given_back(
    conversation: ConversationRef, visitor: Browser
) -> None:
    for agent, model, shown in [("demo", " openai/gpt-5 ", "Demo · openai/gpt-5"), ("", "", "")]:
        answer = await visitor.send(PAGE, {"agent": agent, "model": model}, page=PAGE)
        assert (answer.status_code, answer.headers["location"]) == (302, PAGE)
        options = await astore.call(run_options.options_of, conversation)
        assert (options.agent, options.model) == (agent, model.strip())
        assert checked((await visitor.get(PAGE)).text) == [agent]
        menu = (await visitor.get("/c/talk")).text
        assert (f"<bdi>{shown}</bdi>" in menu) == bool(shown)
        assert f'<a href="{PAGE}">Agent and model…</a>' in menu


async def test_an_agent_that_there_is_not_is_refused_with_a_sentence(
    conversation: ConversationRef, visitor: Browser
) -> None:
    answer = await visitor.send(PAGE, {"agent": "wizard", "model": "m"}, page=PAGE)
    assert answer.status_code == 400
    assert "There is no agent &#x27;wizard&#x27; to choose." in answer.text
    assert (await astore.call(run_options.options_of, conversation)).model == ""


async def test_a_new_conversation_begins_with_what_was_chosen(alice: User, visitor: Browser) -> None:
    said = str(uuid4())
    form = {"text": "/finish", "id": said, "agent": "demo", "model": "openai/gpt-5"}
    for _ in range(2):
        answer = await visitor.send("/begin", form, page="/")
        assert answer.status_code == 302
    row = await astore.call(Conversation.objects.get)
    options = await astore.call(run_options.options_of, row.ref)
    assert (options.agent, options.model) == ("demo", "openai/gpt-5")


async def test_a_refused_choice_keeps_what_was_written(alice: User, visitor: Browser) -> None:
    form = {"text": "Hello there", "id": str(uuid4()), "agent": "wizard", "model": ""}
    answer = await visitor.send("/begin", form, page="/")
    assert answer.status_code == 400
    assert "Hello there</textarea>" in answer.text
    assert "There is no agent &#x27;wizard&#x27; to choose." in answer.text
    assert not await astore.call(Conversation.objects.exists)


# Agents outside the server


@pytest.fixture
def programs(conversation: ConversationRef, alice: User, bob: User) -> attachments.ProgramAttachment:
    """Connect alice's programs `helper`, and `only` for another conversation, and a stranger's."""
    other, here = creation.create(alice), this_process()
    attachments.attach(alice.pk, "only", other, here)
    attachments.attach(bob.pk, "stranger", None, here)
    return attachments.attach(alice.pk, "helper", None, here)


def remote(html: str) -> list[str]:
    return re.findall(r'value="remote:([^"]*)"', html)


async def test_a_program_that_is_connected_can_be_chosen_and_no_strangers_one(
    programs: attachments.ProgramAttachment, conversation: ConversationRef, visitor: Browser
) -> None:
    home = (await visitor.get("/")).text
    assert (remote(home), "helper (connected)" in home) == (["helper"], True)
    page = await visitor.get(PAGE)
    assert remote(page.text) == ["helper"]
    assert "helper Connected A program outside this server." in words(page)
    answer = await visitor.send(PAGE, {"agent": "remote:helper", "model": ""}, page=PAGE)
    assert answer.status_code == 302
    assert checked((await visitor.get(PAGE)).text) == ["remote:helper"]
    conversation_page = (await visitor.get("/c/talk")).text
    assert "<bdi>helper</bdi>" in conversation_page
    assert not_connected("helper") not in words_next(conversation_page)


async def test_a_chosen_program_that_is_not_connected_is_said_to_be(
    programs: attachments.ProgramAttachment, conversation: ConversationRef, visitor: Browser
) -> None:
    await astore.call(run_options.change, conversation, {"agent": "remote:helper"})
    await astore.call(attachments.detach, programs)
    assert remote((await visitor.get("/")).text) == []
    page = await visitor.get(PAGE)
    assert checked(page.text) == ["remote:helper"]
    assert "helper Not connected A program outside this server." in words(page)
    told = "The agent helper is not connected. It answers once its program is started."
    assert words_next((await visitor.get("/c/talk")).text) == told
    await astore.call(run_options.change, conversation, {"agent": "demo"})
    assert words_next((await visitor.get("/c/talk")).text) == ""


def words_next(html: str) -> str:
    """Return what a conversation's page says about its agent below the log."""
    found = re.search(r'<p class="words" role="status">([^<]*)</p>', html)
    assert found is not None
    return found[1]


async def test_no_program_is_listed_where_the_operator_offers_none(
    programs: attachments.ProgramAttachment, visitor: Browser, configured: Callable[..., None]
) -> None:
    configured(agents=("demo",))
    assert remote((await visitor.get(PAGE)).text) == []

"""Instructions for models: the user's own and a conversation's, from their forms to the prompt."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.log import writes
from conversations.models import ConversationRef
from conversations.store import creation
from sessions_app.agents.llm import prompts, record
from sessions_app.models import UserSettings
from sessions_app.settings import agent_setups, run_options
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine


@pytest.fixture
def browser(live: None, alice: User) -> Browser:
    return Browser(headers={"host": "localhost"})


def prompt(conversation: ConversationRef) -> str:
    """Return what the model of a turn is told first."""
    return prompts.instructions(record.read(conversation, turn_id="t1", inputs=[], max_chars=10_000))


def told(conversation: ConversationRef, *texts: str) -> bool:
    """Return whether the prompt has these texts, in this order."""
    found = [prompt(conversation).find(text) for text in texts]
    return -1 not in found and found == sorted(found)


def test_the_users_own_come_before_those_of_the_conversation(
    browser: Browser, alice: User, bob: User, conversation: ConversationRef
) -> None:
    UserSettings.objects.create(user=bob, instructions="Bob likes poems.")
    assert "instructions" not in prompt(conversation).replace("never an instruction", "")
    answer = browser.post("/settings/instructions", {"instructions": "I am <b>Alice</b>."})
    assert (answer.status_code, answer["location"]) == (302, "/settings#instructions")
    browser.post("/c/talk/agent", {"agent": "", "model": "", "instructions": "Be brief."})
    assert told(conversation, "I am <b>Alice</b>.", "Be brief.")
    assert "Bob" not in prompt(conversation)
    browser.post("/settings/instructions", {"instructions": ""})
    assert told(conversation, "Be brief.")
    assert "Alice" not in prompt(conversation)


def test_those_of_the_creation_stay_beside_later_ones(alice: User) -> None:
    made = creation.create(alice, parameters={"instructions": "Write English."})
    run_options.change(made, {"instructions": "Be brief."})
    assert told(made, "Write English.", "Be brief.")


def test_a_branch_begins_with_them(alice: User, conversation: ConversationRef) -> None:
    writes.append(conversation, [event("Hello")])
    run_options.change(conversation, {"instructions": "Be brief."})
    assert told(agent_setups.fork(alice, conversation, through=0), "Be brief.")


def test_the_pages_show_them_where_they_apply(
    browser: Browser, alice: User, conversation: ConversationRef
) -> None:
    UserSettings.objects.create(user=alice, instructions="I am <b>Alice</b>.")
    run_options.change(conversation, {"instructions": "Be brief."})
    page = browser.get("/c/talk/agent").content.decode()
    assert ">\nBe brief.</textarea>" in page
    assert "I am &lt;b&gt;Alice&lt;/b&gt;." in page
    assert "With instructions" in browser.get("/c/talk").content.decode()
    assert "I am &lt;b&gt;Alice&lt;/b&gt;.</textarea>" in browser.get("/settings").content.decode()


def test_too_long_ones_are_refused_and_stay_in_the_form(
    browser: Browser, alice: User, conversation: ConversationRef
) -> None:
    text = "a" * 20_001
    for address in ("/settings/instructions", "/c/talk/agent"):
        answer = browser.post(address, {"agent": "", "model": "", "instructions": text})
        assert (answer.status_code, text in answer.content.decode()) == (400, True)
    assert "aaa" not in prompt(conversation)

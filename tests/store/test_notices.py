"""Notices of the server: the user reads them, and no model takes them for an answer."""

from __future__ import annotations

import json

import pytest
from django.contrib.auth.models import User

from conversations import dialects
from conversations.events import Dialect
from conversations.models import ConversationRef, Version
from sessions_app.agents.llm import agent as llm_agent
from tests.conftest import Join
from tests.store.test_llm_tools import give, program
from tests.support.people.model_talks import answers_of, events, model, notices_of, said, told
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import Answer, completion
from tests.support.wires.event_views import is_notice

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

QUESTION = "What is the highest mountain of Iceland?"


async def test_a_notice_before_the_answer_leaves_the_question_the_models_last_message(
    talk: ConversationRef, alice: User, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tool server that cannot start, and a rate limit."""
    monkeypatch.setattr(llm_agent, "WAITS_S", (0.0, 0.0))
    await give(alice, program("gone", name="maps"))
    async with model(alice, Answer(429, {}), completion(["Hvannadalshnjúkur."])) as asked:
        client = await join(talk)
        first = await said(client, QUESTION)
        second = await said(client, "Thank you.")
    unusable, busy = notices_of(first)
    assert unusable.startswith("The tool server `maps` can't be used: ")
    assert busy == "Rate limit reached. Trying again in 1 s."
    assert answers_of(first) == ["Hvannadalshnjúkur."]
    assert told(asked[0]) == told(asked[1]) == [("user", QUESTION)]
    assert told(asked[2]) == [
        ("user", QUESTION),
        ("assistant", "Hvannadalshnjúkur."),
        ("user", "Thank you."),
    ]
    assert notices_of(second) == []


async def test_clients_of_either_wire_get_a_notice_as_an_event_that_they_know(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    await give(alice, program("gone", name="maps"))
    async with model(alice, completion(["Hvannadalshnjúkur."])):
        frames = await said(await join(talk), QUESTION)
    [notice] = events(frames, "other")
    event = notice["event"]
    if talk.version == Version.V1:
        assert (event["kind"], event["source"]) == ("MessageEvent", "environment")
        assert event["llm_message"]["content"] == [{"type": "text", "text": notice["text"]}]
    else:
        assert (event["observation"], event["content"]) == ("success", notice["text"])
        assert (event["message"], event["extras"]) == (notice["text"], {})


def test_a_notice_reads_the_same_whichever_wire_shows_it() -> None:
    for dialect in Dialect:
        authored = dialects.author(dialect).notice(text="The model is away.", event_id="n1")
        payload = json.loads(authored.payload)
        assert is_notice(payload)
        assert (authored.reading.kind, authored.reading.text) == ("other", "The model is away.")
        said_instead = dialects.author(dialect).agent_message(text="The model is away.", event_id="n1")
        assert not is_notice(json.loads(said_instead.payload))

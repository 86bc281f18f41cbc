"""How a conversation's agent is set up: kept sealed, changed together with what readers are told of it."""

from __future__ import annotations

import json
from io import StringIO
from threading import Thread
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.db import connections
from django.test.utils import override_settings

from conversations.exceptions import ConversationNotFound
from conversations.models import Conversation, ConversationRef, Event
from conversations.store import deletion
from sessions_app.encryption import Sealed
from sessions_app.identity import conversation_keys
from sessions_app.models import AgentSetup, ConversationKey
from sessions_app.settings import agent_setups, setup_keys
from sessions_app.settings.agent_setups import NewSetup
from tests.support.people.scripted_agent import Hooked, hooked

__all__ = ["hooked"]

AGENT = {"kind": "Agent", "llm": {"model": "m", "api_key": "the-model's-key"}}
STATIC = {"kind": "StaticSecret", "value": "a-value"}
SHORTLY_S = 0.5
FIRST_KEY, SECOND_KEY, THIRD_KEY = "first" * 10, "second" * 10, "third" * 10


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation whose agent and secrets are sealed with the first key."""
    with override_settings(SECRET_KEY=FIRST_KEY):
        return agent_setups.create(alice, NewSetup(agent=AGENT, secrets={"A": STATIC}))


def rotated() -> str:
    printed = StringIO()
    call_command("rotate_secrets", stdout=printed, stderr=printed)
    return printed.getvalue()


def opened() -> tuple[Any, Any]:
    setup = AgentSetup.objects.get()
    return json.loads(setup.sealed_agent.open()), json.loads(setup.sealed_secrets.open())


def test_a_rotation_seals_agent_and_secrets_anew(talk: ConversationRef) -> None:
    with override_settings(SECRET_KEY=SECOND_KEY, SECRET_KEY_FALLBACKS=[FIRST_KEY]):
        assert rotated() == "Re-encrypted: 1. Could not be decrypted: 0.\n"
        assert rotated() == "Re-encrypted: 0. Could not be decrypted: 0.\n"
    with override_settings(SECRET_KEY=SECOND_KEY):
        assert opened() == (AGENT, {"A": STATIC})


def test_a_rotation_names_the_conversation_whose_agent_it_cannot_open(talk: ConversationRef) -> None:
    printed = StringIO()
    with override_settings(SECRET_KEY=SECOND_KEY), pytest.raises(CommandError, match="FALLBACKS"):
        call_command("rotate_secrets", stdout=printed, stderr=printed)
    assert f"the agent and secrets of conversation {talk.public_id}" in printed.getvalue()


def test_every_setup_is_rotated_however_many_there_are(
    talk: ConversationRef, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(agent_setups, "BATCH", 2)
    with override_settings(SECRET_KEY=FIRST_KEY):
        for _ in range(4):
            agent_setups.create(alice, NewSetup())
    with override_settings(SECRET_KEY=SECOND_KEY, SECRET_KEY_FALLBACKS=[FIRST_KEY]):
        assert rotated() == "Re-encrypted: 5. Could not be decrypted: 0.\n"


def test_secrets_that_are_added_during_a_rotation_are_kept(talk: ConversationRef, hooked: Hooked) -> None:
    def add() -> None:
        try:
            agent_setups.add_secrets(talk, {"B": STATIC})
        finally:
            connections.close_all()

    adding = Thread(target=add)

    def begin() -> None:
        adding.start()
        adding.join(SHORTLY_S)  # it must not come to its end before the rotation has

    hooked(Sealed, "resealed").after(begin)
    with override_settings(SECRET_KEY=SECOND_KEY, SECRET_KEY_FALLBACKS=[FIRST_KEY]):
        rotated()
        adding.join()
        assert opened()[1] == {"A": STATIC, "B": STATIC}


def test_a_policy_of_a_deleted_conversation_stays_as_it_was(talk: ConversationRef) -> None:
    deletion.soft_delete(talk)
    with pytest.raises(ConversationNotFound):
        agent_setups.set_policy(talk, {"kind": "AlwaysConfirm"})
    assert AgentSetup.objects.get().confirmation_policy == {"kind": "NeverConfirm"}


def test_a_fork_has_a_setup_and_a_key_of_its_own(talk: ConversationRef, alice: User) -> None:
    AgentSetup.objects.update(leaf_event_id="an-event")
    conversation_keys.rotate(talk)
    with override_settings(SECRET_KEY=FIRST_KEY):
        fork = agent_setups.fork(alice, talk)
        agent_setups.add_secrets(fork, {"B": STATIC})
    setups = [AgentSetup.objects.get(pk=each.pk) for each in (talk, fork)]
    assert [list(setup.shown_secrets) for setup in setups] == [["A"], ["A", "B"]]
    assert setups[1].leaf_event_id is None
    assert ConversationKey.objects.filter(pk=fork.pk).first() is None


def test_a_fork_of_what_no_v1_client_has_set_up_has_the_defaults(
    conversation: ConversationRef, alice: User
) -> None:
    fork = agent_setups.fork(alice, conversation)
    assert Conversation.objects.get(pk=fork.pk).forked_from_id == conversation.pk
    assert not AgentSetup.objects.exists()


MASKED: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"llm": {"api_key": "k", "aws_session_token": "k"}}, {"api_key": "*", "aws_session_token": "*"}),
    ({"llm": {"api_key": None, "model": "m"}}, {"api_key": None, "model": "m"}),
    ({"llm": {"extra_headers": {"X": "k"}}}, {"extra_headers": {"X": "*"}}),
    ({"llm": {"fallbacks": [{"api_key": "k"}]}}, {"fallbacks": [{"api_key": "*"}]}),
    ({"llm": {"acp_env": {"KEY": "k"}}}, {"acp_env": {"KEY": "*"}}),
    ({"llm": {"secrets": {"T": {"value": "k"}}}}, {"secrets": {"T": "*"}}),
    ({"llm": {"servers": {"a": {"auth": "k"}}}}, {"servers": {"a": {"auth": "*"}}}),
    ({"llm": {"servers": {"a": {"auth": "oauth"}}}}, {"servers": {"a": {"auth": "oauth"}}}),
    ({"llm": {"org_skills_auth_header": "k"}}, {"org_skills_auth_header": "*"}),
    ({"llm": {"max_output_tokens": 9, "token": 9}}, {"max_output_tokens": 9, "token": 9}),
]


def test_whatever_may_be_a_key_is_masked(subtests: pytest.Subtests) -> None:
    for sent, shown in MASKED:
        with subtests.test(sent=sent, shown=shown):
            masked = json.dumps(setup_keys.masked(sent)["llm"])
            assert json.loads(masked.replace("*" * 10, "*")) == shown


def test_a_key_of_an_analyzer_is_neither_printed_nor_told(talk: ConversationRef) -> None:
    agent_setups.set_analyzer(talk, {"kind": "GraySwanAnalyzer", "api_key": "sk-gs"})
    told = Event.objects.of(talk).newest_first().first()
    assert told is not None
    assert "sk-gs" not in told.payload + told.text
    assert AgentSetup.objects.get().security_analyzer == {"kind": "GraySwanAnalyzer", "api_key": "*" * 10}

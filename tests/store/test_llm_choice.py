"""Which model answers in a conversation, and which key goes where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app.agents.auto import AutoAgent
from sessions_app.agents.base import AgentFailure
from sessions_app.agents.demo import CUES
from sessions_app.agents.llm.choice import ModelChoice, model_of
from sessions_app.encryption import Sealed
from sessions_app.models import Secret
from sessions_app.settings import agent_setups, run_options, user_settings
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.settings.user_settings import SettingSecret

pytestmark = pytest.mark.one_engine

OWNERS = ModelChoice(model="openai/gpt-5", key="owner's key")
SERVERS = ModelChoice(
    model="anthropic/claude-x", base_url="https://example.org", key="server's key", is_operators=True
)


def started(user: User, llm: dict[str, Any] | None = None, **columns: Any) -> ConversationRef:
    agent = None if llm is None else {"kind": "Agent", "llm": llm}
    return agent_setups.create(user, NewSetup(agent=agent), **columns)


@pytest.fixture
def owners(alice: User) -> None:
    """Let alice have a model of her own."""
    secrets = {SettingSecret.LLM_API_KEY: OWNERS.key}
    user_settings.change_settings(alice.pk, {"llm_model": OWNERS.model}, secrets=secrets)


@pytest.fixture
def servers(configured: Callable[..., None]) -> None:
    configured(llm_model=SERVERS.model, llm_base_url=SERVERS.base_url, llm_api_key=SERVERS.key)


def test_nobody_has_named_a_model(alice: User) -> None:
    assert model_of(started(alice)) is None
    assert model_of(creation.create(alice, version=Version.V0)) is None


def test_a_name_alone_is_no_model(alice: User) -> None:
    assert model_of(started(alice, llm_model="openai/gpt-5")) is None
    assert model_of(started(alice, {"model": "openai/gpt-5"})) is None


def test_what_a_start_brings_is_used_as_it_is(alice: User, owners: None, servers: None) -> None:
    llm = {"model": "mistral/large", "api_key": "its key", "base_url": "https://models.example.org/v1"}
    found = model_of(started(alice, llm))
    assert found == ModelChoice(
        model="mistral/large", base_url="https://models.example.org/v1", key="its key"
    )


def test_the_owners_model_comes_before_the_servers(alice: User, owners: None, servers: None) -> None:
    assert model_of(started(alice)) == OWNERS


def test_the_servers_model_is_for_those_who_have_none(alice: User, servers: None) -> None:
    assert model_of(started(alice)) == SERVERS


def test_a_start_chooses_among_the_models_of_the_owners_provider(alice: User, owners: None) -> None:
    found = model_of(started(alice, {"model": "openai/gpt-5-mini"}))
    assert found == ModelChoice(model="openai/gpt-5-mini", key=OWNERS.key)


def test_the_model_that_a_history_was_recorded_with_is_a_label(
    alice: User, bob: User, subtests: pytest.Subtests
) -> None:
    values = {"llm_model": "openai/gpt-5", "llm_base_url": "https://models.example.org/v1"}
    user_settings.change_settings(alice.pk, values, secrets={SettingSecret.LLM_API_KEY: "key"})
    chosen_here = ModelChoice(model="openai/gpt-5", base_url=str(values["llm_base_url"]), key="key")
    recorded_agent = {"kind": "Agent", "llm": {"model": "gpt-4o", "base_url": "https://old.example.org"}}
    rows = {
        "a column": started(alice, llm_model="claude-sonnet-4-20250514"),
        "of the same provider": started(alice, llm_model="openai/gpt-4o"),
        "V0": creation.create(alice, version=Version.V0, llm_model="llama3"),
        "an agent": agent_setups.create(alice, NewSetup(agent=recorded_agent, is_recorded=True)),
        "a fork": agent_setups.fork(alice, started(alice, llm_model="llama3")),
    }
    for name, talk in rows.items():
        with subtests.test(name):
            assert model_of(talk) == chosen_here
            run_options.change(talk, {"model": "openai/gpt-4o"})
            assert model_of(talk) == replace(chosen_here, model="openai/gpt-4o")


@pytest.mark.parametrize("model", ["anthropic/claude-x", "claude-x", "org/model", "default"])
def test_the_owners_key_is_never_used_with_another_provider(alice: User, owners: None, model: str) -> None:
    assert model_of(started(alice, {"model": model})) == OWNERS


def test_of_unknown_providers_none_gets_the_key_of_another(alice: User) -> None:
    secrets = {SettingSecret.LLM_API_KEY: "key"}
    user_settings.change_settings(alice.pk, {"llm_model": "one/model"}, secrets=secrets)
    found = model_of(started(alice, {"model": "other/model"}))
    assert found == ModelChoice(model="one/model", key="key")


def test_a_base_url_serves_every_model_that_a_start_names(alice: User) -> None:
    values = {"llm_model": "openai/gpt-5", "llm_base_url": "https://models.example.org/v1"}
    user_settings.change_settings(alice.pk, values, secrets={})
    found = model_of(started(alice, {"model": "anthropic/claude-x"}))
    assert found is not None
    assert (found.model, found.base_url) == ("anthropic/claude-x", "https://models.example.org/v1")


def test_the_owners_key_is_never_sent_to_a_starts_address(alice: User, owners: None) -> None:
    found = model_of(started(alice, {"model": "openai/gpt-5", "base_url": "https://example.com"}))
    assert found == ModelChoice(model="openai/gpt-5", base_url="https://example.com")


def test_the_servers_key_is_used_with_the_servers_model_only(alice: User, servers: None) -> None:
    assert model_of(started(alice, {"model": "anthropic/claude-large"})) == SERVERS


def test_a_model_without_a_key_is_the_owners_to_complete(alice: User, servers: None) -> None:
    user_settings.change_settings(alice.pk, {"llm_model": "openai/gpt-5"}, secrets={})
    assert model_of(started(alice)) == ModelChoice(model="openai/gpt-5")


def test_a_key_that_cannot_be_read_is_told(alice: User, owners: None) -> None:
    Secret.objects.of(alice.pk).update(value=Sealed("gAAAAA"))
    with pytest.raises(AgentFailure, match="can't be read"):
        model_of(started(alice))


def test_the_demo_agents_messages_are_offered_where_it_answers(alice: User, bob: User, owners: None) -> None:
    assert AutoAgent.cues_of(alice.pk) == {}
    assert AutoAgent.cues_of(bob.pk) == CUES


# A model that was chosen for the conversation


def chosen(conversation: ConversationRef, model: str) -> ModelChoice | None:
    """Choose a model for a conversation, and return what is asked."""
    run_options.change(conversation, {"model": model})
    return model_of(conversation)


def test_a_chosen_model_is_asked_with_the_owners_key(alice: User, owners: None) -> None:
    talk = started(alice, {"model": "openai/gpt-5-mini"})
    assert chosen(talk, "openai/gpt-5-nano") == ModelChoice(model="openai/gpt-5-nano", key=OWNERS.key)
    assert chosen(talk, "") == ModelChoice(model="openai/gpt-5-mini", key=OWNERS.key)


def test_a_chosen_model_is_asked_at_the_starts_server_first(alice: User, owners: None) -> None:
    llm = {"model": "mistral/large", "api_key": "its key"}
    talk = started(alice, llm)
    assert chosen(talk, "mistral/small") == ModelChoice(model="mistral/small", key="its key")
    assert chosen(talk, "openai/gpt-5-nano") == ModelChoice(model="openai/gpt-5-nano", key=OWNERS.key)


def test_a_base_url_serves_every_model_that_is_chosen(alice: User) -> None:
    values = {"llm_model": "openai/gpt-5", "llm_base_url": "https://models.example.org/v1"}
    user_settings.change_settings(alice.pk, values, secrets={})
    found = chosen(started(alice), "anthropic/claude-x")
    assert found is not None
    assert (found.model, found.base_url) == ("anthropic/claude-x", "https://models.example.org/v1")


def test_a_chosen_model_without_a_key_is_not_replaced_by_another(
    alice: User, owners: None, servers: None
) -> None:
    told = "There is no key for the model `anthropic/claude-large`, which was chosen for this conversation"
    with pytest.raises(AgentFailure, match=told):
        chosen(started(alice), "anthropic/claude-large")


def test_the_servers_key_is_used_with_no_model_that_was_chosen(alice: User, servers: None) -> None:
    with pytest.raises(AgentFailure, match="There is no key for the model"):
        chosen(started(alice), "anthropic/claude-large")
    assert chosen(started(alice), str(SERVERS.model)) == SERVERS


def test_a_chosen_model_of_this_machine_needs_no_key(alice: User) -> None:
    assert chosen(started(alice), "ollama/llama3") == ModelChoice(model="ollama/llama3")

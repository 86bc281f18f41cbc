"""Models of several providers: which server is asked for a conversation, or for its next message alone."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.base import AgentFailure
from sessions_app.agents.llm.choice import ModelChoice, model_of
from sessions_app.agents.llm.models import Wire, target_of
from sessions_app.models import ModelUse
from sessions_app.settings import agent_setups, chosen_models, model_notes, model_providers, run_options
from sessions_app.settings.chosen_models import ChosenModel
from sessions_app.settings.model_notes import ModelName, ModelPrice
from sessions_app.settings.model_providers import ProviderNotFound, ProvidersFull
from sessions_app.settings.user_settings import ModelKeyWanted
from tests.conftest import Join
from tests.support.people.model_talks import answers_of, model, said
from tests.support.people.scripted_agent import manager
from tests.support.servers.model_server import Answer, Asked, chunk, completion, model_server

__all__ = ["manager"]

KEY = "sk-of-the-workshop-1"
ADDRESS = "https://models.example.org/v1"


@pytest.fixture
def workshop(alice: User) -> str:
    """Give alice a provider, and return its name."""
    model_providers.add(alice.pk, "Workshop", base_url=ADDRESS, key=KEY)
    return "Workshop"


def test_a_providers_model_is_asked_there_by_the_name_that_it_lists(alice: User, workshop: str) -> None:
    conversation = creation.create(alice)
    wish = ChosenModel("openai/gpt-oss-20b", workshop, "low", 0.5)
    chosen_models.choose(conversation, wish)
    found = model_of(conversation)
    assert found == ModelChoice(
        model="openai/gpt-oss-20b",
        base_url=ADDRESS,
        key=KEY,
        is_listed=True,
        reasoning_effort="low",
        temperature=0.5,
    )
    target = target_of(found)
    assert (target.wire, target.name, target.base_url) == (Wire.OPENAI, "openai/gpt-oss-20b", ADDRESS)


def test_a_known_provider_is_asked_over_its_own_wire(alice: User) -> None:
    model_providers.add(alice.pk, "Claude", base_url="https://api.anthropic.com/v1", key=KEY)
    conversation = creation.create(alice)
    chosen_models.choose(conversation, ChosenModel("claude-x", "Claude"))
    found = model_of(conversation)
    assert found is not None
    assert target_of(found).wire is Wire.ANTHROPIC


def test_the_key_of_a_chosen_provider_is_masked_in_the_conversation(alice: User, workshop: str) -> None:
    conversation = creation.create(alice, version=Version.V0)
    chosen_models.choose(conversation, ChosenModel("m", workshop), is_for_next=True)
    row = agent_setups.row_of(conversation)
    assert list(agent_setups.key_values(row.sealed_keys.open())) == [KEY]


def test_a_key_that_replaces_a_chosen_providers_is_masked_before_the_model_is_asked(
    alice: User, workshop: str
) -> None:
    conversation = creation.create(alice, version=Version.V0)
    chosen_models.choose(conversation, ChosenModel("m", workshop))
    base_url, new = model_providers.provider(alice.pk, workshop).base_url, "sk-of-the-workshop-2"
    model_providers.change(alice.pk, workshop, base_url=base_url, key=new)
    asked = model_of(conversation)
    assert asked is not None
    assert asked.key == new
    row = agent_setups.row_of(conversation)
    assert set(agent_setups.key_values(row.sealed_keys.open())) == {KEY, new}


def test_another_model_without_a_provider_is_one_of_the_settings(alice: User, workshop: str) -> None:
    conversation = creation.create(alice)
    chosen_models.choose(conversation, ChosenModel("m", workshop))
    run_options.change(conversation, {"model": "m", "agent": ""})
    assert run_options.options_of(conversation).provider == workshop
    run_options.change(conversation, {"model": "openai/gpt-5"})
    assert run_options.options_of(conversation).provider == ""


def test_a_removed_provider_takes_its_notes_along_and_is_missed_in_words(alice: User, workshop: str) -> None:
    conversation, name = creation.create(alice), ModelName(workshop, "m")
    chosen_models.choose(conversation, ChosenModel("m", workshop))
    model_notes.toggle_favourite(alice.pk, name)
    model_notes.set_price(alice.pk, name, ModelPrice(1.0, 2.0))
    assert model_providers.remove(alice.pk, workshop)
    assert model_notes.notes_of(alice.pk) == model_notes.ModelNotes([], {})
    with pytest.raises(AgentFailure, match="“Workshop” is not in your settings any more"):
        model_of(conversation)
    with pytest.raises(ProviderNotFound):
        chosen_models.choose(conversation, ChosenModel("other", workshop))
    assert run_options.model_of(conversation) == "m"


def test_a_stored_key_is_sent_to_no_other_server(alice: User, workshop: str) -> None:
    with pytest.raises(ModelKeyWanted):
        model_providers.change(alice.pk, workshop, base_url="https://elsewhere.example.org/v1", key=None)
    model_providers.change(alice.pk, workshop, base_url=f"{ADDRESS}/v2", key=None)
    assert model_providers.provider(alice.pk, workshop).key == KEY
    model_providers.change(alice.pk, workshop, base_url="https://elsewhere.example.org/v1", key="")
    assert model_providers.provider(alice.pk, workshop).key == ""


def test_a_user_has_a_bounded_number_of_providers(alice: User) -> None:
    for number in range(20):
        model_providers.add(alice.pk, f"P{number}", base_url=ADDRESS, key="")
    with pytest.raises(ProvidersFull):
        model_providers.add(alice.pk, "P20", base_url=ADDRESS, key="")


async def test_the_next_message_alone_is_answered_by_the_model_that_was_chosen_for_it(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    with model_server(lambda asked: completion(["From the workshop."])) as (base_url, elsewhere):
        await astore.call(model_providers.add, alice.pk, "Workshop", base_url=base_url, key=KEY)
        price = ModelPrice(2.0, 10.0)
        await astore.call(model_notes.set_price, alice.pk, ModelName("Workshop", "planer"), price)
        async with model(alice, completion(["From the settings."])) as own:
            client = await join(talk)
            assert answers_of(await said(client, "One.")) == ["From the settings."]
            wish = ChosenModel("planer", "Workshop", "high", 0.25)
            await astore.call(chosen_models.choose, talk, wish, is_for_next=True)
            assert answers_of(await said(client, "Two.")) == ["From the workshop."]
            assert answers_of(await said(client, "Three.")) == ["From the settings."]
    assert [each.body["model"] for each in own] == ["gpt-x", "gpt-x"]
    [asked] = elsewhere
    assert (asked.key, asked.body["model"]) == (f"Bearer {KEY}", "planer")
    assert (asked.body["reasoning_effort"], asked.body["temperature"]) == ("high", 0.25)
    used = await astore.call(
        lambda: list(ModelUse.objects.order_by("model").values_list("model", "calls", "cost_nanos"))
    )
    # 7 tokens were read and 3 written, at the price that the user has entered.
    assert used == [("openai/gpt-x", 2, 0), ("planer", 1, 44_000)]


async def test_a_provider_answers_one_message_where_no_other_model_is_set(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    with model_server(lambda asked: completion(["From the workshop."])) as (base_url, _):
        await astore.call(model_providers.add, alice.pk, "Workshop", base_url=base_url, key=KEY)
        wish = ChosenModel("planer", "Workshop")
        await astore.call(chosen_models.choose, talk, wish, is_for_next=True)
        client = await join(talk)
        assert answers_of(await said(client, "One.")) == ["From the workshop."]
        assert answers_of(await said(client, "Two.")) != ["From the workshop."]


def test_a_choice_for_the_next_message_waits_for_one_that_is_said_later(
    talk: ConversationRef, workshop: str
) -> None:
    chosen_models.choose(talk, ChosenModel("m", workshop), is_for_next=True)
    assert chosen_models.take_next(talk, through=-1) is None
    taken = chosen_models.take_next(talk, through=0)
    assert taken is not None
    assert ChosenModel.of(taken) == ChosenModel("m", workshop)
    assert chosen_models.take_next(talk, through=1) is None


async def test_a_model_that_takes_no_temperature_answers_without_it(
    talk: ConversationRef, alice: User, join: Join
) -> None:
    def answer(asked: Asked) -> Answer:
        if "temperature" in asked.body:
            text = "Unsupported value: 'temperature' does not support 0.5 with this model."
            return Answer(400, {"error": {"message": text, "param": "temperature"}})
        return Answer(
            stream=[chunk({"content": "Done."}), chunk({}, finish_reason="stop"), "data: [DONE]\n\n"]
        )

    async with model(alice, answer, name="openai/gpt-cold") as asked:
        await astore.call(run_options.change, talk, {"temperature": 0.5})
        assert answers_of(await said(await join(talk), "Hello.")) == ["Done."]
    assert len(asked) == 2

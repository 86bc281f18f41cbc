"""The page of a conversation's models, and the section of providers: what they refuse, and never show."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.agents.llm.library import known_of
from sessions_app.models import UserDocument
from sessions_app.settings import chosen_models, model_notes, model_providers, run_options, user_settings
from sessions_app.settings.chosen_models import ChosenModel
from sessions_app.settings.model_notes import ModelName, ModelPrice
from sessions_app.settings.user_settings import SettingSecret
from tests.support.people.web_browser import Browser, words
from tests.support.servers.model_server import Answer, model_server

pytestmark = pytest.mark.one_engine

MENU = "/c/talk/models"
KEY = "sk-of-the-workshop-1"
HOSTILE = "<img src=x onerror=alert(1)>"


async def chosen_by(conversation: ConversationRef) -> tuple[ChosenModel, ChosenModel | None]:
    options = await astore.call(run_options.options_of, conversation)
    return chosen_models.of_options(options), chosen_models.next_of(options)


async def send(visitor: Browser, **form: str) -> tuple[int, str]:
    answer = await visitor.send(MENU, form, page=MENU)
    return answer.status_code, words(answer)


async def provider(user: User, base_url: str) -> None:
    await astore.call(model_providers.add, user.pk, "Workshop", base_url=base_url, key=KEY)


async def test_a_provider_is_added_changed_and_removed_and_its_key_never_shown(
    visitor: Browser, alice: User
) -> None:
    with model_server(lambda asked: Answer(body={"data": [{"id": "planer"}]})) as (base_url, asked):
        form = {"label": "Workshop", "base_url": base_url.removesuffix("/v1"), "key": KEY}
        added = await visitor.send("/settings/providers", form, page="/settings")
        assert (added.status_code, added.headers["location"]) == (302, "/settings#providers")
        page = await visitor.get("/settings")
        assert "Workshop saved. It lists 1 model." in words(page)
        assert KEY not in page.text
        assert [(each.path, each.key) for each in asked] == [("/v1/models", f"Bearer {KEY}")]
        again = await visitor.send("/settings/providers", form, page="/settings")
        assert (again.status_code, "already have a provider" in words(again)) == (400, True)
        change = {"label": "Workshop", "base_url": base_url, "key": ""}
        await visitor.send("/settings/providers/change", change, page="/settings")
    assert (await astore.call(model_providers.provider, alice.pk, "Workshop")).key == KEY
    elsewhere = {"label": "Workshop", "base_url": "http://127.0.0.1:9/v1", "key": ""}
    await visitor.send("/settings/providers/change", elsewhere, page="/settings")
    assert "Workshop was not changed. The base URL names another server." in words(
        await visitor.get("/settings")
    )
    await visitor.send("/settings/providers/change", {"label": "Workshop", "do": "delete"}, page="/settings")
    assert await astore.call(model_providers.providers_of, alice.pk) == []


@pytest.mark.parametrize(
    ("form", "why"),
    [
        ({"label": "a/b", "base_url": "https://models.example.org/v1"}, "Use letters, digits"),
        ({"label": "", "base_url": "https://models.example.org/v1"}, "Enter a name."),
        ({"label": "a", "base_url": "ftp://models.example.org"}, "starts with https://"),
        ({"label": "a", "base_url": "https://models.example.org/v1", "key": "sk-ü"}, "invalid characters"),
    ],
)
async def test_a_provider_that_cannot_be_is_refused_in_words(
    visitor: Browser, form: dict[str, str], why: str
) -> None:
    answer = await visitor.send("/settings/providers", form, page="/settings")
    assert (answer.status_code, why in words(answer)) == (400, True)
    assert not await astore.call(UserDocument.objects.exists)


async def test_an_internal_address_is_refused_where_users_have_accounts(
    accounts: None, alice: User, visitor: Browser
) -> None:
    await visitor.log_in(alice)
    form = {"label": "Inside", "base_url": "http://127.0.0.1:6379/v1"}
    answer = await visitor.send("/settings/providers", form, page="/settings")
    assert (answer.status_code, "No public address was found" in words(answer)) == (400, True)


async def test_a_model_is_chosen_for_the_conversation_or_the_next_message(
    conversation: ConversationRef, visitor: Browser, alice: User
) -> None:
    own, other = ChosenModel("planer", "Workshop", "low", 1.5), ChosenModel("org/saw", "Workshop")
    with model_server(lambda asked: Answer(body={"data": [{"id": "planer"}]})) as (base_url, _):
        await provider(alice, base_url)
        wish = {"choice": "Workshop/planer", "reasoning_effort": "low", "temperature": "1.5"}
        assert (await send(visitor, **wish))[0] == 302
        assert await chosen_by(conversation) == (own, None)
        await send(visitor, choice="Workshop/org/saw", do="next")
        assert await chosen_by(conversation) == (own, other)
        assert "Next: org/saw" in words(await visitor.get("/c/talk"))
        await send(visitor, do="no-next")
        assert await chosen_by(conversation) == (own, None)


async def test_a_wrong_choice_changes_nothing_and_says_why(
    conversation: ConversationRef, visitor: Browser, subtests: pytest.Subtests
) -> None:
    rows: list[tuple[dict[str, str], str]] = [
        ({"choice": "Gone/planer"}, "“Gone” is not in your settings any more"),
        ({"choice": "/m", "temperature": "3"}, "less than or equal to 2"),
        ({"choice": "/m", "temperature": "nan"}, "Enter a number"),
        ({"choice": "/m", "reasoning_effort": "huge"}, "is not one of the available choices"),
        ({"choice": "/" + "m" * 201}, "at most 200 characters"),
        ({"choice": "p" * 65 + "/m"}, "at most 200 characters"),
        ({"choice": "Workshop/"}, "Choose a model of the list."),
        ({"choice": "/m", "do": "price", "read": "1"}, "enter both prices"),
        ({"do": "price", "read": "1", "written": "2"}, "Choose a model of the list"),
    ]
    for form, why in rows:
        with subtests.test(str(form)):
            status, shown = await send(visitor, **form)
            assert (status, why in shown) == (400, True), shown
    assert await chosen_by(conversation) == (ChosenModel(), None)


async def test_names_of_a_hostile_server_are_text(
    conversation: ConversationRef, visitor: Browser, alice: User
) -> None:
    with model_server(lambda asked: Answer(body={"data": [{"id": HOSTILE}]})) as (base_url, _):
        await provider(alice, base_url)
        await send(visitor, choice=f"Workshop/{HOSTILE}")
        pages = [await visitor.get(path) for path in (MENU, "/c/talk", f"{MENU}?q={HOSTILE}")]
    for page in pages:
        assert HOSTILE not in page.text
        assert HOSTILE in words(page)


async def test_a_settings_server_lists_models_under_names_that_the_settings_know(
    conversation: ConversationRef, visitor: Browser, alice: User
) -> None:
    rows = [{"id": "planer"}, {"id": "openai/gpt-oss-20b"}]
    with model_server(lambda asked: Answer(body={"data": rows})) as (base_url, _):
        values = {"llm_model": "planer", "llm_base_url": base_url}
        secrets = {SettingSecret.LLM_API_KEY: KEY}
        await astore.call(user_settings.change_settings, alice.pk, values, secrets=secrets)
        shown = await visitor.get(MENU)
    assert 'value="/planer"' in shown.text
    assert 'value="/openai/openai/gpt-oss-20b"' in shown.text


async def test_the_price_of_a_model_is_entered_only_where_no_table_knows_it(
    conversation: ConversationRef, visitor: Browser, alice: User
) -> None:
    with model_server(lambda asked: Answer(body={"data": [{"id": "planer"}]})) as (base_url, _):
        await provider(alice, base_url)
        price: dict[str, Any] = {"do": "price", "read": "2", "written": "8"}
        assert (await send(visitor, choice="Workshop/planer", **price))[0] == 302
        assert "$2.00 in, $8.00 out" in words(await visitor.get(MENU))
        notes = await astore.call(model_notes.notes_of, alice.pk)
        assert notes.prices == {ModelName("Workshop", "planer"): ModelPrice(2.0, 8.0)}
        await send(visitor, choice="Workshop/planer", do="price")
        assert (await astore.call(model_notes.notes_of, alice.pk)).prices == {}
    [known] = await known_of("https://api.openai.com/v1", ["gpt-4o"])
    assert known.context
    assert known.read

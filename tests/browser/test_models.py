"""The menu of models at the composer: two providers, a model for one message, and none for the next."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Browse
from tests.browser.site import Site
from tests.browser.talk import Talk
from tests.browser.violations import violations_in_themes
from tests.conftest import once
from tests.support.people.clients import HTTP
from tests.support.servers.model_server import Answer, Asked, completion, model_server

pytestmark = once

LISTS: dict[str, list[dict[str, Any]]] = {
    "Workshop": [{"id": "planer", "context_length": 32_768}, {"id": "sander"}],
    "Garden": [{"id": f"rose-{number}"} for number in range(20)],
}


@pytest.fixture
def servers(site: Site) -> Iterator[dict[str, tuple[str, list[Asked]]]]:
    """Two servers of models: their addresses, and what is asked of each."""

    def answers_of(name: str, asked: Asked) -> Answer:
        if asked.path.endswith("/models"):
            return Answer(body={"data": LISTS[name]})
        return completion([f"{asked.body['model']} of the {name} answers."])

    with ExitStack() as stack:
        yield {
            name: stack.enter_context(model_server(lambda asked, name=name: answers_of(name, asked)))  # type: ignore[misc]
            for name in LISTS
        }


@pytest.fixture
def talk(page: Page, site: Site, servers: dict[str, Any]) -> Iterator[Talk]:
    """A conversation that a model answers; the user has entered both servers, as a person does."""
    _remove_providers(page, site)
    for name, (base_url, _) in servers.items():
        _add(page, name, base_url)
    conversation_id = site.create()
    options = f"{site.url}/api/native/conversations/{conversation_id}/options"
    HTTP.patch(options, json={"agent": "llm"}).raise_for_status()
    yield Talk(page, site, conversation_id).open()
    _remove_providers(page, site)


def _add(page: Page, name: str, base_url: str) -> None:
    page.get_by_text("Add provider").click()
    form = page.locator('form[action="/settings/providers"]')
    form.get_by_label("Name", exact=True).fill(name)
    form.get_by_label("Base URL").fill(base_url)
    form.get_by_label("API key (optional)").fill(f"sk-of-the-{name.lower()}-1")
    form.get_by_role("button", name="Add").click()
    number = len(LISTS[name])
    expect(page.get_by_text(f"{name} saved. It lists {number} models.")).to_be_visible()


def _remove_providers(page: Page, site: Site) -> None:
    page.goto(f"{site.url}/settings")
    while (summaries := page.locator("#providers .things summary")).count():
        left = summaries.count() - 1
        summaries.first.click()
        page.locator("#providers .things li").first.get_by_role("button", name="Remove").click()
        expect(summaries).to_have_count(left)


def menu_of(talk: Talk) -> Locator:
    """Open the menu."""
    talk.page.locator("#model").click()
    menu = talk.page.get_by_role("dialog", name="Model")
    expect(menu.get_by_label("Search models")).to_be_focused()
    return menu


def test_the_next_message_is_answered_by_another_model_and_then_by_its_own_again(
    talk: Talk, servers: dict[str, tuple[str, list[Asked]]]
) -> None:
    button = talk.page.locator("#model")
    menu = menu_of(talk)
    expect(menu.get_by_text("32.8k context")).to_be_visible()
    menu.get_by_label("planer", exact=False).first.check()
    menu.get_by_role("button", name="Use in this conversation").click()
    expect(menu).to_be_hidden()
    expect(button).to_have_text("Model: planer")
    talk.say("One")
    talk.answered("planer of the Workshop answers.")
    menu = menu_of(talk)
    menu.get_by_label("Search models").fill("rose-1")
    expect(menu.locator(".row")).to_have_count(11)
    menu.locator("label", has_text="rose-11").click()
    menu.get_by_label("Reasoning effort").select_option("low")
    menu.get_by_label("Temperature").fill("0.5")
    menu.get_by_role("button", name="Only for the next message").click()
    expect(button).to_have_text("Model: Next: rose-11")
    expect(talk.box).to_be_focused()
    talk.say("Two")
    talk.answered("rose-11 of the Garden answers.")
    expect(button).to_have_text("Model: planer")
    talk.say("Three")
    expect(talk.messages("agent").filter(has_text="planer of the Workshop answers.")).to_have_count(2)
    [asked] = [each for each in servers["Garden"][1] if each.method == "POST"]
    assert (asked.key, asked.body["temperature"]) == ("Bearer sk-of-the-garden-1", 0.5)
    assert asked.body["reasoning_effort"] == "low"
    talk.page.locator("#menu > summary").click()
    expect(talk.page.locator("#menu")).to_contain_text("rose-11: 7 in, 3 out")
    expect(talk.page.locator("#menu")).to_contain_text("planer: ")


def test_favourites_come_first_and_a_price_is_entered_where_none_is_known(talk: Talk) -> None:
    menu = menu_of(talk)
    menu.get_by_role("button", name="sander is a favourite").click()
    favourite = menu.locator("fieldset").first
    expect(favourite).to_contain_text("Favourites")
    expect(favourite.get_by_role("button", name="sander is a favourite")).to_be_focused()
    expect(favourite).to_contain_text("price unknown")
    favourite.locator("label").click()
    menu.get_by_text("Price of the model…").click()
    menu.get_by_label("Read", exact=True).fill("2")
    menu.get_by_label("Written", exact=True).fill("8")
    menu.get_by_role("button", name="Save price").click()
    expect(favourite).to_contain_text("$2.00 in, $8.00 out")
    assert violations_in_themes(talk.page) == []
    talk.page.keyboard.press("Escape")
    expect(menu).to_be_hidden()
    expect(talk.page.locator("#model")).to_be_focused()


def test_a_server_that_is_away_says_so_beside_the_others(
    talk: Talk, page: Page, servers: dict[str, Any]
) -> None:
    menu = menu_of(talk)
    page.route("**/models", lambda route: route.abort())
    page.keyboard.press("Escape")
    page.locator("#model").click()
    expect(menu).to_contain_text("The models can't be loaded right now.")
    page.unroute("**/models")
    page.goto(f"{talk.site.url}/settings")
    page.locator("#providers .things summary").filter(has_text="Garden").click()
    form = page.locator("#providers .things form").filter(visible=True)
    form.get_by_label("Base URL").fill("http://127.0.0.1:9/v1")
    form.get_by_label("API key").fill("sk-of-the-garden-2")
    form.get_by_role("button", name="Save and list").click()
    expect(page.get_by_text("Garden saved. Connection refused.")).to_be_visible()
    talk.open()
    menu = menu_of(talk)
    expect(menu).to_contain_text("Connection refused.")
    expect(menu.get_by_label("planer", exact=False).first).to_be_visible()


def test_a_model_is_chosen_on_a_page_without_scripts(talk: Talk, browse: Browse) -> None:
    page = browse(java_script_enabled=False).new_page()
    page.goto(f"{talk.site.url}/c/{talk.id}")
    page.locator("#model").click()
    page.get_by_label("Search models").fill("sander")
    page.get_by_role("button", name="Search").click()
    page.locator("label", has_text="sander").click()
    page.get_by_role("button", name="Use in this conversation").click()
    expect(page.get_by_text("sander answers from the next message on.")).to_be_visible()
    page.get_by_role("link", name="Back to the conversation").or_(page.locator(".about a")).last.click()
    expect(page.locator("#model")).to_contain_text("sander")

"""The order of the list: chosen on the page, kept by the browser, and kept up as conversations are used."""

from __future__ import annotations

import pytest
from playwright.sync_api import Page, expect

from tests.browser.site import Site, message

pytestmark = pytest.mark.one_engine


def shown(page: Page, names: dict[str, str]) -> list[str]:
    """Return these conversations' titles in the order of their rows."""
    rows = page.locator("#rows > .row").evaluate_all("rows => rows.map((row) => row.dataset.id)")
    return [names[each] for each in rows if each in names]


def choose(page: Page, order: str) -> None:
    if not page.locator("#filters details").evaluate("details => details.open"):
        page.locator("#filters summary").click()
    with page.expect_response("**/rows?*"):
        page.get_by_label("Order").select_option(label=order)
    expect(page.locator("#list")).to_have_attribute(
        "data-order", {"Last used": "used"}.get(order, order.lower())
    )


def test_the_order_of_the_list_is_chosen_kept_and_kept_up(page: Page, site: Site) -> None:
    names = {site.create(title=title): title for title in ("Bread", "Apples", "Cheese")}
    bread, apples, _ = names
    page.goto("/")
    assert shown(page, names) == ["Cheese", "Apples", "Bread"]
    site.record(bread, [message("Fresh bread, please.")])
    expect(page.locator("#rows > .row").first).to_have_id(f"row-{bread}")
    assert shown(page, names) == ["Bread", "Cheese", "Apples"]
    choose(page, "Title")
    assert shown(page, names) == ["Apples", "Bread", "Cheese"]
    page.goto("/")
    assert shown(page, names) == ["Apples", "Bread", "Cheese"]
    site.rename(apples, "Dates")
    expect(page.locator(f"#row-{apples} .title")).to_have_text("Dates")
    names[apples] = "Dates"
    assert shown(page, names) == ["Bread", "Cheese", "Dates"]
    choose(page, "Created")
    assert shown(page, names) == ["Cheese", "Dates", "Bread"]
    choose(page, "Last used")

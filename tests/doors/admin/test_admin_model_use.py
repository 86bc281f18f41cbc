"""The admin's list of what models have used, and the sums above it."""

from __future__ import annotations

import re
from datetime import date
from html import unescape

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser

from conversations.events import ConversationRef
from sessions_app.models import ModelUse

pytestmark = pytest.mark.one_engine

LIST = "/admin/sessions_app/modeluse/"


@pytest.fixture
def boss(accounts: None, database: None, browser: Browser) -> Browser:
    """A browser in which a superuser is logged in."""
    browser.force_login(User.objects.create_superuser("boss"))
    return browser


@pytest.fixture
def browser() -> Browser:
    return Browser(headers={"host": "localhost"})


@pytest.fixture
def uses(conversation: ConversationRef, alice: User, bob: User) -> None:
    """Some use by two users, of two models, on two days; one row is of a conversation that is gone."""
    for user, model, day, unpriced, nanos, of in [
        (alice, "openai/a", 1, 0, 250_000_000, conversation.pk),
        (alice, "openai/b", 2, 1, 0, conversation.pk),
        (bob, "openai/a", 2, 0, 500_000_000, None),
    ]:
        ModelUse.objects.create(
            user=user,
            model=model,
            day=date(2026, 11, day),
            conversation_id=of,
            calls=1,
            unpriced_calls=unpriced,
            prompt_tokens=1000,
            completion_tokens=10,
            cost_nanos=nanos,
        )


def sums(browser: Browser, query: str = "") -> dict[str, list[str]]:
    """Return the rows of the sums, by their titles."""
    page = browser.get(LIST + query).content.decode()
    rows = re.findall(r'<tr><th scope="row">(.*?)</th>((?:<td>.*?</td>)*)</tr>', page)
    return {
        unescape(title): [unescape(cell) for cell in re.findall("<td>(.*?)</td>", c)] for title, c in rows
    }


def test_use_is_summed_by_day_user_and_model(boss: Browser, uses: None, alice: User) -> None:
    one = ["1 call", "1\u202f000 tokens in", "10 out"]
    two = ["2 calls", "2\u202f000 tokens in", "20 out"]
    assert sums(boss) == {
        "Total": ["3 calls", "3\u202f000 tokens in", "30 out", "$0.7500, unknown for 1"],
        "2026-11-02": [*two, "$0.5000, unknown for 1"],
        "2026-11-01": [*one, "$0.2500"],
        "bob": [*one, "$0.5000"],
        alice.username: [*two, "$0.2500, unknown for 1"],
        "openai/a": [*two, "$0.7500"],
        "openai/b": [*one, "cost unknown"],
    }


SUMS: list[tuple[str, str]] = [
    ("?user=bob", "1 call"),
    ("?model=openai/a", "2 calls"),
    ("?since=2026-11-02", "2 calls"),
    ("?until=2026-11-01", "1 call"),
    ("?since=2026-11-02&until=2026-11-02&model=openai/b", "1 call"),
]


def test_sums_are_of_what_is_looked_for(boss: Browser, uses: None, subtests: pytest.Subtests) -> None:
    for query, total in SUMS:
        with subtests.test(query=query, total=total):
            assert sums(boss, query)["Total"][0] == total


def test_without_use_there_are_no_sums(boss: Browser) -> None:
    assert sums(boss) == {}

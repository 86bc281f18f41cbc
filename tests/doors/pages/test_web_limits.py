"""Limits as people see and change them: of one conversation, and of all that have none of their own."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.models import RunMeter, UserSettings
from sessions_app.settings import run_options, user_settings
from tests.support.people.web_browser import Browser, words

pytestmark = pytest.mark.one_engine

PAGE = "/c/talk/limits"


def meter(conversation: ConversationRef) -> None:
    counts = {"iterations": 7, "tokens": 1200, "cost_nanos": 420_000_000, "worked_ms": 61_000}
    RunMeter.objects.create(
        conversation_id=conversation.pk, family=conversation.pk, turn_id="t", turn_iterations=3, **counts
    )


async def test_the_page_shows_what_was_used_of_which_limit(
    conversation: ConversationRef, alice: User, visitor: Browser
) -> None:
    await astore.call(meter, conversation)
    await astore.call(run_options.change, conversation, {"max_turn_iterations": 10})
    own = {"max_budget_per_task": 5.0}
    await astore.call(user_settings.change_settings, alice.pk, own, secrets={})
    shown = words(await visitor.get(PAGE))
    assert "3 of 10 used in the newest turn." in shown
    assert "1,200 used so far." in shown
    assert "$0.4200 of $5.00 used so far. From your settings." in shown
    assert "0:01:01 used so far." in shown
    usage = await visitor.get("/c/talk/usage")
    assert usage.text == "No tokens used yet · $0.4200 of $5.00"


async def test_limits_are_changed_by_the_form_and_an_empty_field_restores_the_default(
    conversation: ConversationRef, visitor: Browser
) -> None:
    for given, stored in [("2.50", 2.5), ("", None)]:
        answer = await visitor.send(PAGE, {"max_cost": given, "max_turn_seconds": "60"}, page=PAGE)
        assert (answer.status_code, answer.headers["location"]) == (302, PAGE)
        options = await astore.call(run_options.options_of, conversation)
        assert (options.max_cost, options.max_turn_seconds) == (stored, 60)
    assert "Limits saved." in words(await visitor.get(PAGE))


async def test_what_is_no_limit_is_refused_beside_its_field(
    conversation: ConversationRef, visitor: Browser, subtests: pytest.Subtests
) -> None:
    for wrong in ["0", "-1", "many", "1.5", "9" * 30]:
        with subtests.test(wrong=wrong):
            answer = await visitor.send(PAGE, {"max_tokens": wrong, "max_seconds": "9"}, page=PAGE)
            assert answer.status_code == 400
            assert re.findall(r'<p class="error" id="(.*?)_error">', answer.text) == ["limit-max_tokens"]
            options = await astore.call(run_options.options_of, conversation)
            assert (options.max_tokens, options.max_seconds) == (None, None)


async def test_the_menu_leads_to_the_limits(conversation: ConversationRef, visitor: Browser) -> None:
    assert f'<a href="{PAGE}">Limits…</a>' in (await visitor.get("/c/talk")).text


async def test_the_limits_of_all_conversations_are_in_the_settings(alice: User, visitor: Browser) -> None:
    given = {"max_iterations": "40", "max_budget_per_task": "2.5"}
    answer = await visitor.send("/settings/limits", given, page="/settings")
    assert answer.headers["location"] == "/settings#limits"
    stored = await astore.call(UserSettings.objects.get, pk=alice.pk)
    assert (stored.max_iterations, stored.max_budget_per_task) == (40, 2.5)
    page = (await visitor.get("/settings")).text
    assert re.search(r'name="max_iterations"[^>]*value="40"|value="40"[^>]*name="max_iterations"', page)
    refused = await visitor.send("/settings/limits", {"max_iterations": "0"}, page="/settings")
    assert refused.status_code == 400

"""The search page: from a word to the event that has it."""

from __future__ import annotations

import base64
import html
import json
import re
from datetime import timedelta
from functools import partial
from html import unescape
from itertools import product
from urllib.parse import parse_qs

import httpx
import pytest
from django.contrib.auth.models import User
from django.utils import timezone
from django.utils.html import escape

from conversations.log import writes
from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from tests.support.data.events import event, payload
from tests.support.data.hostile import HOSTILE

pytestmark = pytest.mark.one_engine

ON_A_PAGE = 10
"""So many conversations and as many events that are found stand on one page."""


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation with a word in one event alone."""
    conversation = creation.create(alice, conversation_id="talk", title="Fix the parser")
    writes.append(conversation, [event("Good morning"), event("the needle is here"), event("Good night")])
    return conversation


async def test_a_hit_leads_to_its_event_and_marks_the_word(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    text = (await rest.get("/search?q=needle")).text
    assert 'href="/c/talk?around=1#e1"' in text
    assert "the <mark>needle</mark> is here" in text
    assert text.count("<mark>") == 1


async def test_a_conversation_is_found_by_its_title(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    text = (await rest.get("/search?q=parser")).text
    assert '<a href="/c/talk">' in text


async def test_two_conversations_of_one_title_can_be_told_apart(alice: User, rest: httpx.AsyncClient) -> None:
    older = await astore.call(partial(creation.create, alice, title="Fix the parser", repository="acme/shop"))
    newer = await astore.call(partial(creation.create, alice, title="Fix the parser", version=Version.V1))
    await astore.call(writes.append, older, [event("Commas come first")])
    text = (await rest.get("/search?q=parser")).text
    rows = {
        each: text.split(f'<a href="/c/{each.public_id}">')[1].split("</a>")[0] for each in (older, newer)
    }
    for row in rows.values():
        assert "Fix the parser" in row
        assert "<time datetime=" in row
        assert "Not started" in row
    assert "V0 · <bdi>acme/shop</bdi>" in rows[older]
    assert "Commas come first" in rows[older]
    assert "V1" in rows[newer]
    assert "snippet" not in rows[newer]


async def test_fields_that_were_left_empty_filter_nothing(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    answer = await rest.get("/search?q=needle&kind=&source=&since=&until=&repository=&status=&version=")
    assert "<mark>needle</mark>" in answer.text


async def test_the_words_and_how_to_search_stay_whatever_was_found(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for query, is_open in [("needle", False), ("nowhere", True), ('"', True)]:
        with subtests.test(query=query, is_open=is_open):
            page = (await rest.get("/search", params={"q": query})).text
            assert f'name="q" value="{html.escape(query)}"' in page
            assert ("exact phrase" in page, '<details class="how quiet" open>' in page) == (True, is_open)


async def test_filters_are_cleared_by_a_link_that_keeps_the_words(
    talk: ConversationRef, rest: httpx.AsyncClient
) -> None:
    filtered = (await rest.get("/search?q=needle+%26+thread&kind=error")).text
    (link,) = re.findall(r'href="([^"]*)">Clear filters<', filtered.partition('id="main"')[2])
    assert parse_qs(unescape(link).removeprefix("?")) == {"q": ["needle & thread"]}
    plain = (await rest.get("/search?q=needle")).text
    assert ">Clear filters<" not in plain.partition('id="main"')[2]


async def test_a_page_leads_to_the_next_with_the_same_question(alice: User, rest: httpx.AsyncClient) -> None:
    many = await astore.call(creation.create, alice, conversation_id="many")
    await astore.call(writes.append, many, [event(f"needle {number}") for number in range(25)])
    first = (await rest.get("/search?q=needle&kind=message")).text
    more = first.rpartition('class="button" href="')[2].partition('"')[0].replace("&amp;", "&")
    second = (await rest.get(f"/search{more}")).text
    assert (first.count("<mark>"), second.count("<mark>")) == (20, 5)


UNSEARCHABLE = [
    "q=needle&since=yesterday",
    "q=needle&page_id=x",
    f"q=needle&page_id={base64.urlsafe_b64encode(b'9' * 5_001).decode()}",
    "q=a%00b",
]


async def test_what_cannot_be_looked_for_is_told_in_a_sentence(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for query in UNSEARCHABLE:
        with subtests.test(query=query):
            answer = await rest.get(f"/search?{query}")
            assert answer.status_code == 400
            assert 'role="alert"' in answer.text


async def test_nothing_is_found_of_others(alice: User, bob: User, rest: httpx.AsyncClient) -> None:
    theirs = await astore.call(creation.create, bob, conversation_id="bobs", title="needle")
    await astore.call(writes.append, theirs, [event("needle")])
    text = (await rest.get("/search?q=needle")).text
    assert "bobs" not in text
    assert (await rest.get("/search?q=needle&conversation=bobs")).status_code == 404


@pytest.mark.parametrize("first", range(0, len(HOSTILE), ON_A_PAGE))
async def test_hostile_text_is_shown_as_text(first: int, alice: User, rest: httpx.AsyncClient) -> None:
    titles: list[str] = []
    for number, hostile in enumerate(HOSTILE[first : first + ON_A_PAGE]):
        titles.append(f"needle {hostile.line}"[:200].replace("\0", ""))  # which no door takes
        talk = await astore.call(creation.create, alice, conversation_id=f"t{number}", title=titles[-1])
        await astore.call(writes.append, talk, [event(f"needle {hostile.line}")])
    text = (await rest.get("/search?q=needle")).text
    assert [title for title in titles if escape(title) not in text] == []
    assert text.count("<mark>needle</mark>") == len(titles)
    assert "<script>window" not in text


async def test_the_last_day_is_a_whole_one(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    today = timezone.now().date()
    found = (await rest.get(f"/search?q=needle&since={today}&until={today}")).text
    before = (await rest.get(f"/search?q=needle&until={today - timedelta(days=2)}")).text
    assert ("<mark>" in found, "<mark>" in before) == (True, False)


DAYS: list[tuple[str, str]] = [
    ("Pacific/Kiritimati", "2026-01-03"),
    ("UTC", "2026-01-02"),
    ("Nowhere/At_all", "2026-01-02"),
    ("../etc/passwd", "2026-01-02"),
    ("Pacific", "2026-01-02"),
    ("", "2026-01-02"),
]


async def test_a_day_is_one_of_the_readers_zone(
    talk: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    old = payload("an old thimble", timestamp="2026-01-02T12:00:00Z")
    await astore.call(writes.append, talk, [event(raw=old)])
    for zone, day in DAYS:
        with subtests.test(zone=zone, day=day):
            found = [
                each
                for each in ("2026-01-01", "2026-01-02", "2026-01-03", "2026-01-04")
                if "<mark>"
                in (
                    await rest.get(
                        "/search", params={"q": "thimble", "since": each, "until": each, "zone": zone}
                    )
                ).text
            ]
            assert found == [day]


async def test_a_day_at_the_end_of_time_or_beyond_is_answered(
    alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for zone, day, name in product(
        ["", "Pacific/Kiritimati", "Pacific/Pago_Pago"],
        ["0001-01-01", "9999-12-31", "2025-02-30", "tomorrow"],
        ["since", "until"],
    ):
        with subtests.test(zone=zone, day=day, name=name):
            answer = await rest.get("/search", params={"q": "needle", name: day, "zone": zone})
            assert answer.status_code == (200 if day[5:] in ("01-01", "12-31") else 400)


async def test_a_hit_says_in_words_what_it_is(talk: ConversationRef, rest: httpx.AsyncClient) -> None:
    result = json.dumps({"observation": "run", "content": "pincushion", "extras": {"command": "sew"}})
    await astore.call(writes.append, talk, [event(raw=result)])
    assert "You · Message" in (await rest.get("/search?q=needle")).text
    text = (await rest.get("/search?q=pincushion")).text
    assert "Tool result" in text
    assert "tool_result" not in text.partition('id="hits"')[2]


@pytest.mark.parametrize(
    ("markdown", "shown"),
    [
        ("the **needle** is `here`", "the <mark>needle</mark> is here"),
        ("## A needle\n\nand _thread_", "A <mark>needle</mark> and thread"),
        ("a [needle](https://example.org/needle) again", "a <mark>needle</mark> again"),
        ("needle_in_hay 2 * 3", "needle_in_hay 2 * 3"),
    ],
)
async def test_what_is_found_is_shown_without_the_signs_of_markdown(
    alice: User, rest: httpx.AsyncClient, markdown: str, shown: str
) -> None:
    other = await astore.call(creation.create, alice, conversation_id="other")
    await astore.call(writes.append, other, [event(markdown)])
    assert shown in (await rest.get("/search?q=needle*")).text

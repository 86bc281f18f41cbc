"""The list as people see it: its rows, who sees them, and what can be done to them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any, TypeVar

import pytest
from asgiref.sync import sync_to_async
from django.contrib.auth.models import User
from django.db import connection, connections
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from conversations.log import writes
from conversations.models import Conversation, ConversationRef, Version
from conversations.store import changes, creation, deletion
from convserver.web import listing
from sessions_app.live import marks
from sessions_app.live.state_words import OWNER_WORDS
from sessions_app.models import AgentLoop, ExecutionStatus
from tests.support.data.events import event

pytestmark = pytest.mark.one_engine

T = TypeVar("T")

ACTIONS = ("rename", "pin", "archive", "delete", "restore")
HOSTILE = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "{{ settings.SECRET_KEY }}",
    "'; DROP TABLE conversations; --",
    "\u202egnp.exe",
]


@pytest.fixture
def browser(alice: User) -> Browser:
    """Alice's, in local mode; it says that a script asks."""
    return Browser(headers={"host": "localhost", "hx-request": "true"})


def body(answer: Any) -> str:
    text: str = answer.content.decode()
    return text


def ids(answer: Any) -> list[str]:
    return [unescape(found) for found in re.findall(r'<li [^>]*data-id="([^"]*)"', body(answer))]


def ways_back(answer: Any) -> list[str]:
    """Return where a phone's button for the list leads."""
    return [unescape(found) for found in re.findall(r'href="([^"]*)" aria-label="All', body(answer))]


def next_page(answer: Any) -> str | None:
    found = re.search(r'hx-get="(/rows\?[^"]*page_id=[^"]*)"', body(answer))
    return unescape(found[1]) if found else None


def row(answer: Any, public_id: str) -> str:
    return body(answer).partition(f'id="row-{public_id}"')[2].partition("</li>")[0]


def do(browser: Browser, action: str, **form: Any) -> Any:
    return browser.post(f"/c/talk/{action}", form)


# What stands in the list


def test_the_list_stands_beside_every_page(
    conversation: ConversationRef, browser: Browser, subtests: pytest.Subtests
) -> None:
    for path in ["/", "/new", "/c/talk", "/settings", "/c/nowhere", "/search?q=else"]:
        with subtests.test(path):
            assert ids(browser.get(path)) == ["talk"]


def test_the_newest_come_first_and_pinned_ones_before_them(alice: User, browser: Browser) -> None:
    refs = [creation.create(alice, conversation_id=name) for name in "abcd"]
    marks.mark(alice.pk, refs[1], pinned=True)
    assert ids(browser.get("/rows")) == ["b", "d", "c", "a"]


def test_archived_ones_stand_in_the_archive_alone(
    conversation: ConversationRef, alice: User, browser: Browser
) -> None:
    creation.create(alice, conversation_id="other")
    marks.mark(alice.pk, conversation, archived=True, pinned=True)
    assert (ids(browser.get("/rows")), ids(browser.get("/rows?archived=true"))) == (["other"], ["talk"])


def test_the_way_back_leads_to_the_list_as_it_was_narrowed(
    conversation: ConversationRef, browser: Browser, subtests: pytest.Subtests
) -> None:
    for path in ["/c/talk", "/new", "/search", "/settings", "/deleted"]:
        with subtests.test(path):
            narrowed = browser.get(path, {"list": 'q="login"&version=V1'})
            assert ways_back(browser.get(path)) == ["/"]
            assert ways_back(narrowed) == ["/?q=%22login%22&version=V1"]


FILTERED: list[tuple[str, list[str]]] = [
    ("q=LOGIN", ["v1", "talk"]),
    ("repository=acme/site", ["talk"]),
    ("trigger=gui", ["talk"]),
    ("status=error", ["talk"]),
    ("status=not_started", ["v1"]),
    ("status=idle", []),
    ("version=V1", ["v1"]),
    ("q=login&version=V0", ["talk"]),
    ("status=asleep&version=V9&archived=perhaps&q=%00", ["v1", "talk"]),
]


def test_filters_narrow_the_list_on_a_page_and_as_a_fragment(
    alice: User, browser: Browser, subtests: pytest.Subtests
) -> None:
    talk = creation.create(
        alice, conversation_id="talk", title="Fix the login", repository="acme/site", trigger="gui"
    )
    AgentLoop.objects.create(conversation_id=talk.pk, execution_status=ExecutionStatus.ERROR)
    creation.create(alice, conversation_id="v1", title="Login, again", version=Version.V1)
    for query, found in FILTERED:
        with subtests.test(query=query, found=found):
            assert ids(browser.get(f"/rows?{query}")) == ids(browser.get(f"/?{query}")) == found


def test_a_family_is_folded_under_its_head_and_found_by_itself(
    conversation: ConversationRef, alice: User, browser: Browser
) -> None:
    creation.create(alice, conversation_id="part", title="A part", parent_id=conversation.pk)
    assert ids(browser.get("/rows")) == ["talk"]
    assert "1 sub-conversation<" in row(browser.get("/rows"), "talk")
    for path in ("/rows?parent=talk", "/?parent=talk", "/rows?q=part"):
        assert ids(browser.get(path)) == ["part"]


def test_a_part_leads_to_what_has_started_it_while_that_stands_and_is_the_same_persons(
    conversation: ConversationRef, alice: User, bob: User, browser: Browser
) -> None:
    changes.retitle(conversation, "The <whole>")
    creation.create(alice, conversation_id="part", parent_id=conversation.pk)
    others = creation.create(bob, conversation_id="bobs", title="Of bob")
    creation.create(alice, conversation_id="orphan", parent_id=others.pk)
    link = 'Part of <a href="/c/talk"><bdi>The &lt;whole&gt;</bdi></a>'
    assert link in body(browser.get("/c/part"))
    assert "Part of" not in body(browser.get("/c/talk")) + body(browser.get("/c/orphan"))
    deletion.soft_delete(conversation)
    assert "Part of" not in body(browser.get("/c/part"))


@pytest.mark.parametrize(
    ("status", "words"),
    [("running", "Running"), ("waiting_for_confirmation", "Needs your approval"), ("error", "Failed")],
)
def test_a_status_is_said_in_words(
    conversation: ConversationRef, browser: Browser, status: str, words: str
) -> None:
    AgentLoop.objects.create(conversation_id=conversation.pk, execution_status=status)
    assert f'<span class="status {status}">{words}</span>' in row(browser.get("/rows"), "talk")


def test_the_list_and_the_search_can_be_narrowed_to_each_state(
    browser: Browser, subtests: pytest.Subtests
) -> None:
    for state in OWNER_WORDS:
        with subtests.test(state=state):
            option = f'<option value="{state}" selected>{OWNER_WORDS[state]}</option>'
            assert option in body(browser.get("/", {"status": state}))
            assert option in body(browser.get("/search", {"q": "x", "status": state}))


def test_what_is_unread_is_marked_by_a_word(
    conversation: ConversationRef, alice: User, browser: Browser
) -> None:
    writes.append(conversation, [event("something")])
    assert '<span class="new">New</span>' in row(browser.get("/rows"), "talk")
    marks.mark_seen(alice.pk, conversation, 0)
    assert '<span class="new">New</span>' not in row(browser.get("/rows"), "talk")


def test_what_people_write_is_shown_as_text(
    conversation: ConversationRef, browser: Browser, subtests: pytest.Subtests
) -> None:
    for text in HOSTILE:
        with subtests.test(text=text):
            changes.retitle(conversation, text)
            writes.append(conversation, [event(text)])
            Conversation.objects.filter(pk=conversation.pk).update(repository=text, branch=text)
            for shown in (
                body(browser.get("/")),
                body(browser.get("/", {"q": text[:5], "repository": text})),
            ):
                assert not any(mark in shown for mark in ("<script>alert", "<img src=x"))
            shown = unescape(row(browser.get("/rows"), "talk"))
            assert f'<bdi class="title" dir="auto" title="{text}">{text}</bdi>' in shown
            text = text.replace("\u202e", "⟨U+202E⟩")
            assert f'<bdi class="excerpt" dir="auto">{text}</bdi>' in shown


EXCERPTS: list[tuple[str, str]] = [
    ("**Done**, see `x.py`:\n\n- *one*\n- [two](https://example.org)", "Done, see x.py: one two"),
    ("# Plan\n```py\nprint(1)\n```", "Plan print(1)"),
    ("![a cat](cat.png) | not\na table", "a cat | not a table"),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "a b 1 2"),
    ("2 * 3 * 4 = snake_case_name &amp; <b>", "2 * 3 * 4 = snake_case_name & <b>"),
    ("cut in **the mid", "cut in **the mid"),
]


def test_what_was_last_said_is_one_line_of_plain_words(
    conversation: ConversationRef, browser: Browser, subtests: pytest.Subtests
) -> None:
    for text, line in EXCERPTS:
        with subtests.test(text=text, line=line):
            writes.append(conversation, [event(text)])
            shown = unescape(row(browser.get("/rows"), "talk"))
            assert f'<bdi class="excerpt" dir="auto">{line}</bdi>' in shown


@pytest.mark.parametrize("public_id", ["a b", "50%", 'quote"s', "ä&b=c", "<i>", "?x=1#y"])
def test_a_row_leads_to_its_conversation_whatever_it_is_called(
    alice: User, browser: Browser, public_id: str
) -> None:
    creation.create(alice, conversation_id=public_id)
    found = re.search(r'<a class="open" href="([^"]*)"', body(browser.get("/rows")))
    assert found is not None
    assert browser.get(unescape(found[1])).status_code == 200


def test_an_empty_list_leads_to_a_beginning(browser: Browser) -> None:
    assert "Start a conversation" in body(browser.get("/"))


# Pages


def test_pages_bring_what_stands_throughout_exactly_once_whatever_comes_and_goes(
    alice: User, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE_ROWS", 3)
    refs = [creation.create(alice, conversation_id=f"old-{n:02}") for n in range(12)]
    marks.mark(alice.pk, refs[5], pinned=True)
    seen: list[str] = []
    path: str | None = "/rows"
    while path is not None:
        answer = browser.get(path)
        seen += ids(answer)
        path = next_page(answer)
        creation.create(alice, conversation_id=f"new-{len(seen)}")
    assert sorted(seen) == [f"old-{n:02}" for n in range(12)]


def test_more_than_fit_on_top_stand_among_the_others(
    alice: User, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(marks, "PINNED_MAX", 2)
    for name in "abcd":
        marks.mark(alice.pk, creation.create(alice, conversation_id=name), pinned=True)
    assert ids(browser.get("/rows")) == ["d", "c", "b", "a"]


def test_without_a_script_the_next_page_is_a_link(
    alice: User, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "PAGE_ROWS", 1)
    for name in "ab":
        creation.create(alice, conversation_id=name)
    found = re.search(r'<li class="more"><a href="([^"]*)"', body(browser.get("/")))
    assert found is not None
    assert ids(browser.get(unescape(found[1]))) == ["a"]


@pytest.mark.parametrize("query", ["page_id=nowhere", "&".join(f"id={n}" for n in range(51))])
def test_what_no_list_can_show_is_refused_in_words(browser: Browser, query: str) -> None:
    answer = browser.get(f"/rows?{query}")
    assert (answer.status_code, answer["content-type"]) == (400, "text/plain; charset=utf-8")


def test_a_page_beside_ignores_a_place_that_is_none(conversation: ConversationRef, browser: Browser) -> None:
    assert ids(browser.get("/?page_id=nowhere")) == ["talk"]


@pytest.mark.parametrize("path", ["/rows", "/rows?q=row&archived=true", "/rows?id=row-1&id=row-2"])
def test_a_list_takes_the_same_number_of_statements_whatever_is_there(
    conversation: ConversationRef, alice: User, browser: Browser, path: str
) -> None:
    def statements(count: int) -> int:
        have = Conversation.objects.count()
        rows = [
            Conversation(
                public_id=f"row-{n}",
                owner=alice,
                title=f"row {n}",
                parent_id=None if n % 2 else conversation.pk,
            )
            for n in range(have, count)
        ]
        for each in Conversation.objects.bulk_create(rows):
            marks.mark(alice.pk, each.ref, pinned=each.pk % 3 == 0, archived=each.pk % 5 == 0)
        with CaptureQueriesContext(connection) as captured:
            assert browser.get(path).status_code == 200
        return len(captured)

    assert statements(10) == statements(120) <= 6  # one to see whether few match


# Rows by their ids


def test_rows_are_asked_for_by_their_ids_and_only_those_that_match_come(
    alice: User, browser: Browser
) -> None:
    refs = [creation.create(alice, conversation_id=name) for name in ("one", "two", "three")]
    marks.mark(alice.pk, refs[1], archived=True)
    query = "id=one&id=two&id=three&id=nowhere&id=.."
    assert ids(browser.get(f"/rows?{query}")) == ["three", "one"]
    assert ids(browser.get(f"/rows?{query}&archived=true")) == ["two"]


# Who sees what


def test_a_title_that_nothing_has_leads_to_a_search_of_the_messages(browser: Browser, database: None) -> None:
    found = re.search(
        r'href="(/search[^"]*)">Search all messages', body(browser.get("/rows?q=fish+%26+chips"))
    )
    assert found is not None
    assert 'value="fish &amp; chips"' in body(browser.get(unescape(found[1])))
    assert "Search all messages" not in body(browser.get("/rows?status=error"))


def test_a_stranger_sees_no_row_and_does_nothing_to_one(
    accounts: None, conversation: ConversationRef, bob: User
) -> None:
    browser = Browser(headers={"host": "localhost"})
    browser.force_login(bob)
    shown = [
        browser.get(path) for path in ("/rows", "/", "/rows?id=talk", "/rows?parent=talk", "/?deleted=talk")
    ]
    assert [ids(each) for each in shown] == [[]] * len(shown)
    for action in ACTIONS:
        assert browser.post(f"/c/talk/{action}", {"title": "mine"}).status_code == 404
    assert Conversation.objects.get(pk=conversation.pk).title is None


def test_nobody_is_asked_to_log_in(accounts: None, conversation: ConversationRef) -> None:
    browser = Browser(headers={"host": "localhost"})
    for answer in (browser.get("/rows"), browser.post("/c/talk/delete")):
        assert (answer.status_code, answer["location"].partition("?")[0]) == (302, "/ui/login")


def test_an_action_needs_a_post_with_a_token(
    conversation: ConversationRef, alice: User, subtests: pytest.Subtests
) -> None:
    strict = Browser(headers={"host": "localhost"}, enforce_csrf_checks=True)
    for action in ACTIONS:
        with subtests.test(action):
            assert strict.get(f"/c/talk/{action}").status_code == 405
            assert strict.post(f"/c/talk/{action}").status_code == 403


# What is done to a row


def test_a_renamed_row_comes_back_with_its_title(conversation: ConversationRef, browser: Browser) -> None:
    assert ">A better title</bdi>" in row(do(browser, "rename", title=" A better title "), "talk")
    assert ">Conversation talk</bdi>" in row(do(browser, "rename", title=""), "talk")


@pytest.mark.parametrize("title", ["x" * 201, "null\0"])
def test_a_title_that_cannot_be_is_refused_in_words(
    conversation: ConversationRef, browser: Browser, title: str
) -> None:
    answer = do(browser, "rename", title=title)
    assert (answer.status_code, answer["content-type"]) == (400, "text/plain; charset=utf-8")


def test_a_row_is_pinned_and_unpinned(conversation: ConversationRef, browser: Browser) -> None:
    assert "data-pinned" in row(do(browser, "pin", pinned="true"), "talk")
    assert "data-pinned" not in row(do(browser, "pin", pinned="false"), "talk")


def test_an_archived_row_leaves_its_list_and_can_be_brought_back(
    conversation: ConversationRef, browser: Browser
) -> None:
    answer = do(browser, "archive", away="true")
    assert (ids(answer), ids(browser.get("/rows"))) == ([], [])
    assert 'hx-post="/c/talk/archive"' in body(answer)
    do(browser, "archive", away="false", undo="true")
    assert ids(browser.get("/rows")) == ["talk"]


def test_a_row_that_the_page_still_shows_comes_back(conversation: ConversationRef, browser: Browser) -> None:
    do(browser, "archive", away="true")
    assert ids(do(browser, "rename", title="In the archive", archived="true")) == ["talk"]


# What is done by the menu of the conversation's own page


def by_form(browser: Browser, action: str, *, path: str) -> str:
    """Send the form without a script from a page; return where the answer leads."""
    answer = browser.post(f"/c/talk/{action}", headers={"referer": f"http://localhost{path}"})
    location: str = answer["location"]
    return location


@pytest.mark.parametrize("action", ["rename", "pin", "archive"])
def test_without_a_script_a_action_leads_back_to_the_conversation_that_it_was_done_from(
    conversation: ConversationRef, alice: User, action: str
) -> None:
    browser = Browser(headers={"host": "localhost"})
    assert by_form(browser, action, path="/c/talk?before=50") == "/c/talk"


def test_without_a_script_a_action_done_elsewhere_leads_to_the_list(
    conversation: ConversationRef, alice: User, subtests: pytest.Subtests
) -> None:
    for path in ["/", "/c/other", "/settings", "//elsewhere/c/talk", "/c/talk/events"]:
        with subtests.test(path):
            assert by_form(Browser(headers={"host": "localhost"}), "rename", path=path) == "/"


def test_an_action_from_another_site_leads_to_the_list(conversation: ConversationRef, alice: User) -> None:
    browser = Browser(headers={"host": "localhost", "referer": "https://elsewhere.example/c/talk"})
    assert browser.post("/c/talk/pin", {"pinned": "true"})["location"] == "/"


def test_the_menu_comes_back_as_the_conversation_stands_now_and_says_what_was_done(
    conversation: ConversationRef, browser: Browser
) -> None:
    menu = body(browser.post("/c/talk/pin", {"pinned": "true"}, headers={"hx-target": "menu"}))
    assert (ids(browser.get("/rows")), "Unpin</button>" in menu, "Pinned: " in menu) == (["talk"], True, True)


def test_what_is_done_to_the_row_of_the_conversation_in_front_is_told_to_its_menu(
    conversation: ConversationRef, browser: Browser
) -> None:
    def menus(page: str) -> int:
        answer = browser.post(
            "/c/talk/archive", {"away": "true"}, headers={"referer": f"http://localhost{page}"}
        )
        return body(answer).count('<details id="menu"')

    assert (menus("/c/talk"), menus("/c/other"), menus("/")) == (1, 0, 0)


async def in_thread(steps: Callable[[], T]) -> T:
    """Run what asks for pages in a thread, so that the manager is that of the test's own loop."""

    def run() -> T:
        try:
            return steps()
        finally:
            connections.close_all()

    return await sync_to_async(run)()


async def test_a_deleted_row_leaves_and_can_be_brought_back(
    live: None, conversation: ConversationRef, browser: Browser
) -> None:
    answer, left = await in_thread(lambda: (do(browser, "delete"), ids(browser.get("/rows"))))
    assert (ids(answer), left) == ([], [])
    assert 'hx-swap-oob="beforeend:#toasts"' in body(answer)
    assert 'hx-post="/c/talk/restore"' in body(answer)
    back, stands = await in_thread(lambda: (do(browser, "restore"), ids(browser.get("/rows"))))
    assert (back["HX-Trigger"], stands) == ('{"row": {"id": "talk"}}', ["talk"])


async def test_without_a_script_a_deleted_conversation_can_be_brought_back(
    live: None, conversation: ConversationRef, alice: User
) -> None:
    browser = Browser(headers={"host": "localhost"})
    page = await in_thread(lambda: browser.post("/c/talk/delete", follow=True))
    assert (ids(page), 'action="/c/talk/restore"' in body(page)) == ([], True)
    assert ids(await in_thread(lambda: browser.post("/c/talk/restore", follow=True))) == ["talk"]


# How long ago


AGES: list[tuple[int, str]] = [
    (-5, "now"),
    (59, "now"),
    (60, "1 min"),
    (3_599, "59 min"),
    (3_600, "1 h"),
    (86_400, "1 d"),
    (29 * 86_400, "29 d"),
    (30 * 86_400, "5 Mar 2024"),
    (400 * 86_400, "5 Mar 2024"),
]


def test_a_time_is_told_in_a_few_letters(subtests: pytest.Subtests) -> None:
    for seconds, words in AGES:
        with subtests.test(seconds=seconds, words=words):
            moment = datetime(2024, 3, 5, tzinfo=UTC)
            state: Any = {"last_message_at": None, "created_at": moment.isoformat()}
            assert listing.ListRow(state=state, now=moment + timedelta(seconds=seconds)).ago == words

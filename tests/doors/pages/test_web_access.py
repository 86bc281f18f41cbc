"""The answers of every page to its owner, a stranger and an anonymous visitor, in each mode of login."""

from __future__ import annotations

import html
import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.urls import URLPattern

from conversations.log import writes
from conversations.models import ConversationRef, Event
from conversations.store import creation, deletion
from convserver.configuration import AuthMode
from convserver.web.urls import urlpatterns
from sessions_app import astore
from sessions_app.models import ImportRun
from tests.support.data.events import event
from tests.support.people.web_browser import Browser, words
from tests.support.wires.web_pages import IMPORT_ID, PAGES, Page

pytestmark = pytest.mark.one_engine

KEY = "the server's key"
LOGIN = "/ui/login?next="
SHOWN = [page for page in PAGES if page.method == "GET"]
FORMS = [page for page in PAGES if page.method == "POST"]


@pytest.fixture
def talk(conversation: ConversationRef, alice: User) -> ConversationRef:
    """A conversation of alice's with one event, beside one that she has deleted and an import."""
    fill(alice, conversation, "gone", IMPORT_ID)
    return conversation


def fill(owner: User, talk: ConversationRef, gone: str, import_id: str) -> None:
    writes.append(talk, [event("hello")])
    deletion.soft_delete(creation.create(owner, conversation_id=gone))
    ImportRun.objects.create(public_id=import_id, user_id=owner.pk, file_name="a.zip", size=9)


def new_user(name: str, password: str | None = None) -> User:
    return User.objects.create_user(name, password=password)


async def rows(owner: User | None = None) -> AsyncIterator[tuple[Page, Page, User]]:
    """Yield each page, the page with the ids of things for this row, and whose those are.

    Pages that are only read share them; each form that is sent has things of its own.
    """
    for number, page in enumerate((*SHOWN, *FORMS)):
        if number == 0 or page.method == "POST":
            own, user = number, owner if owner is not None else await astore.call(new_user, f"owner{number}")
            talk = await astore.call(creation.create, user, conversation_id=f"talk{own}")
            await astore.call(fill, user, talk, f"gone{own}", f"{own:032x}")
        yield page, page.of_row(own), user


@pytest.fixture
def server_key(configured: Callable[..., None]) -> None:
    configured(session_api_key=KEY)


async def visit(visitor: Browser, page: Page) -> int:
    if page.method == "GET":
        return (await visitor.get(page.path)).status_code
    return (await visitor.send(page.path, page.form, page="/settings")).status_code


def test_every_page_has_a_row() -> None:
    routes = {pattern.name for pattern in urlpatterns if isinstance(pattern, URLPattern)}
    assert {page.route for page in PAGES} == routes


@pytest.mark.timeout(300)
async def test_with_accounts_each_page_answers_as_its_row_says(
    accounts: None, alice: User, visitor: Browser, subtests: pytest.Subtests
) -> None:
    bobs = Browser("10.0.0.1")
    last: User | None = None
    async for page, own, owner in rows():
        with subtests.test(str(page)):
            if owner != last:
                last = owner
                await bobs.log_in(await astore.call(new_user, f"not {owner}", "a password"))
                await visitor.log_in(owner)
            answers = [await visit(each, own) for each in (bobs, visitor)]
            assert answers == [page.stranger, page.owner]
    await bobs.http.aclose()


async def not_led_to_login(visitor: Browser) -> dict[str, Any]:
    """Return the pages that do not lead to the login, and from there back to where their visitor was."""
    found = {}
    for page in PAGES:
        if page.method == "GET":
            answer, back = await visitor.get(page.path), quote(page.path)
        else:
            answer, back = await visitor.send(page.path, page.form, page="/c/talk"), "/c/talk"
        led = (answer.status_code, answer.headers.get("location"))
        if led != (302, f"{LOGIN}{back}"):
            found[str(page)] = led
    return found


@pytest.mark.parametrize("mode", ["accounts", "server_key"])
async def test_nobody_is_led_to_the_login_and_from_there_back_to_the_page(
    request: pytest.FixtureRequest, talk: ConversationRef, visitor: Browser, mode: str
) -> None:
    request.getfixturevalue(mode)
    assert await not_led_to_login(visitor) == {}


def log_out(user: User) -> None:
    Session.objects.all().delete()


def deactivate(user: User) -> None:
    User.objects.filter(pk=user.pk).update(is_active=False)


def change_password(user: User) -> None:
    user.set_password("another password")
    user.save()


@pytest.mark.parametrize("end", [log_out, deactivate, change_password])
async def test_a_login_that_is_over_opens_no_page_and_no_form(
    accounts: None, talk: ConversationRef, alice: User, visitor: Browser, end: Callable[[User], None]
) -> None:
    await visitor.log_in(alice)
    assert (await visitor.get("/settings")).status_code == 200
    await astore.call(end, alice)
    assert await not_led_to_login(visitor) == {}
    assert await astore.call(Event.objects.count) == 1


async def test_a_form_without_a_page_of_ours_leads_back_to_the_first_page(
    accounts: None, visitor: Browser, subtests: pytest.Subtests
) -> None:
    for referer in ["http://[", "http://elsewhere/c/x", "//localhost", "", "http://localhost"]:
        with subtests.test(referer=referer):
            answer = await visitor.send("/begin", headers={"referer": referer})
            assert answer.headers["location"] == f"{LOGIN}/"


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mode", ["no key", "local", "accounts"])
async def test_everybody_in_local_mode_and_who_has_given_the_servers_key_is_the_owner(
    configured: Callable[..., None], alice: User, visitor: Browser, subtests: pytest.Subtests, mode: str
) -> None:
    if mode != "no key":
        configured(session_api_key=KEY, auth=AuthMode(mode))
        await visitor.send("/ui/key", {"key": KEY}, page="/ui/key")
    async for page, own, _ in rows(alice):
        with subtests.test(str(page)):
            assert await visit(visitor, own) == page.owner


@pytest.mark.parametrize(
    ("mode", "sent"), [("local", ""), ("accounts", "$TOKEN"), ("server_key", "$SESSION_API_KEY")]
)
async def test_the_examples_on_the_first_page_send_what_the_server_requires(
    request: pytest.FixtureRequest, alice: User, visitor: Browser, mode: str, sent: str
) -> None:
    if mode != "local":
        request.getfixturevalue(mode)
        await visitor.log_in(alice)
    examples = [
        html.unescape(each)
        for each in re.findall(r"<code>([^<]*\n[^<]*|ws:[^<]*)</code>", (await visitor.get("/new")).text)
    ]
    commands = [line for example in examples for line in example.splitlines() if line.startswith("curl")]
    header = f'curl -H "X-Session-API-Key: {sent}" ' if sent else "curl "
    assert len(commands) == 3
    assert [line for line in commands if not line.startswith(header) or ("Key" in line) != bool(sent)] == []
    assert (f'"token": "what {sent} holds"' in examples[0]) == bool(sent)


async def test_a_strangers_page_is_that_of_what_does_not_exist(
    accounts: None, talk: ConversationRef, bob: User, visitor: Browser
) -> None:
    await visitor.log_in(bob)
    for path in (page.path for page in SHOWN if page.stranger == 404):
        there, nowhere = [await visitor.get(each) for each in (path, path.replace("talk", "none"))]
        assert there.status_code == nowhere.status_code == 404
        assert words(there).replace("talk", "none") == words(nowhere)


async def test_no_form_is_taken_without_its_token(
    accounts: None, talk: ConversationRef, alice: User, visitor: Browser
) -> None:
    await visitor.log_in(alice)
    answers = {str(page): await visitor.http.post(page.path, data=dict(page.form)) for page in FORMS}
    assert {name: answer.status_code for name, answer in answers.items() if answer.status_code != 403} == {}


FORM_PAGES: list[tuple[str, str]] = [
    ("/settings/model", "/settings#model"),
    ("/settings/tools/remove", "/settings#tools"),
    ("/settings/approval", "/settings#tools"),
    ("/settings/secrets", "/settings#secrets"),
    ("/settings/tokens", "/settings#tokens"),
    ("/settings/theme", "/settings#look"),
    ("/begin", "/new"),
    ("/c/talk/messages", "/c/talk"),
    ("/c/talk/reset-key", "/c/talk"),
    ("/settings/keys", "/settings#tokens"),
]


async def test_the_address_of_a_form_leads_to_the_page_that_it_stands_on(
    talk: ConversationRef, visitor: Browser, subtests: pytest.Subtests
) -> None:
    for address, page in FORM_PAGES:
        with subtests.test(address=address, page=page):
            assert (await visitor.get(address)).headers["location"] == page


async def test_a_page_answers_to_head_as_to_get_without_a_body(
    alice: User, talk: ConversationRef, visitor: Browser
) -> None:
    for path in (page.path for page in SHOWN):
        answer = await visitor.http.head(path)
        assert (answer.status_code, answer.content) == ((await visitor.get(path)).status_code, b""), path

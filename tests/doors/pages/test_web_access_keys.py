"""Access keys of conversations as their owner resets them: one by its menu, all of them in the settings."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.identity import conversation_keys
from tests.support.people.web_browser import Browser, words

pytestmark = pytest.mark.one_engine

ID = "3c294d959ff64d2d9c530a5849f2c4a0"
RESET = f"/c/{ID}/reset-key"
RESET_ALL = "/settings/keys"
SERVER_KEY = "the server's key"


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation of alice's that has a key."""
    return creation.create(alice, conversation_id=ID, version=Version.V1)


@pytest.fixture
async def owner(accounts: None, alice: User, visitor: Browser) -> Browser:
    """The browser of its owner, after a login."""
    await visitor.log_in(alice)
    return visitor


def offers(page: httpx.Response, path: str) -> bool:
    """Say whether a page has the form, with its token."""
    found = re.search(rf'<form method="post" action="{re.escape(path)}"(.*?)</form>', page.text, re.DOTALL)
    return found is not None and "csrfmiddlewaretoken" in found[1]


async def opens(key: str) -> bool:
    return await astore.call(conversation_keys.opened_by, key) is not None


async def test_the_menu_of_a_conversation_offers_to_reset_its_key_and_says_what_that_does(
    talk: ConversationRef, owner: Browser
) -> None:
    page = await owner.get(f"/c/{ID}")
    assert offers(page, RESET)
    assert "Programs that use the current key are disconnected right away." in words(page)


async def test_a_key_that_is_reset_by_the_menu_opens_nothing_and_the_page_says_so_once(
    talk: ConversationRef, owner: Browser
) -> None:
    key = await astore.call(conversation_keys.key_of, talk)
    answer = await owner.send(RESET, page=f"/c/{ID}")
    assert (answer.status_code, answer.headers["location"]) == (302, f"/c/{ID}")
    assert [await opens(each) for each in (key, await astore.call(conversation_keys.key_of, talk))] == [
        False,
        True,
    ]
    said = ["Access key reset." in words(await owner.get(f"/c/{ID}")) for _ in range(2)]
    assert said == [True, False]


@pytest.mark.parametrize("path", [RESET, RESET_ALL])
async def test_a_stranger_resets_no_key_of_the_owners(
    accounts: None, talk: ConversationRef, bob: User, visitor: Browser, path: str
) -> None:
    key = await astore.call(conversation_keys.key_of, talk)
    await visitor.log_in(bob)
    await visitor.send(path, page="/settings")
    assert await opens(key)


async def test_the_menu_that_a_script_asks_for_offers_it_too(talk: ConversationRef, owner: Browser) -> None:
    for target in ("menu", f"row-{ID}"):
        script = {"hx-request": "true", "hx-target": target}
        answer = await owner.send(f"/c/{ID}/pin", {"pinned": "true"}, page=f"/c/{ID}", headers=script)
        assert offers(answer, RESET)


async def test_a_conversation_without_a_key_offers_no_reset(alice: User, owner: Browser) -> None:
    await astore.call(creation.create, alice, conversation_id="talk", version=Version.V0)
    assert not offers(await owner.get("/c/talk"), "/c/talk/reset-key")


@pytest.mark.parametrize(("page", "form"), [(f"/c/{ID}", RESET), ("/settings", RESET_ALL)])
@pytest.mark.parametrize("needs_key", [False, True])
async def test_in_local_mode_keys_are_reset_where_the_server_asks_for_one(
    configured: Callable[..., None],
    talk: ConversationRef,
    visitor: Browser,
    page: str,
    form: str,
    needs_key: bool,
) -> None:
    if needs_key:
        configured(session_api_key=SERVER_KEY)
        await visitor.send("/ui/key", {"key": SERVER_KEY}, page="/ui/key")
    assert offers(await visitor.get(page), form) == needs_key


async def test_all_keys_are_reset_in_the_settings(
    talk: ConversationRef, alice: User, bob: User, owner: Browser
) -> None:
    def keys() -> list[str]:
        return [conversation_keys.key_of(creation.create(user, version=Version.V1)) for user in (alice, bob)]

    old = [await astore.call(conversation_keys.key_of, talk), *await astore.call(keys)]
    assert offers(await owner.get("/settings"), RESET_ALL)
    answer = await owner.send(RESET_ALL, page="/settings")
    assert answer.headers["location"] == "/settings#tokens"
    assert [await opens(key) for key in old] == [False, False, True]
    assert await opens(await astore.call(conversation_keys.key_of, talk))
    assert "All access keys are reset." in words(await owner.get("/settings"))

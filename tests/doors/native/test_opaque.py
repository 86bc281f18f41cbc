"""Cursors and ids of tokens: they lead back to their place, and tell nobody how much there is."""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from hypothesis import given
from hypothesis import strategies as st

from conversations import opaque
from conversations.cursors import InvalidCursor, KeyCursor, ListCursor
from conversations.events import ConversationRef
from conversations.store import creation
from sessions_app import astore
from sessions_app.models import ApiToken
from tests.conftest import Dial

pytestmark = pytest.mark.one_engine

NOW = datetime(2026, 1, 2, tzinfo=UTC)
NUMBERS = re.compile(r"[0-9.-]+")
KEYS = st.integers(0, 2**63 - 1)


def read(text: str) -> str:
    """Return what anybody can read in a cursor, whatever it is made of."""
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)).decode("latin-1")


@given(KEYS)
def test_a_cursor_leads_back_to_its_place_and_does_not_show_it(key: int) -> None:
    for cursor in (KeyCursor(key), ListCursor(NOW, key)):
        text = cursor.encode()
        assert type(cursor).decode(text) == cursor
        assert text == cursor.encode()
        assert not NUMBERS.fullmatch(read(text))


def test_a_cursor_of_one_sort_of_list_is_none_of_another() -> None:
    with pytest.raises(InvalidCursor):
        ListCursor.decode(KeyCursor(7).encode())
    with pytest.raises(InvalidCursor):
        KeyCursor.decode(opaque.conceal("7", "something else"))


def test_a_cursor_that_was_changed_is_refused(subtests: pytest.Subtests) -> None:
    for place in range(20):
        with subtests.test(place=place):
            text = KeyCursor(1234567).encode()
            with pytest.raises(InvalidCursor):
                KeyCursor.decode(text[:place] + ("A" if text[place] != "A" else "B") + text[place + 1 :])


def test_a_cursor_stays_good_under_an_earlier_key(monkeypatch: pytest.MonkeyPatch) -> None:
    text, former = KeyCursor(7).encode(), settings.SECRET_KEY
    monkeypatch.setattr(settings, "SECRET_KEY", "another key" * 5)
    with pytest.raises(InvalidCursor):
        KeyCursor.decode(text)
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [former])
    assert KeyCursor.decode(text) == KeyCursor(7)


async def test_neither_lists_nor_their_socket_show_numbers_of_the_database(
    conversation: ConversationRef, alice: User, dial: Dial, rest: httpx.AsyncClient
) -> None:
    await astore.call(lambda: creation.create(alice, conversation_id="second"))
    listed = [
        (await rest.get(path, params={"limit": 1})).json()["next_page_id"]
        for path in ("/api/native/conversations", "/api/conversations")
    ]
    hello = await (await dial("/ws/conversations")).until("hello")
    for text in (*listed, hello["cursor"]):
        assert not NUMBERS.fullmatch(read(text))


async def test_a_token_is_named_by_its_opaque_id_at_the_rest_door(
    live: None, alice: User, rest: httpx.AsyncClient
) -> None:
    made = (await rest.post("/api/native/tokens", json={"name": "laptop"})).json()
    row = await astore.call(ApiToken.objects.get)
    assert made["id"] == row.public_id
    assert (await rest.delete(f"/api/native/tokens/{row.pk}")).status_code == 404
    assert (await rest.delete(f"/api/native/tokens/{made['id']}")).status_code == 204


def test_the_id_of_a_token_is_no_number_and_only_its_own(database: None, alice: User) -> None:
    token, _ = ApiToken.issue(alice.pk, "laptop")
    other, _ = ApiToken.issue(alice.pk, "phone")
    assert not token.public_id.isdecimal()
    assert list(ApiToken.objects.called(token.public_id)) == [token] != [other]
    for text in (str(token.pk), KeyCursor(token.pk).encode(), "", "é", "x" * 5_000):
        assert not ApiToken.objects.called(text).exists()

"""How people come in and leave: by name and password, and by the server's key, which is asked for once."""

from __future__ import annotations

import html
import logging
import re
from collections.abc import Callable

import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session

from conversations.events import ConversationRef
from convserver.passwords import login_throttle
from sessions_app import astore
from sessions_app.identity import principals
from sessions_app.sockets.native import list_reader as native_list
from sessions_app.sockets.native import reader as native_reader
from tests.conftest import Dial
from tests.support.people.web_browser import Browser, words

pytestmark = pytest.mark.one_engine

KEY = "the server's key"
PASSWORD = "bob's password"
LOGIN = "/ui/login"
ADMIN_LOGIN = "/admin/login/"
NATIVE = "/api/native/conversations"
WRONG_PASSWORD = "Wrong username or password."
WRONG_KEY = "Wrong key."


@pytest.fixture
def server_key(configured: Callable[..., None]) -> None:
    configured(session_api_key=KEY)


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let sockets ask at every moment whether they may stay."""
    monkeypatch.setattr(principals, "CHECK_S", 0.0)
    monkeypatch.setattr(native_reader, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(native_list, "HEARTBEAT_S", 0.02)


async def log_in(
    visitor: Browser, *, password: str = PASSWORD, door: str = LOGIN, **form: str
) -> tuple[int, str]:
    """Send bob's name and a password; return the status, and where it leads or what it says."""
    answer = await visitor.send(door, {"username": "bob", "password": password, **form})
    return answer.status_code, answer.headers.get("location") or words(answer)


def set_password(user: User) -> None:
    user.set_password(PASSWORD)
    user.save()


async def give_key(visitor: Browser, *, key: str = KEY, **form: str) -> tuple[int, str]:
    answer = await visitor.send("/ui/key", {"key": key, **form})
    return answer.status_code, answer.headers.get("location") or words(answer)


# Name and password


async def test_a_wrong_password_is_told_and_lets_nobody_in(
    accounts: None, bob: User, visitor: Browser
) -> None:
    status, said = await log_in(visitor, password="another")
    assert (status, WRONG_PASSWORD in said) == (200, True)
    assert (await visitor.get("/")).status_code == 302


async def test_an_unknown_name_is_answered_as_a_wrong_password_is(accounts: None, visitor: Browser) -> None:
    assert WRONG_PASSWORD in (await log_in(visitor))[1]


@pytest.mark.parametrize(
    ("asked_for", "shown"),
    [
        ("/c/talk", "/c/talk"),
        ("/c/talk?after=7", "/c/talk?after=7"),
        ("", "/"),
        ("https://elsewhere.example/", "/"),
        ("//elsewhere.example", "/"),
        ("javascript:alert(1)", "/"),
    ],
)
async def test_a_login_leads_to_the_page_that_was_asked_for_and_to_no_other_site(
    accounts: None, bob: User, visitor: Browser, asked_for: str, shown: str
) -> None:
    assert await log_in(visitor, next=asked_for) == (302, shown)
    assert (await visitor.get("/")).status_code == 200


async def test_the_page_that_was_asked_for_survives_a_wrong_password(
    accounts: None, bob: User, visitor: Browser
) -> None:
    answer = await visitor.send("/ui/login", {"username": "bob", "password": "another", "next": "/c/talk"})
    assert 'name="next" value="/c/talk"' in answer.text


async def test_a_password_is_never_shown_again(accounts: None, bob: User, visitor: Browser) -> None:
    answer = await visitor.send("/ui/login", {"username": "bob", "password": "another one"})
    assert "another one" not in answer.text


async def test_a_logout_by_a_link_does_nothing(accounts: None, bob: User, visitor: Browser) -> None:
    await log_in(visitor)
    assert (await visitor.get("/ui/logout")).status_code == 405
    assert (await visitor.get("/")).status_code == 200


async def test_a_logout_by_its_form_ends_the_login_and_leads_to_the_next(
    accounts: None, bob: User, visitor: Browser
) -> None:
    await log_in(visitor)
    assert (await visitor.send("/ui/logout")).headers["location"] == "/ui/login"
    assert (await visitor.get("/")).status_code == 302


@pytest.mark.parametrize("is_key", [True, False])
async def test_a_socket_ends_after_its_logout(
    accounts: None,
    server_key: None,
    quick_checks: None,
    conversation: ConversationRef,
    visitor: Browser,
    dial: Dial,
    bob: User,
    is_key: bool,
) -> None:
    await (give_key(visitor) if is_key else log_in(visitor))
    client = await dial("/ws/conversations", headers=visitor.headers)
    await client.until("hello")
    await visitor.send("/ui/logout")
    assert (await client.closed()).code == 4401


async def test_who_guesses_passwords_too_often_has_to_wait_though_the_next_is_right(
    accounts: None, bob: User, visitor: Browser
) -> None:
    for _ in range(login_throttle.GUESSES_MAX):
        assert WRONG_PASSWORD in (await log_in(visitor, password="another"))[1]
    status, said = await log_in(visitor)
    assert (status, login_throttle.TOO_MANY in said) == (429, True)


async def test_who_has_few_guesses_left_is_told_how_many_and_then_what_to_do(
    accounts: None, bob: User, visitor: Browser
) -> None:
    said = [(await log_in(visitor, password="another"))[1] for _ in range(login_throttle.GUESSES_MAX + 1)]
    told = [[words for words in ATTEMPTS_LEFT if words in each] for each in said]
    assert told == [[]] * 6 + [[words] for words in ATTEMPTS_LEFT] + [[]]
    assert "Wait five minutes" in said[-1]
    assert "ask the administrator of this server" in said[-1]


ATTEMPTS_LEFT = ["3 attempts left", "2 attempts left", "1 attempt left", "That was the last attempt"]


@pytest.mark.parametrize("door", [LOGIN, ADMIN_LOGIN])
async def test_where_everybody_is_let_in_nobody_is_asked_for_a_password(
    alice: User, visitor: Browser, door: str
) -> None:
    answer = await visitor.get(f"{door}?next=/settings")
    assert (answer.status_code, answer.headers["location"].startswith(("/settings", "/admin/"))) == (
        302,
        True,
    )


async def test_where_everybody_is_let_in_the_admin_offers_no_way_out_and_no_password(
    alice: User, visitor: Browser
) -> None:
    first = await visitor.get("/admin/")
    assert ("Log out" in words(first), "Change password" in words(first)) == (False, False)
    for answer in (await visitor.get("/admin/password_change/"), await visitor.send("/admin/logout/")):
        assert (answer.status_code, answer.headers["location"]) == (302, "/admin/")


async def test_staff_with_a_password_change_it_and_log_out_in_the_admin(
    accounts: None, alice: User, visitor: Browser
) -> None:
    await astore.call(set_password, alice)
    await log_in(visitor, username=alice.username)
    first = await visitor.get("/admin/")
    assert ("Log out" in words(first), "Change password" in words(first)) == (True, True)
    assert "Old password" in words(await visitor.get("/admin/password_change/"))
    await visitor.send("/admin/logout/")
    assert (await visitor.get("/admin/")).status_code == 302


@pytest.mark.parametrize(
    ("guessed_at", "asked_at"), [(ADMIN_LOGIN, ADMIN_LOGIN), (ADMIN_LOGIN, LOGIN), (LOGIN, ADMIN_LOGIN)]
)
async def test_guesses_at_the_admins_door_and_at_the_pages_count_as_one(
    accounts: None, alice: User, visitor: Browser, guessed_at: str, asked_at: str
) -> None:
    await astore.call(set_password, alice)
    for _ in range(login_throttle.GUESSES_MAX):
        status, _ = await log_in(visitor, door=guessed_at, password="another", username=alice.username)
        assert status == 200
    status, said = await log_in(visitor, door=asked_at, username=alice.username)
    assert (status, login_throttle.TOO_MANY in said) == (429, True)


async def test_staff_come_in_at_the_admins_door_and_others_do_not(
    accounts: None, alice: User, bob: User, visitor: Browser
) -> None:
    await astore.call(set_password, alice)
    assert (await log_in(visitor, door=ADMIN_LOGIN))[0] == 200
    assert (await visitor.get("/")).status_code == 302
    assert await log_in(visitor, door=ADMIN_LOGIN, username=alice.username, next="/admin/") == (
        302,
        "/admin/",
    )
    assert (await visitor.get("/admin/")).status_code == 200


async def test_who_guesses_does_not_keep_others_out(accounts: None, bob: User, visitor: Browser) -> None:
    for _ in range(login_throttle.GUESSES_MAX + 1):
        await log_in(visitor, password="another")
    other = Browser("192.0.2.7")
    assert (await log_in(other))[0] == 302
    await other.http.aclose()


@pytest.mark.parametrize(
    ("address", "other", "is_kept_out"),
    [
        ("2001:db8::7", "2001:db8::8:9", True),  # who has one has a whole network of them
        ("2001:db8::7", "2001:db8:0:1::7", False),
        ("::ffff:192.0.2.7", "192.0.2.7", True),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.8", False),
    ],
)
async def test_a_network_of_one_subscriber_counts_as_one_address(
    accounts: None, bob: User, address: str, other: str, is_kept_out: bool
) -> None:
    first, second = Browser(address), Browser(other)
    for _ in range(login_throttle.GUESSES_MAX):
        await log_in(first, password="another")
    assert (await log_in(second))[0] == (429 if is_kept_out else 302)
    await first.http.aclose()
    await second.http.aclose()


async def test_who_tries_many_names_has_to_wait_as_well(accounts: None, bob: User, visitor: Browser) -> None:
    for number in range(login_throttle.ADDRESS_GUESSES_MAX):
        assert WRONG_PASSWORD in (await log_in(visitor, username=f"bob{number}"))[1]
    for name in ("bob", "bob0", "another"):
        status, said = await log_in(visitor, username=name)
        assert (status, login_throttle.TOO_MANY in said) == (429, True)


@pytest.mark.slow
async def test_other_names_in_between_do_not_begin_the_count_anew(
    accounts: None, bob: User, visitor: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_throttle, "ADDRESS_GUESSES_MAX", 1000)
    for _ in range(login_throttle.GUESSES_MAX):
        await log_in(visitor, password="another")
    for number in range(400):  # a cache in memory keeps 300 things if nothing else is said
        await log_in(visitor, username=f"bob{number}")
    assert (await log_in(visitor))[0] == 429


async def test_a_right_password_in_between_leaves_what_was_guessed_at_others(
    accounts: None, alice: User, bob: User, visitor: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_throttle, "ADDRESS_GUESSES_MAX", 4)
    for number in range(3):
        assert (await log_in(visitor))[0] == 302
        assert (await log_in(visitor, username=f"bob{number}"))[0] == 200
    assert (await log_in(visitor))[0] == 302
    assert [(await log_in(visitor, username="another"))[0] for _ in range(2)] == [200, 429]


async def test_a_right_password_begins_the_count_anew(accounts: None, bob: User, visitor: Browser) -> None:
    for _ in range(2):
        for _ in range(login_throttle.GUESSES_MAX - 1):
            await log_in(visitor, password="another")
        assert (await log_in(visitor))[0] == 302


# The server's key


async def test_in_local_mode_the_login_leads_to_the_key_and_keeps_the_page_that_was_asked_for(
    server_key: None, visitor: Browser
) -> None:
    answer = await visitor.get("/ui/login?next=/c/talk%3Fafter%3D7")
    assert (answer.status_code, answer.headers["location"]) == (302, "/ui/key?next=%2Fc%2Ftalk%3Fafter%3D7")


async def test_in_local_mode_the_admins_login_leads_to_the_key(server_key: None, visitor: Browser) -> None:
    answer = await visitor.get("/admin/login/?next=/admin/auth/user/")
    assert answer.headers["location"] == "/ui/key?next=%2Fadmin%2Fauth%2Fuser%2F"


async def test_with_accounts_the_admin_asks_for_a_password(
    accounts: None, server_key: None, visitor: Browser
) -> None:
    assert (await visitor.get("/admin/login/")).status_code == 200


async def test_with_accounts_either_way_leads_to_the_other(
    accounts: None, server_key: None, visitor: Browser
) -> None:
    assert 'href="/ui/key?next=%2Fc%2Ftalk"' in (await visitor.get("/ui/login?next=/c/talk")).text
    assert 'href="/ui/login?next=%2Fc%2Ftalk"' in (await visitor.get("/ui/key?next=/c/talk")).text


async def test_without_a_key_nobody_is_asked_for_one(
    visitor: Browser, configured: Callable[..., None]
) -> None:
    assert (await visitor.get("/ui/key")).headers["location"] == "/"
    configured(auth="accounts")
    assert (await visitor.get("/ui/key")).headers["location"] == "/ui/login"
    assert "/ui/key" not in (await visitor.get("/ui/login")).text


@pytest.mark.parametrize("mode", ["local", "accounts"])
async def test_the_key_opens_pages_rest_and_sockets_until_the_logout(
    request: pytest.FixtureRequest,
    server_key: None,
    conversation: ConversationRef,
    visitor: Browser,
    dial: Dial,
    mode: str,
) -> None:
    if mode == "accounts":
        request.getfixturevalue("accounts")
    assert await give_key(visitor, next="/c/talk") == (302, "/c/talk")
    for path in ("/c/talk", f"{NATIVE}/talk", "/admin/"):
        assert (await visitor.get(path)).status_code == 200
    client = await dial("/ws/conversations/talk", headers=visitor.headers)
    assert (await client.receive())["type"] == "hello"


@pytest.mark.parametrize("mode", ["local", "accounts"])
async def test_another_key_ends_the_sessions_of_the_one_before(
    request: pytest.FixtureRequest,
    server_key: None,
    quick_checks: None,
    configured: Callable[..., None],
    conversation: ConversationRef,
    visitor: Browser,
    dial: Dial,
    mode: str,
) -> None:
    if mode == "accounts":
        request.getfixturevalue("accounts")
    await give_key(visitor)
    client = await dial("/ws/conversations/talk", headers=visitor.headers)
    await client.until("hello")
    configured(session_api_key="another key")
    assert (await client.closed()).code == 4401
    assert (await visitor.get(f"{NATIVE}/talk")).status_code == 401
    assert (await visitor.get("/")).status_code == 302


@pytest.mark.parametrize("path", ["/", NATIVE, "/admin/"])
async def test_another_key_ends_a_session_at_each_door(
    server_key: None, configured: Callable[..., None], visitor: Browser, path: str
) -> None:
    await give_key(visitor)
    configured(session_api_key="another key")
    assert (await visitor.get(path)).status_code in (302, 401)


async def test_with_accounts_no_key_ends_the_sessions_of_the_one_that_was(
    accounts: None, server_key: None, configured: Callable[..., None], visitor: Browser
) -> None:
    await give_key(visitor)
    configured(session_api_key=None)
    assert (await visitor.get("/")).status_code == 302


async def test_another_key_leaves_logins_by_password_alone(
    accounts: None, server_key: None, configured: Callable[..., None], bob: User, visitor: Browser
) -> None:
    await give_key(visitor)
    await log_in(visitor)
    configured(session_api_key="another key")
    assert (await visitor.get("/")).status_code == 200


async def test_a_session_of_the_key_outlives_a_new_secret_key(
    server_key: None, visitor: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    await give_key(visitor)
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [settings.SECRET_KEY])
    monkeypatch.setattr(settings, "SECRET_KEY", "another key of at least 32 characters")
    assert (await visitor.get("/")).status_code == 200


async def test_neither_the_session_nor_the_log_has_the_key(
    server_key: None, visitor: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        await give_key(visitor, key="wrong horse")
        await give_key(visitor)
    [session] = await astore.call(lambda: list(Session.objects.all()))
    assert KEY not in str(session.get_decoded())
    assert not any(key in caplog.text for key in (KEY, "wrong horse"))


async def test_a_wrong_key_is_told_and_not_shown_again(server_key: None, visitor: Browser) -> None:
    status, said = await give_key(visitor, key="wrong horse")
    assert (status, WRONG_KEY in said, "wrong horse" in said) == (200, True, False)
    assert (await visitor.get("/")).status_code == 302


@pytest.mark.parametrize(
    ("key", "reason"), [("", "Enter the key."), ("k" * 1001, "at most 1000"), ("a\0b", "ull")]
)
async def test_what_is_no_key_is_told(server_key: None, visitor: Browser, key: str, reason: str) -> None:
    status, said = await give_key(visitor, key=key)
    assert (status, reason in said) == (200, True)


async def test_a_key_that_stands_for_nobody_says_what_to_do(
    accounts: None, server_key: None, visitor: Browser
) -> None:
    await astore.call(User.objects.all().delete)
    status, said = await give_key(visitor)
    assert (status, "createsuperuser" in said) == (200, True)


async def test_who_guesses_keys_too_often_has_to_wait_though_the_next_is_right(
    server_key: None, visitor: Browser
) -> None:
    for _ in range(login_throttle.GUESSES_MAX):
        assert WRONG_KEY in (await give_key(visitor, key="wrong"))[1]
    status, said = await give_key(visitor)
    assert (status, login_throttle.TOO_MANY in said) == (429, True)


async def test_a_key_needs_the_token_of_its_form(server_key: None, visitor: Browser) -> None:
    assert (await visitor.http.post("/ui/key", data={"key": KEY})).status_code == 403


# Another password


CHANGED = {
    "old_password": PASSWORD,
    "new_password1": "a better password",
    "new_password2": "a better password",
}


async def change_password(visitor: Browser, **form: str) -> tuple[int, str]:
    """Send the form of another password; return the status, and where it leads or what it says."""
    answer = await visitor.send("/settings/password", {**CHANGED, **form}, page="/settings")
    return answer.status_code, answer.headers.get("location") or words(answer)


@pytest.fixture
async def logged_in(accounts: None, bob: User, visitor: Browser) -> Browser:
    """A browser that bob, who is no staff, has logged in with his password."""
    await astore.call(set_password, bob)
    await log_in(visitor)
    return visitor


async def test_a_changed_password_is_the_one_that_lets_in(logged_in: Browser) -> None:
    assert await change_password(logged_in) == (302, "/settings#account")
    assert "Password changed." in words(await logged_in.get("/settings"))
    assert WRONG_PASSWORD in (await log_in(Browser()))[1]
    assert (await log_in(Browser(), password="a better password"))[0] == 302


async def test_a_changed_password_ends_the_users_other_sessions(logged_in: Browser) -> None:
    other = Browser()
    await log_in(other)
    await change_password(logged_in)
    statuses = [(await each.get("/settings")).status_code for each in (logged_in, other)]
    assert statuses == [200, 302]


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ({"old_password": "another"}, "The current password is wrong."),
        ({"new_password2": "a better passwort"}, "The two new passwords don't match."),
        ({"new_password1": "short", "new_password2": "short"}, "This password is too short."),
    ],
)
async def test_a_password_that_cannot_be_changed_stays_and_says_why(
    logged_in: Browser, form: dict[str, str], said: str
) -> None:
    status, page = await change_password(logged_in, **form)
    assert (status, said in page) == (400, True)
    assert (await log_in(Browser()))[0] == 302


@pytest.mark.parametrize(
    ("form", "field", "said"),
    [
        ({"new_password1": "password", "new_password2": "password"}, "new_password1", "too common"),
        ({"new_password2": "a better passwort"}, "new_password2", "don't match"),
    ],
)
async def test_what_is_wrong_with_a_new_password_stands_below_the_field_to_be_mended(
    logged_in: Browser, form: dict[str, str], field: str, said: str
) -> None:
    page = await logged_in.send("/settings/password", {**CHANGED, **form}, page="/settings")
    beside = dict(re.findall(r'<p class="error" id="password-(.*?)_error">(.*?)</p>', page.text))
    assert (list(beside), said in html.unescape(beside[field])) == ([field], True)


async def test_guesses_at_the_current_password_count_as_those_at_the_login(logged_in: Browser) -> None:
    for _ in range(login_throttle.GUESSES_MAX):
        await change_password(logged_in, old_password="another")
    status, said = await change_password(logged_in)
    assert (status, login_throttle.TOO_MANY in said) == (429, True)


async def test_who_has_logged_in_without_a_password_is_offered_none(alice: User, visitor: Browser) -> None:
    assert "Change password" not in words(await visitor.get("/settings"))
    assert await change_password(visitor) == (302, "/settings#account")

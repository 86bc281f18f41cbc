"""Access that is taken away is gone: open sockets take nothing more and close, whatever took it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any

import httpx
import pytest
from django.contrib.auth import authenticate
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import User
from django.contrib.sessions.backends.db import SessionStore
from django.contrib.sessions.models import Session
from django.db import OperationalError, connection, connections
from django.http import HttpRequest
from django.test.utils import override_settings
from django.utils import timezone

from conversations.models import ConversationRef, Event, Version
from conversations.store import creation, deletion
from convserver.web.settings_pages.password import PasswordForm
from sessions_app import astore
from sessions_app.identity import conversation_keys
from sessions_app.live import hub
from sessions_app.models import AccessRemoval, AgentLoop, ApiToken, ConversationKey, Grant, Scope
from tests.conftest import Connect, Dial
from tests.doors.pages.test_web_login import CHANGED, PASSWORD, set_password
from tests.doors.test_access import bearer, login_cookie
from tests.support.people.clients import Client
from tests.support.people.scripted_agent import until
from tests.support.wires.v0_socket import V0Client
from tests.support.wires.v1_socket import ID, auth, events_path, message, session_path

PROMPTLY_S = 5.0
"""Far less than the slow checks take, and more than a busy machine does."""
HEX = ID.replace("-", "")

End = Callable[[], object]


@pytest.fixture
def talk(alice: User) -> ConversationRef:
    """A conversation of alice's that every wire can join."""
    return creation.create(alice, conversation_id=ID, version=Version.V1)


@pytest.fixture
def token(alice: User) -> str:
    return ApiToken.issue(alice.pk, "laptop")[1]


@pytest.fixture
def key(talk: ConversationRef) -> str:
    return conversation_keys.key_of(talk)


def revoke_tokens() -> None:
    for row in ApiToken.objects.valid():
        row.revoke()


def change_password() -> None:
    user = User.objects.get(username="local")
    user.set_password("another password")
    user.save()


def deactivate() -> None:
    user = User.objects.get(username="local")
    user.is_active = False
    user.save(update_fields=["is_active"])


def log_out_everywhere() -> None:
    Session.objects.all().delete()


def expire_tokens() -> None:
    ApiToken.objects.update(expires_at=timezone.now())


def rotate(talk: ConversationRef) -> None:
    conversation_keys.rotate(talk)


def at_once(end: End) -> None:
    """Take access away while this event loop stands still: what it has to do comes after that."""

    def work() -> None:
        end()
        connections.close_all()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()


async def said() -> list[str]:
    return await astore.call(lambda: list(Event.objects.values_list("text", flat=True)))


MESSAGE = {"type": "message", "text": "late"}


@dataclass
class Opened:
    """A socket that is open."""

    client: Client | V0Client
    frame: dict[str, Any]
    """What it would say."""
    expected_code: int | None
    """The code that it is to close with; None for a packet that says so."""

    @property
    def by_frames(self) -> Client:
        """The client of a socket whose frames are JSON."""
        assert isinstance(self.client, Client)
        return self.client

    async def say_late(self) -> None:
        if isinstance(self.client, V0Client):
            await self.client.say("late")
        else:
            await self.client.send(self.frame)

    async def close_code(self) -> int | None:
        if isinstance(self.client, V0Client):
            assert (await self.client.disconnected()).by_packet
            return None
        return (await self.client.closed()).code


@pytest.fixture
def opened(
    talk: ConversationRef, token: str, key: str, alice: User, dial: Dial, connect: Connect
) -> Callable[..., Awaitable[Opened]]:
    """Open a socket by a credential."""

    async def open_(door: str, by: str) -> Opened:
        headers = {"x-session-api-key": key if by == "key" else token}
        if by == "login":
            headers = {"cookie": await astore.call(login_cookie, alice)}
        if door == "v0":
            return Opened(await connect(HEX, headers=headers), {}, None)
        path = {
            "native": f"/ws/conversations/{HEX}",
            "list": "/ws/conversations",
            "events": events_path(),
            "session": session_path(),
        }[door]
        client = await dial(path, headers=headers)
        await client.receive()
        is_native = door in ("native", "list")
        return Opened(client, MESSAGE if is_native else message("late"), 4401 if is_native else 4001)

    return open_


ENDS: dict[str, dict[str, Callable[[ConversationRef], object]]] = {
    "token": {
        "revoked": lambda talk: revoke_tokens(),
        "user deactivated": lambda talk: deactivate(),
        "expired": lambda talk: expire_tokens(),
    },
    "login": {
        "password changed": lambda talk: change_password(),
        "logged out": lambda talk: log_out_everywhere(),
        "user deactivated": lambda talk: deactivate(),
    },
    "key": {
        "token of its owner revoked": lambda talk: revoke_tokens(),
        "password changed": lambda talk: change_password(),
        "user deactivated": lambda talk: deactivate(),
        "rotated": rotate,
        "all of its owner's rotated": lambda talk: conversation_keys.rotate_all(talk.owner_id),
    },
}
"""What takes access away, by the credential that a socket was opened with."""
DOORS = {
    "token": ["native", "list", "events", "session", "v0"],
    "login": ["native", "list", "events", "session", "v0"],
    "key": ["events", "session"],
}
BY_END = [(by, end) for by, ends in ENDS.items() for end in ends]


@pytest.mark.parametrize(("by", "end"), BY_END)
@pytest.mark.slow(on="postgresql")
async def test_an_open_socket_closes_at_once_when_its_access_ends(
    accounts: None,
    opened: Callable[..., Awaitable[Opened]],
    talk: ConversationRef,
    monkeypatch: pytest.MonkeyPatch,
    by: str,
    end: str,
) -> None:
    if end == "expired":  # which nobody announces
        monkeypatch.setattr(hub, "POLL_S", 0.05)
    sockets = {door: await opened(door, by) for door in DOORS[by]}
    await astore.call(ENDS[by][end], talk)
    async with asyncio.timeout(PROMPTLY_S):
        codes = {door: await socket.close_code() for door, socket in sockets.items()}
    assert codes == {door: socket.expected_code for door, socket in sockets.items()}


@pytest.mark.parametrize(("by", "end"), [each for each in BY_END if each[1] != "expired"])
@pytest.mark.slow(on="postgresql")
async def test_a_frame_that_comes_after_the_end_of_access_is_not_taken(
    accounts: None, opened: Callable[..., Awaitable[Opened]], talk: ConversationRef, by: str, end: str
) -> None:
    sockets = [await opened(door, by) for door in DOORS[by] if door != "list"]
    for socket in sockets:
        await socket.say_late()  # it waits in the socket
    at_once(partial(ENDS[by][end], talk))
    assert [await socket.close_code() for socket in sockets] == [socket.expected_code for socket in sockets]
    assert "late" not in await said()


async def test_a_key_that_was_made_anew_closes_the_sockets_of_the_earlier_one(
    accounts: None, opened: Callable[..., Awaitable[Opened]], talk: ConversationRef
) -> None:
    by_key, by_token = [[await opened(door, by) for door in ("events", "session")] for by in ("key", "token")]
    await astore.call(rotate, talk)
    assert [await socket.close_code() for socket in by_key] == [4001, 4001]
    for socket in by_token:
        await socket.say_late()
    await until(lambda: Event.objects.filter(text="late").count() == 2)


@pytest.mark.parametrize("door", ["events", "session"])
async def test_a_key_that_its_owner_rotates_by_rest_closes_the_sockets_that_it_opened_and_no_others(
    accounts: None,
    opened: Callable[..., Awaitable[Opened]],
    rest: httpx.AsyncClient,
    talk: ConversationRef,
    key: str,
    token: str,
    door: str,
) -> None:
    by_key = await opened(door, "key")
    by_token = (await opened("native", "token")).by_frames
    headers = bearer(token)
    answer = await rest.post(f"/api/native/conversations/{HEX}/rotate-key", headers=headers)
    assert (answer.status_code, answer.content) == (204, b"")
    async with asyncio.timeout(PROMPTLY_S):
        assert await by_key.close_code() == by_key.expected_code
    await by_token.send({**MESSAGE, "id": 1})
    assert (await by_token.until("ack"))["id"] == 1
    shown = await rest.get("/api/v1/app-conversations", params={"ids": ID}, headers=headers)
    new = shown.json()[0]["session_api_key"]
    assert new != key
    agent = f"/agent/api/conversations/{ID}"
    answers = [await rest.get(agent, headers={"x-session-api-key": each}) for each in (key, new)]
    assert [each.status_code for each in answers] == [401, 200]


async def test_the_key_of_a_deleted_conversation_is_not_rotated(
    accounts: None, rest: httpx.AsyncClient, talk: ConversationRef, token: str
) -> None:
    await astore.call(deletion.soft_delete, talk)
    path = f"/api/native/conversations/{HEX}/rotate-key"
    assert (await rest.post(path, headers=bearer(token))).status_code == 404
    assert not await astore.call(ConversationKey.objects.exists)


@pytest.mark.parametrize("lost", ["is_staff", "is_superuser"])
async def test_a_right_of_staff_that_is_taken_away_has_open_sockets_check(
    accounts: None, opened: Callable[..., Awaitable[Opened]], alice: User, lost: str
) -> None:
    client = (await opened("native", "token")).by_frames

    def take_away() -> None:
        setattr(alice, lost, False)
        alice.save()

    await astore.call(take_away)
    await client.send({**MESSAGE, "id": 1})
    assert (await client.until("ack"))["id"] == 1


async def test_a_token_that_is_revoked_closes_no_socket_of_another_user(
    accounts: None, opened: Callable[..., Awaitable[Opened]], bob: User
) -> None:
    client = (await opened("native", "token")).by_frames
    await astore.call(lambda: ApiToken.issue(bob.pk, "phone")[0].revoke())
    await client.send({**MESSAGE, "id": 1})
    assert (await client.until("ack"))["id"] == 1


async def test_a_removal_whose_hint_was_lost_is_found_by_the_poll(
    accounts: None, opened: Callable[..., Awaitable[Opened]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub, "POLL_S", 0.05)
    socket = await opened("native", "token")

    def revoke_elsewhere() -> None:
        """As another process does whose hints do not arrive."""
        monkeypatch.setattr("sessions_app.models.access.announce_removal", lambda user_id: None)
        revoke_tokens()

    await astore.call(revoke_elsewhere)
    assert await socket.close_code() == socket.expected_code


# Keys of conversations


def opens(key: str) -> bool:
    return conversation_keys.opened_by(key) is not None


@pytest.mark.parametrize("end", [revoke_tokens, change_password])
def test_the_keys_of_all_conversations_are_made_anew_when_their_owner_loses_access(
    token: str, key: str, talk: ConversationRef, end: End
) -> None:
    assert opens(key)
    end()
    assert not opens(key)
    assert opens(conversation_keys.key_of(talk))


def test_the_key_of_an_owner_who_was_closed_and_opened_again_is_another(
    key: str, talk: ConversationRef, alice: User
) -> None:
    for is_active in (False, True):
        alice.is_active = is_active
        alice.save()
    assert not opens(key)
    assert opens(conversation_keys.key_of(talk))


def test_a_rotated_key_leaves_the_other_conversations_theirs(
    key: str, talk: ConversationRef, alice: User
) -> None:
    other = conversation_keys.key_of(creation.create(alice))
    new = conversation_keys.rotate(talk)
    assert [opens(each) for each in (key, new, other)] == [False, True, True]


NEWER_HASHER = ["tests.support.data.hashers.WatchedHasher", "django.contrib.auth.hashers.MD5PasswordHasher"]


async def test_a_login_that_hashes_the_password_anew_takes_no_access_away(
    accounts: None, opened: Callable[..., Awaitable[Opened]], bob: User, dial: Dial
) -> None:
    def owned() -> tuple[ConversationRef, str, str]:
        talk = creation.create(bob, version=Version.V1)
        return talk, conversation_keys.key_of(talk), ApiToken.issue(bob.pk, "laptop")[1]

    talk, key, token = await astore.call(owned)
    client = await dial(f"/ws/conversations/{talk.public_id}", token=token)
    await client.until("replay_complete")
    before = await astore.call(lambda: User.objects.get(pk=bob.pk).password)
    with override_settings(PASSWORD_HASHERS=NEWER_HASHER):
        assert await astore.call(lambda: authenticate(username="bob", password="bob's password")) == bob
    assert await astore.call(lambda: User.objects.get(pk=bob.pk).password) != before
    assert await astore.call(opens, key)
    assert not await astore.call(AccessRemoval.objects.exists)
    await client.send({**MESSAGE, "id": 1})
    assert (await client.until("ack"))["id"] == 1


def test_a_hash_that_somebody_else_has_written_is_a_new_password(
    key: str, talk: ConversationRef, alice: User
) -> None:
    alice.set_password("a password")
    alice.save()
    key = conversation_keys.key_of(talk)
    alice.password = make_password("another password")
    alice.save(update_fields=["password"])
    assert not opens(key)


def used(talk: ConversationRef, *, days_ago: float) -> None:
    ConversationKey.objects.filter(pk=talk.pk).update(used_at=timezone.now() - timedelta(days=days_ago))


def issued(talk: ConversationRef, *, days_ago: int, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return the key that was given out so long ago."""
    now = timezone.now()
    with monkeypatch.context() as past:
        past.setattr(timezone, "now", lambda: now - timedelta(days=days_ago))
        return conversation_keys.key_of(talk)


def test_a_key_that_is_not_used_expires(
    talk: ConversationRef, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(conversation_key_days=10)
    old, older = (issued(talk, days_ago=days, monkeypatch=monkeypatch) for days in (9, 12))
    assert [opens(older), opens(old)] == [False, True]


def test_a_key_in_use_stays_the_same_and_lives_on(
    talk: ConversationRef, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(conversation_key_days=10)
    key = issued(talk, days_ago=9, monkeypatch=monkeypatch)
    assert opens(key)
    ConversationKey.objects.update(issued_on=0)  # since long ago
    assert conversation_keys.key_of(talk) == issued(talk, days_ago=0, monkeypatch=monkeypatch)
    first = conversation_keys.key_of(talk)
    used(talk, days_ago=9)
    assert opens(first)
    used(talk, days_ago=11)
    assert not opens(first)


def test_a_key_that_has_expired_stays_so_when_a_new_one_is_used(
    talk: ConversationRef, configured: Callable[..., None]
) -> None:
    configured(conversation_key_days=10)
    assert opens(conversation_keys.key_of(talk))
    ConversationKey.objects.update(issued_on=0)
    old = conversation_keys.key_of(talk)
    used(talk, days_ago=11)
    new = conversation_keys.key_of(talk)
    assert [opens(each) for each in (new, old)] == [True, False]


def test_keys_never_expire_where_the_setting_is_none(
    talk: ConversationRef, configured: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    configured(conversation_key_days=None)
    assert opens(issued(talk, days_ago=9_000, monkeypatch=monkeypatch))


def test_the_use_of_a_key_is_written_only_now_and_then(
    talk: ConversationRef, key: str, django_assert_num_queries: Any
) -> None:
    assert opens(key)
    with django_assert_num_queries(1):
        assert opens(key)
    used(talk, days_ago=1)
    assert opens(key)
    used_at = ConversationKey.objects.get().used_at
    assert used_at is not None
    assert timezone.now() - used_at < timedelta(hours=1)


def test_a_key_without_a_day_of_the_past_opens_nothing(key: str, subtests: pytest.Subtests) -> None:
    for day in ["", "zz", "-1", "fffff", "٣"]:
        with subtests.test(day=day):
            begin, _, signature = key.rpartition("_")
            assert not opens(f"{begin}_{day}.{signature.partition('.')[2]}")


# Scopes of tokens, on the sockets of the OpenHands wires


@pytest.fixture
def reader(alice: User) -> str:
    """A token that may read and nothing else."""
    return ApiToken.issue(alice.pk, "reader", Grant(scopes=[Scope.READ]))[1]


@pytest.fixture
def writer(alice: User) -> str:
    """A token that may do anything but read."""
    return ApiToken.issue(alice.pk, "writer", Grant(scopes=[Scope.WRITE, Scope.RUN, Scope.ADMIN]))[1]


@pytest.mark.parametrize("path", [events_path(), session_path()])
async def test_a_v1_socket_takes_no_message_by_a_token_that_only_reads(
    accounts: None, talk: ConversationRef, reader: str, dial: Dial, path: str
) -> None:
    client = await dial(path)
    await client.send(auth(reader))
    await client.send(message("hello"))
    while (frame := await client.receive())["kind"] != "ServerErrorEvent":
        pass
    assert (frame["code"], frame["detail"]) == (
        "ScopeTooSmall",
        "This needs a token with the scope `run`.",
    )
    assert await said() == []


async def test_a_v0_client_with_a_token_that_only_reads_starts_nothing_and_says_nothing(
    accounts: None, talk: ConversationRef, reader: str, connect: Connect
) -> None:
    client = await connect(HEX, session_api_key=reader)
    answer = await client.asked({"action": "message", "args": {"content": "hello"}})
    assert answer == {"success": False, "error": "This needs a token with the scope `run`."}
    assert not await astore.call(lambda: AgentLoop.objects.exists())


# Tokens that expire


async def test_a_token_that_expires_closes_its_sockets_and_ends_the_keys_that_it_was_shown(
    accounts: None,
    opened: Callable[..., Awaitable[Opened]],
    talk: ConversationRef,
    key: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hub, "POLL_S", 0.05)
    socket = await opened("native", "token")
    assert await astore.call(opens, key)
    await astore.call(lambda: ApiToken.objects.update(expires_at=timezone.now()))
    assert await socket.close_code() == socket.expected_code
    assert not await astore.call(opens, key)


async def test_a_socket_closes_when_its_token_expires_and_takes_nothing_after_that(
    accounts: None, talk: ConversationRef, alice: User, dial: Dial
) -> None:
    end = timezone.now() + timedelta(seconds=0.5)
    token = (await astore.call(ApiToken.issue, alice.pk, "short", Grant(expires_at=end)))[1]
    client = await dial(f"/ws/conversations/{HEX}", token=token)
    async with asyncio.timeout(PROMPTLY_S):
        assert (await client.closed()).code == 4401
    assert timezone.now() >= end


def test_a_key_that_an_expired_token_was_shown_opens_nothing_before_anybody_has_looked(
    talk: ConversationRef, token: str, key: str
) -> None:
    ApiToken.objects.update(expires_at=timezone.now())
    assert not opens(key)
    assert ApiToken.objects.get().has_expired
    assert opens(conversation_keys.key_of(talk))


# What takes access away is stored as a whole


def refuse_removals(execute: Any, sql: str, params: Any, many: bool, context: Any) -> Any:
    """Fail where a removal of access would be stored, as if the process ended there."""
    if "sessions_app_accessremoval" in sql:
        raise OperationalError("interrupted")
    return execute(sql, params, many, context)


def interrupted(end: End) -> None:
    with connection.execute_wrapper(refuse_removals), pytest.raises(OperationalError, match="interrupted"):
        end()


def test_the_end_of_an_expired_token_that_was_interrupted_is_made_up_for(
    talk: ConversationRef, token: str, key: str
) -> None:
    ApiToken.objects.update(expires_at=timezone.now())
    interrupted(ApiToken.objects.end_lapsed)
    assert not opens(key)


def test_a_token_whose_revocation_was_interrupted_is_not_revoked(token: str) -> None:
    interrupted(revoke_tokens)
    assert ApiToken.objects.valid().exists()


def test_a_change_of_password_that_was_interrupted_changes_nothing(alice: User) -> None:
    set_password(alice)
    request = HttpRequest()
    request.user, request.session = alice, SessionStore()
    form = PasswordForm(request, CHANGED)
    assert form.is_valid()
    interrupted(form.change)
    alice.refresh_from_db()
    assert alice.check_password(PASSWORD)

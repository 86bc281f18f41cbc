"""Passwords are costly to compute: how many at a time, for whom, and who waits."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
from django.contrib.auth.hashers import Argon2PasswordHasher
from django.contrib.auth.models import User
from django.test import override_settings

from convserver.asgi import application
from convserver.passwords import login_throttle
from convserver.passwords import queue as password_queue
from convserver.passwords.hashers import COMPUTATIONS_MAX, NICENESS, BoundedArgon2PasswordHasher
from sessions_app import astore
from tests.pure.test_configuration import ACCOUNTS
from tests.support.data import hashers
from tests.support.people.clients import HTTP, WAIT_S, Server
from tests.support.people.web_browser import Browser
from tests.support.wires.network import wait_until

pytestmark = pytest.mark.one_engine

PASSWORD = "bob's password"
LOGIN = "/ui/login"
MEGABYTE = 1024 * 1024
GROWTH_MAX_BYTES = 400 * MEGABYTE
"""Two computations, each in 100 MB, and what the allocator keeps of them."""
SERVED_WITHIN_S = 5.0
"""Half of what others waited when every log-in computed at once."""


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Iterator[hashers.Watch]:
    """Watch the passwords that are computed."""
    watch = hashers.Watch()
    monkeypatch.setattr(hashers, "watch", watch)
    with override_settings(PASSWORD_HASHERS=["tests.support.data.hashers.WatchedHasher"]):
        yield watch
    watch.may_end.set()


def set_password(user: User) -> None:
    user.set_password(PASSWORD)
    user.save()


def an_address() -> str:
    return f"10.{secrets.randbelow(256)}.{secrets.randbelow(256)}.{secrets.randbelow(256)}"


async def log_in(
    name: str = "bob", password: str = "another", *, address: str | None = None
) -> httpx.Response:
    """Send a name and a password from an address that nobody else has."""
    browser = Browser(address or an_address())
    answer = await browser.send(LOGIN, {"username": name, "password": password})
    await browser.http.aclose()
    return answer


# How many


async def test_two_passwords_are_computed_at_a_time_and_others_are_served_meanwhile(
    accounts: None, bob: User, live: None, visitor: Browser, watch: hashers.Watch
) -> None:
    watch.may_end.clear()
    tasks = [asyncio.create_task(log_in(f"name{number}")) for number in range(12)]
    await asyncio.to_thread(wait_until, lambda: watch.now == COMPUTATIONS_MAX)
    assert (await visitor.get(LOGIN)).status_code == 200
    assert (await visitor.send("/api/native/tokens")).status_code == 401
    watch.may_end.set()
    assert {(await task).status_code for task in tasks} == {200}
    assert (watch.most, watch.count) == (COMPUTATIONS_MAX, 12)


async def test_a_bounded_number_waits_and_the_others_may_come_again(
    accounts: None, bob: User, live: None, watch: hashers.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_queue, "WAITING_MAX", 3)
    watch.may_end.clear()
    tasks = [asyncio.create_task(log_in(f"name{number}")) for number in range(COMPUTATIONS_MAX + 5)]
    await asyncio.to_thread(wait_until, lambda: sum(task.done() for task in tasks) == 2)
    watch.may_end.set()
    refused = [answer for answer in await asyncio.gather(*tasks) if answer.status_code == 429]
    assert [answer.headers["retry-after"] for answer in refused] == ["5", "5"]
    assert login_throttle.BUSY in refused[0].text


async def test_one_address_leaves_places_in_the_line_to_others(
    accounts: None, bob: User, live: None, watch: hashers.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_queue, "WAITING_OF_ONE_MAX", 2)
    watch.may_end.clear()
    address = an_address()
    crowd = [
        asyncio.create_task(log_in(f"name{number}", address=address))
        for number in range(COMPUTATIONS_MAX + 5)
    ]
    await asyncio.to_thread(wait_until, lambda: sum(task.done() for task in crowd) == 3)
    other = asyncio.create_task(log_in())
    watch.may_end.set()
    assert (await other).status_code == 200
    assert sorted(answer.status_code for answer in await asyncio.gather(*crowd)) == [200] * 4 + [429] * 3


async def test_who_waits_too_long_for_a_turn_may_come_again(
    accounts: None, bob: User, live: None, watch: hashers.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_queue, "WAIT_S", 0.05)
    watch.may_end.clear()
    tasks = [asyncio.create_task(log_in(f"name{number}")) for number in range(COMPUTATIONS_MAX)]
    await asyncio.to_thread(wait_until, lambda: watch.now == COMPUTATIONS_MAX)
    assert (await log_in()).status_code == 429
    watch.may_end.set()
    await asyncio.gather(*tasks)
    assert (await log_in()).status_code == 200


async def test_who_leaves_while_their_password_is_computed_frees_no_turn_before_its_end(
    accounts: None, bob: User, live: None, watch: hashers.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(password_queue, "WAIT_S", 0.05)
    watch.may_end.clear()
    leaves = asyncio.Event()

    async def until_they_leave(scope: Any, receive: Any, send: Any) -> None:
        parts = [await receive()]
        while parts[-1]["more_body"]:
            parts.append(await receive())

        async def receive_again() -> Any:
            return parts.pop(0) if parts else await leaves.wait() and {"type": "http.disconnect"}

        await application(scope, receive_again, send)

    async def leave() -> None:
        browser = Browser()
        browser.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=until_they_leave, client=(an_address(), 1)),
            base_url=str(browser.http.base_url),
        )
        with suppress(AssertionError):  # there is no answer
            await browser.send(LOGIN, {"username": "bob", "password": "another"})

    tasks = [asyncio.create_task(leave()) for _ in range(COMPUTATIONS_MAX)]
    await asyncio.to_thread(wait_until, lambda: watch.now == COMPUTATIONS_MAX)
    leaves.set()
    await asyncio.gather(*tasks)
    async with asyncio.timeout(WAIT_S):
        assert (await log_in()).status_code == 429
    monkeypatch.setattr(password_queue, "WAIT_S", WAIT_S)
    watch.may_end.set()
    assert (await log_in()).status_code == 200
    assert watch.most == COMPUTATIONS_MAX


async def test_a_changed_password_waits_in_the_same_line(
    accounts: None, bob: User, visitor: Browser, watch: hashers.Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    await astore.call(set_password, bob)
    assert (await visitor.send(LOGIN, {"username": "bob", "password": PASSWORD})).status_code == 302
    monkeypatch.setattr(password_queue, "WAITING_MAX", 0)
    form = {"old_password": PASSWORD, "new_password1": "another one 1", "new_password2": "another one 1"}
    answer = await visitor.send("/settings/password", form, page="/settings")
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")


def test_whoever_computes_argon2_does_so_two_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    watch = hashers.Watch()
    watch.may_end.clear()

    def computed(*others: object) -> str:
        with watch:
            return "argon2"

    monkeypatch.setattr(Argon2PasswordHasher, "encode", computed)
    monkeypatch.setattr(Argon2PasswordHasher, "verify", computed)
    hasher = BoundedArgon2PasswordHasher()
    with ThreadPoolExecutor(6) as pool:
        for compute in (hasher.encode, hasher.verify) * 3:
            pool.submit(compute, "a", "b")
        wait_until(lambda: watch.now == COMPUTATIONS_MAX)
        watch.may_end.set()
    assert (watch.count, watch.most) == (6, COMPUTATIONS_MAX)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a thread has no priority of its own")
def test_argon2_takes_what_others_leave_of_the_processors(monkeypatch: pytest.MonkeyPatch) -> None:
    def computed(*others: object) -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    monkeypatch.setattr(Argon2PasswordHasher, "encode", computed)
    monkeypatch.setattr(Argon2PasswordHasher, "verify", computed)
    hasher, own = BoundedArgon2PasswordHasher(), computed()
    found: list[object] = [hasher.encode("a", "b"), hasher.verify("a", "b")]
    assert found == [NICENESS, NICENESS]
    assert computed() == own


# For whom


@pytest.mark.parametrize("state", ["unknown", "inactive", "without_password"])
async def test_an_account_that_cannot_log_in_costs_the_same_as_one_that_can(
    accounts: None, alice: User, bob: User, live: None, watch: hashers.Watch, state: str
) -> None:
    await astore.call(set_password, alice)
    watch.count = 0
    await log_in(alice.username)
    known = watch.count
    if state != "without_password":
        await astore.call(set_password, bob)
    if state == "inactive":
        await astore.call(User.objects.filter(pk=bob.pk).update, is_active=False)
    watch.count = 0
    assert (await log_in("nobody" if state == "unknown" else "bob")).status_code == 200
    assert (watch.count, known) == (1, 1)


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch, bob: User) -> str:
    """The name of an account that nobody has tried yet, and that is tried slowly after three attempts."""
    monkeypatch.setattr(login_throttle, "ACCOUNT_FREE", 3)
    monkeypatch.setattr(login_throttle, "ACCOUNT_DELAY_S", 0.2)
    monkeypatch.setattr(login_throttle, "ACCOUNT_DELAY_MAX_S", 0.3)
    return f"bob-{secrets.token_hex(8)}"


async def seconds_of(name: str, password: str = "another") -> tuple[int, float]:
    start = time.monotonic()
    answer = await log_in(name, password)
    return answer.status_code, time.monotonic() - start


async def test_after_wrong_passwords_from_any_addresses_an_account_is_tried_more_slowly(
    accounts: None, live: None, account: str
) -> None:
    first = [await seconds_of(account) for _ in range(3)]
    later = [await seconds_of(spelling) for spelling in (account, account.upper(), f" {account}")]
    assert {status for status, _ in first + later} == {200}
    assert min(seconds for _, seconds in first) < 0.2
    assert [seconds >= expected for (_, seconds), expected in zip(later, (0.2, 0.3, 0.3), strict=True)] == [
        True,
        True,
        True,
    ]


async def test_a_right_password_lets_in_after_the_delay_and_ends_it(
    accounts: None, bob: User, live: None, account: str
) -> None:
    def rename() -> None:
        bob.username = account
        set_password(bob)

    await astore.call(rename)
    for _ in range(4):
        assert (await seconds_of(account))[0] == 200
    status, seconds = await seconds_of(account, PASSWORD)
    assert (status, seconds >= 0.3) == (302, True)
    attempts = login_throttle.AccountAttempts(account)
    assert await astore.call(attempts.one_more) == 0


async def test_a_delayed_account_delays_no_other(accounts: None, live: None, account: str) -> None:
    for _ in range(4):
        await log_in(account)
    attempts = login_throttle.AccountAttempts(f"{account}2")
    assert await astore.call(attempts.one_more) == 0


# A real server


@pytest.mark.slow
def test_many_wrong_log_ins_at_once_take_little_memory_and_leave_others_served(
    server: Server, is_full: bool
) -> None:
    count = 50 if is_full else 20
    server.start(constants=None, **ACCOUNTS)
    before = peak_bytes(server)
    slowest = 0.0
    with ThreadPoolExecutor(count) as pool:
        work = [pool.submit(try_password, server, number) for number in range(count)]
        while not all(each.done() for each in work):
            start = time.monotonic()
            assert HTTP.get(f"{server.url}/alive").status_code == 200
            slowest = max(slowest, time.monotonic() - start)
    statuses = {each.result() for each in work}
    assert statuses <= {200, 429}
    assert peak_bytes(server) - before < GROWTH_MAX_BYTES
    assert slowest < SERVED_WITHIN_S


def try_password(server: Server, number: int) -> int:
    """Try a wrong password of another account from another address; return the status.

    It waits for those before it, each of which takes a core for a while.
    """
    transport = httpx.HTTPTransport(local_address=f"127.0.1.{number + 1}", verify=False)
    with httpx.Client(transport=transport, base_url=server.url, timeout=4 * WAIT_S, trust_env=False) as http:
        return http.post(
            LOGIN,
            data={"username": f"name{number}", "password": "another", "csrfmiddlewaretoken": "c" * 32},
            headers={"cookie": f"csrftoken={'c' * 32}"},
        ).status_code


def peak_bytes(server: Server) -> int:
    """Return the most memory that the server has had so far."""
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))

"""Probes: what they say, to whom, and what they answer when the database is gone."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import httpx
import psutil
import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser

from convserver import WIRE_VERSION, __version__
from convserver.activity import activity
from convserver.health import health
from sessions_app import astore
from sessions_app.models import ApiToken, Grant, Scope
from tests.conftest import Join

PROBES = ["/alive", "/health", "/server_info"]
OPEN = {"uptime", "idle_time", "title", "version", "sdk_version", "convserver_version", "usable_tools"}
LONG_AGO_S = 1000.0
UNREACHABLE = {
    "sqlite": "The database file can't be opened.",
    "postgresql": "The database cannot be reached.",
}[connection.vendor]


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


@pytest.fixture
def long_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody has asked for anything for a long time."""
    monkeypatch.setattr(activity, "asked_at", time.monotonic() - LONG_AGO_S)


@pytest.fixture
def database_gone(alice: User, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no probe reach the database."""
    health.forget()
    with monkeypatch.context() as patched:
        if connection.vendor == "sqlite":
            patched.setitem(connection.settings_dict, "NAME", "/nowhere/there/is.sqlite3")
        else:
            patched.setitem(connection.settings_dict, "PORT", 1)
        yield
    health.forget()


# What they say


async def test_alive_says_that_the_process_answers(rest: httpx.AsyncClient) -> None:
    assert (await rest.get("/alive")).json() == {"status": "ok"}


async def test_health_is_one_word(rest: httpx.AsyncClient) -> None:
    answer = await rest.get("/health")
    assert (answer.status_code, answer.text) == (200, '"OK"')


async def test_health_names_a_library_that_can_lose_a_commit(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.53.0")
    assert "x-warning" not in (await rest.get("/health")).headers
    monkeypatch.setattr(sqlite3, "sqlite_version", "3.40.1")
    answer = await rest.get("/health")
    assert (answer.status_code, answer.text) == (200, '"OK"')
    warning = "SQLite 3.40.1 can lose a commit during a checkpoint"
    assert answer.headers.get("x-warning", "").startswith(warning) is (connection.vendor == "sqlite")


async def test_server_info_says_what_runs_here(rest: httpx.AsyncClient) -> None:
    info = (await rest.get("/server_info")).json()
    assert (info["title"], info["convserver_version"]) == ("convserver", __version__)
    assert info["version"] == info["sdk_version"] == WIRE_VERSION
    assert info["uptime"] >= info["idle_time"] >= 0


def numbers(resources: dict[str, Any]) -> list[float]:
    parts = [each.values() for each in resources.values() if isinstance(each, dict)]
    return [resources["cpu_percent"], *(number for part in parts for number in part)]


async def test_resources_are_all_numbers(rest: httpx.AsyncClient) -> None:
    resources = (await rest.get("/server_info")).json()["resources"]
    assert {name: set(part) for name, part in resources.items() if isinstance(part, dict)} == {
        "memory": {"rss", "vms", "percent"},
        "disk": {"total", "used", "free", "percent"},
        "io": {"read_bytes", "write_bytes"},
    }
    assert all(isinstance(number, int | float) and number >= 0 for number in numbers(resources))


@pytest.mark.parametrize("problem", [AttributeError, psutil.AccessDenied])
async def test_where_the_system_counts_no_io_it_is_zero(
    rest: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, problem: type[Exception]
) -> None:
    def fails(process: psutil.Process) -> None:
        raise problem

    monkeypatch.setattr(psutil.Process, "io_counters", fails)
    resources = (await rest.get("/server_info")).json()["resources"]
    assert resources["io"] == {"read_bytes": 0, "write_bytes": 0}


@pytest.mark.parametrize("path", PROBES)
async def test_a_probe_is_answered_in_json_whatever_is_accepted(rest: httpx.AsyncClient, path: str) -> None:
    answer = await rest.get(path, headers={"accept": "text/html"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize("path", PROBES)
async def test_a_probes_answer_is_not_kept(rest: httpx.AsyncClient, path: str) -> None:
    assert "no-store" in (await rest.get(path)).headers["cache-control"]


@pytest.mark.parametrize("path", PROBES)
async def test_a_probe_with_a_slash_at_its_end_is_not_redirected(rest: httpx.AsyncClient, path: str) -> None:
    assert (await rest.get(f"{path}/")).status_code == 404


# To whom


async def test_nobody_is_told_what_the_server_uses(accounts: None, rest: httpx.AsyncClient) -> None:
    assert set((await rest.get("/server_info")).json()) == OPEN


async def test_staff_with_the_scope_admin_are_told_what_the_server_uses_and_users_get_zeros(
    accounts: None, bob: User, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    boss = await astore.call(User.objects.create_superuser, "boss")
    read_only = Grant(scopes=[Scope.READ])
    rows = {
        "a user's token": (bob.pk, None, False),
        "a token of staff": (boss.pk, None, True),
        "a token of staff that may only read": (boss.pk, read_only, False),
    }
    for name, (user_pk, grant, is_told) in rows.items():
        with subtests.test(name):
            _, token = await astore.call(partial(ApiToken.issue, user_pk, "laptop", grant))
            answer = await rest.get("/server_info", headers=bearer(token))
            resources = answer.json()["resources"]
            assert {*resources} == {"cpu_percent", "memory", "disk", "io"}
            assert (resources["memory"]["rss"] > 0, resources["disk"]["total"] > 0) == (is_told, is_told)
            assert is_told or not any(numbers(resources))


async def test_the_servers_key_is_told_what_the_server_uses(
    configured: Callable[..., None], rest: httpx.AsyncClient
) -> None:
    configured(session_api_key="the server's key")
    assert set((await rest.get("/server_info")).json()) == OPEN
    answer = await rest.get("/server_info", headers={"x-session-api-key": "the server's key"})
    assert "resources" in answer.json()


async def test_server_info_refuses_a_key_that_opens_nothing(accounts: None, rest: httpx.AsyncClient) -> None:
    assert (await rest.get("/server_info", headers=bearer("cs_wrong"))).status_code == 401


@pytest.mark.parametrize("path", ["/alive", "/health"])
async def test_a_key_that_opens_nothing_does_not_close_a_probe(
    accounts: None, rest: httpx.AsyncClient, path: str
) -> None:
    assert (await rest.get(path, headers=bearer("cs_wrong"))).status_code == 200


# Without the database


@pytest.mark.parametrize("path", ["/health", "/server_info"])
def test_without_the_database_a_probe_answers_503_with_a_sentence(database_gone: None, path: str) -> None:
    answer = Browser().get(path, headers={"host": "localhost"})
    assert (answer.status_code, answer.json()) == (
        503,
        {"code": "unavailable", "detail": UNREACHABLE},
    )


def test_without_the_database_the_process_is_alive(database_gone: None) -> None:
    assert Browser().get("/alive", headers={"host": "localhost"}).status_code == 200


# Idle time


async def idle_time(rest: httpx.AsyncClient) -> float:
    found: float = (await rest.get("/server_info")).json()["idle_time"]
    return found


@pytest.mark.parametrize("path", PROBES)
async def test_a_probe_does_not_end_the_idle_time(
    rest: httpx.AsyncClient, long_idle: None, path: str
) -> None:
    await rest.get(path)
    assert await idle_time(rest) >= LONG_AGO_S


async def test_a_request_ends_the_idle_time(rest: httpx.AsyncClient, long_idle: None) -> None:
    await rest.get("/api/native/conversations")
    assert await idle_time(rest) < LONG_AGO_S


async def test_a_frame_ends_the_idle_time(
    rest: httpx.AsyncClient, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await join("talk")
    monkeypatch.setattr(activity, "asked_at", time.monotonic() - LONG_AGO_S)
    await client.send({"type": "seen", "id": 1, "through": -1})
    await client.until("ack")
    assert await idle_time(rest) < LONG_AGO_S


async def test_a_socket_that_ends_does_not_end_the_idle_time(
    rest: httpx.AsyncClient, join: Join, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await join("talk")
    monkeypatch.setattr(activity, "asked_at", time.monotonic() - LONG_AGO_S)
    await client.leave()
    assert await idle_time(rest) >= LONG_AGO_S

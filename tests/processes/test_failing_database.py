"""PostgreSQL fails under a request: every door says so in its own shape, and when to come again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any
from uuid import uuid4

import httpx
import psycopg
from django.contrib.auth.models import User

from conversations.engines import failures
from conversations.models import Version
from conversations.store import creation
from tests.conftest import on_postgresql
from tests.support.people.clients import HTTP, Server, database_url

pytestmark = on_postgresql

TALK = uuid4().hex
HELLO = {"role": "user", "content": [{"type": "text", "text": "Hello"}]}
NATIVE: list[tuple[str, str, Any]] = [
    ("GET", "/api/native/conversations", None),
    ("GET", f"/api/native/conversations/{TALK}", None),
    ("POST", "/api/native/conversations", {}),
    ("PATCH", f"/api/native/conversations/{TALK}", {"title": "Another"}),
    ("POST", f"/api/native/conversations/{TALK}/events", {"type": "message", "text": "Hello"}),
]
WIRES: list[tuple[str, str, Any]] = [
    ("GET", "/api/conversations", None),
    ("GET", f"/api/conversations/{TALK}", None),
    ("POST", "/api/conversations", {}),
    ("POST", f"/api/conversations/{TALK}/message", {"message": "Hello"}),
    ("GET", "/api/v1/app-conversations/search", None),
    ("GET", "/agent/api/conversations/count", None),
    ("POST", f"/agent/api/conversations/{TALK}/events", HELLO),
]
PAGES: list[tuple[str, str, Any]] = [
    ("GET", "/", None),
    ("GET", f"/c/{TALK}", None),
    ("GET", "/admin/conversations/conversation/", None),
]


def answers(server: Server, asked: list[tuple[str, str, Any]]) -> list[httpx.Response]:
    """Ask at once, for each request waits as long as a statement may take."""

    def ask(one: tuple[str, str, Any]) -> httpx.Response:
        method, path, body = one
        return HTTP.request(method, f"{server.url}{path}", json=body)

    with ThreadPoolExecutor(len(asked)) as threads:
        return list(threads.map(ask, asked))


def test_what_fails_is_told_at_every_door_with_the_moment_to_come_again_and_logged_once(
    alice: User, server: Server
) -> None:
    creation.create(alice, conversation_id=TALK, version=Version.V1)
    server.start(DATABASE_STATEMENT_TIMEOUT_S="1")
    with psycopg.connect(database_url()) as other:
        other.execute("LOCK TABLE conversations_conversation IN ACCESS EXCLUSIVE MODE")
        found = answers(server, [*NATIVE, *WIRES, *PAGES])
        assert HTTP.get(f"{server.url}/alive").status_code == 200
    assert [(each.status_code, "Retry-After" in each.headers) for each in found] == [(503, True)] * len(found)
    native, wires = found[: len(NATIVE)], found[len(NATIVE) : -len(PAGES)]
    sentence = failures.TOO_SLOW
    assert [each.json() for each in native] == [{"code": "unavailable", "detail": sentence}] * len(NATIVE)
    assert [each.json() for each in wires] == [{"detail": sentence}] * len(WIRES)
    assert all(sentence in each.text and "<html" in each.text for each in found[-len(PAGES) :])
    lines = [line for line in server.log.read_text().splitlines() if "[error]" in line or "Traceback" in line]
    asked = [f"The database failed on {method} {path}: " for method, path, _ in [*NATIVE, *WIRES, *PAGES]]
    assert {each: sum(each in line for line in lines) for each in asked} == dict.fromkeys(asked, 1)
    assert len(lines) == len(asked)

"""The answers of every address to its owner, a stranger and an anonymous client, by kind of key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from hashlib import sha256
from io import StringIO
from itertools import product
from typing import Any, NamedTuple
from uuid import uuid4

import httpx
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils import timezone
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.test import APIRequestFactory, force_authenticate
from rest_framework.views import APIView

from conversations.models import Conversation, ConversationRef, Event, Version
from conversations.store import creation, deletion
from convserver.api.direct import callers
from convserver.api.scopes import WRITES, needed
from convserver.api.v1.agent import absent
from sessions_app import astore
from sessions_app.identity import conversation_keys, principals
from sessions_app.identity.scopes import FRAME_SCOPES
from sessions_app.models import ApiToken, Grant, ImportRun, Scope
from sessions_app.sockets import handshake
from sessions_app.sockets.native import list_reader as native_list
from sessions_app.sockets.native import reader as native_reader
from tests.conftest import Dial
from tests.support.people.pairs import Pair, new_pair
from tests.support.wires import app_face, v1
from tests.support.wires.web_pages import IMPORT_ID, PAGES

pytestmark = pytest.mark.one_engine

CSRF = "c" * 32
V0 = "/api/conversations"
V0_EVENT = {"action": "run", "args": {"command": "ls"}}
NATIVE = "/api/native/conversations"
ADMIN = "/admin/conversations/conversation/"
IMPORT = f"/api/native/imports/{IMPORT_ID}"
MESSAGE = {"type": "message", "text": "hello"}
DRAFT = {"text": "hel", "images": [], "version": 0}


class Statuses(NamedTuple):
    """The statuses for the owner, a stranger and an anonymous client."""

    owner: int
    stranger: int
    anonymous: int


OPEN_TO_ALL = Statuses(200, 200, 200)
THEIR_OWN = Statuses(200, 200, 401)
OWNERS = Statuses(200, 404, 401)


@dataclass(frozen=True, slots=True)
class Row:
    """What one address answers in accounts mode."""

    route: str
    path: str
    statuses: Statuses
    method: str = field(default="GET", kw_only=True)
    body: Any = field(default=None, kw_only=True)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


LOADED = {page.path.partition("?")[0] for page in PAGES if page.method == "GET"}
"""Addresses that a browser can load; the others only take a form."""

PROFILES: list[tuple[str, Any]] = [
    ("profiles", {"llm": {"model": "openai/gpt-x"}}),
    ("agent-profiles", {"agent_kind": "openhands"}),
]
OF_A_USER: list[tuple[int, str, str, str, Any]] = [
    # What alice has bob finds none of: test_v1_agent_settings.py.
    (200, "GET", "settings", "settings", None),
    (200, "PATCH", "settings", "settings", {"misc_settings_diff": {"x": 1}}),
    (200, "GET", "settings-agent-schema", "settings/agent-schema", None),
    (200, "GET", "settings-conversation-schema", "settings/conversation-schema", None),
    (201, "POST", "settings-mcp", "settings/mcp/tools", {"url": "https://example.org/mcp"}),
    (404, "PATCH", "settings-mcp", "settings/mcp/none", {"enabled": False}),
    (404, "DELETE", "settings-mcp", "settings/mcp/none", None),
    (422, "POST", "mcp-test", "mcp/test", {"server": {}}),
    (200, "GET", "user-secrets", "settings/secrets", None),
    (200, "PUT", "user-secrets", "settings/secrets", {"name": "KEY", "value": "s"}),
    (404, "GET", "user-secret", "settings/secrets/NONE", None),
    (404, "DELETE", "user-secret", "settings/secrets/NONE", None),
    *((200, "GET", base, base, None) for base, _ in PROFILES),
    *((201, "POST", f"{base}-one", f"{base}/mine", new) for base, new in PROFILES),
    *((404, "GET", f"{base}-one", f"{base}/none", None) for base, _ in PROFILES),
    *((200, "DELETE", f"{base}-one", f"{base}/none", None) for base, _ in PROFILES),
    *((404, "POST", f"{base}-rename", f"{base}/none/rename", {"new_name": "x"}) for base, _ in PROFILES),
    *((404, "POST", f"{base}-activate", f"{base}/none/activate", None) for base, _ in PROFILES),
    (422, "POST", "profiles-validate", "profiles/none/validate", {"llm": {}}),
    (404, "POST", "agent-profiles-materialize", "agent-profiles/none/materialize", None),
]
"""The operations of the agent face on what a user keeps: status, method, route, path and body."""

ROWS = [
    # No token opens a page, or sends a page's form: tests/doors/pages/test_web_access.py has logins.
    *(
        Row(route, path, Statuses(status, status, status))
        for route, path in dict.fromkeys((page.route, page.path) for page in PAGES)
        for status in [302 if path.partition("?")[0] in LOADED else 405]
    ),
    Row("alive", "/alive", OPEN_TO_ALL),
    Row("health", "/health", OPEN_TO_ALL),
    Row("ready", "/ready", OPEN_TO_ALL),
    Row("server-info", "/server_info", OPEN_TO_ALL),
    Row("metrics", "/metrics", OWNERS),
    Row("native-socket", "/ws/conversations/{id}", Statuses(426, 426, 426)),
    Row("schema", "/api/schema/", THEIR_OWN),
    Row("docs", "/api/docs/", THEIR_OWN),
    Row("login", "/ui/login", OPEN_TO_ALL),
    Row("manifest", "/ui/manifest.webmanifest", OPEN_TO_ALL),
    Row("service-worker", "/ui/service-worker.js", OPEN_TO_ALL),
    Row("offline", "/ui/offline", OPEN_TO_ALL),
    # In accounts mode without a server key the way by it leads to the other one.
    Row("key", "/ui/key", Statuses(302, 302, 302)),
    Row("logout", "/ui/logout", Statuses(405, 405, 405)),
    Row("logout", "/ui/logout", Statuses(403, 403, 403), method="POST"),
    Row("device-authorize", "/oauth/device/authorize", OPEN_TO_ALL, method="POST", body={}),
    # The codes are the only credentials.
    Row("device-token", "/oauth/device/token", Statuses(400, 400, 400), method="POST"),
    # It leads every id to the page, which decides.
    Row("openhands-conversation", "/conversations/talk", Statuses(302, 302, 302)),
    Row("app-model-key", "/api/keys/llm/byor", THEIR_OWN),
    Row("app-current-key", "/api/keys/current", THEIR_OWN),
    Row("admin", "/admin/", Statuses(302, 302, 302)),
    Row("admin", "/admin/auth/user/", Statuses(302, 302, 302)),
    Row("admin", "/admin/sessions_app/remoteprogram/", Statuses(302, 302, 302)),
    Row("admin", "/admin/sessions_app/importrun/", Statuses(302, 302, 302)),
    Row("admin", "/admin/sessions_app/importrun/add/", Statuses(302, 302, 302)),
    *(
        Row("admin", f"{ADMIN}{page}", Statuses(302, 302, 302))
        for page in ("", "1/change/", "1/events/", "1/events/0/", "1/events/0/payload/", "1/export/", "1/do/")
    ),
    Row("admin", f"{ADMIN}1/do/", Statuses(403, 403, 403), method="POST"),
    Row("native-imports", "/api/native/imports", THEIR_OWN),
    Row(
        "native-imports",
        "/api/native/imports",
        Statuses(201, 201, 401),
        method="POST",
        body={"file_name": "a.zip", "size": 9},
    ),
    Row("native-import", IMPORT, OWNERS),
    Row("native-import", IMPORT, Statuses(204, 404, 401), method="DELETE"),
    Row("native-import-pieces", f"{IMPORT}/pieces?offset=0", OWNERS, method="PUT"),
    # nothing of its file is here
    Row("native-import-start", f"{IMPORT}/start", Statuses(409, 404, 401), method="POST"),
    Row("native-import-cancel", f"{IMPORT}/cancel", Statuses(200, 404, 401), method="POST"),
    Row("native-import-conversations", f"{IMPORT}/conversations", OWNERS),
    Row("v0-conversations", V0, THEIR_OWN),
    Row("v0-conversations", V0, THEIR_OWN, method="POST", body={}),
    Row("v0-conversation", V0 + "/{id}", THEIR_OWN),  # the wire's null
    # the wire tells, here alone
    Row("v0-conversation", V0 + "/{id}", Statuses(200, 403, 401), method="PATCH", body={"title": "new"}),
    Row("v0-conversation", V0 + "/{id}", THEIR_OWN, method="DELETE"),  # the wire's false
    Row("v0-start", V0 + "/{id}/start", OWNERS, method="POST", body={}),
    Row("v0-stop", V0 + "/{id}/stop", THEIR_OWN, method="POST"),  # "was not running"
    Row("v0-exp-config", V0 + "/{id}/exp-config", OWNERS, method="POST", body={}),
    Row("v0-remember-prompt", V0 + "/{id}/remember-prompt?event_id=0", OWNERS),
    Row("v0-events", V0 + "/{id}/events", OWNERS),
    Row("v0-events", V0 + "/{id}/events", OWNERS, method="POST", body=V0_EVENT),
    Row("v0-message", V0 + "/{id}/message", OWNERS, method="POST", body={"message": "hi"}),
    Row("v0-trajectory", V0 + "/{id}/trajectory", OWNERS),
    *(
        Row(f"v0-{name.replace('/', '-')}", f"{V0}/{{id}}/{name}", OWNERS)
        for name in ("config", "microagents", "web-hosts", "vscode-url", "list-files", "git/changes")
    ),
    Row("v0-zip-directory", V0 + "/{id}/zip-directory", OWNERS),
    *(
        # there is no such file, and nothing was committed
        Row(f"v0-{name.partition('?')[0].replace('/', '-')}", f"{V0}/{{id}}/{name}", Statuses(404, 404, 401))
        for name in ("select-file?file=a", "git/diff?path=a")
    ),
    Row(
        "v0-submit-feedback",
        V0 + "/{id}/submit-feedback",
        OWNERS,
        method="POST",
        body={"polarity": "positive"},
    ),
    # no form
    Row("v0-upload-files", V0 + "/{id}/upload-files", Statuses(422, 404, 401), method="POST"),
    Row(
        "v0-microagent-conversations",
        "/api/microagent-management/conversations?selected_repository=owner/name",
        THEIR_OWN,
    ),
    *(
        Row(f"v0-options-{what}", f"/api/options/{what}", THEIR_OWN)
        for what in ("config", "models", "agents", "security-analyzers")
    ),
    Row("v0-settings", "/api/settings", Statuses(404, 404, 401)),  # nothing is set
    Row("v0-settings", "/api/settings", THEIR_OWN, method="POST", body={}),
    Row("v0-reset-settings", "/api/reset-settings", Statuses(410, 410, 401), method="POST"),
    Row("v0-secrets", "/api/secrets", THEIR_OWN),
    Row(
        "v0-secrets",
        "/api/secrets",
        Statuses(201, 201, 401),
        method="POST",
        body={"name": "KEY", "value": "s"},
    ),
    Row("v0-secret", "/api/secrets/KEY", Statuses(404, 404, 401), method="PUT", body={"name": "KEY"}),
    Row("v0-secret", "/api/secrets/KEY", Statuses(404, 404, 401), method="DELETE"),
    Row("v0-add-git-providers", "/api/add-git-providers", THEIR_OWN, method="POST", body={}),
    Row("v0-unset-provider-tokens", "/api/unset-provider-tokens", THEIR_OWN, method="POST"),
    *(
        # Nobody here has a provider's token.
        Row(f"v0-{route}", f"/api/user/{path}", Statuses(401, 401, 401))
        for route, path in (
            ("user", "info"),
            ("installations", "installations?provider=github"),
            ("repositories", "repositories"),
            ("repository-search", "search/repositories?query=site"),
            ("branch-search", "search/branches?repository=acme/site&query=main"),
            ("suggested-tasks", "suggested-tasks"),
            ("branches", "repository/branches?repository=acme/site"),
            ("repository-microagents", "repository/acme/site/microagents"),
            ("repository-microagent", "repository/acme/site/microagents/content?file_path=x.md"),
        )
    ),
    *(
        # Where there is nothing, an id that is no UUID is malformed.
        Row(
            route.name,
            f"{v1.AGENT}/{{id}}{route.path}",
            Statuses(route.owner, 422, 401),
            method=route.method,
            body=route.body,
        )
        for route in (*v1.BEYOND_ONE, *v1.ROUTES)
    ),
    *(
        Row(
            each.name,
            f"/agent/{v1.filled(each.address)}",
            Statuses(v1.OF_ACTION[action], v1.OF_ACTION[action], 401),
            method=method.upper(),
        )
        for each in absent.absences()
        if each.base != absent.ONE
        for method, action in each.actions.items()
    ),
    *(
        Row(
            "agent-workspace-session",
            "/agent/api/auth/workspace-session",
            Statuses(204, 204, 401),
            method=method,
        )
        for method in ("POST", "DELETE")
    ),
    *(
        Row(f"agent-llm-{what}", f"/agent/api/llm/{address}", THEIR_OWN)
        for what, address in (
            ("list", "models"),
            ("verified", "models/verified"),
            ("providers", "providers"),
            ("subscription", "subscription/openai/status"),
            ("subscription-models", "subscription/openai/models"),
        )
    ),
    *(
        Row(f"agent-{route}", f"/agent/api/{path}", Statuses(status, status, 401), method=method, body=body)
        for status, method, route, path, body in OF_A_USER
    ),
    Row("agent-conversations", f"{v1.AGENT}?ids={v1.ID}", THEIR_OWN),
    Row("agent-conversations", v1.AGENT, Statuses(201, 201, 401), method="POST", body=v1.START),
    *(Row(f"agent-conversations-{what}", f"{v1.AGENT}/{what}", THEIR_OWN) for what in ("search", "count")),
    *(
        Row(f"agent-{what.replace('/', '-')}", f"/agent/api/{what}{rest}", THEIR_OWN)
        for what, rest in (("tools", "/"), ("vscode/url", ""), ("git/changes", "/a"), ("git/diff", "/a"))
    ),
    *(
        Row(f"agent-git-{what}", f"/agent/api/git/{path}?path=/a", THEIR_OWN)
        for what, path in (("commits", "commits"), ("commit-changes", "commits/abcd/changes"))
    ),
    # no key of a conversation says whose commands and files these are
    *(
        Row(
            f"agent-bash-{what}",
            f"/agent/api/bash/{path}",
            Statuses(status, status, 401),
            method=method,
            body=body,
        )
        for what, method, path, body, status in (
            ("start", "POST", "start_bash_command", {"command": "true"}, 404),
            ("execute", "POST", "execute_bash_command", {"command": "true"}, 404),
            ("search", "GET", "bash_events/search", None, 200),
            ("batch", "GET", "bash_events/?event_ids=none", None, 200),
            ("retrieve", "GET", "bash_events/none", None, 404),
            ("clear", "DELETE", "bash_events", None, 200),
            ("stop", "POST", f"bash_commands/{v1.NONE}/stop", None, 404),
        )
    ),
    *(
        Row(
            f"agent-file-{path.split('?')[0].split('/')[0].replace('_', '-')}",
            f"/agent/api/file/{path}",
            Statuses(404, 404, 401),
            method=method,
        )
        for method, path in (
            ("POST", "upload/a"),
            ("POST", "create_directory?path=/workspace/a"),
            ("GET", "download?path=/workspace/a"),
            ("GET", "archive?path=/workspace&format=tar.gz"),
        )
    ),
    Row("agent-file-home", "/agent/api/file/home", THEIR_OWN),
    *(
        Row(f"agent-{name}", f"/agent/api/{name}", THEIR_OWN, method="POST", body={"project_dir": "/none"})
        for name in ("skills", "hooks")
    ),
    Row("agent-file-search-subdirs", "/agent/api/file/search_subdirs?path=/workspace", THEIR_OWN),
    *(
        Row(f"agent-{what or 'root'}".replace("_", "-"), f"/agent/{what}", OPEN_TO_ALL)
        for what in ("", "alive", "health", "ready", "server_info")
    ),
    Row("native-conversation-list", NATIVE, THEIR_OWN),
    Row("native-conversation-list", NATIVE, Statuses(201, 201, 401), method="POST", body={}),
    Row("native-conversation-detail", NATIVE + "/{id}", OWNERS),
    Row("native-conversation-detail", NATIVE + "/{id}", OWNERS, method="PATCH", body={"title": "new"}),
    Row("native-conversation-detail", NATIVE + "/{id}", Statuses(204, 404, 401), method="DELETE"),
    *(
        Row(f"native-conversation-{action}", f"{NATIVE}/{{id}}/{action}", OWNERS, method="POST")
        for action in ("restore", "run", "pause", "stop")
    ),
    Row(
        "native-conversation-rotate-key", NATIVE + "/{id}/rotate-key", Statuses(204, 404, 401), method="POST"
    ),
    Row(
        "native-conversation-confirm",
        NATIVE + "/{id}/confirm",
        Statuses(409, 404, 401),
        method="POST",
        body={"accept": True},
    ),
    Row(
        "native-batch",
        "/api/native/batch",
        THEIR_OWN,
        method="POST",
        body={"action": "archive", "ids": ["talk"]},
    ),
    Row("native-labels", "/api/native/labels", THEIR_OWN),
    Row("native-account-export", "/api/native/export", THEIR_OWN),
    Row("native-export", NATIVE + "/{id}/export", OWNERS),
    Row("native-events", NATIVE + "/{id}/events", OWNERS),
    Row("native-events", NATIVE + "/{id}/events", OWNERS, method="POST", body=MESSAGE),
    Row("native-conversation-files", NATIVE + "/{id}/files?name=a.txt", OWNERS, method="POST", body={}),
    Row("native-conversation-draft", NATIVE + "/{id}/draft", OWNERS),
    Row("native-conversation-draft", NATIVE + "/{id}/draft", OWNERS, method="PUT", body=DRAFT),
    Row("native-conversation-fork", NATIVE + "/{id}/fork", Statuses(201, 404, 401), method="POST"),
    # the conversation is no fork
    Row("native-conversation-fork-progress", NATIVE + "/{id}/fork-progress", Statuses(404, 404, 401)),
    Row(
        "native-conversation-fork-progress",
        NATIVE + "/{id}/fork-progress",
        Statuses(404, 404, 401),
        method="DELETE",
    ),
    Row("native-conversation-branches", NATIVE + "/{id}/branches", OWNERS),
    Row("native-conversation-pending-calls", NATIVE + "/{id}/pending-calls", OWNERS),
    Row("native-conversation-options", NATIVE + "/{id}/options", OWNERS),
    Row(
        "native-conversation-options",
        NATIVE + "/{id}/options",
        OWNERS,
        method="PATCH",
        body={"max_tokens": 1000},
    ),
    Row("native-agents", "/api/native/agents", THEIR_OWN),
    Row("native-conversation-checkpoints", NATIVE + "/{id}/checkpoints", OWNERS),
    Row(
        "native-conversation-restore-files",
        NATIVE + "/{id}/restore-files",
        Statuses(404, 404, 401),
        method="POST",
        body={"seq": 0},
    ),
    Row("native-conversation-receipts", NATIVE + "/{id}/receipts", OWNERS),
    Row("native-conversation-feedback", NATIVE + "/{id}/feedback", OWNERS),
    Row(
        "native-answer-feedback",
        NATIVE + "/{id}/feedback/0",
        Statuses(404, 404, 401),  # the log has no answer
        method="PUT",
        body={"polarity": "positive"},
    ),
    Row("native-answer-feedback", NATIVE + "/{id}/feedback/0", Statuses(204, 404, 401), method="DELETE"),
    Row("native-stream", NATIVE + "/{id}/stream?follow=false", OWNERS),
    Row("native-list-stream", "/api/native/stream?follow=false", THEIR_OWN),
    Row("native-draft", "/api/native/draft", THEIR_OWN),
    Row("native-draft", "/api/native/draft", THEIR_OWN, method="PUT", body=DRAFT),
    Row("native-search", "/api/native/search?q=hello", THEIR_OWN),
    Row("native-search", "/api/native/search?q=hello&conversation={id}", OWNERS),
    Row("native-token-list", "/api/native/tokens", THEIR_OWN),
    Row(
        "native-token-list",
        "/api/native/tokens",
        Statuses(201, 201, 401),
        method="POST",
        body={"name": "phone"},
    ),
    Row("native-token-detail", "/api/native/tokens/{token}", Statuses(204, 404, 401), method="DELETE"),
    *(
        # Nobody has such a conversation here; `test_v1_app_face.py` asks where somebody has.
        Row(
            route.name,
            route.path,
            Statuses(
                route.empty[0] if route.empty else route.stranger,
                route.empty[1] if route.empty else route.stranger,
                route.anonymous,
            ),
            method=route.method,
            body=route.body,
        )
        for route in app_face.ROUTES
    ),
]

PAGE_ROUTES = {page.route for page in PAGES}
ALIKE_ROWS = [row for row in ROWS if len(set(row.statuses)) == 1]
"""Addresses that need no key, or that no key opens: asking changes nothing."""
CONVERSATION_ROWS = [row for row in ROWS if "{id}" in row.path]

NEED_THE_USER = frozenset(
    {"agent-fork", "native-conversation-fork", "agent-children", "agent-switch-profile"}
)
"""Routes that no token of one conversation may use: they make others, or read profiles."""

NATIVE_SOCKETS = ["/ws/conversations", "/ws/conversations/talk"]


def routes(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Return the name of every route with each method that it knows; the admin's are one."""
    for route in resolver.url_patterns:
        if prefix + str(route.pattern) == "admin/":
            yield "admin", "GET"
        elif isinstance(route, URLResolver):
            yield from routes(route, prefix + str(route.pattern))
        else:
            yield from ((route.name or prefix + str(route.pattern), method) for method in methods(route))


def methods(route: URLPattern) -> list[str]:
    view: Any = route.callback
    if known := getattr(view, "actions", None):
        return [method.upper() for method in known if method != "head"]  # comes with the first GET
    if known := getattr(view, "cls", None):
        return [
            method.upper() for method in ("get", "post", "put", "patch", "delete") if hasattr(known, method)
        ]
    return ["GET"]


@pytest.fixture
def deleted(alice: User) -> ConversationRef:
    conversation = creation.create(alice, conversation_id="gone")
    deletion.soft_delete(conversation)
    return conversation


@pytest.fixture
def tokens(alice: User, bob: User) -> dict[str, str]:
    """Return whole tokens; alice has an import as well."""
    ImportRun.objects.create(public_id=IMPORT_ID, user=alice, file_name="a.zip", size=9)
    return {
        "owner": ApiToken.issue(alice.pk, "laptop")[1],
        "stranger": ApiToken.issue(bob.pk, "laptop")[1],
    }


@pytest.fixture
def useless_keys(bob: User) -> dict[str, str]:
    """Keys that open nothing, by why."""
    asleep = User.objects.create_user("asleep", is_active=False)
    revoked, text = ApiToken.issue(bob.pk, "lost")
    revoked.revoke()
    return {"wrong": "cs_wrong", "revoked": text, "inactive": ApiToken.issue(asleep.pk, "laptop")[1]}


@pytest.fixture
def logged_in(alice: User) -> dict[str, str]:
    """The headers of alice's browser after a login."""
    return {"cookie": login_cookie(alice)}


def login_cookie(user: User) -> str:
    browser = Browser()
    browser.force_login(user)
    return f"sessionid={browser.cookies['sessionid'].value}"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


async def ask(
    rest: httpx.AsyncClient, row: Row, *, key: str | None = None, conversation_id: str = "talk"
) -> httpx.Response:
    token = await astore.call(lambda: ApiToken.objects.order_by("pk").first())
    path = row.path.format(id=conversation_id, token=token.public_id if token else 1)
    return await rest.request(row.method, path, json=row.body, headers=bearer(key) if key else {})


async def whole_answers(
    rest: httpx.AsyncClient, row: Row, *conversation_ids: str, key: str | None = None
) -> set[tuple[object, ...]]:
    """Return what differs between the answers for these conversations: one item when nothing does.

    The id that was asked for may be repeated in an answer, and so its length may differ.
    """
    answers = {each: await ask(rest, row, key=key, conversation_id=each) for each in conversation_ids}
    return {
        (
            answer.status_code,
            answer.text.replace(asked, "…"),
            *((name, value) for name, value in answer.headers.multi_items() if name != "content-length"),
        )
        for asked, answer in answers.items()
    }


async def refusal(dial: Dial, path: str, **options: Any) -> tuple[int, str]:
    """Return with what code and words the socket is closed."""
    closed = await (await dial(path, **options)).closed()
    return closed.code, closed.reason


async def greeting(dial: Dial, path: str, **options: Any) -> dict[str, Any]:
    return await (await dial(path, **options)).receive()


# Every address


def test_every_route_has_a_row_here() -> None:
    assert {(row.route, row.method) for row in ROWS} >= set(routes(get_resolver()))


async def statuses(rest: httpx.AsyncClient, row: Row, tokens: dict[str, str]) -> Statuses:
    """Return what the three are answered; the owner, who may change something, asks last."""
    anonymous, stranger, owner = [
        (await ask(rest, row, key=tokens.get(who))).status_code for who in ("nobody", "stranger", "owner")
    ]
    return Statuses(owner, stranger, anonymous)


async def test_each_route_that_tells_nobody_apart_answers_all_alike(
    accounts: None, conversation: ConversationRef, tokens: dict[str, str], rest: httpx.AsyncClient
) -> None:
    different = {
        str(row): found for row in ALIKE_ROWS if (found := await statuses(rest, row, tokens)) != row.statuses
    }
    assert different == {}


class Own(NamedTuple):
    """A conversation and an import, and whose they are."""

    pair: Pair
    talk: str
    import_id: str

    @classmethod
    def new(cls) -> Own:
        own = cls(new_pair(), f"talk-{uuid4().hex}", uuid4().hex)
        owner = own.pair.owner
        User.objects.filter(pk=owner.pk).update(is_staff=True, is_superuser=True)  # as alice is
        creation.create(owner, conversation_id=own.talk)
        ImportRun.objects.create(public_id=own.import_id, user=owner, file_name="a.zip", size=9)
        return own

    def named_in(self, row: Row) -> Row:
        path = row.path.replace("{token}", self.pair.token_id).replace("{id}", self.talk)
        body = row.body | {"ids": [self.talk]} if row.route == "native-batch" else row.body
        return replace(row, path=path.replace(IMPORT_ID, self.import_id), body=body)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("door", ["native", "v0", "agent", "app", ""])
async def test_each_route_answers_as_its_row_says(
    accounts: None, alice: User, rest: httpx.AsyncClient, subtests: pytest.Subtests, door: str
) -> None:
    known = ("native", "v0", "agent", "app")
    read = await astore.call(Own.new)
    for row in ROWS:
        if row in ALIKE_ROWS or row.route.startswith(known) != bool(door) or not row.route.startswith(door):
            continue
        with subtests.test(str(row)):
            own = read if row.method == "GET" else await astore.call(Own.new)
            assert await statuses(rest, own.named_in(row), own.pair.tokens) == row.statuses


API_ROWS = [
    row for row in ROWS if row.path.startswith(("/api/", "/agent/")) and row.statuses.anonymous == 401
]
"""Rows that need credentials of a program."""


def all_but(scope: Scope | None) -> Grant:
    """Return a grant of everything else; where each frame says what it needs, of reading alone."""
    return Grant(scopes=[each for each in Scope if each != scope] if scope else [Scope.READ])


async def test_head_is_answered_like_get_on_every_route_about_what_is_absent(rest: httpx.AsyncClient) -> None:
    for each in absent.absences():
        if each.base != absent.ONE and "get" in each.actions:
            path = f"/agent/{v1.filled(each.address)}"
            found = [(await rest.request(method, path)).status_code for method in ("GET", "HEAD")]
            assert found == [v1.OF_ACTION[each.actions["get"]]] * 2, path


async def differing(
    rest: httpx.AsyncClient, rows: list[Row], key_of: Callable[[Row], str], status_of: Callable[[Row], int]
) -> dict[str, tuple[int, int]]:
    """Return the rows that answer with another status: what they answer, and what they should."""
    found = {}
    for row in rows:
        answer = await ask(rest, row, key=key_of(row))
        if answer.status_code != status_of(row):
            found[str(row)] = (answer.status_code, status_of(row))
    return found


def taken_away(talk: ConversationRef, user: User, other: User) -> dict[str, dict[str, str]]:
    """Return the headers of what opens nothing any more, by why; the deactivated user is `other`."""
    revoked, expired, deactivated = (
        ApiToken.issue(owner.pk, "lost", Grant(scopes=[Scope.READ])) for owner in (user, user, other)
    )
    ApiToken.objects.filter(pk=expired[0].pk).update(expires_at=timezone.now())
    ended, inactive = login_cookie(user), login_cookie(other)
    Session.objects.get(pk=ended.removeprefix("sessionid=")).delete()
    rotated = conversation_keys.key_of(talk)
    others = conversation_keys.key_of(creation.create(other))
    revoked[0].revoke()  # a whole one would rotate the key as well
    conversation_keys.rotate(talk)
    User.objects.filter(pk=other.pk).update(is_active=False)
    # Two at a time: if either opened anything, it would count.
    return {
        "a login that is over": {"cookie": ended},
        "a deactivated user's login": {"cookie": inactive},
        "a revoked and an expired token": {"x-session-api-key": revoked[1], **bearer(expired[1])},
        "a rotated key and a deactivated user's token": {
            "x-session-api-key": rotated,
            **bearer(deactivated[1]),
        },
        "the key of a deactivated user's conversation": {"x-session-api-key": others, **bearer(rotated)},
    }


async def test_on_every_route_what_was_taken_away_opens_what_nobody_is_given(
    accounts: None, conversation: ConversationRef, alice: User, bob: User, rest: httpx.AsyncClient
) -> None:
    by_why = await astore.call(taken_away, conversation, alice, bob)
    # Whoever sends a wrong key is told so where it would make a difference, as /server_info does.
    rows = [row for row in ROWS if row.route != "server-info"]
    wrong = {}
    for row in rows:
        path = row.path.format(id="talk", token=1)
        for why, headers in by_why.items():
            if row.route in PAGE_ROUTES and "cookie" not in headers:  # which no key opens
                continue
            answer = await rest.request(row.method, path, json=row.body, headers=headers)
            if answer.status_code != row.statuses.anonymous:
                wrong[str(row), why] = (answer.status_code, row.statuses.anonymous)
    assert wrong == {}


async def test_on_every_route_the_key_of_one_conversation_finds_no_other_one(
    accounts: None, conversation: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    def key() -> str:
        app_face.create(alice)  # what the rows of that face name
        return conversation_keys.key_of(creation.create(alice, version=Version.V1))

    headers = {"x-session-api-key": await astore.call(key)}
    opened = {}
    for row in API_ROWS:
        path = row.path.format(id=app_face.ID, token=1)
        answer = await rest.request(row.method, path, json=row.body, headers=headers)
        is_about_another = path != row.path or app_face.ID in path
        # Its own face has lists, in which it finds itself alone: test_v1_shared_origin.py.
        is_of_its_face = not is_about_another and path.startswith(("/agent/api/", "/agent/v1/", v1.SHARED))
        if answer.status_code not in (401, 404) and not is_of_its_face:
            opened[str(row)] = answer.status_code
    assert opened == {}


def test_a_view_that_declares_no_scopes_is_refused() -> None:
    class Undeclared(APIView):
        def get(self, request: Request) -> Response:
            return Response("secret")

    class Declared(Undeclared):
        needs = WRITES

    request = APIRequestFactory().get("/")
    force_authenticate(request, user=User(username="alice", is_active=True))
    assert Undeclared.as_view()(request).status_code == 403
    assert Declared.as_view()(request).status_code == 200


async def test_on_every_route_a_token_without_its_scope_is_told_which_one_is_needed(
    accounts: None, conversation: ConversationRef, alice: User, rest: httpx.AsyncClient
) -> None:
    def issued() -> dict[Scope | None, str]:
        return {scope: ApiToken.issue(alice.pk, "small", all_but(scope))[1] for scope in (*Scope, None)}

    keys = await astore.call(issued)
    rows = [row for row in API_ROWS if row.route not in ("schema", "docs", "app-webhook-secrets")]
    # Its answer depends on the scopes: test_v1_app_settings.py.
    rows = [row for row in rows if str(row) != "GET /api/v1/settings"]
    wrong = {}
    for row in rows:
        scope = needed(row.route, row.method)
        answer = await ask(rest, row, key=keys[scope])
        name = scope or Scope.RUN  # of a message
        if answer.status_code != 403 or f"`{name.value}`" not in answer.text:
            wrong[str(row)] = (answer.status_code, answer.text[:100])
    assert wrong == {}


async def test_the_token_of_one_conversation_finds_no_other_one(
    accounts: None,
    conversation: ConversationRef,
    alice: User,
    tokens: dict[str, str],
    rest: httpx.AsyncClient,
) -> None:
    def issued() -> str:
        grant = Grant(conversation=creation.create(alice, conversation_id="other"))
        return ApiToken.issue(alice.pk, "small", grant)[1]

    key = await astore.call(issued)
    different = {}
    for row in CONVERSATION_ROWS:
        if (row.route, row.method) == ("v0-conversation", "PATCH"):  # the wire tells of strangers' alone
            assert (await ask(rest, row, key=key)).status_code == 404
            continue
        answers = [(await ask(rest, row, key=each)).status_code for each in (key, tokens["stranger"])]
        if answers[0] != answers[1] and (answers[0], row.route in NEED_THE_USER) != (403, True):
            different[str(row)] = answers
    assert different == {}
    listed = await rest.get(NATIVE, headers=bearer(key))
    assert [each["id"] for each in listed.json()["conversations"]] == ["other"]
    await astore.call(deletion.soft_delete, conversation)
    deleted = await rest.get(f"{NATIVE}?deleted=true", headers=bearer(key))
    assert deleted.json()["conversations"] == []
    for path in (V0, NATIVE):
        assert (await rest.post(path, json={}, headers=bearer(key))).status_code == 403
    assert (await rest.get("/api/native/tokens", headers=bearer(key))).status_code == 403


async def test_the_token_of_one_conversation_opens_that_one(
    accounts: None, conversation: ConversationRef, alice: User, rest: httpx.AsyncClient, dial: Dial
) -> None:
    grant = Grant(conversation=conversation)
    key = (await astore.call(ApiToken.issue, alice.pk, "small", grant))[1]
    assert (await rest.get(f"{NATIVE}/talk", headers=bearer(key))).status_code == 200
    assert (await greeting(dial, "/ws/conversations/talk", token=key))["type"] == "hello"
    assert (await refusal(dial, "/ws/conversations/new", token=key))[0] == 4404
    assert (await refusal(dial, "/ws/conversations", token=key))[0] == 4403


FRAMES: dict[str, dict[str, Any]] = {
    "message": {"type": "message", "text": "hello"},
    "event": {"type": "event", "event": {"action": "note"}},
    "events": {"type": "events", "events": [{"event": {"action": "note"}}]},
    "run": {"type": "run"},
    "pause": {"type": "pause"},
    "stop": {"type": "stop"},
    "confirm": {"type": "confirm", "accept": True},
}


async def test_a_socket_refuses_each_frame_beyond_the_scope_of_its_token(
    accounts: None, conversation: ConversationRef, alice: User, dial: Dial
) -> None:
    key = (await astore.call(ApiToken.issue, alice.pk, "reader", Grant(scopes=[Scope.READ])))[1]
    client = await dial("/ws/conversations/talk", token=key)
    assert set(FRAMES) == set(FRAME_SCOPES)
    for name, frame in FRAMES.items():
        await client.send(frame | {"id": name})
        error = await client.until("error")
        assert (error["id"], error["code"]) == (name, "scope_too_small")
        assert f"`{FRAME_SCOPES[name].value}`" in error["detail"]
    assert not await astore.call(lambda: Event.objects.exists())


async def test_a_join_by_a_token_that_may_not_write_makes_no_conversation(
    accounts: None, alice: User, dial: Dial
) -> None:
    key = (await astore.call(ApiToken.issue, alice.pk, "reader", Grant(scopes=[Scope.READ])))[1]
    assert (await refusal(dial, "/ws/conversations/new", token=key))[0] == 4404


async def test_a_small_token_is_shown_no_key_of_a_conversation(
    accounts: None, alice: User, tokens: dict[str, str], rest: httpx.AsyncClient
) -> None:
    row = await astore.call(creation.create, alice, conversation_id=v1.HEX, version=Version.V1)
    small = (await astore.call(ApiToken.issue, alice.pk, "small", all_but(Scope.ADMIN)))[1]
    for path in (
        f"{V0}/{row.public_id}",
        V0,
        f"/api/v1/app-conversations?ids={v1.ID}",
        "/api/v1/app-conversations/search",
        "/api/v1/sandboxes/search",
    ):
        shown = [(await rest.get(path, headers=bearer(key))).text for key in (tokens["owner"], small)]
        assert ["ck_" in text for text in shown] == [True, False]


async def test_a_token_makes_none_that_can_do_more_or_lasts_longer(
    accounts: None, alice: User, rest: httpx.AsyncClient
) -> None:
    soon, later = (timezone.now() + timedelta(days=days) for days in (1, 2))
    grant = Grant(scopes=[Scope.ADMIN, Scope.READ], expires_at=soon)
    headers = bearer((await astore.call(ApiToken.issue, alice.pk, "small", grant))[1])
    statuses = []
    for scopes, end in (
        (["admin", "write"], soon),
        (["admin"], later),
        (["admin"], None),
        (["read"], soon),
    ):
        body = {"name": "next", "scopes": scopes, "expires_at": end.isoformat() if end else None}
        statuses.append((await rest.post("/api/native/tokens", json=body, headers=headers)).status_code)
    assert statuses == [403, 403, 403, 201]


SENSELESS: list[tuple[dict[str, Any], str]] = [
    ({"scopes": []}, "scopes"),
    ({"scopes": ["fly"]}, "scopes"),
    ({"scopes": "read"}, "scopes"),
    ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
    ({"expires_at": "soon"}, "expires_at"),
]


async def test_a_token_that_makes_no_sense_is_not_made(
    rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for members, named in SENSELESS:
        with subtests.test(members=members, named=named):
            answer = await rest.post("/api/native/tokens", json={"name": "n", **members})
            assert answer.status_code == 400
            assert named in answer.json()["detail"]


async def test_a_token_is_listed_with_what_it_opens_and_until_when(
    conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    end = "2099-01-01T00:00:00Z"
    body = {"name": "n", "scopes": ["run", "read"], "conversation": "talk", "expires_at": end}
    made = (await rest.post("/api/native/tokens", json=body)).json()
    shown = {name: made[name] for name in ("scopes", "conversation", "expires_at", "revoked_at")}
    wanted = {"scopes": ["read", "run"], "conversation": "talk", "expires_at": end, "revoked_at": None}
    assert shown == wanted
    (listed,) = (await rest.get("/api/native/tokens")).json()["tokens"]
    assert listed == {name: value for name, value in made.items() if name != "token"}
    nowhere = await rest.post("/api/native/tokens", json={**body, "conversation": "nowhere"})
    assert nowhere.status_code == 404


async def test_a_strangers_answer_is_that_for_what_never_existed_and_for_what_was_deleted(
    accounts: None,
    conversation: ConversationRef,
    deleted: ConversationRef,
    tokens: dict[str, str],
    rest: httpx.AsyncClient,
) -> None:
    key = tokens["stranger"]
    different = [
        str(row)
        for row in CONVERSATION_ROWS
        if len(await whole_answers(rest, row, "talk", "gone", "none", key=key)) > 1
    ]
    assert different == ["PATCH /api/conversations/{id}"]  # the one wire that tells, in this one place


async def test_nobody_is_told_whether_a_conversation_exists(
    accounts: None, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    different = [
        str(row) for row in CONVERSATION_ROWS if len(await whole_answers(rest, row, "talk", "none")) > 1
    ]
    assert different == []


async def test_a_list_holds_the_askers_own_conversations_only(
    accounts: None, conversation: ConversationRef, bob: User, tokens: dict[str, str], rest: httpx.AsyncClient
) -> None:
    await astore.call(creation.create, bob, conversation_id="bobs")
    for who, own in (("owner", ["talk"]), ("stranger", ["bobs"])):
        answer = await rest.get(NATIVE, headers=bearer(tokens[who]))
        assert [each["id"] for each in answer.json()["conversations"]] == own


async def test_a_deleted_list_holds_the_askers_own_conversations_only(
    accounts: None, deleted: ConversationRef, tokens: dict[str, str], rest: httpx.AsyncClient
) -> None:
    answers = [
        await rest.get(NATIVE, params={"deleted": "true"}, headers=bearer(tokens[who]))
        for who in ("owner", "stranger")
    ]
    assert [[each["id"] for each in answer.json()["conversations"]] for answer in answers] == [["gone"], []]


async def test_an_id_that_is_taken_is_refused_alike_whoever_took_it_and_deleted_or_not(
    accounts: None,
    conversation: ConversationRef,
    deleted: ConversationRef,
    tokens: dict[str, str],
    rest: httpx.AsyncClient,
) -> None:
    statuses = [
        (await rest.post(NATIVE, json={"id": taken}, headers=bearer(tokens[who]))).status_code
        for taken in ("talk", "gone")
        for who in ("owner", "stranger")
    ]
    assert statuses == [409, 409, 409, 409]


# Both sockets, in accounts mode


async def test_a_socket_without_credentials_closes_when_no_auth_frame_comes(
    accounts: None, dial: Dial, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.02)
    for path in NATIVE_SOCKETS:
        with subtests.test(path):
            assert (await refusal(dial, path))[0] == 4401


async def test_a_socket_closes_at_once_on_a_key_that_opens_nothing(
    accounts: None, useless_keys: dict[str, str], dial: Dial, subtests: pytest.Subtests
) -> None:
    for path, key in product(NATIVE_SOCKETS, ["wrong", "revoked", "inactive"]):
        with subtests.test(path=path, key=key):
            assert await refusal(dial, path, token=useless_keys[key]) == (
                4401,
                "This key is unknown or was revoked.",
            )


async def test_a_stranger_joins_neither_a_standing_nor_a_deleted_conversation(
    accounts: None,
    conversation: ConversationRef,
    deleted: ConversationRef,
    tokens: dict[str, str],
    dial: Dial,
) -> None:
    refusals = [
        await refusal(dial, f"/ws/conversations/{conversation_id}", token=tokens["stranger"])
        for conversation_id in ("talk", "gone")
    ]
    assert refusals == [(4404, "Conversation not found.")] * 2


async def test_only_the_owner_is_told_that_a_conversation_was_deleted_and_can_be_restored(
    accounts: None,
    conversation: ConversationRef,
    deleted: ConversationRef,
    alice: User,
    tokens: dict[str, str],
    rest: httpx.AsyncClient,
    dial: Dial,
) -> None:
    only_talk = Grant(conversation=conversation)
    keys = {**tokens, "owner, for another": (await astore.call(ApiToken.issue, alice.pk, "t", only_talk))[1]}
    told = "The conversation was deleted. You can restore it."
    how = f" Send POST to {NATIVE}/gone/restore, or open “Deleted conversations” in the browser."
    for who, key in keys.items():
        said, more = (told, how) if who == "owner" else ("Conversation not found.", "")
        assert await refusal(dial, "/ws/conversations/gone", token=key) == (4404, said), who
        for path in (f"{NATIVE}/gone", f"{NATIVE}/gone/events"):
            answer = await rest.get(path, headers=bearer(key))
            assert (answer.status_code, answer.json()) == (
                404,
                {"code": "not_found", "detail": said + more},
            ), who


async def test_a_join_of_a_new_id_makes_it_the_joiners_own(
    accounts: None, bob: User, tokens: dict[str, str], dial: Dial
) -> None:
    await greeting(dial, "/ws/conversations/new", token=tokens["stranger"])
    assert await astore.call(lambda: Conversation.objects.get(public_id="new").owner_id) == bob.pk


async def test_an_address_without_a_socket_closes_with_4404(dial: Dial) -> None:
    for path in ("/ws/nowhere", "/agent/app-backends/some-app/feed"):
        assert (await refusal(dial, path))[0] == 4404, path


async def test_a_first_auth_frame_opens_a_socket_and_is_acknowledged(
    accounts: None,
    conversation: ConversationRef,
    tokens: dict[str, str],
    dial: Dial,
    subtests: pytest.Subtests,
) -> None:
    for path in NATIVE_SOCKETS:
        with subtests.test(path):
            client = await dial(path)
            await client.send({"type": "auth", "id": "a", "token": tokens["owner"]})
            frames = [await client.receive() for _ in range(2)]
            assert frames[0] == {"type": "ack", "id": "a"}
            assert frames[1]["type"] == "hello"


FIRST_FRAMES: dict[str, Any] = {
    "wrong token": {"type": "auth", "token": "cs_wrong"},
    "unsendable token": {"type": "auth", "token": "half of a pair: \ud800"},
    "number as a token": {"type": "auth", "token": 5},
    "no token": {"type": "auth"},
    "another frame": {"type": "message", "text": "let me in"},
    "no JSON": "no JSON",
}


async def test_a_first_frame_that_opens_nothing_closes_the_socket(
    accounts: None, dial: Dial, subtests: pytest.Subtests
) -> None:
    for path, (name, frame) in product(NATIVE_SOCKETS, FIRST_FRAMES.items()):
        with subtests.test(name, path=path):
            client = await dial(path)
            await client.send(frame)
            assert (await client.closed()).code == 4401


async def test_a_first_frame_that_is_too_long_opens_nothing(
    accounts: None,
    conversation: ConversationRef,
    tokens: dict[str, str],
    dial: Dial,
    subtests: pytest.Subtests,
) -> None:
    for path in NATIVE_SOCKETS:
        with subtests.test(path):
            client = await dial(path)
            padding = " " * handshake.AUTH_FRAME_MAX_CHARACTERS
            await client.send(json.dumps({"type": "auth", "token": tokens["owner"]}) + padding)
            assert (await client.closed()).code == 4401


@pytest.fixture
def quick_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask often whether a socket's credentials still let it in."""
    monkeypatch.setattr(principals, "CHECK_S", 0.0)
    monkeypatch.setattr(native_reader, "HEARTBEAT_S", 0.02)
    monkeypatch.setattr(native_list, "HEARTBEAT_S", 0.02)


def end_all_tokens() -> None:
    for token in ApiToken.objects.all():
        token.revoke()


def end_all_users() -> None:
    User.objects.update(is_active=False)


def end_all_logins() -> None:
    Session.objects.all().delete()


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
@pytest.mark.parametrize("end", [end_all_tokens, end_all_users])
@pytest.mark.parametrize("by_frame", [False, True], ids=["header", "auth frame"])
async def test_a_socket_closes_when_its_token_opens_nothing_any_more(
    accounts: None,
    quick_checks: None,
    conversation: ConversationRef,
    tokens: dict[str, str],
    dial: Dial,
    path: str,
    end: Callable[[], None],
    by_frame: bool,
) -> None:
    client = await dial(path, token=None if by_frame else tokens["owner"])
    if by_frame:
        await client.send({"type": "auth", "token": tokens["owner"]})
    for _ in range(2):
        await client.until("heartbeat")
    await astore.call(end)
    assert (await client.closed()).code == 4401


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
@pytest.mark.parametrize("end", [end_all_logins, end_all_users])
async def test_a_socket_closes_when_its_login_is_over(
    accounts: None,
    quick_checks: None,
    conversation: ConversationRef,
    logged_in: dict[str, str],
    dial: Dial,
    path: str,
    end: Callable[[], None],
) -> None:
    client = await dial(path, headers=logged_in)
    for _ in range(2):
        await client.until("heartbeat")
    await astore.call(end)
    assert (await client.closed()).code == 4401


async def test_an_auth_frame_that_comes_too_late_opens_nothing(
    accounts: None,
    tokens: dict[str, str],
    dial: Dial,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.0)
    for path in NATIVE_SOCKETS:
        with subtests.test(path):
            client = await dial(path)
            closed = await client.closed()
            await client.send({"type": "auth", "token": tokens["owner"]})
            assert closed.code == 4401


async def test_a_later_auth_frame_is_acknowledged_and_changes_nothing(
    accounts: None, conversation: ConversationRef, tokens: dict[str, str], dial: Dial
) -> None:
    client = await dial("/ws/conversations/talk", token=tokens["owner"])
    await client.until("hello")
    await client.send({"type": "auth", "id": 1, "token": tokens["stranger"]})
    assert await client.until("ack") == {"type": "ack", "id": 1}


# Keys


async def test_a_token_opens_the_rest_door_by_either_header(
    accounts: None, tokens: dict[str, str], rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for header in ["authorization", "x-session-api-key"]:
        with subtests.test(header=header):
            prefix = "Bearer " if header == "authorization" else ""
            answer = await rest.get(NATIVE, headers={header: prefix + tokens["owner"]})
            assert answer.status_code == 200


async def test_a_key_that_opens_nothing_is_answered_with_401(
    accounts: None, useless_keys: dict[str, str], rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for key in ["wrong", "revoked", "inactive"]:
        with subtests.test(key=key):
            answer = await rest.get(NATIVE, headers=bearer(useless_keys[key]))
            detail = "This key is unknown or was revoked. Log in, or send a token."
            assert (answer.status_code, answer.json()) == (
                401,
                {"code": "authentication_failed", "detail": detail},
            )
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_whoever_brings_no_credentials_is_told_what_to_bring(
    accounts: None, conversation: ConversationRef, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in [NATIVE, f"{NATIVE}/talk/events", "/api/native/tokens", "/api/schema/"]:
        with subtests.test(path):
            answer = await rest.get(path)
            body = {"code": "not_authenticated", "detail": "Log in, or send a token."}
            assert (answer.status_code, answer.json()) == (401, body)
            assert answer.headers["www-authenticate"] == "Bearer"


async def test_a_token_in_another_form_than_bearer_is_told_the_form(
    accounts: None, tokens: dict[str, str], rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for header in ["Token {}", "{}", "Basic {}"]:
        with subtests.test(header=header):
            answer = await rest.get(NATIVE, headers={"authorization": header.format(tokens["owner"])})
            detail = "The `Authorization` header must be `Bearer`, a space, and a token."
            assert (answer.status_code, answer.json()["detail"]) == (401, detail)


async def test_a_token_in_the_address_opens_no_rest_door(
    accounts: None, tokens: dict[str, str], rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for name in ["token", "session_api_key", "api_key", "access_token"]:
        with subtests.test(name):
            assert (await rest.get(NATIVE, params={name: tokens["owner"]})).status_code == 401


async def test_a_token_in_the_address_opens_no_socket(
    accounts: None,
    tokens: dict[str, str],
    dial: Dial,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.02)
    for path in NATIVE_SOCKETS:
        with subtests.test(path):
            assert (await refusal(dial, path, query={"token": tokens["owner"]}))[0] == 4401


def test_only_the_digest_of_a_token_is_stored(alice: User) -> None:
    row, text = ApiToken.issue(alice.pk, "laptop")
    stored = ApiToken.objects.values().get(pk=row.pk)
    assert stored["digest"] == sha256(text.encode()).hexdigest()
    assert not any(text[len(stored["prefix"]) :] in str(value) for value in stored.values())


async def test_the_use_of_a_token_is_written_once_a_minute_at_most(
    accounts: None, tokens: dict[str, str], rest: httpx.AsyncClient, alice: User
) -> None:
    async def used_at() -> datetime | None:
        await rest.get(NATIVE, headers=bearer(tokens["owner"]))
        return await astore.call(lambda: ApiToken.objects.get(user=alice).last_used_at)

    first = await used_at()
    assert first is not None
    assert await used_at() == first
    await astore.call(ApiToken.objects.filter(user=alice).update, last_used_at=first - timedelta(seconds=61))
    callers.get_callers().forget(alice.pk)  # as it is after a second
    assert await used_at() not in (first - timedelta(seconds=61), None)


def test_reading_with_a_token_that_was_used_just_now_writes_nothing(
    accounts: None, tokens: dict[str, str]
) -> None:
    headers = {"host": "localhost", **bearer(tokens["owner"])}
    for _ in range(2):
        with CaptureQueriesContext(connection) as captured:
            assert Browser().get(NATIVE, headers=headers).status_code == 200
    assert [each["sql"] for each in captured if not each["sql"].startswith("SELECT")] == []


# A login


async def test_a_wrong_key_is_refused_whatever_login_comes_with_it(
    accounts: None,
    conversation: ConversationRef,
    logged_in: dict[str, str],
    rest: httpx.AsyncClient,
    dial: Dial,
) -> None:
    headers = {**logged_in, **bearer("cs_wrong")}
    assert (await rest.get(NATIVE, headers=headers)).status_code == 401
    assert [(await refusal(dial, path, headers=headers))[0] for path in NATIVE_SOCKETS] == [4401, 4401]


async def test_of_two_keys_the_one_that_is_valid_counts(
    accounts: None,
    conversation: ConversationRef,
    tokens: dict[str, str],
    rest: httpx.AsyncClient,
    dial: Dial,
) -> None:
    headers = {"x-session-api-key": "cs_wrong", **bearer(tokens["owner"])}
    assert (await rest.get(NATIVE, headers=headers)).status_code == 200
    assert (await greeting(dial, NATIVE_SOCKETS[0], headers=headers))["type"] == "hello"


async def test_a_login_reads_without_a_csrf_token(
    accounts: None, logged_in: dict[str, str], rest: httpx.AsyncClient
) -> None:
    assert (await rest.get(NATIVE, headers=logged_in)).status_code == 200


async def test_a_login_cannot_write_without_a_csrf_token(
    accounts: None, logged_in: dict[str, str], rest: httpx.AsyncClient
) -> None:
    answer = await rest.post(NATIVE, headers=logged_in)
    assert (answer.status_code, answer.json()["code"]) == (403, "permission_denied")


async def test_a_login_writes_with_its_csrf_token(
    accounts: None, logged_in: dict[str, str], rest: httpx.AsyncClient
) -> None:
    cookie = f"{logged_in['cookie']}; csrftoken={CSRF}"
    answer = await rest.post(NATIVE, headers={"cookie": cookie, "x-csrftoken": CSRF})
    assert answer.status_code == 201


async def test_a_login_writes_what_its_body_says_at_every_door(
    accounts: None, conversation: ConversationRef, logged_in: dict[str, str], rest: httpx.AsyncClient
) -> None:
    headers = {"cookie": f"{logged_in['cookie']}; csrftoken={CSRF}", "x-csrftoken": CSRF}
    said = await rest.post(f"{V0}/talk/message", json={"message": "hello"}, headers=headers)
    made = await rest.post(NATIVE, json={"id": "made"}, headers=headers)
    assert (said.status_code, made.json()["id"]) == (200, "made")


async def test_a_login_under_an_earlier_secret_key_opens_sockets_again_and_again(
    accounts: None,
    conversation: ConversationRef,
    logged_in: dict[str, str],
    dial: Dial,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(settings, "SECRET_KEY_FALLBACKS", [settings.SECRET_KEY])
    monkeypatch.setattr(settings, "SECRET_KEY", "another key of at least 32 characters")
    for _ in range(2):
        greeted = await greeting(dial, "/ws/conversations", headers=logged_in)
        assert greeted["type"] == "hello"


async def test_a_cookie_that_is_no_login_opens_no_socket(
    accounts: None, dial: Dial, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.02)
    for cookie in ["sessionid=unknown", 'sessionid="\\000aaaaaaaa"', "sessionid", "="]:
        with subtests.test(cookie=cookie):
            assert (await refusal(dial, "/ws/conversations", headers={"cookie": cookie}))[0] == 4401


async def test_the_login_of_an_inactive_user_opens_nothing(
    accounts: None, logged_in: dict[str, str], rest: httpx.AsyncClient
) -> None:
    await astore.call(User.objects.update, is_active=False)
    assert (await rest.get(NATIVE, headers=logged_in)).status_code == 401


async def test_a_login_opens_the_first_page(
    accounts: None, logged_in: dict[str, str], rest: httpx.AsyncClient
) -> None:
    assert (await rest.get("/", headers=logged_in)).status_code == 200


@pytest.mark.parametrize(("is_staff", "status"), [(True, 200), (False, 302)])
async def test_admin_pages_need_staff(
    accounts: None, bob: User, rest: httpx.AsyncClient, is_staff: bool, status: int
) -> None:
    await astore.call(User.objects.filter(pk=bob.pk).update, is_staff=is_staff)
    headers = {"cookie": await astore.call(login_cookie, bob)}
    assert (await rest.get("/admin/", headers=headers)).status_code == status


# Local mode


async def test_in_local_mode_everybody_is_the_local_user(
    conversation: ConversationRef, rest: httpx.AsyncClient, dial: Dial
) -> None:
    assert [each["id"] for each in (await rest.get(NATIVE)).json()["conversations"]] == ["talk"]
    assert (await greeting(dial, "/ws/conversations/talk"))["type"] == "hello"


async def test_in_local_mode_pages_need_no_login(rest: httpx.AsyncClient, subtests: pytest.Subtests) -> None:
    for path in ["/", "/admin/"]:
        with subtests.test(path):
            assert (await rest.get(path)).status_code == 200


async def test_in_local_mode_a_post_needs_no_csrf_token(rest: httpx.AsyncClient) -> None:
    assert (await rest.post(NATIVE)).status_code == 201


async def test_in_local_mode_keys_that_open_nothing_are_ignored(
    conversation: ConversationRef,
    useless_keys: dict[str, str],
    rest: httpx.AsyncClient,
    dial: Dial,
    subtests: pytest.Subtests,
) -> None:
    for key in ["wrong", "revoked", "inactive"]:
        with subtests.test(key=key):
            assert (await rest.get(f"{NATIVE}/talk", headers=bearer(useless_keys[key]))).status_code == 200
            hello = await greeting(dial, "/ws/conversations/talk", token=useless_keys[key])
            assert hello["type"] == "hello"


@pytest.fixture
def server_key(configured: Callable[..., None]) -> str:
    configured(session_api_key="the server's key")
    return "the server's key"


async def test_a_server_key_closes_the_rest_door_of_local_mode(
    server_key: str, conversation: ConversationRef, rest: httpx.AsyncClient
) -> None:
    is_open = {"app-web-client-config"}  # what a client asks before it knows any key
    rows = [row for row in ROWS if row.path.startswith("/api/") and row.route not in is_open]
    statuses = {str(row): (await ask(rest, row)).status_code for row in rows}
    assert statuses == dict.fromkeys(map(str, rows), 401)


async def test_a_server_key_closes_the_pages_of_local_mode(
    server_key: str, rest: httpx.AsyncClient, subtests: pytest.Subtests
) -> None:
    for path in ["/", "/admin/"]:
        with subtests.test(path):
            assert (await rest.get(path)).status_code == 302


async def test_a_server_key_closes_the_sockets_of_local_mode(
    server_key: str, dial: Dial, monkeypatch: pytest.MonkeyPatch, subtests: pytest.Subtests
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.02)
    for path in NATIVE_SOCKETS:
        with subtests.test(path):
            assert (await refusal(dial, path))[0] == 4401


async def test_the_server_key_opens_local_mode_by_either_header(
    server_key: str,
    conversation: ConversationRef,
    rest: httpx.AsyncClient,
    dial: Dial,
    subtests: pytest.Subtests,
) -> None:
    for header in ["authorization", "x-session-api-key"]:
        with subtests.test(header=header):
            headers = {header: server_key if header != "authorization" else f"Bearer {server_key}"}
            assert (await rest.get(f"{NATIVE}/talk", headers=headers)).status_code == 200
            assert (await greeting(dial, "/ws/conversations/talk", headers=headers))["type"] == "hello"


async def test_the_server_key_opens_a_socket_by_an_auth_frame(
    server_key: str, conversation: ConversationRef, dial: Dial
) -> None:
    client = await dial("/ws/conversations/talk")
    await client.send({"type": "auth", "token": server_key})
    assert (await client.receive())["type"] == "hello"


async def test_a_wrong_server_key_is_answered_with_401(server_key: str, rest: httpx.AsyncClient) -> None:
    answer = await rest.get(NATIVE, headers={"x-session-api-key": "another key"})
    assert answer.status_code == 401


async def test_in_accounts_mode_the_server_key_is_the_first_superusers(
    accounts: None,
    server_key: str,
    conversation: ConversationRef,
    rest: httpx.AsyncClient,
) -> None:
    answer = await rest.get(f"{NATIVE}/talk", headers={"x-session-api-key": server_key})
    assert answer.status_code == 200


# create_token


def test_create_token_prints_a_token_of_the_user(bob: User) -> None:
    printed = StringIO()
    call_command("create_token", "bob", name="laptop", stdout=printed)
    token = ApiToken.objects.valid().matching(printed.getvalue().strip()).get()
    assert (token.user_id, token.name) == (bob.pk, "laptop")


def test_create_token_limits_a_token_to_the_scopes_that_are_named(bob: User) -> None:
    call_command("create_token", "bob", "--name", "memory", "--scope", "read", stdout=StringIO())
    call_command("create_token", "bob", "--name", "all", stdout=StringIO())
    issued = {token.name: token.scope_set for token in ApiToken.objects.all()}
    assert issued == {"memory": {Scope.READ}, "all": set(Scope)}
    with pytest.raises(CommandError, match="invalid choice"):
        call_command("create_token", "bob", "--name", "other", "--scope", "everything")


def test_create_token_gives_a_name_once_while_its_token_is_valid(bob: User) -> None:
    call_command("create_token", "bob", name="laptop", stdout=StringIO())
    with pytest.raises(CommandError, match="There is a token named “laptop” already"):
        call_command("create_token", "bob", name="laptop")
    ApiToken.objects.get().revoke()
    call_command("create_token", "bob", name="laptop", stdout=StringIO())
    assert ApiToken.objects.valid().count() == 1


WRONG_TOKENS: list[tuple[str, str, str]] = [
    ("nobody", "laptop", "There is no active user 'nobody'"),
    ("asleep", "laptop", "There is no active user 'asleep'"),
    ("bob", "", "A token's name has 1 to 100 characters"),
    ("bob", "n" * 101, "A token's name has 1 to 100 characters"),
]


def test_create_token_says_what_is_wrong(bob: User, subtests: pytest.Subtests) -> None:
    User.objects.create_user("asleep", is_active=False)
    for username, name, problem in WRONG_TOKENS:
        with subtests.test(username=username, name=name):
            with pytest.raises(CommandError, match=problem):
                call_command("create_token", username, name=name)
            assert not ApiToken.objects.exists()

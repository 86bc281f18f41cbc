"""Who may come in, by every address: an owner, a stranger and nobody, and by which key."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from io import StringIO
from typing import Any, TypedDict

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


class Statuses(TypedDict):
    """What the three are answered."""

    owner: int
    stranger: int
    nobody: int


OPEN_TO_ALL: Statuses = {"owner": 200, "stranger": 200, "nobody": 200}
THEIR_OWN: Statuses = {"owner": 200, "stranger": 200, "nobody": 401}
OWNERS: Statuses = {"owner": 200, "stranger": 404, "nobody": 401}


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """What one address answers to alice, to bob and to nobody, in accounts mode."""

    route: str
    method: str = "GET"
    path: str
    body: Any = None
    owner: int
    stranger: int
    nobody: int

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def statuses(self) -> Statuses:
        """What the three are answered."""
        return {"owner": self.owner, "stranger": self.stranger, "nobody": self.nobody}


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
        Row(route=route, path=path, owner=status, stranger=status, nobody=status)
        for route, path in dict.fromkeys((page.route, page.path) for page in PAGES)
        for status in [302 if path.partition("?")[0] in LOADED else 405]
    ),
    Row(route="alive", path="/alive", **OPEN_TO_ALL),
    Row(route="health", path="/health", **OPEN_TO_ALL),
    Row(route="ready", path="/ready", **OPEN_TO_ALL),
    Row(route="server-info", path="/server_info", **OPEN_TO_ALL),
    Row(route="metrics", path="/metrics", **OWNERS),
    Row(route="native-socket", path="/ws/conversations/{id}", owner=426, stranger=426, nobody=426),
    Row(route="schema", path="/api/schema/", **THEIR_OWN),
    Row(route="docs", path="/api/docs/", **THEIR_OWN),
    Row(route="login", path="/ui/login", **OPEN_TO_ALL),
    # In accounts mode without a server key the way by it leads to the other one.
    Row(route="key", path="/ui/key", owner=302, stranger=302, nobody=302),
    Row(route="logout", path="/ui/logout", owner=405, stranger=405, nobody=405),
    Row(route="logout", method="POST", path="/ui/logout", owner=403, stranger=403, nobody=403),
    Row(route="device-authorize", method="POST", path="/oauth/device/authorize", body={}, **OPEN_TO_ALL),
    # The codes are the only credentials.
    Row(route="device-token", method="POST", path="/oauth/device/token", owner=400, stranger=400, nobody=400),
    # It leads every id to the page, which decides.
    Row(route="openhands-conversation", path="/conversations/talk", owner=302, stranger=302, nobody=302),
    Row(route="app-model-key", path="/api/keys/llm/byor", **THEIR_OWN),
    Row(route="app-current-key", path="/api/keys/current", **THEIR_OWN),
    Row(route="admin", path="/admin/", owner=302, stranger=302, nobody=302),
    Row(route="admin", path="/admin/auth/user/", owner=302, stranger=302, nobody=302),
    Row(route="admin", path="/admin/sessions_app/remoteprogram/", owner=302, stranger=302, nobody=302),
    Row(route="admin", path="/admin/sessions_app/importrun/", owner=302, stranger=302, nobody=302),
    Row(route="admin", path="/admin/sessions_app/importrun/add/", owner=302, stranger=302, nobody=302),
    *(
        Row(route="admin", path=f"{ADMIN}{page}", owner=302, stranger=302, nobody=302)
        for page in ("", "1/change/", "1/events/", "1/events/0/", "1/events/0/payload/", "1/export/", "1/do/")
    ),
    Row(route="admin", method="POST", path=f"{ADMIN}1/do/", owner=403, stranger=403, nobody=403),
    Row(route="native-imports", path="/api/native/imports", **THEIR_OWN),
    Row(
        route="native-imports",
        method="POST",
        path="/api/native/imports",
        body={"file_name": "a.zip", "size": 9},
        owner=201,
        stranger=201,
        nobody=401,
    ),
    Row(route="native-import", path=IMPORT, **OWNERS),
    Row(route="native-import", method="DELETE", path=IMPORT, owner=204, stranger=404, nobody=401),
    Row(route="native-import-pieces", method="PUT", path=f"{IMPORT}/pieces?offset=0", **OWNERS),
    Row(
        route="native-import-start",
        method="POST",
        path=f"{IMPORT}/start",
        owner=409,  # nothing of its file is here
        stranger=404,
        nobody=401,
    ),
    Row(
        route="native-import-cancel",
        method="POST",
        path=f"{IMPORT}/cancel",
        owner=200,
        stranger=404,
        nobody=401,
    ),
    Row(route="native-import-conversations", path=f"{IMPORT}/conversations", **OWNERS),
    Row(route="v0-conversations", path=V0, **THEIR_OWN),
    Row(route="v0-conversations", method="POST", path=V0, body={}, **THEIR_OWN),
    Row(route="v0-conversation", path=V0 + "/{id}", **THEIR_OWN),  # the wire's null
    Row(
        route="v0-conversation",
        method="PATCH",
        path=V0 + "/{id}",
        body={"title": "new"},
        owner=200,
        stranger=403,  # the wire tells, here alone
        nobody=401,
    ),
    Row(route="v0-conversation", method="DELETE", path=V0 + "/{id}", **THEIR_OWN),  # the wire's false
    Row(route="v0-start", method="POST", path=V0 + "/{id}/start", body={}, **OWNERS),
    Row(route="v0-stop", method="POST", path=V0 + "/{id}/stop", **THEIR_OWN),  # "was not running"
    Row(route="v0-exp-config", method="POST", path=V0 + "/{id}/exp-config", body={}, **OWNERS),
    Row(route="v0-remember-prompt", path=V0 + "/{id}/remember-prompt?event_id=0", **OWNERS),
    Row(route="v0-events", path=V0 + "/{id}/events", **OWNERS),
    Row(route="v0-events", method="POST", path=V0 + "/{id}/events", body=V0_EVENT, **OWNERS),
    Row(route="v0-message", method="POST", path=V0 + "/{id}/message", body={"message": "hi"}, **OWNERS),
    Row(route="v0-trajectory", path=V0 + "/{id}/trajectory", **OWNERS),
    *(
        Row(route=f"v0-{name.replace('/', '-')}", path=f"{V0}/{{id}}/{name}", **OWNERS)
        for name in ("config", "microagents", "web-hosts", "vscode-url", "list-files", "git/changes")
    ),
    *(
        Row(
            route=f"v0-{name.partition('?')[0].replace('/', '-')}",
            path=f"{V0}/{{id}}/{name}",
            owner=404,  # there is no workspace
            stranger=404,
            nobody=401,
        )
        for name in ("select-file?file=a", "zip-directory", "git/diff?path=a")
    ),
    Row(
        route="v0-submit-feedback",
        method="POST",
        path=V0 + "/{id}/submit-feedback",
        body={"polarity": "positive"},
        **OWNERS,
    ),
    Row(
        route="v0-upload-files",
        method="POST",
        path=V0 + "/{id}/upload-files",
        owner=422,  # no form
        stranger=404,
        nobody=401,
    ),
    Row(
        route="v0-microagent-conversations",
        path="/api/microagent-management/conversations?selected_repository=owner/name",
        **THEIR_OWN,
    ),
    *(
        Row(route=f"v0-options-{what}", path=f"/api/options/{what}", **THEIR_OWN)
        for what in ("config", "models", "agents", "security-analyzers")
    ),
    Row(route="v0-settings", path="/api/settings", owner=404, stranger=404, nobody=401),  # nothing is set
    Row(route="v0-settings", method="POST", path="/api/settings", body={}, **THEIR_OWN),
    Row(
        route="v0-reset-settings",
        method="POST",
        path="/api/reset-settings",
        owner=410,
        stranger=410,
        nobody=401,
    ),
    Row(route="v0-secrets", path="/api/secrets", **THEIR_OWN),
    Row(
        route="v0-secrets",
        method="POST",
        path="/api/secrets",
        body={"name": "KEY", "value": "s"},
        owner=201,
        stranger=201,
        nobody=401,
    ),
    Row(
        route="v0-secret",
        method="PUT",
        path="/api/secrets/KEY",
        body={"name": "KEY"},
        owner=404,
        stranger=404,
        nobody=401,
    ),
    Row(route="v0-secret", method="DELETE", path="/api/secrets/KEY", owner=404, stranger=404, nobody=401),
    Row(route="v0-add-git-providers", method="POST", path="/api/add-git-providers", body={}, **THEIR_OWN),
    Row(route="v0-unset-provider-tokens", method="POST", path="/api/unset-provider-tokens", **THEIR_OWN),
    *(
        # Nobody here has a provider's token.
        Row(route=f"v0-{route}", path=f"/api/user/{path}", owner=401, stranger=401, nobody=401)
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
            route=route.name,
            method=route.method,
            path=f"{v1.AGENT}/{{id}}{route.path}",
            body=route.body,
            owner=route.owner,
            stranger=422,
            nobody=401,
        )
        for route in (*v1.BEYOND_ONE, *v1.ROUTES)
    ),
    *(
        Row(
            route=f"agent-{address.replace('/', '-')}",
            method=method.upper(),
            path=f"/agent/api/{address}",
            **THEIR_OWN,
        )
        for method, address in absent.EMPTY
    ),
    *(
        Row(
            route=f"agent-{address.replace('/', '-')}",
            method=method.upper(),
            path=f"/agent/api/{address}",
            owner=400,
            stranger=400,
            nobody=401,
        )
        for method, address in absent.REFUSED
    ),
    *(
        Row(
            route="agent-workspace-session",
            method=method,
            path="/agent/api/auth/workspace-session",
            owner=204,
            stranger=204,
            nobody=401,
        )
        for method in ("POST", "DELETE")
    ),
    *(
        Row(route=f"agent-llm-{what}", path=f"/agent/api/llm/{address}", **THEIR_OWN)
        for what, address in (
            ("list", "models"),
            ("verified", "models/verified"),
            ("providers", "providers"),
            ("connections", "provider-connections"),
            ("subscription", "subscription/openai/status"),
            ("subscription-models", "subscription/openai/models"),
        )
    ),
    Row(
        route="agent-llm-connections",
        method="POST",
        path="/agent/api/llm/provider-connections",
        body={},
        owner=400,
        stranger=400,
        nobody=401,
    ),
    *(
        Row(
            route=f"agent-{route}",
            method=method,
            path=f"/agent/api/{path}",
            body=body,
            owner=status,
            stranger=status,
            nobody=401,
        )
        for status, method, route, path, body in OF_A_USER
    ),
    Row(route="agent-conversations", path=f"{v1.AGENT}?ids={v1.ID}", **THEIR_OWN),
    Row(
        route="agent-conversations",
        method="POST",
        path=v1.AGENT,
        body=v1.START,
        owner=201,
        stranger=201,
        nobody=401,
    ),
    *(
        Row(route=f"agent-conversations-{what}", path=f"{v1.AGENT}/{what}", **THEIR_OWN)
        for what in ("search", "count")
    ),
    *(
        Row(route=f"agent-{what.replace('/', '-')}", path=f"/agent/api/{what}{rest}", **THEIR_OWN)
        for what, rest in (("tools", "/"), ("vscode/url", ""), ("git/changes", "/a"), ("git/diff", "/a"))
    ),
    Row(
        route="agent-file-upload",
        method="POST",
        path="/agent/api/file/upload/a",
        owner=404,  # no key of a conversation says whose file it is
        stranger=404,
        nobody=401,
    ),
    *(
        Row(route=f"agent-{what or 'root'}".replace("_", "-"), path=f"/agent/{what}", **OPEN_TO_ALL)
        for what in ("", "alive", "health", "ready", "server_info")
    ),
    Row(route="native-conversation-list", path=NATIVE, **THEIR_OWN),
    Row(
        route="native-conversation-list",
        method="POST",
        path=NATIVE,
        body={},
        owner=201,
        stranger=201,
        nobody=401,
    ),
    Row(route="native-conversation-detail", path=NATIVE + "/{id}", **OWNERS),
    Row(
        route="native-conversation-detail",
        method="PATCH",
        path=NATIVE + "/{id}",
        body={"title": "new"},
        **OWNERS,
    ),
    Row(
        route="native-conversation-detail",
        method="DELETE",
        path=NATIVE + "/{id}",
        owner=204,
        stranger=404,
        nobody=401,
    ),
    *(
        Row(route=f"native-conversation-{action}", method="POST", path=f"{NATIVE}/{{id}}/{action}", **OWNERS)
        for action in ("restore", "run", "pause", "stop")
    ),
    Row(
        route="native-conversation-rotate-key",
        method="POST",
        path=NATIVE + "/{id}/rotate-key",
        owner=204,
        stranger=404,
        nobody=401,
    ),
    Row(
        route="native-conversation-confirm",
        method="POST",
        path=NATIVE + "/{id}/confirm",
        body={"accept": True},
        owner=409,
        stranger=404,
        nobody=401,
    ),
    Row(
        route="native-batch",
        method="POST",
        path="/api/native/batch",
        body={"action": "archive", "ids": ["talk"]},
        **THEIR_OWN,
    ),
    Row(route="native-labels", path="/api/native/labels", **THEIR_OWN),
    Row(route="native-account-export", path="/api/native/export", **THEIR_OWN),
    Row(route="native-export", path=NATIVE + "/{id}/export", **OWNERS),
    Row(route="native-events", path=NATIVE + "/{id}/events", **OWNERS),
    Row(route="native-events", method="POST", path=NATIVE + "/{id}/events", body=MESSAGE, **OWNERS),
    Row(route="native-conversation-draft", path=NATIVE + "/{id}/draft", **OWNERS),
    Row(route="native-conversation-draft", method="PUT", path=NATIVE + "/{id}/draft", body=DRAFT, **OWNERS),
    Row(
        route="native-conversation-fork",
        method="POST",
        path=NATIVE + "/{id}/fork",
        owner=201,
        stranger=404,
        nobody=401,
    ),
    Row(  # the conversation is no fork
        route="native-conversation-fork-progress",
        path=NATIVE + "/{id}/fork-progress",
        owner=404,
        stranger=404,
        nobody=401,
    ),
    Row(
        route="native-conversation-fork-progress",
        method="DELETE",
        path=NATIVE + "/{id}/fork-progress",
        owner=404,
        stranger=404,
        nobody=401,
    ),
    Row(route="native-conversation-branches", path=NATIVE + "/{id}/branches", **OWNERS),
    Row(route="native-conversation-pending-calls", path=NATIVE + "/{id}/pending-calls", **OWNERS),
    Row(route="native-conversation-options", path=NATIVE + "/{id}/options", **OWNERS),
    Row(
        route="native-conversation-options",
        method="PATCH",
        path=NATIVE + "/{id}/options",
        body={"max_tokens": 1000},
        **OWNERS,
    ),
    Row(route="native-agents", path="/api/native/agents", **THEIR_OWN),
    Row(route="native-conversation-receipts", path=NATIVE + "/{id}/receipts", **OWNERS),
    Row(route="native-stream", path=NATIVE + "/{id}/stream?follow=false", **OWNERS),
    Row(route="native-list-stream", path="/api/native/stream?follow=false", **THEIR_OWN),
    Row(route="native-draft", path="/api/native/draft", **THEIR_OWN),
    Row(route="native-draft", method="PUT", path="/api/native/draft", body=DRAFT, **THEIR_OWN),
    Row(route="native-search", path="/api/native/search?q=hello", **THEIR_OWN),
    Row(route="native-search", path="/api/native/search?q=hello&conversation={id}", **OWNERS),
    Row(route="native-token-list", path="/api/native/tokens", **THEIR_OWN),
    Row(
        route="native-token-list",
        method="POST",
        path="/api/native/tokens",
        body={"name": "phone"},
        owner=201,
        stranger=201,
        nobody=401,
    ),
    Row(
        route="native-token-detail",
        method="DELETE",
        path="/api/native/tokens/{token}",
        owner=204,
        stranger=404,
        nobody=401,
    ),
    *(
        # Nobody has such a conversation here; `test_v1_app_face.py` asks where somebody has.
        Row(
            route=route.name,
            method=route.method,
            path=route.path,
            body=route.body,
            owner=route.empty[0] if route.empty else route.stranger,
            stranger=route.empty[1] if route.empty else route.stranger,
            nobody=route.nobody,
        )
        for route in app_face.ROUTES
    ),
]

PAGE_ROUTES = {page.route for page in PAGES}
ALIKE_ROWS = [row for row in ROWS if row.owner == row.stranger == row.nobody]
"""Rows of addresses that nobody needs a key for, or that no key opens: asking changes nothing."""
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
    """A conversation that alice has deleted."""
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
    nobody, stranger, owner = [
        (await ask(rest, row, key=tokens.get(who))).status_code for who in ("nobody", "stranger", "owner")
    ]
    return {"owner": owner, "stranger": stranger, "nobody": nobody}


async def test_each_route_that_tells_nobody_apart_answers_all_alike(
    accounts: None, conversation: ConversationRef, tokens: dict[str, str], rest: httpx.AsyncClient
) -> None:
    different = {
        str(row): found for row in ALIKE_ROWS if (found := await statuses(rest, row, tokens)) != row.statuses
    }
    assert different == {}


@pytest.mark.parametrize("row", [row for row in ROWS if row not in ALIKE_ROWS], ids=str)
async def test_each_route_answers_as_its_row_says(
    accounts: None,
    conversation: ConversationRef,
    tokens: dict[str, str],
    rest: httpx.AsyncClient,
    row: Row,
) -> None:
    assert await statuses(rest, row, tokens) == row.statuses


API_ROWS = [row for row in ROWS if row.path.startswith(("/api/", "/agent/")) and row.nobody == 401]
"""Rows that need credentials of a program."""


def all_but(scope: Scope | None) -> Grant:
    """Return a grant of everything else; where each frame says what it needs, of reading alone."""
    return Grant(scopes=[each for each in Scope if each != scope] if scope else [Scope.READ])


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
            if answer.status_code != row.nobody:
                wrong[str(row), why] = (answer.status_code, row.nobody)
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
        is_of_its_face = not is_about_another and path.startswith(("/agent/api/", v1.SHARED))
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


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"scopes": []}, "scopes"),
        ({"scopes": ["fly"]}, "scopes"),
        ({"scopes": "read"}, "scopes"),
        ({"expires_at": "2020-01-01T00:00:00Z"}, "expires_at"),
        ({"expires_at": "soon"}, "expires_at"),
    ],
)
async def test_a_token_that_makes_no_sense_is_not_made(
    rest: httpx.AsyncClient, members: dict[str, Any], field: str
) -> None:
    answer = await rest.post("/api/native/tokens", json={"name": "n", **members})
    assert answer.status_code == 400
    assert field in answer.json()["detail"]


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


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
async def test_a_socket_without_credentials_closes_when_no_auth_frame_comes(
    accounts: None, dial: Dial, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.02)
    assert (await refusal(dial, path))[0] == 4401


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
@pytest.mark.parametrize("key", ["wrong", "revoked", "inactive"])
async def test_a_socket_closes_at_once_on_a_key_that_opens_nothing(
    accounts: None, useless_keys: dict[str, str], dial: Dial, path: str, key: str
) -> None:
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
    assert (await refusal(dial, "/ws/nowhere"))[0] == 4404


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
async def test_a_first_auth_frame_opens_a_socket_and_is_acknowledged(
    accounts: None, conversation: ConversationRef, tokens: dict[str, str], dial: Dial, path: str
) -> None:
    client = await dial(path)
    await client.send({"type": "auth", "id": "a", "token": tokens["owner"]})
    frames = [await client.receive() for _ in range(2)]
    assert frames[0] == {"type": "ack", "id": "a"}
    assert frames[1]["type"] == "hello"


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
@pytest.mark.parametrize(
    "frame",
    [
        {"type": "auth", "token": "cs_wrong"},
        {"type": "auth", "token": "half of a pair: \ud800"},
        {"type": "auth", "token": 5},
        {"type": "auth"},
        {"type": "message", "text": "let me in"},
        "no JSON",
    ],
    ids=["wrong token", "unsendable token", "number as a token", "no token", "another frame", "no JSON"],
)
async def test_a_first_frame_that_opens_nothing_closes_the_socket(
    accounts: None, dial: Dial, path: str, frame: Any
) -> None:
    client = await dial(path)
    await client.send(frame)
    assert (await client.closed()).code == 4401


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
async def test_a_first_frame_that_is_too_long_opens_nothing(
    accounts: None, conversation: ConversationRef, tokens: dict[str, str], dial: Dial, path: str
) -> None:
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


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
async def test_an_auth_frame_that_comes_too_late_opens_nothing(
    accounts: None, tokens: dict[str, str], dial: Dial, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.0)
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


@pytest.mark.parametrize("header", ["authorization", "x-session-api-key"])
async def test_a_token_opens_the_rest_door_by_either_header(
    accounts: None, tokens: dict[str, str], rest: httpx.AsyncClient, header: str
) -> None:
    prefix = "Bearer " if header == "authorization" else ""
    answer = await rest.get(NATIVE, headers={header: prefix + tokens["owner"]})
    assert answer.status_code == 200


@pytest.mark.parametrize("key", ["wrong", "revoked", "inactive"])
async def test_a_key_that_opens_nothing_is_answered_with_401(
    accounts: None, useless_keys: dict[str, str], rest: httpx.AsyncClient, key: str
) -> None:
    answer = await rest.get(NATIVE, headers=bearer(useless_keys[key]))
    detail = "This key is unknown or was revoked. Log in, or send a token."
    assert (answer.status_code, answer.json()) == (401, {"code": "authentication_failed", "detail": detail})
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("path", [NATIVE, f"{NATIVE}/talk/events", "/api/native/tokens", "/api/schema/"])
async def test_whoever_brings_no_credentials_is_told_what_to_bring(
    accounts: None, conversation: ConversationRef, rest: httpx.AsyncClient, path: str
) -> None:
    answer = await rest.get(path)
    body = {"code": "not_authenticated", "detail": "Log in, or send a token."}
    assert (answer.status_code, answer.json()) == (401, body)
    assert answer.headers["www-authenticate"] == "Bearer"


@pytest.mark.parametrize("header", ["Token {}", "{}", "Basic {}"])
async def test_a_token_in_another_form_than_bearer_is_told_the_form(
    accounts: None, tokens: dict[str, str], rest: httpx.AsyncClient, header: str
) -> None:
    answer = await rest.get(NATIVE, headers={"authorization": header.format(tokens["owner"])})
    detail = "The `Authorization` header must be `Bearer`, a space, and a token."
    assert (answer.status_code, answer.json()["detail"]) == (401, detail)


@pytest.mark.parametrize("name", ["token", "session_api_key", "api_key", "access_token"])
async def test_a_token_in_the_address_opens_no_rest_door(
    accounts: None, tokens: dict[str, str], rest: httpx.AsyncClient, name: str
) -> None:
    assert (await rest.get(NATIVE, params={name: tokens["owner"]})).status_code == 401


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
async def test_a_token_in_the_address_opens_no_socket(
    accounts: None, tokens: dict[str, str], dial: Dial, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.02)
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


@pytest.mark.parametrize("cookie", ["sessionid=unknown", 'sessionid="\\000aaaaaaaa"', "sessionid", "="])
async def test_a_cookie_that_is_no_login_opens_no_socket(
    accounts: None, dial: Dial, monkeypatch: pytest.MonkeyPatch, cookie: str
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.02)
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


@pytest.mark.parametrize("path", ["/", "/admin/"])
async def test_in_local_mode_pages_need_no_login(rest: httpx.AsyncClient, path: str) -> None:
    assert (await rest.get(path)).status_code == 200


async def test_in_local_mode_a_post_needs_no_csrf_token(rest: httpx.AsyncClient) -> None:
    assert (await rest.post(NATIVE)).status_code == 201


@pytest.mark.parametrize("key", ["wrong", "revoked", "inactive"])
async def test_in_local_mode_keys_that_open_nothing_are_ignored(
    conversation: ConversationRef,
    useless_keys: dict[str, str],
    rest: httpx.AsyncClient,
    dial: Dial,
    key: str,
) -> None:
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


@pytest.mark.parametrize("path", ["/", "/admin/"])
async def test_a_server_key_closes_the_pages_of_local_mode(
    server_key: str, rest: httpx.AsyncClient, path: str
) -> None:
    assert (await rest.get(path)).status_code == 302


@pytest.mark.parametrize("path", NATIVE_SOCKETS)
async def test_a_server_key_closes_the_sockets_of_local_mode(
    server_key: str, dial: Dial, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshake, "AUTH_WAIT_S", 0.02)
    assert (await refusal(dial, path))[0] == 4401


@pytest.mark.parametrize("header", ["authorization", "x-session-api-key"])
async def test_the_server_key_opens_local_mode_by_either_header(
    server_key: str, conversation: ConversationRef, rest: httpx.AsyncClient, dial: Dial, header: str
) -> None:
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


@pytest.mark.parametrize(
    ("username", "name", "problem"),
    [
        ("nobody", "laptop", "There is no active user 'nobody'"),
        ("asleep", "laptop", "There is no active user 'asleep'"),
        ("bob", "", "A token's name has 1 to 100 characters"),
        ("bob", "n" * 101, "A token's name has 1 to 100 characters"),
    ],
)
def test_create_token_says_what_is_wrong(bob: User, username: str, name: str, problem: str) -> None:
    User.objects.create_user("asleep", is_active=False)
    with pytest.raises(CommandError, match=problem):
        call_command("create_token", username, name=name)
    assert not ApiToken.objects.exists()

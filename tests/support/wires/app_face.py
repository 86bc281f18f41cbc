"""The app face of the V1 wire as tests ask it: addresses, bodies, and conversations that it knows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass
from typing import Any
from uuid import UUID, uuid4

import httpx
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client as Browser
from django.test.utils import CaptureQueriesContext

from conversations import dialects
from conversations.events import NewEvent
from conversations.models import ConversationRef, Version
from conversations.store import creation

APP = "/api/v1"
CONVERSATIONS = f"{APP}/app-conversations"
STARTS = f"{CONVERSATIONS}/start-tasks"
EVENTS = f"{APP}/events"
SANDBOXES = f"{APP}/sandboxes"

ID = "c7c6d34a-ca9d-4b3d-bbef-aed95f43880f"
HEX = UUID(ID).hex
SANDBOX = "64yKrYfCGvdogUefBVB7d9"
"""The sandbox of the conversation with that id."""
NONE = "5e1d9a7e3d574bd59a510a1f6f2b7c22"
"""An id that nobody has."""


def create(owner: User, conversation_id: str = ID, **columns: Any) -> ConversationRef:
    return creation.create(owner, conversation_id=conversation_id, version=Version.V1, **columns)


def child_of(parent: ConversationRef, owner: User, **columns: Any) -> ConversationRef:
    """Store a V1 conversation that another one has started."""
    return create(owner, uuid4().hex, parent_id=parent.pk, **columns)


def said(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def reported(text: str = "hello", *, event_id: str | None = None, **members: Any) -> dict[str, Any]:
    """Return a message as an agent server elsewhere has it."""
    return {
        "kind": "MessageEvent",
        "id": event_id or str(uuid4()),
        "timestamp": "2025-11-28T10:00:00.000000",
        "source": "user",
        "llm_message": said(text),
        **members,
    }


def event(text: str = "hello", **members: Any) -> NewEvent:
    """Return a V1 message as a stored event."""
    value = reported(text, **members)
    return NewEvent(event_id=value["id"], payload=json.dumps(value), reading=dialects.read(value))


async def answered(rest: httpx.AsyncClient, path: str, **query: Any) -> Any:
    response = await rest.get(path, params=query)
    assert response.status_code == 200, (path, response.text)
    return response.json()


async def ids(rest: httpx.AsyncClient, path: str, **query: Any) -> tuple[list[str], str | None]:
    """Return the ids of one page, and the next page's id."""
    body = await answered(rest, path, **query)
    return [item["id"] for item in body["items"]], body["next_page_id"]


async def all_ids(rest: httpx.AsyncClient, path: str, **query: Any) -> list[str]:
    found, page_id = await ids(rest, path, **query)
    while page_id is not None:
        more, page_id = await ids(rest, path, **query, page_id=page_id)
        found += more
    return found


def cost(path: str) -> int:
    browser = Browser(headers={"host": "localhost"})
    browser.get(path)  # the first request of a process looks up more than later ones
    with CaptureQueriesContext(connection) as queries:
        response = browser.get(path)
    assert response.status_code == 200, response.content
    return len(queries)


def repeated(name: str, values: Iterable[str]) -> str:
    """Return a query that repeats a parameter."""
    return "&".join(f"{name}={value}" for value in values)


@dataclass(frozen=True, slots=True)
class Route:
    """One operation, and what the owner of the conversation with ID and a stranger are answered."""

    name: str
    path: str
    _: KW_ONLY
    method: str = "GET"
    body: Any = None
    owner: int = 200
    stranger: int = 200
    empty: tuple[int, int] | None = None
    """What both are answered where there is no such conversation, unless that is `stranger`."""
    anonymous: int = 401

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


_NOT_THERE: dict[str, Any] = {"stranger": 404}
_ONE = f"{CONVERSATIONS}/{ID}"
_LOG = f"{APP}/conversation/{ID}/events"

_SECRETS = f"{SANDBOXES}/{SANDBOX}/settings/secrets"
WORKSPACE = {
    "file": "file?file_path=/workspace/a.txt",
    "changes": "git/changes?path=/workspace",
    "diff": "git/diff?path=/workspace/a.txt",
    "hooks": "hooks",
    "skills": "skills",
}
GIT = {
    "installations": "?provider=github",
    "repositories": "?provider=github",
    "branches": "?provider=github&repository=acme/site",
    "suggested-tasks": "",
}

ROUTES = [
    Route("app-search", f"{CONVERSATIONS}/search"),
    Route("app-count", f"{CONVERSATIONS}/count"),
    Route("app-conversations", f"{CONVERSATIONS}?ids={ID}"),
    Route("app-conversations", CONVERSATIONS, method="POST", body={}),
    Route("app-stream-start", f"{CONVERSATIONS}/stream-start", method="POST", body={}),
    Route("app-start-search", f"{STARTS}/search"),
    Route("app-start-count", f"{STARTS}/count"),
    Route("app-start-tasks", f"{STARTS}?ids={ID}"),
    Route("app-conversation", _ONE, method="PATCH", body={"title": "new"}, **_NOT_THERE),
    Route("app-send-message", f"{_ONE}/send-message", method="POST", body=said("hi"), **_NOT_THERE),
    Route("app-download", f"{_ONE}/download", **_NOT_THERE),
    Route(
        "app-pending-messages",
        f"{APP}/conversations/{ID}/pending-messages",
        method="POST",
        body=said("hi"),
        owner=201,
        **_NOT_THERE,
    ),
    Route("app-event-search", f"{EVENTS}/search?conversation_id__eq={ID}"),
    Route("app-event-count", f"{EVENTS}/count?conversation_id__eq={ID}"),
    Route("app-events", f"{EVENTS}?id=x"),
    Route("app-log-search", f"{_LOG}/search", **_NOT_THERE),
    Route("app-log-count", f"{_LOG}/count", **_NOT_THERE),
    Route("app-log", f"{_LOG}?id=x", **_NOT_THERE),
    Route("app-sandbox-search", f"{SANDBOXES}/search"),
    Route("app-sandboxes", f"{SANDBOXES}?id={SANDBOX}"),
    Route("app-sandboxes", SANDBOXES, method="POST", owner=404, stranger=404),
    Route("app-sandbox-pause", f"{SANDBOXES}/{SANDBOX}/pause", method="POST", **_NOT_THERE),
    Route("app-sandbox-resume", f"{SANDBOXES}/{SANDBOX}/resume", method="POST", **_NOT_THERE),
    Route("app-sandbox", f"{SANDBOXES}/{SANDBOX}", method="DELETE", **_NOT_THERE),
    Route("app-sandbox-spec-search", f"{APP}/sandbox-specs/search"),
    Route("app-sandbox-specs", f"{APP}/sandbox-specs?id=convserver"),
    Route("app-me", f"{APP}/users/me"),
    Route(
        "app-webhook-secrets", f"{APP}/webhooks/secrets", owner=401, stranger=401
    ),  # nobody was promised any
    # The id is taken; where it is free, the stranger has made the conversation by the time the owner asks.
    Route(
        "app-webhook-conversations",
        f"{APP}/webhooks/conversations",
        method="POST",
        body={"id": ID},
        stranger=401,
        empty=(401, 200),
    ),
    Route("app-webhook-events", f"{APP}/webhooks/events/{ID}", method="POST", body=[], **_NOT_THERE),
    Route(
        "app-webhook-sandbox-conversations",
        f"{APP}/webhooks/{SANDBOX}/conversations",
        method="POST",
        body={"id": ID},
        stranger=401,
    ),
    Route(
        "app-webhook-sandbox-events",
        f"{APP}/webhooks/{SANDBOX}/events/{ID}",
        method="POST",
        body=[],
        stranger=401,
    ),
    *(Route(f"app-{name}", f"{_ONE}/{path}", **_NOT_THERE) for name, path in WORKSPACE.items()),
    Route(
        "app-switch-profile",
        f"{_ONE}/switch_profile",
        method="POST",
        body={"profile_name": "none"},
        owner=404,
        **_NOT_THERE,
    ),
    Route("app-switch-acp-model", f"{_ONE}/switch_acp_model", method="POST", owner=400, **_NOT_THERE),
    Route("app-sandbox-secrets", f"{SANDBOXES}/{SANDBOX}/settings/secrets", owner=401, stranger=401),
    Route("app-sandbox-secret", f"{SANDBOXES}/{SANDBOX}/settings/secrets/X", owner=401, stranger=401),
    Route("app-web-client-config", f"{APP}/web-client/config", anonymous=200),
    Route("app-settings", f"{APP}/settings", owner=404, stranger=404),
    Route("app-settings", f"{APP}/settings", method="POST", body={"language": "en"}),
    Route("app-agent-form", f"{APP}/settings/agent-schema"),
    Route("app-conversation-form", f"{APP}/settings/conversation-schema"),
    Route("app-profiles", f"{APP}/settings/profiles"),
    Route(
        "app-profile",
        f"{APP}/settings/profiles/mine",
        method="POST",
        body={"llm": {"model": "openai/gpt-x"}},
        owner=201,
        stranger=201,
    ),
    Route("app-profile", f"{APP}/settings/profiles/none", owner=404, stranger=404),
    Route("app-profile", f"{APP}/settings/profiles/none", method="DELETE"),
    Route(
        "app-profile-activate",
        f"{APP}/settings/profiles/none/activate",
        method="POST",
        owner=404,
        stranger=404,
    ),
    Route(
        "app-profile-rename",
        f"{APP}/settings/profiles/none/rename",
        method="POST",
        body={"new_name": "x"},
        owner=404,
        stranger=404,
    ),
    Route("app-secret-search", f"{APP}/secrets/search"),
    Route(
        "app-secrets",
        f"{APP}/secrets",
        method="POST",
        body={"name": "KEY", "value": "of-mine-1234"},
        owner=201,
        stranger=201,
    ),
    Route("app-secret", f"{APP}/secrets/NONE", method="PUT", body={"name": "NONE"}, owner=404, stranger=404),
    Route("app-secret", f"{APP}/secrets/NONE", method="DELETE", owner=404, stranger=404),
    Route("app-git-tokens", f"{APP}/secrets/git-providers", method="POST", body={}),
    Route("app-git-tokens", f"{APP}/secrets/git-providers", method="DELETE"),
    Route("app-models", f"{APP}/config/models/search"),
    Route("app-providers", f"{APP}/config/providers/search"),
    Route("app-all-skills", f"{APP}/skills/search"),
    Route("app-marketplaces", f"{APP}/skills/marketplace-skills", method="POST", owner=400, stranger=400),
    Route("app-captcha", f"{APP}/recaptcha/log", method="POST", owner=400, stranger=400),
    Route("app-git-user", f"{APP}/users/git-info", owner=403, stranger=403),
    *(
        Route(f"app-git-{each}", f"{APP}/git/{each}/search{query}", owner=403, stranger=403)
        for each, query in GIT.items()
    ),
    # Last, because it takes the conversation away.
    Route("app-conversation", _ONE, method="DELETE", **_NOT_THERE),
]
"""Every operation of the face."""

"""The app face of the V1 wire as tests ask it: addresses, bodies, and conversations that it knows."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
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
    """Store a V1 conversation."""
    return creation.create(owner, conversation_id=conversation_id, version=Version.V1, **columns)


def child_of(parent: ConversationRef, owner: User, **columns: Any) -> ConversationRef:
    """Store a V1 conversation that another one has started."""
    return create(owner, uuid4().hex, parent_id=parent.pk, **columns)


def said(text: str) -> dict[str, Any]:
    """Return a SendMessageRequest."""
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
    """Return the body of an answer that is a 200."""
    response = await rest.get(path, params=query)
    assert response.status_code == 200, (path, response.text)
    return response.json()


async def ids(rest: httpx.AsyncClient, path: str, **query: Any) -> tuple[list[str], str | None]:
    """Return the ids of one page, and the next page's id."""
    body = await answered(rest, path, **query)
    return [item["id"] for item in body["items"]], body["next_page_id"]


async def all_ids(rest: httpx.AsyncClient, path: str, **query: Any) -> list[str]:
    """Return the ids of all pages."""
    found, page_id = await ids(rest, path, **query)
    while page_id is not None:
        more, page_id = await ids(rest, path, **query, page_id=page_id)
        found += more
    return found


def cost(path: str) -> int:
    """Return how many queries an answer costs."""
    browser = Browser(headers={"host": "localhost"})
    browser.get(path)  # the first request of a process looks up more than later ones
    with CaptureQueriesContext(connection) as queries:
        response = browser.get(path)
    assert response.status_code == 200, response.content
    return len(queries)


def repeated(name: str, values: Iterable[str]) -> str:
    """Return a query that repeats a parameter."""
    return "&".join(f"{name}={value}" for value in values)


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """One operation, and what the owner of the conversation with ID and a stranger are answered."""

    name: str
    method: str = "GET"
    path: str
    body: Any = None
    owner: int = 200
    stranger: int = 200
    empty: tuple[int, int] | None = None
    """What both are answered where there is no such conversation, unless that is `stranger`."""
    nobody: int = 401

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
    Route(name="app-search", path=f"{CONVERSATIONS}/search"),
    Route(name="app-count", path=f"{CONVERSATIONS}/count"),
    Route(name="app-conversations", path=f"{CONVERSATIONS}?ids={ID}"),
    Route(name="app-conversations", method="POST", path=CONVERSATIONS, body={}),
    Route(name="app-stream-start", method="POST", path=f"{CONVERSATIONS}/stream-start", body={}),
    Route(name="app-start-search", path=f"{STARTS}/search"),
    Route(name="app-start-count", path=f"{STARTS}/count"),
    Route(name="app-start-tasks", path=f"{STARTS}?ids={ID}"),
    Route(name="app-conversation", method="PATCH", path=_ONE, body={"title": "new"}, **_NOT_THERE),
    Route(name="app-send-message", method="POST", path=f"{_ONE}/send-message", body=said("hi"), **_NOT_THERE),
    Route(name="app-download", path=f"{_ONE}/download", **_NOT_THERE),
    Route(
        name="app-pending-messages",
        method="POST",
        path=f"{APP}/conversations/{ID}/pending-messages",
        body=said("hi"),
        owner=201,
        **_NOT_THERE,
    ),
    Route(name="app-event-search", path=f"{EVENTS}/search?conversation_id__eq={ID}"),
    Route(name="app-event-count", path=f"{EVENTS}/count?conversation_id__eq={ID}"),
    Route(name="app-events", path=f"{EVENTS}?id=x"),
    Route(name="app-log-search", path=f"{_LOG}/search", **_NOT_THERE),
    Route(name="app-log-count", path=f"{_LOG}/count", **_NOT_THERE),
    Route(name="app-log", path=f"{_LOG}?id=x", **_NOT_THERE),
    Route(name="app-sandbox-search", path=f"{SANDBOXES}/search"),
    Route(name="app-sandboxes", path=f"{SANDBOXES}?id={SANDBOX}"),
    Route(name="app-sandboxes", method="POST", path=SANDBOXES, owner=404, stranger=404),
    Route(name="app-sandbox-pause", method="POST", path=f"{SANDBOXES}/{SANDBOX}/pause", **_NOT_THERE),
    Route(name="app-sandbox-resume", method="POST", path=f"{SANDBOXES}/{SANDBOX}/resume", **_NOT_THERE),
    Route(name="app-sandbox", method="DELETE", path=f"{SANDBOXES}/{SANDBOX}", **_NOT_THERE),
    Route(name="app-sandbox-spec-search", path=f"{APP}/sandbox-specs/search"),
    Route(name="app-sandbox-specs", path=f"{APP}/sandbox-specs?id=convserver"),
    Route(name="app-me", path=f"{APP}/users/me"),
    Route(
        name="app-webhook-secrets", path=f"{APP}/webhooks/secrets", owner=401, stranger=401
    ),  # nobody was promised any
    Route(
        name="app-webhook-conversations",
        method="POST",
        path=f"{APP}/webhooks/conversations",
        body={"id": ID},
        stranger=401,  # the id is taken
        empty=(401, 200),  # the stranger has made it by then
    ),
    Route(
        name="app-webhook-events", method="POST", path=f"{APP}/webhooks/events/{ID}", body=[], **_NOT_THERE
    ),
    Route(
        name="app-webhook-sandbox-conversations",
        method="POST",
        path=f"{APP}/webhooks/{SANDBOX}/conversations",
        body={"id": ID},
        stranger=401,
    ),
    Route(
        name="app-webhook-sandbox-events",
        method="POST",
        path=f"{APP}/webhooks/{SANDBOX}/events/{ID}",
        body=[],
        stranger=401,
    ),
    *(Route(name=f"app-{name}", path=f"{_ONE}/{path}", **_NOT_THERE) for name, path in WORKSPACE.items()),
    Route(
        name="app-switch-profile",
        method="POST",
        path=f"{_ONE}/switch_profile",
        body={"profile_name": "none"},
        owner=404,
        **_NOT_THERE,
    ),
    Route(
        name="app-switch-acp-model",
        method="POST",
        path=f"{_ONE}/switch_acp_model",
        owner=400,
        **_NOT_THERE,
    ),
    Route(
        name="app-sandbox-secrets", path=f"{SANDBOXES}/{SANDBOX}/settings/secrets", owner=401, stranger=401
    ),
    Route(
        name="app-sandbox-secret", path=f"{SANDBOXES}/{SANDBOX}/settings/secrets/X", owner=401, stranger=401
    ),
    Route(name="app-web-client-config", path=f"{APP}/web-client/config", nobody=200),
    Route(name="app-settings", path=f"{APP}/settings", owner=404, stranger=404),
    Route(name="app-settings", method="POST", path=f"{APP}/settings", body={"language": "en"}),
    Route(name="app-agent-form", path=f"{APP}/settings/agent-schema"),
    Route(name="app-conversation-form", path=f"{APP}/settings/conversation-schema"),
    Route(name="app-profiles", path=f"{APP}/settings/profiles"),
    Route(
        name="app-profile",
        method="POST",
        path=f"{APP}/settings/profiles/mine",
        body={"llm": {"model": "openai/gpt-x"}},
        owner=201,
        stranger=201,
    ),
    Route(name="app-profile", path=f"{APP}/settings/profiles/none", owner=404, stranger=404),
    Route(name="app-profile", method="DELETE", path=f"{APP}/settings/profiles/none"),
    Route(
        name="app-profile-activate",
        method="POST",
        path=f"{APP}/settings/profiles/none/activate",
        owner=404,
        stranger=404,
    ),
    Route(
        name="app-profile-rename",
        method="POST",
        path=f"{APP}/settings/profiles/none/rename",
        body={"new_name": "x"},
        owner=404,
        stranger=404,
    ),
    Route(name="app-secret-search", path=f"{APP}/secrets/search"),
    Route(
        name="app-secrets",
        method="POST",
        path=f"{APP}/secrets",
        body={"name": "KEY", "value": "of-mine-1234"},
        owner=201,
        stranger=201,
    ),
    Route(
        name="app-secret",
        method="PUT",
        path=f"{APP}/secrets/NONE",
        body={"name": "NONE"},
        owner=404,
        stranger=404,
    ),
    Route(name="app-secret", method="DELETE", path=f"{APP}/secrets/NONE", owner=404, stranger=404),
    Route(name="app-git-tokens", method="POST", path=f"{APP}/secrets/git-providers", body={}),
    Route(name="app-git-tokens", method="DELETE", path=f"{APP}/secrets/git-providers"),
    Route(name="app-models", path=f"{APP}/config/models/search"),
    Route(name="app-providers", path=f"{APP}/config/providers/search"),
    Route(name="app-all-skills", path=f"{APP}/skills/search"),
    Route(
        name="app-marketplaces",
        method="POST",
        path=f"{APP}/skills/marketplace-skills",
        owner=400,
        stranger=400,
    ),
    Route(name="app-captcha", method="POST", path=f"{APP}/recaptcha/log", owner=400, stranger=400),
    Route(name="app-git-user", path=f"{APP}/users/git-info", owner=403, stranger=403),
    *(
        Route(name=f"app-git-{each}", path=f"{APP}/git/{each}/search{query}", owner=403, stranger=403)
        for each, query in GIT.items()
    ),
    # Last, because it takes the conversation away.
    Route(name="app-conversation", method="DELETE", path=_ONE, **_NOT_THERE),
]
"""Every operation of the face."""

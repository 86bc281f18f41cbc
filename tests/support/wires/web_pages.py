"""Every address of a page, and what it answers to whom; tests of access fail for one that is missing here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True, slots=True)
class Page:
    """What one address answers to alice, whose conversation is `talk`, and to bob.

    Nobody is led to the login.
    """

    route: str
    method: str = "GET"
    path: str
    form: Mapping[str, str] = field(default_factory=dict)
    owner: int = 200
    stranger: int = 200

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def _form(route: str, path: str, *, status: int = 302, **form: str) -> Page:
    """Return an address that only takes a form, of whoever sends it."""
    return Page(route=route, method="POST", path=path, form=form, owner=status, stranger=status)


def _address(route: str, path: str, *, stranger: int = 302) -> Page:
    """Return the address of a form, loaded like a page: it leads to the page that the form stands on."""
    return Page(route=route, path=path, owner=302, stranger=stranger)


IMPORT_ID = "0123456789abcdef0123456789abcdef"
"""Of an import of alice's."""
SETTINGS = (
    "model",
    "limits",
    "tools",
    "tools-remove",
    "tools-test",
    "approval",
    "secrets",
    "secrets-change",
    "tokens",
    "tokens-revoke",
    "keys",
    "password",
)
PAGES = [
    Page(route="home", path="/"),
    Page(route="new", path="/new"),
    _form("begin", "/begin", text="hello"),
    Page(route="conversation", path="/c/talk", stranger=404),
    Page(route="conversation-events", path="/c/talk/events", stranger=404),
    Page(route="conversation-answer", path="/c/talk/answer", owner=204, stranger=404),
    Page(route="conversation-usage", path="/c/talk/usage", stranger=404),
    Page(route="conversation-agent", path="/c/talk/agent", stranger=404),
    Page(route="conversation-agent", method="POST", path="/c/talk/agent", owner=302, stranger=404),
    Page(route="conversation-limits", path="/c/talk/limits", stranger=404),
    Page(route="conversation-limits", method="POST", path="/c/talk/limits", owner=302, stranger=404),
    Page(route="conversation-branch", path="/c/talk/branch?after=0", stranger=404),
    Page(
        route="conversation-branch",
        method="POST",
        path="/c/talk/branch",
        form={"after": "0"},
        owner=302,
        stranger=404,
    ),
    Page(route="conversation-labels", path="/c/talk/labels", stranger=404),
    Page(
        route="conversation-labels",
        method="POST",
        path="/c/talk/labels",
        form={"label": "work"},
        owner=302,
        stranger=404,
    ),
    Page(route="labels", path="/labels"),
    Page(route="batch", path="/batch"),
    _form("batch", "/batch", status=200, action="archive", id="talk"),
    _form("export-some", "/export", status=200, id="talk"),
    _address("export-some", "/export"),
    Page(route="conversation", path="/c/talk?as_of=0", stranger=404),
    Page(route="conversation-again", path="/c/talk/again?answer=0", owner=409, stranger=404),
    Page(
        route="conversation-again",
        method="POST",
        path="/c/talk/again",
        form={"answer": "0"},
        owner=409,
        stranger=404,
    ),
    Page(route="settings-export", path="/settings/export"),
    Page(route="settings-import", path="/settings/import"),
    _form("settings-import", "/settings/import", status=400),
    Page(route="settings-import-run", path=f"/settings/import/{IMPORT_ID}", stranger=404),
    Page(
        route="settings-import-remove",
        method="POST",
        path=f"/settings/import/{IMPORT_ID}/remove",
        owner=302,
        stranger=404,
    ),
    _address("settings-import-remove", f"/settings/import/{IMPORT_ID}/remove"),
    _form("settings-import-follow", "/settings/import/follow"),
    _address("settings-import-follow", "/settings/import/follow"),
    Page(route="event-output", path="/c/talk/events/0/output", stranger=404),
    *(Page(route="export", path=f"/c/talk/export.{name}", stranger=404) for name in ("jsonl", "md", "html")),
    *(
        Page(route="export-layout", path=f"/c/talk/export.openhands-v{number}.zip", stranger=404)
        for number in (0, 1)
    ),
    Page(
        route="conversation-messages",
        method="POST",
        path="/c/talk/messages",
        form={"text": "hello"},
        owner=302,
        stranger=404,
    ),
    Page(
        route="conversation-decision",
        method="POST",
        path="/c/talk/decision",
        form={"decision": "approve", "seq": "0"},
        owner=302,
        stranger=404,
    ),
    Page(route="conversation-reset-key", method="POST", path="/c/talk/reset-key", owner=302, stranger=404),
    *(
        Page(
            route=f"conversation-{action}",
            method="POST",
            path=f"/c/talk/{action}",
            form={"title": "hello"},
            owner=302,
            stranger=404,
        )
        for action in ("rename", "pin", "archive", "delete", "restore")
    ),
    Page(
        route="conversation-while-working",
        method="POST",
        path="/c/talk/while-working",
        form={"while_working": "steer"},
        owner=302,
        stranger=404,
    ),
    Page(route="conversation-purge", path="/c/gone/purge", stranger=404),
    Page(route="conversation-purge", method="POST", path="/c/gone/purge", owner=302, stranger=404),
    Page(route="rows", path="/rows"),
    Page(route="search", path="/search?q=hello"),
    Page(route="deleted", path="/deleted"),
    Page(route="device", path="/device"),
    Page(route="device", path="/device?user_code=BCDF-GHJK", owner=400, stranger=400),  # nothing waits
    _form("device", "/device", status=400),
    Page(route="settings", path="/settings"),
    _form("theme", "/settings/theme", theme="dark"),
    _form("settings-model", "/settings/model", model="openai/gpt-5"),
    _form("settings-tools", "/settings/tools", status=400),
    _form("settings-tools-remove", "/settings/tools/remove"),
    _form("settings-tools-test", "/settings/tools/test"),
    _form("settings-approval", "/settings/approval"),
    _form("settings-secrets", "/settings/secrets", status=400),
    _form("settings-secrets-change", "/settings/secrets/change"),
    _form("settings-tokens", "/settings/tokens", status=400),
    _form("settings-tokens-revoke", "/settings/tokens/revoke"),
    _form("settings-keys", "/settings/keys"),
    Page(route="settings-password", method="POST", path="/settings/password", owner=302, stranger=400),
    *(_address("settings-" + name, f"/settings/{name.replace('-', '/')}") for name in SETTINGS),
    _address("theme", "/settings/theme"),
    _address("begin", "/begin"),
    _address("conversation-messages", "/c/talk/messages", stranger=404),
    _address("conversation-decision", "/c/talk/decision", stranger=404),
    _address("conversation-reset-key", "/c/talk/reset-key", stranger=404),
]
"""A 400 is a form that was looked at: something is missing in it."""

"""Every address of a page, and what it answers to whom; tests of access fail for one that is missing here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Page:
    """What one address answers to alice, whose conversation is `talk`, and to bob.

    Nobody is led to the login.
    """

    route: str
    path: str
    _: KW_ONLY
    method: str = "GET"
    form: Mapping[str, str] = field(default_factory=dict)
    owner: int = 200
    stranger: int = 200

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def of_row(self, number: int) -> Page:
        """Return the same address with the ids of this row: what one row changes, no other one sees."""
        path = self.path.replace("talk", f"talk{number}").replace("gone", f"gone{number}")
        path = path.replace(IMPORT_ID, f"{number:032x}")
        form = {name: f"talk{number}" if value == "talk" else value for name, value in self.form.items()}
        return replace(self, path=path, form=form)


def _form(route: str, path: str, *, status: int = 302, **form: str) -> Page:
    """Return an address that only takes a form, of whoever sends it."""
    return Page(route, path, method="POST", form=form, owner=status, stranger=status)


def _address(route: str, path: str, *, stranger: int = 302) -> Page:
    """Return the address of a form, loaded like a page: it leads to the page that the form stands on."""
    return Page(route, path, owner=302, stranger=stranger)


IMPORT_ID = "0123456789abcdef0123456789abcdef"
"""Of an import of alice's."""
SETTINGS = (
    "model",
    "instructions",
    "providers",
    "providers-change",
    "limits",
    "tools",
    "tools-remove",
    "tools-test",
    "tools-ask",
    "approval",
    "secrets",
    "secrets-change",
    "tokens",
    "tokens-revoke",
    "keys",
    "password",
)
PAGES = [
    Page("home", "/"),
    Page("new", "/new"),
    _form("begin", "/begin", text="hello"),
    Page("conversation", "/c/talk", stranger=404),
    Page("conversation-events", "/c/talk/events", stranger=404),
    Page("conversation-answer", "/c/talk/answer", owner=204, stranger=404),
    Page("conversation-usage", "/c/talk/usage", stranger=404),
    Page("conversation-agent", "/c/talk/agent", stranger=404),
    Page("conversation-agent", "/c/talk/agent", method="POST", owner=302, stranger=404),
    Page("conversation-models", "/c/talk/models", stranger=404),
    Page("conversation-models", "/c/talk/models", method="POST", owner=302, stranger=404),
    Page("conversation-files", "/c/talk/files", stranger=404),
    Page("conversation-files", "/c/talk/files", method="POST", owner=400, stranger=404),
    Page("conversation-changes", "/c/talk/changes", stranger=404),
    Page("conversation-changed-files", "/c/talk/changed-files?seq=0", owner=204, stranger=404),
    # There are no checkpoints.
    Page("conversation-restore-files", "/c/talk/restore-files?at=0", owner=404, stranger=404),
    Page(
        "conversation-restore-files",
        "/c/talk/restore-files",
        method="POST",
        form={"at": "0"},
        owner=404,
        stranger=404,
    ),
    Page("conversation-file", "/c/talk/file", stranger=404),
    Page("conversation-limits", "/c/talk/limits", stranger=404),
    Page("conversation-limits", "/c/talk/limits", method="POST", owner=302, stranger=404),
    Page("conversation-network", "/c/talk/network", stranger=404),
    Page("conversation-network", "/c/talk/network", method="POST", owner=302, stranger=404),
    Page("conversation-branch", "/c/talk/branch?after=0", stranger=404),
    Page(
        "conversation-branch", "/c/talk/branch", method="POST", form={"after": "0"}, owner=302, stranger=404
    ),
    Page("conversation-labels", "/c/talk/labels", stranger=404),
    Page(
        "conversation-labels",
        "/c/talk/labels",
        method="POST",
        form={"label": "work"},
        owner=302,
        stranger=404,
    ),
    Page("labels", "/labels"),
    Page("batch", "/batch"),
    _form("batch", "/batch", status=200, action="archive", id="talk"),
    _form("export-some", "/export", status=200, id="talk"),
    _address("export-some", "/export"),
    Page("conversation", "/c/talk?as_of=0", stranger=404),
    Page("conversation-again", "/c/talk/again?answer=0", owner=409, stranger=404),
    Page("conversation-again", "/c/talk/again", method="POST", form={"answer": "0"}, owner=409, stranger=404),
    Page("settings-export", "/settings/export"),
    Page("settings-import", "/settings/import"),
    _form("settings-import", "/settings/import", status=400),
    Page("settings-import-run", f"/settings/import/{IMPORT_ID}", stranger=404),
    Page(
        "settings-import-remove",
        f"/settings/import/{IMPORT_ID}/remove",
        method="POST",
        owner=302,
        stranger=404,
    ),
    _address("settings-import-remove", f"/settings/import/{IMPORT_ID}/remove"),
    _form("settings-import-follow", "/settings/import/follow"),
    _address("settings-import-follow", "/settings/import/follow"),
    Page("event-output", "/c/talk/events/0/output", stranger=404),
    Page("event-preview", f"/c/talk/events/0/preview/{16 * '0'}", owner=404, stranger=404),
    *(Page("export", f"/c/talk/export.{name}", stranger=404) for name in ("jsonl", "md", "html")),
    *(Page("export-layout", f"/c/talk/export.openhands-v{number}.zip", stranger=404) for number in (0, 1)),
    Page(
        "conversation-messages",
        "/c/talk/messages",
        method="POST",
        form={"text": "hello"},
        owner=302,
        stranger=404,
    ),
    Page(
        "conversation-decision",
        "/c/talk/decision",
        method="POST",
        form={"decision": "approve", "seq": "0"},
        owner=302,
        stranger=404,
    ),
    Page("conversation-reset-key", "/c/talk/reset-key", method="POST", owner=302, stranger=404),
    *(
        Page(
            f"conversation-{action}",
            f"/c/talk/{action}",
            method="POST",
            form={"title": "hello"},
            owner=302,
            stranger=404,
        )
        for action in ("rename", "pin", "archive", "delete", "restore")
    ),
    Page(
        "conversation-while-working",
        "/c/talk/while-working",
        method="POST",
        form={"while_working": "steer"},
        owner=302,
        stranger=404,
    ),
    # Its events are no answers of an agent.
    Page("conversation-feedback", "/c/talk/feedback?seq=0", owner=400, stranger=404),
    Page(
        "conversation-feedback",
        "/c/talk/feedback",
        method="POST",
        form={"seq": "0", "polarity": "positive"},
        owner=400,
        stranger=404,
    ),
    Page("conversation-temporary", "/c/talk/temporary", method="POST", owner=302, stranger=404),
    Page("conversation-purge", "/c/gone/purge", stranger=404),
    Page("conversation-purge", "/c/gone/purge", method="POST", owner=302, stranger=404),
    Page("rows", "/rows"),
    Page("search", "/search?q=hello"),
    Page("deleted", "/deleted"),
    Page("device", "/device"),
    Page("device", "/device?user_code=BCDF-GHJK", owner=400, stranger=400),  # nothing waits
    _form("device", "/device", status=400),
    Page("settings", "/settings"),
    _form("theme", "/settings/theme", theme="dark"),
    _form("settings-model", "/settings/model", model="openai/gpt-5"),
    _form("settings-instructions", "/settings/instructions", instructions="Be brief."),
    _form("settings-providers", "/settings/providers", status=400),
    _form("settings-providers-change", "/settings/providers/change"),
    _form("settings-tools", "/settings/tools", status=400),
    _form("settings-tools-remove", "/settings/tools/remove"),
    _form("settings-tools-test", "/settings/tools/test"),
    _form("settings-tools-ask", "/settings/tools/ask"),
    _form("settings-approval", "/settings/approval"),
    _form("settings-secrets", "/settings/secrets", status=400),
    _form("settings-secrets-change", "/settings/secrets/change"),
    _form("settings-tokens", "/settings/tokens", status=400),
    _form("settings-tokens-revoke", "/settings/tokens/revoke"),
    _form("settings-keys", "/settings/keys"),
    Page("settings-password", "/settings/password", method="POST", owner=302, stranger=400),
    *(_address("settings-" + name, f"/settings/{name.replace('-', '/')}") for name in SETTINGS),
    _address("theme", "/settings/theme"),
    _address("begin", "/begin"),
    _address("conversation-messages", "/c/talk/messages", stranger=404),
    _address("conversation-decision", "/c/talk/decision", stranger=404),
    _address("conversation-reset-key", "/c/talk/reset-key", stranger=404),
]
"""A 400 is a form that was looked at: something is missing in it."""

"""What has changed in the repositories of a conversation's workspace: a list, and one file as a diff."""

from __future__ import annotations

import os
from typing import Any, NamedTuple
from urllib.parse import quote

from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_safe

from conversations import access
from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from convserver.api.errors import NATIVE_STATUS, status_of
from convserver.api.openhands import workspace_files, workspace_git
from convserver.event_loop import in_loop
from convserver.rendering import diffs, parts
from convserver.rendering.text import visible
from convserver.web.pages import named, number_in, page, person
from sessions_app.checkpoints import kept
from sessions_app.workspace_git import comparison
from sessions_app.workspace_git.comparison import ChangedFile


class ChangeRow(NamedTuple):
    """A changed file in the list."""

    name: str
    query: str
    words: str


@require_safe
@person
def changes(request: HttpRequest, conversation_id: str) -> HttpResponse:
    """Show the changed files, or the changes of the one that is named."""
    conversation = access.readable(request.user, conversation_id)
    path = workspace_files.named_in(request, "path") or ""
    context: dict[str, Any] = {"conversation": named(conversation), "tab": "changes"}
    status = 200
    try:
        if path:
            context |= _diff(conversation, path)
        elif (seq := number_in(request.GET.get("turn"))) is not None:
            context |= _of_turn(conversation, seq)
        else:
            context |= _list(conversation)
    except ConversationError as error:
        context["problem"], status = visible.name(str(error)), status_of(error, NATIVE_STATUS)
    return page(request, "web/changes.html", context, status=status)


def _list(conversation: ConversationRef) -> dict[str, Any]:
    changed = workspace_git.changes_of(conversation, "", comparison.V1)
    return {"changes": [_row(each) for each in changed]}


def _of_turn(conversation: ConversationRef, seq: int) -> dict[str, Any]:
    """Return the files that a turn has changed, whether or not there is a repository."""
    found = in_loop(kept.changed_in, conversation, seq) or []
    shown_most = 1_000
    rows = [_row(ChangedFile(*each)) for each in found[:shown_most]]
    return {"changes": rows, "of_turn": True}


def _row(changed: ChangedFile) -> ChangeRow:
    name = os.fsencode(changed.path)
    words = {"A": "new", "D": "removed", "U": "in conflict"}.get(changed.status, "changed")
    return ChangeRow(visible.name(name.decode(errors="replace")), quote(name, safe="/"), words)


def _diff(conversation: ConversationRef, path: str) -> dict[str, Any]:
    # Read anew for each file: a list with all contents could be as large as the workspace.
    found = workspace_git.diff_of(conversation, path, comparison.V1)
    diff = found and diffs.of_contents(found.original, found.modified)
    name = os.fsencode(path).decode(errors="replace")
    return {"file": visible.name(name), "diff": diff and parts.shown_diff(diff)}

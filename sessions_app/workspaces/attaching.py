"""Files that users attach to messages: kept in the workspace, and read for models."""

from __future__ import annotations

from conversations.confined import documents
from conversations.confined.processes import NotRead
from conversations.dialects.attached import AttachedFile
from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from sessions_app.storage.attachments import NewFile, Skipped
from sessions_app.workspaces import uploads

_CUT = f"Only its first {documents.TEXT_MAX_CHARS:,} characters are here."
_SHORT = "Only its beginning is here: reading the whole file takes too long."
_EMPTY = "It has no text."
_PICTURES = "It has no text: its pages are pictures."


class NotAttached(ConversationError):
    """The file was not stored; the message says why."""

    code = "not_attached"


def attach(conversation: ConversationRef, name: str, content: bytes) -> AttachedFile:
    """Store a file in the workspace; return it with its text, or with a note that says why there is none.

    Raise NotAttached, and as `uploads.put` does.
    """
    (kept,) = uploads.put_all(conversation, [NewFile(name=name, content=content, is_said=True)])
    if isinstance(kept, Skipped):
        raise NotAttached(kept.reason)
    text, pages, note = _read(name, content)
    return AttachedFile(name=kept.name, size=kept.size, text=text, pages=pages, note=note, is_kept=True)


def _read(name: str, content: bytes) -> tuple[str, int | None, str]:
    try:
        found = documents.read(name, content)
    except NotRead as error:
        return "", None, f"Its text cannot be read: {error}."
    if not found.text.strip():
        return "", found.pages, _EMPTY if documents.kind_of(name, content) != "pdf" else _PICTURES
    if not found.is_cut:
        return found.text, found.pages, ""
    return found.text, found.pages, _CUT if len(found.text) >= documents.TEXT_MAX_CHARS else _SHORT

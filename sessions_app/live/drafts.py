"""Drafts: messages that users are writing, kept for all their devices; edits carry versions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple, TypedDict

from django.db import transaction
from django.utils import timezone

from conversations import change_order, live
from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from sessions_app.live.status import iso
from sessions_app.models import Draft, size_of_draft
from sessions_app.storage import usage

TEXT_MAX_BYTES = 1024 * 1024
# Together with the text this fits into the one frame that will send the message.
IMAGES_MAX_BYTES = 14 * 1024 * 1024


class StoredDraft(TypedDict):
    """A draft as its user's devices see it; if there is none, empty and of version 0."""

    text: str
    images: list[str]
    files: list[dict[str, Any]]
    version: int
    updated_at: str | None


@dataclass(frozen=True, kw_only=True, slots=True)
class Edit:
    text: str
    images: Sequence[str]
    files: Sequence[dict[str, Any]] = ()
    version: int
    """The version of the edited draft, 0 for none."""


class WrittenDraft(NamedTuple):
    """A write of a draft: its place among the user's writes, and what changed."""

    place: int | datetime
    """Its number in commit order, or its time, whichever the question named."""
    pk: int
    conversation: str | None
    version: int


class DraftConflict(ConversationError):
    """Another device has changed the draft since; nothing was replaced."""

    code = "conflict"

    def __init__(self, stored: StoredDraft) -> None:
        super().__init__(
            f"Another device has written version {stored['version']} of the draft. Merge it, and write again."
        )
        self.stored = stored


def read(user_pk: int, conversation: ConversationRef | None) -> StoredDraft:
    """Return the user's draft in a conversation, or of a new conversation."""
    row = Draft.objects.of(user_pk, conversation).first()
    if row is None:
        return {"text": "", "images": [], "files": [], "version": 0, "updated_at": None}
    return _shown(row)


def write(user_pk: int, conversation: ConversationRef | None, edit: Edit) -> StoredDraft:
    """Store the next version of a draft; an empty one tells other devices that the message was sent.

    Raise DraftConflict if the stored version is not the one that was edited, and QuotaExceeded.
    """
    images, version, now = list(edit.images), edit.version + 1, timezone.now()
    files = list(edit.files)
    size = size_of_draft(edit.text, images, files)
    columns = {
        "text": edit.text,
        "images": images,
        "files": files,
        "version": version,
        "updated_at": now,
        "size": size,
    }
    with transaction.atomic():
        usage.change_draft(user_pk, conversation, size=size)
        columns["written_in"] = change_order.number()  # of this transaction, by which lists are read
        if not _replace(user_pk, conversation, edit.version, columns):
            raise DraftConflict(read(user_pk, conversation))
        transaction.on_commit(
            lambda: live.announce_draft(user_pk, conversation, version=version), robust=True
        )
    return _shown(Draft(text=edit.text, images=images, files=files, version=version, updated_at=now))


def written_from(user_pk: int, place: int | datetime, pk: int, *, end: int, limit: int) -> list[WrittenDraft]:
    """Return the user's drafts that were written after this place, in order.

    The place is a number (change_order) or a time. By number they come in commit order, up to `end`.
    """
    if isinstance(place, int):
        rows, column = Draft.objects.changed_from(user_pk, place, pk, end=end), "written_in"
    else:
        rows, column = Draft.objects.written_from(user_pk, place, pk), "updated_at"
    columns = rows.values_list(column, "pk", "conversation__public_id", "version")
    return [WrittenDraft(*row) for row in columns[:limit]]


def _replace(
    user_pk: int, conversation: ConversationRef | None, version: int, columns: dict[str, object]
) -> bool:
    """Compare and set in one statement, so that one of two devices fails; return whether it was set."""
    if version:
        rows = Draft.objects.of(user_pk, conversation).filter(version=version)
        return bool(rows.update(**columns))
    place: dict[str, Any] = {"conversation_id": None if conversation is None else conversation.pk}
    return Draft.objects.get_or_create(user_id=user_pk, **place, defaults=columns)[1]


def _shown(row: Draft) -> StoredDraft:
    return {
        "text": row.text,
        "images": row.images,
        "files": row.files,
        "version": row.version,
        "updated_at": iso(row.updated_at),
    }

"""Files that clients put into workspaces: whole or not at all, and counted before they are there.

A client's file is also an attachment, as far as those have room: agents without tools read attachments, and
backups have them.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Sequence

from conversations.events import ConversationRef
from conversations.exceptions import QuotaExceeded, StoreUnavailable
from sessions_app.storage import attachments
from sessions_app.storage.attachments import Attached, NewFile, Skipped
from sessions_app.workspaces import paths, records
from sessions_app.workspaces.beneath import PathRefused
from sessions_app.workspaces.records import Change, WorkspaceFull
from sessions_app.workspaces.tree import FileDraft, FilesHeld, is_draft


def put(conversation: ConversationRef, path: str, content: bytes) -> None:
    """Store a file under a path as clients name it, in the place of one that is there.

    Raise PathRefused, WorkspaceFull, QuotaExceeded, ConversationNotFound, ConversationBusy or
    StoreUnavailable; then nothing has changed.
    """
    target = paths.relative(conversation, path)
    with records.changing(conversation) as change:
        draft = change.drafted(target, content)
        (attached,) = attachments.attach(conversation, [NewFile(name=target, content=content)])
        _keep(change, draft, len(content), attached)


def put_all(conversation: ConversationRef, files: Sequence[NewFile]) -> list[Attached | Skipped]:
    """Store files under safe, unused names in the workspace; return the outcome of each in its place.

    A file that cannot be stored is skipped, and affects no other. Raise as `put` does.
    """
    with records.changing(conversation) as change:
        drafts = [_drafted(change, file) for file in files]
        written = [file for file, draft in zip(files, drafts, strict=True) if isinstance(draft, FileDraft)]
        taken = {name.rstrip("/") for name in change.tree.names("", change.tree.limits.files)}
        attached = iter(attachments.attach(conversation, written, taken=taken))
        outcomes: list[Attached | Skipped] = []
        for draft in drafts:
            outcome = next(attached) if isinstance(draft, FileDraft) else draft
            if isinstance(draft, FileDraft) and isinstance(outcome, Attached):
                try:
                    _keep(change, draft, outcome.size, outcome, os.fsencode(outcome.name))
                except (PathRefused, QuotaExceeded, StoreUnavailable) as error:
                    outcome = Skipped(name=outcome.name, reason=str(error))
            outcomes.append(outcome)
    return outcomes


def _keep(
    change: Change, draft: FileDraft, size: int, attached: Attached | Skipped, name: bytes = b""
) -> None:
    """Give a file its name and charge it; if it cannot have that, it is neither charged nor attached."""
    is_attached = isinstance(attached, Attached)
    directories = len(draft.made.places)
    is_new = draft.added.files > directories
    charged = 0
    try:
        charged = change.charge(
            (0 if is_attached else size)
            + (max(Change.ENTRY_BYTES - size, 0) if is_new else 0)
            + directories * Change.ENTRY_BYTES
        )
        draft.keep(name)
    except BaseException:
        if draft.is_open:
            change.give_back(charged)
            if isinstance(attached, Attached):
                attachments.withdraw(change.conversation, attached)
        raise


def _drafted(change: Change, file: NewFile) -> FileDraft | Skipped:
    """Write a file, whose name is chosen later."""
    name = attachments.safe_name(file.name)
    if is_draft(name):
        return Skipped(name=name, reason="The name is one of the server's own.")
    try:
        return change.drafted(secrets.token_hex(16), file.content)
    except WorkspaceFull as error:
        return Skipped(name=name, reason=str(error))


def make_directory(conversation: ConversationRef, path: str) -> None:
    """Make a directory, and those above it; one that is there stays as it is. Raise as `put` does."""
    target = paths.relative(conversation, path)
    with records.changing(conversation) as change:
        made = change.tree.make_directory(target)
        added = FilesHeld(0, len(made.places))
        try:
            change.reserve(added, made)
            try:
                change.charge(added.files * Change.ENTRY_BYTES)
            except BaseException:
                change.release(added)
                raise
        except BaseException:
            made.undo()
            raise
        made.keep()

"""Which directory is whose, and how much is in it: the rows beside the files, quotas, and the purge."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet

from conversations import synced_files
from conversations.exceptions import ConversationError, ConversationNotFound, StoreUnavailable
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef
from sessions_app.models import Workspace
from sessions_app.storage import usage
from sessions_app.workspaces import beneath
from sessions_app.workspaces.tree import FileDraft, FilesHeld, Made, Tree, WorkspaceLimits


class WorkspaceFull(ConversationError):
    """The workspace may not hold that much; the text names the limit."""

    code = "workspace_full"


@contextmanager
def opened(conversation: ConversationRef) -> Iterator[Tree | None]:
    """Give the files of a conversation for reading; None if it has no workspace yet.

    Raise StoreUnavailable if the directory cannot be read.
    """
    row = Workspace.objects.filter(conversation_id=conversation.pk).first()
    descriptor = None if row is None else _directory(row)
    if descriptor is None:
        yield None
        return
    with beneath.closing(descriptor):
        yield Tree(descriptor, limits())


def limits() -> WorkspaceLimits:
    """Return how much each workspace may hold."""
    found = settings.CONFIGURATION
    return WorkspaceLimits(
        found.workspace_max_mb * 1_000_000, found.workspace_max_files, found.workspace_max_depth
    )


@dataclass(slots=True)
class Change:
    """A change of a workspace by the server, alone for as long as it takes."""

    conversation: ConversationRef
    tree: Tree
    drafts: list[FileDraft] = field(default_factory=list)
    """Those that are counted."""

    def drafted(self, path: str, content: bytes) -> FileDraft:
        """Write a file, and count it; it is no more counted if it is not kept. Raise as `Tree.draft`."""
        draft = self.tree.draft(path, content)
        try:
            self.reserve(draft.added, draft.made)
        except BaseException:
            draft.discard()
            raise
        self.drafts.append(draft)
        return draft

    def end(self) -> None:
        """Discard the drafts that were not kept."""
        for draft in self.drafts:
            if draft.is_open:
                draft.discard()
                added = draft.added
                self._row().update(bytes=F("bytes") - added.bytes, files=F("files") - added.files)

    def reserve(self, added: FilesHeld, made: Made) -> None:
        """Count what is added, with the directories that were made for it already.

        Raise WorkspaceFull, or ConversationNotFound after a purge.
        """
        if self._is_counted(added):
            return
        # The files may have become fewer: agents remove some, and a crash leaves what it had counted.
        found = self.tree.measured()
        drafts = [each for each in self.drafts if each.is_open]
        made_for_all = len(made.places) + sum(len(each.made.places) for each in drafts)
        self._row().update(
            bytes=found.bytes + sum(each.added.bytes for each in drafts),
            files=found.files + sum(each.added.files for each in drafts) - made_for_all,
        )
        if not self._is_counted(added):
            raise _full(self.tree.limits, added)

    def charge(self, size: int) -> None:
        """Count bytes that are not also an attachment as uploads of the owner.

        At most what the workspace holds is charged. Raise QuotaExceeded, or ConversationNotFound.
        """
        with transaction.atomic():
            if lock(Conversation.objects.active(), self.conversation) is None:
                raise ConversationNotFound("Conversation not found.")
            uses = usage.locked(self.conversation.owner_id)
            row = self._row().get()
            added = min(row.charged + size, row.bytes) - row.charged
            if added > 0:
                usage.add_upload(uses, added)
                self._row().update(charged=row.charged + added)

    def _is_counted(self, added: FilesHeld) -> bool:
        """Count an addition if there is room for it; what makes a workspace smaller always has room."""
        with transaction.atomic():
            row = self._row().select_for_update(no_key=True).first()
            if row is None:
                raise ConversationNotFound("Conversation not found.")
            total = FilesHeld(max(row.bytes + added.bytes, 0), max(row.files + added.files, 0))
            most = self.tree.limits
            if (added.bytes > 0 and total.bytes > most.bytes) or (
                added.files > 0 and total.files > most.files
            ):
                return False
            row.bytes, row.files = total
            row.save(update_fields=["bytes", "files"])
        return True

    def _row(self) -> QuerySet[Workspace]:
        return Workspace.objects.filter(conversation_id=self.conversation.pk)


@contextmanager
def changing(conversation: ConversationRef) -> Iterator[Change]:
    """Give the files of a conversation for a change, and make its directory if there is none.

    Raise ConversationNotFound for a deleted conversation, ConversationBusy, and StoreUnavailable.
    """
    with beneath.closing(_made(conversation)) as descriptor:
        change = Change(conversation, Tree(descriptor, limits()))
        with change.tree.changed_alone():
            try:
                yield change
            finally:
                change.end()


def remove_some(conversation: ConversationRef, at_most: int) -> int | None:
    """Remove a bounded number of the files of a purged conversation; return their bytes.

    Return None once the directory is gone. Raise OSError.
    """
    for row in Workspace.objects.filter(conversation_id=conversation.pk):
        descriptor = _directory(row)
        if descriptor is not None:
            with beneath.closing(descriptor):
                removed = Tree(descriptor, limits()).remove_some(at_most)
            if removed is not None:
                return removed.bytes
            (_root() / row.directory).rmdir()
            synced_files.sync(_root())
    return None


def _root() -> Path:
    root: Path = settings.CONFIGURATION.workspaces
    return root


def _directory(row: Workspace) -> int | None:
    """Open the directory of a workspace; None if it is not there, as after a restored backup."""
    try:
        return os.open(_root() / row.directory, beneath.DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise beneath.unavailable(error) from error


def _made(conversation: ConversationRef) -> int:
    """Open the directory of a conversation's workspace; make it, and its row, where they are missing."""
    with transaction.atomic():
        # Made under the lock of everything that changes a conversation: a purge comes before, and there is
        # no directory, or after, and finds the row that names it.
        if lock(Conversation.objects.active(), conversation) is None:
            raise ConversationNotFound("Conversation not found.")
        row, _ = Workspace.objects.get_or_create(conversation_id=conversation.pk)
        if (descriptor := _directory(row)) is not None:
            return descriptor
        try:
            synced_files.make_directory(_root())
            synced_files.make_directory(_root() / row.directory)
        except OSError as error:
            raise beneath.unavailable(error) from error
        Workspace.objects.filter(pk=row.pk).update(bytes=0, files=0)
        descriptor = _directory(row)
    if descriptor is None:  # removed at once, which nothing of the server does
        raise StoreUnavailable("The directory of the workspace was removed.")
    return descriptor


def _full(most: WorkspaceLimits, added: FilesHeld) -> WorkspaceFull:
    return WorkspaceFull(
        f"The workspace of this conversation is full: it may hold {most.bytes:,} bytes in {most.files:,} "
        f"files and directories, and this would add {max(added.bytes, 0):,} bytes. Remove files, or let the "
        "server's operator raise the limit (CONVSERVER_WORKSPACE_MAX_MB, CONVSERVER_WORKSPACE_MAX_FILES)."
    )

"""Which directory is whose, and how much is in it: the rows beside the files, quotas, and the purge."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from django.conf import settings
from django.db import transaction
from django.db.models import F, QuerySet

from conversations import synced_files
from conversations.exceptions import ConversationError, ConversationNotFound, StoreUnavailable
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef
from sessions_app.models import Workspace
from sessions_app.sandbox import ownership, room, roots
from sessions_app.sandbox.measuring import HeldOnDisk
from sessions_app.storage import usage
from sessions_app.workspaces import beneath, chosen
from sessions_app.workspaces.tree import FileDraft, FilesHeld, Made, Tree, WorkspaceLimits

MARKER = ".convserver-workspaces"
"""A file in the place of all directories: without it, that is another one, or is not mounted."""
_WHY_MARKED = "The server uses this directory for the files of conversations only while this file is in it.\n"


class WorkspaceFull(ConversationError):
    """The workspace may not hold that much; the text names the limit."""

    code = "workspace_full"


@contextmanager
def opened(conversation: ConversationRef) -> Iterator[Tree | None]:
    """Give the files of a conversation for reading; None if it has no workspace yet.

    Raise StoreUnavailable if the directory cannot be read.
    """
    row = Workspace.objects.filter(conversation_id=conversation.pk).first()
    with opened_by(row, limits()) as tree:
        yield tree


@contextmanager
def opened_by(row: Workspace | None, most: WorkspaceLimits) -> Iterator[Tree | None]:
    """Give the files of a workspace's row in the same way."""
    descriptor = None if row is None else _directory(row)
    if descriptor is None:
        yield None
        return
    with beneath.closing(descriptor):
        yield Tree(descriptor, most, is_users=bool(row and row.users_directory))


def limits() -> WorkspaceLimits:
    """Return how much each workspace may hold."""
    found = settings.CONFIGURATION
    return WorkspaceLimits(
        found.workspace_max_mb * 1_000_000, found.workspace_max_files, found.workspace_max_depth
    )


@dataclass(slots=True)
class Change:
    """A change of a workspace by the server, alone for as long as it takes."""

    ENTRY_BYTES: ClassVar[int] = 512
    """A directory, or a smaller file, is charged as this many bytes: it takes room on the disk, too."""

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
                self.release(draft.added)

    def reserve(self, added: FilesHeld, made: Made) -> None:
        """Count what is added, with the directories that were made for it already.

        Raise WorkspaceFull, or ConversationNotFound after a purge.
        """
        if self.tree.is_users or self._is_counted(added):
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

    def release(self, added: FilesHeld) -> None:
        """Count no more what was reserved and is not there."""
        if not self.tree.is_users:
            self._row().update(bytes=F("bytes") - added.bytes, files=F("files") - added.files)

    def charge(self, size: int) -> int:
        """Count bytes that are not also an attachment as uploads of the owner.

        At most what the workspace holds is charged. Return how much was. Raise QuotaExceeded, or
        ConversationNotFound.
        """
        if size <= 0 or self.tree.is_users:
            return 0
        with transaction.atomic():
            if lock(Conversation.objects.active(), self.conversation) is None:
                raise ConversationNotFound("Conversation not found.")
            uses = usage.locked(self.conversation.owner_id)
            row = self._row().get()
            added = min(row.charged + size, row.bytes + row.files * self.ENTRY_BYTES) - row.charged
            if added > 0:
                usage.add_upload(uses, added)
                self._row().update(charged=row.charged + added)
        return max(added, 0)

    def give_back(self, charged: int) -> None:
        """Charge this much less, because what it was for is not there; do nothing after a purge."""
        if not charged:
            return
        with transaction.atomic():
            lock(Conversation.objects.all(), self.conversation)
            uses = usage.locked(self.conversation.owner_id)
            if self._row().update(charged=F("charged") - charged):
                usage.add_upload(uses, -charged)

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
        is_users = bool(chosen.directory_of(conversation))
        change = Change(conversation, Tree(descriptor, limits(), is_users=is_users))
        with change.tree.changed_alone():
            try:
                yield change
            finally:
                change.end()


def directory_of(conversation: ConversationRef) -> Path:
    """Return the directory of a conversation's workspace, which is made on first use.

    Raise ConversationNotFound or StoreUnavailable.
    """
    with beneath.closing(_made(conversation)) as descriptor:
        row = Workspace.objects.get(conversation_id=conversation.pk)
        if row.users_directory:
            return Path(row.users_directory)
        try:
            ownership.give_all(descriptor)
        except OSError as error:
            raise beneath.unavailable(error) from error
    return _root() / row.directory


def shadow_of(conversation: ConversationRef) -> Path | None:
    """Return the directory of the checkpoints of a conversation's files; None if there is none."""
    row = Workspace.objects.filter(conversation_id=conversation.pk).first()
    return _shadow_of(row) if row is not None and _shadow_of(row).is_dir() else None


def made_shadow_of(conversation: ConversationRef) -> Path:
    """The same for a conversation that has a workspace; the directory is made on first use.

    It belongs to the account of commands, which runs git. Raise StoreUnavailable.
    """
    shadow = _shadow_of(Workspace.objects.get(conversation_id=conversation.pk))
    try:
        if not shadow.is_dir():
            synced_files.make_directory(shadow)
        with beneath.closing(os.open(shadow, beneath.DIRECTORY | os.O_NOFOLLOW)) as descriptor:
            ownership.give(b".", descriptor, is_users=False)
    except OSError as error:
        raise beneath.unavailable(error) from error
    return shadow


def _shadow_of(row: Workspace) -> Path:
    # Beside all workspaces, and in none: no command of an agent sees it.
    return _root() / f"{row.directory}.checkpoints"


def remove_some(conversation: ConversationRef, at_most: int) -> int | None:
    """Remove a bounded number of the files of a purged conversation, checkpoints first; return their bytes.

    Return None once they are gone; a directory of the user's own stays. Raise OSError.
    """
    for row in Workspace.objects.filter(conversation_id=conversation.pk):
        # A directory of the user's own stays.
        places = [_shadow_of(row), *([] if row.users_directory else [_root() / row.directory])]
        for place in places:
            if row.users_directory and not place.exists():
                continue  # the place of all directories may not be there, which says nothing then
            descriptor = _opened(place)
            if descriptor is not None:
                with beneath.closing(descriptor):
                    removed = Tree(descriptor, limits()).remove_some(at_most)
                if removed is not None:
                    return removed.bytes
                place.rmdir()
                synced_files.sync(_root())
        for each in _made_besides(row):  # a server that was killed has left it
            shutil.rmtree(each)
    return None


def made_beside(conversation: ConversationRef) -> tuple[Path, Path]:
    """Make an empty directory of the server's own beside a workspace, and remove earlier ones.

    Return both; a purge removes the new one, too, for its name begins with the other's. Raise
    ConversationNotFound or StoreUnavailable.
    """
    workspace = directory_of(conversation)
    row = Workspace.objects.get(conversation_id=conversation.pk)
    for each in _made_besides(row):
        shutil.rmtree(each, ignore_errors=True)
    beside = _root() / f"{row.directory}.git-{secrets.token_hex(8)}"
    try:
        if not _root().exists():
            _mark_first(row)
        synced_files.make_directory(beside)
    except OSError as error:
        raise beneath.unavailable(error) from error
    return workspace, beside


def _made_besides(row: Workspace) -> list[Path]:
    return list(_root().glob(f"{row.directory}.git-*"))


def has_directory(conversation: ConversationRef, path: str) -> bool:
    """Return whether a workspace has this directory. Raise StoreUnavailable."""
    with opened(conversation) as tree, suppress(beneath.PathRefused):
        if tree is not None:
            tree.require_directory(path)
            return True
    return False


def note_held(directory: Path, held: HeldOnDisk) -> str:
    """Store how much a workspace holds, which programs have changed, as `directory_of` has named it.

    Return the sentence for one that is nearly full; empty for another one.
    """
    Workspace.objects.filter(directory=directory.name).update(bytes=held.bytes, files=held.files)
    return room.nearly_full(held, _most())


def nearly_full(conversation: ConversationRef) -> str:
    """Return the same sentence as far as it is known what the workspace holds."""
    row = Workspace.objects.filter(conversation_id=conversation.pk).first()
    return "" if row is None else room.nearly_full(HeldOnDisk(row.bytes, row.files), _most())


def _most() -> HeldOnDisk:
    return HeldOnDisk(*limits()[:2])


def mark(place: Path) -> None:
    """Make a place of all directories, or mark one that is there. Raise OSError."""
    synced_files.make_directory(place)
    synced_files.write(place / MARKER, _WHY_MARKED, replaces=False)


def _mark_first(row: Workspace) -> None:
    """Make and mark the place of all directories if no other conversation has one there. Raise OSError."""
    if not Workspace.objects.filter(users_directory="").exclude(pk=row.pk).exists():
        mark(_root())


def place_missing() -> str | None:
    """Return what to do if the place of all directories is not the one that the server has marked.

    None if it is. Raise StoreUnavailable if that cannot be known.
    """
    try:
        (_root() / MARKER).stat()
    except FileNotFoundError:
        return (
            f"The files of conversations are not in {str(_root())!r} (CONVSERVER_WORKSPACES): the file "
            f"{MARKER!r} is missing there. Mount the file system that has them. If they are lost, or were "
            "not restored, make that directory with an empty file of this name: conversations then begin "
            "without files."
        )
    except OSError as error:
        raise beneath.unavailable(error) from error
    return None


def _root() -> Path:
    root: Path = settings.CONFIGURATION.workspaces
    return root


def _directory(row: Workspace) -> int | None:
    """Open the directory of a workspace; None if it was removed, or not copied with the database.

    Raise StoreUnavailable if none of the directories is there, as where a file system is not mounted, or if
    one of the user's own is not.
    """
    if row.users_directory:
        try:
            return roots.opened(Path(row.users_directory))
        except OSError as error:
            raise StoreUnavailable(
                f"The conversation works in {row.users_directory}, which cannot be used: {error.strerror}."
            ) from error
    return _opened(_root() / row.directory)


def _opened(place: Path) -> int | None:
    try:
        return os.open(place, beneath.DIRECTORY | os.O_NOFOLLOW)
    except FileNotFoundError:
        if (words := place_missing()) is not None:
            raise StoreUnavailable(words) from None
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
        row, is_new = Workspace.objects.get_or_create(conversation_id=conversation.pk)
        try:
            if is_new:
                _mark_first(row)
            if (descriptor := _directory(row)) is not None:
                return descriptor
            synced_files.make_directory(_root() / row.directory)
        except OSError as error:
            raise beneath.unavailable(error) from error
        Workspace.objects.filter(pk=row.pk).update(bytes=0, files=0, cloned_at=None)
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

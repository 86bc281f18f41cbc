"""The files of one workspace: listed, read, written whole, walked and removed, beneath its directory."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from heapq import nsmallest
from itertools import islice
from typing import NamedTuple

from conversations.exceptions import ConversationBusy
from sessions_app.sandbox import ownership
from sessions_app.workspaces import beneath
from sessions_app.workspaces.beneath import (
    PathRefused,
    closing,
    open_beneath,
    passing_over,
    refusals,
    shown,
)

_DRAFT = re.compile(r"\.convserver-draft-[0-9a-f]{16}")


class WorkspaceLimits(NamedTuple):
    """How much a workspace may hold."""

    bytes: int
    files: int
    """Files and directories."""
    depth: int
    """Directories above a file."""


class FilesHeld(NamedTuple):
    """How much something holds."""

    bytes: int = 0
    files: int = 0


class WalkedFile(NamedTuple):
    """A file or directory on a walk; it can be opened until the walk's next step."""

    path: str
    """Relative to where the walk began."""
    is_directory: bool
    name: bytes
    above: int
    """A descriptor from which the name leads to it."""
    is_left_out: bool = False
    """Whether the walk was told to leave it out, with what is in it."""

    def opened(self) -> tuple[int, os.stat_result]:
        """Open the file, whose descriptor the caller closes. Raise PathRefused or OSError."""
        return beneath.open_file(self.above, self.name)


@dataclass(slots=True)
class Made:
    """Directories that were made on the way to something, to be undone if that is not made."""

    places: list[tuple[int, bytes]] = field(default_factory=list)
    """Their names, with the descriptors of those above."""

    def undo(self) -> None:
        """Remove those that are still empty."""
        for above, name in reversed(self.places):
            with suppress(OSError):
                os.rmdir(name, dir_fd=above)
        self.keep()

    def keep(self) -> None:
        """Close the descriptors."""
        while self.places:
            os.close(self.places.pop()[0])


@dataclass(slots=True)
class FileDraft:
    """A file that is written, and has a name that no client sees until it is kept."""

    temporary: bytes
    name: bytes
    directory: int
    made: Made
    added: FilesHeld
    """What it adds to the workspace, with the directories that were made for it."""
    is_open: bool = True

    def keep(self, name: bytes = b"") -> None:
        """Give the file its name, in the place of what has it.

        Raise PathRefused or StoreUnavailable; if it `is_open` then, nothing has changed.
        """
        name = name or self.name
        with refusals(os.fsdecode(name)):
            os.replace(self.temporary, name, src_dir_fd=self.directory, dst_dir_fd=self.directory)
            # From here on the file is there, and stays counted, also if its name cannot be synced.
            self.is_open = False
            try:
                beneath.sync(self.directory)
            finally:
                os.close(self.directory)
                self.made.keep()

    def discard(self) -> None:
        """Remove the file, and the directories that were made for it; nothing once it is kept."""
        if self.is_open:
            self.is_open = False
            with suppress(OSError):
                os.unlink(self.temporary, dir_fd=self.directory)
            os.close(self.directory)
            self.made.undo()


@dataclass(frozen=True, slots=True)
class Tree:
    """The files beneath a directory. All paths are relative to it, and without `..`."""

    root: int
    """Its descriptor."""
    limits: WorkspaceLimits
    is_users: bool = False
    """Whether it is a directory of the user's own."""

    def names(self, path: str, at_most: int) -> list[str]:
        """Return the names in a directory, directories first and with a slash, each kind in order.

        Of more entries than a workspace may have, some are left out. Raise PathRefused.
        """
        with refusals(path), closing(self._directory(path)) as directory, os.scandir(directory) as found:
            named = (
                (not self._is_directory(path, each), each.name.lower(), each.name)
                for each in islice(found, self.limits.files)
                if not is_draft(each.name)
            )
            chosen = nsmallest(at_most, named)
        return [name if is_file else f"{name}/" for is_file, _, name in chosen]

    def _is_directory(self, path: str, entry: os.DirEntry[str]) -> bool:
        """Return whether an entry is a directory, or a link to one in the workspace."""
        if not entry.is_symlink():
            return entry.is_dir(follow_symlinks=False)
        with suppress(OSError, PathRefused):
            os.close(self._directory("/".join(filter(None, (path, entry.name)))))
            return True
        return False

    def _directory(self, path: str) -> int:
        return open_beneath(self.root, os.fsencode(path), beneath.DIRECTORY)

    def require_directory(self, path: str) -> None:
        """Raise PathRefused if a path names something else, and NoSuchFile if it names nothing."""
        with refusals(path):
            opened = open_beneath(self.root, os.fsencode(path), beneath.READ)
            with closing(opened):
                if not stat.S_ISDIR(os.fstat(opened).st_mode):
                    raise PathRefused(f"{shown(path)} is not a directory.")

    def file(self, path: str) -> tuple[int, os.stat_result]:
        """Open a regular file; return its descriptor, which the caller closes. Raise PathRefused."""
        with refusals(path):
            return beneath.open_file(self.root, os.fsencode(path))

    def make_directory(self, path: str) -> Made:
        """Make a directory with those above it; return which were missing. Raise PathRefused."""
        made = Made()
        try:
            with refusals(path):
                os.close(self._made(os.fsencode(path), made))
        except BaseException:
            made.undo()
            raise
        return made

    def draft(self, path: str, content: bytes) -> FileDraft:
        """Write a file and sync it, to be kept under this path later; make the directories above it.

        Raise PathRefused, or StoreUnavailable if it cannot be written.
        """
        made = Made()
        try:
            with refusals(path):
                directory, name = self._place(os.fsencode(path), made)
        except BaseException:
            made.undo()
            raise
        draft = FileDraft(_draft_name(), name, directory, made, FilesHeld())
        try:
            with refusals(path):
                before = self._replaced(directory, name, path)
                mode = 0o600 | (before.st_mode & stat.S_IXUSR)
                _write(directory, draft.temporary, content, mode, is_users=self.is_users)
        except BaseException:
            draft.discard()
            raise
        replaced = before.st_size if stat.S_ISREG(before.st_mode) else 0
        draft.added = FilesHeld(len(content) - replaced, len(made.places) + int(not before.st_mode))
        return draft

    def _replaced(self, directory: int, name: bytes, path: str) -> os.stat_result:
        """Return what a file would replace; all zeros for nothing. Raise PathRefused for a directory."""
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
        except FileNotFoundError:
            return os.stat_result([0] * 10)
        if stat.S_ISDIR(found.st_mode):
            raise PathRefused(f"{shown(path)} is a directory.")
        return found

    def _place(self, path: bytes, made: Made) -> tuple[int, bytes]:
        """Return the directory and the name where a file with this path is to be, past links at its end.

        A rename replaces a link, and never writes through it, whatever comes between this and the rename.
        """
        links_most = 40
        for _ in range(links_most):
            above, _, name = path.rpartition(b"/")
            if name in (b"", b".", b".."):
                raise PathRefused(f"{shown(os.fsdecode(path))} is a directory.")
            directory = self._made(above, made)
            try:
                target = os.readlink(name, dir_fd=directory)
            except OSError:  # no link
                return directory, name
            os.close(directory)
            if target.startswith(b"/"):
                break
            path = b"/".join(filter(None, (above, target)))
        raise PathRefused(f"{shown(os.fsdecode(path))} leads out of the workspace.")

    def _made(self, path: bytes, made: Made) -> int:
        """Open a directory; make it, and those above it, where they are missing, and note them in `made`."""
        if path.count(b"/") >= self.limits.depth:
            raise self._too_deep(path)
        try:
            return open_beneath(self.root, path, beneath.DIRECTORY)
        except FileNotFoundError:
            if not path:  # the whole workspace was removed
                raise
        above, _, name = path.rpartition(b"/")
        with closing(self._made(above, made)) as directory:
            # Links make a path shorter than the way that it names, so the way itself is measured.
            if self._depth(directory) >= self.limits.depth:
                raise self._too_deep(path)
            with suppress(FileExistsError):
                os.mkdir(name, 0o700, dir_fd=directory)
                made.places.append((os.dup(directory), name))
                ownership.give(name, directory, is_users=self.is_users)
                beneath.sync(directory)
        return open_beneath(self.root, path, beneath.DIRECTORY)

    def _depth(self, directory: int) -> int:
        """Return how many directories are between one and the root, at most the limit."""
        opened = os.dup(directory)
        try:
            for depth in range(self.limits.depth):
                if os.path.sameopenfile(opened, self.root):
                    return depth
                above = os.open("..", beneath.DIRECTORY, dir_fd=opened)
                os.close(opened)
                opened = above
            return self.limits.depth
        finally:
            os.close(opened)

    def _too_deep(self, path: bytes) -> PathRefused:
        return PathRefused(
            f"{shown(os.fsdecode(path))} is too deep: the limit is {self.limits.depth} directories."
        )

    def walk(
        self,
        path: str = "",
        is_left_out: Callable[[str, bool], bool] = lambda _path, _is_directory: False,
        *,
        with_links: bool = False,
    ) -> Iterator[WalkedFile]:
        """Yield all files and directories beneath one, each directory before what is in it, its files first.

        Links, which `with_links` are among the files, devices, FIFOs, sockets and drafts are left out, as is
        what is deeper than a workspace may be.
        Nothing below a directory that `is_left_out` (by its path from where the walk begins) is looked at.
        Raise PathRefused or OSError if the directory cannot be opened, and OSError if the disk fails.
        """
        with closing(self._directory(path)) as top:
            # Only the directory whose files are given is open: a tree may be deeper than a process has
            # descriptors for. What waits are names, the next one last, with the way to them.
            waiting: list[tuple[str, list[str]]] = [("", [""])]
            while waiting:
                way, names = waiting[-1]
                if not names:
                    waiting.pop()
                    continue
                place = way + names.pop()
                each = WalkedFile(place, True, os.fsencode(place), top, is_left_out(place, True))
                if place:
                    yield each
                    if each.is_left_out:
                        continue
                with passing_over(), closing(beneath.open_directory(top, each.name)) as directory:
                    files, directories = self._sorted_names(directory, with_links)
                    inner = f"{place}/" if place else ""
                    for name in files:
                        out = is_left_out(inner + name, False)
                        yield WalkedFile(inner + name, False, os.fsencode(name), directory, out)
                    if inner.count("/") < self.limits.depth:
                        waiting.append((inner, directories[::-1]))

    def _sorted_names(self, directory: int, with_links: bool) -> tuple[list[str], list[str]]:
        """Return the files and the directories in a directory."""
        with os.scandir(directory) as found:
            walked = (
                each for each in found if (with_links or not each.is_symlink()) and not is_draft(each.name)
            )
            # One more than there may be, so that an archive can tell that it is not whole.
            entries = list(islice(walked, self.limits.files + 1))
            # Asked here: some file systems need the open directory for the answer.
            files = sorted(
                each.name for each in entries if each.is_symlink() or each.is_file(follow_symlinks=False)
            )
            directories = sorted(each.name for each in entries if each.is_dir(follow_symlinks=False))
        return files, directories

    def measured(self) -> FilesHeld:
        """Return how much the workspace holds, and remove drafts that a crash has left.

        Raise StoreUnavailable if not all of it can be looked at.
        """
        size, late = FilesHeld(), time.time() - 24 * 3600
        try:
            for directory in self._directories():
                with os.scandir(directory) as found:
                    for each in found:
                        with passing_over():
                            about = each.stat(follow_symlinks=False)
                            is_file = stat.S_ISREG(about.st_mode)
                            if not is_draft(each.name):
                                added = about.st_size if is_file else 0
                                size = FilesHeld(size.bytes + added, size.files + 1)
                            elif is_file and about.st_mtime < late:
                                os.unlink(each.name, dir_fd=directory)
        except OSError as error:
            raise beneath.unavailable(error) from error
        return size

    def _directories(self) -> Iterator[int]:
        """Yield the descriptor of each directory, which is open until the next step."""
        yield self.root
        for each in self.walk():
            if each.is_directory:
                with passing_over(), closing(beneath.open_directory(each.above, each.name)) as inner:
                    yield inner

    def remove_some(self, at_most: int) -> FilesHeld | None:
        """Remove a bounded number of entries; return how much that was, None once nothing is left."""
        removed = self._remove(self.root, at_most, 0)
        return removed if removed.files else None

    def _remove(self, directory: int, at_most: int, depth: int) -> FilesHeld:
        """Remove entries, each after what is in it. No link is followed."""
        level_most = 32
        size = FilesHeld()
        with os.scandir(directory) as found:
            entries = list(islice(found, at_most))
        for each in entries:
            if size.files >= at_most:
                break
            name = os.fsencode(each.name)
            if not each.is_dir(follow_symlinks=False):
                bytes_ = each.stat(follow_symlinks=False).st_size
                os.unlink(name, dir_fd=directory)
                size = FilesHeld(size.bytes + bytes_, size.files + 1)
            elif depth == level_most:
                # No tree is too deep for the descriptors of this process: the rest becomes one of its own.
                aside = _draft_name()
                os.rename(name, aside, src_dir_fd=directory, dst_dir_fd=self.root)
                size = FilesHeld(size.bytes, size.files + 1)
            else:
                try:
                    inner = beneath.open_without_mounts(directory, name)
                except OSError as error:
                    if error.errno == errno.EXDEV:
                        # The files of another file system are not the conversation's.
                        told = "another file system is mounted in the workspace: unmount it"
                        raise OSError(errno.EXDEV, told, each.name) from error
                    raise
                with closing(inner):
                    part = self._remove(inner, at_most - size.files, depth + 1)
                size = FilesHeld(size.bytes + part.bytes, size.files + part.files)
                if size.files < at_most:
                    os.rmdir(name, dir_fd=directory)
                    size = FilesHeld(size.bytes, size.files + 1)
        return size

    @contextmanager
    def changed_alone(self, wait_s: float = 30.0) -> Iterator[None]:
        """Keep other changes of these files by the server away, those of other processes too.

        Raise ConversationBusy if others take longer.
        """
        end = time.monotonic() + wait_s
        # A descriptor of its own: a lock belongs to what was opened, not to the process or thread.
        with closing(os.open(".", beneath.DIRECTORY, dir_fd=self.root)) as lock:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError as error:
                    if time.monotonic() > end:
                        raise ConversationBusy(
                            "The files of the conversation are being changed. Try again."
                        ) from error
                    time.sleep(0.01)
                except OSError:  # some network filesystems lock no directories; the sums may differ there
                    break
            yield


def is_draft(name: str) -> bool:
    """Return whether this is the name of a file that is being written, or removed: no client sees it."""
    return _DRAFT.fullmatch(name) is not None


def _draft_name() -> bytes:
    return f".convserver-draft-{secrets.token_hex(8)}".encode()


def _write(directory: int, name: bytes, content: bytes, mode: int, *, is_users: bool) -> None:
    """Write a new file with all its bytes to the disk. Raise OSError."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(name, flags, mode, dir_fd=directory), "wb") as file:
        file.write(content)
        ownership.give(name, directory, is_users=is_users)
        file.flush()
        os.fsync(file.fileno())

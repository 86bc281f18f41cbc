"""Workspaces as one archive for a backup, and the way back: whole trees, with their links and modes."""

from __future__ import annotations

import gzip
import os
import re
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import IO, Any, Protocol, cast

from sessions_app.sandbox import ownership
from sessions_app.workspaces import beneath
from sessions_app.workspaces.tree import Tree, WalkedFile, WorkspaceLimits

_DIRECTORY = re.compile(r"[0-9a-f]{32}")
"""The names of workspaces' directories."""
COPY_LIMITS = WorkspaceLimits(bytes=0, files=1_000_000, depth=500)
"""More than any workspace may hold, since programs can exceed that; the files are those of one directory."""


class ArchiveSource(Protocol):
    """What an archive is read from."""

    def read(self, size: int, /) -> bytes: ...


class CopyRefused(Exception):
    """An archive that is not what `CopyWriter` writes; the text says why."""


@dataclass(slots=True)
class CopiedFiles:
    """What an archive holds."""

    workspaces: int = 0
    entries: int = 0
    """Files, directories and links in them."""
    bytes: int = 0
    """Of the files."""


@dataclass(slots=True)
class CopyWriter:
    """Writes workspaces to a compressed tar file, one file in memory at most by a piece."""

    target: IO[bytes]
    most: int
    """How many bytes of each workspace are copied; the files beyond are left out, and counted as unread."""
    copied: CopiedFiles = field(default_factory=CopiedFiles)
    changed: int = 0
    """Files that were written while they were read, so that neither state may be in the archive."""
    unread: int = 0
    """Files that were gone, could not be opened by this account, or had no more room."""
    _compressed: Any = None
    _room: int = 0
    """How many bytes more of the workspace are copied."""

    def __enter__(self) -> CopyWriter:
        # Level 1: the others take several times as long for some hundredths of the size.
        self._compressed = gzip.GzipFile("", "wb", 1, self.target, 0)
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is None:
            self._compressed.write(bytes(2 * tarfile.BLOCKSIZE))
        self._compressed.close()

    def add(self, name: str, tree: Tree) -> None:
        """Add a workspace, whose directory has this name, with all its files. Raise OSError."""
        self._begin(name, tarfile.DIRTYPE, os.fstat(tree.root))
        self.copied.workspaces += 1
        self._room = self.most
        for each in tree.walk(with_links=True):
            before = self.copied.entries
            with beneath.passing_over():
                self.copied.entries += self._add(f"{name}/{each.path}", each)
            self.unread += before == self.copied.entries

    def _add(self, name: str, each: WalkedFile) -> bool:
        """Add a file, a link or a directory; return whether there was room."""
        if each.is_directory:
            with beneath.closing(beneath.open_directory(each.above, each.name)) as directory:
                self._begin(name, tarfile.DIRTYPE, os.fstat(directory))
            return True
        found = os.stat(each.name, dir_fd=each.above, follow_symlinks=False)
        if stat.S_ISLNK(found.st_mode):
            self._begin(name, tarfile.SYMTYPE, found, os.readlink(each.name, dir_fd=each.above))
            return True
        descriptor, about = each.opened()
        with beneath.closing(descriptor):
            # Files with many names, or with holes, take more here than on the disk, where their blocks count.
            if about.st_size > self._room:
                return False
            self._room -= about.st_size
            self._begin(name, tarfile.REGTYPE, about)
            missing = about.st_size
            for piece in beneath.pieces(descriptor, about.st_size):
                missing -= len(piece)
                self._compressed.write(piece)
            after = os.fstat(descriptor)
        is_same = (after.st_size, after.st_mtime_ns) == (about.st_size, about.st_mtime_ns)
        self.changed += not is_same or missing > 0
        # The file became shorter: the header has promised as many bytes as there were.
        while missing > 0:
            missing -= self._compressed.write(bytes(min(missing, tarfile.RECORDSIZE)))
        self._compressed.write(bytes(-about.st_size % tarfile.BLOCKSIZE))
        self.copied.bytes += about.st_size
        return True

    def _begin(self, name: str, kind: bytes, about: os.stat_result, target: str | bytes = "") -> None:
        """Write the header of a member."""
        header = tarfile.TarInfo(name)
        header.type, header.mode, header.mtime = kind, about.st_mode & 0o777, _usable(about.st_mtime)
        header.size = about.st_size if kind == tarfile.REGTYPE else 0
        header.linkname = os.fsdecode(target)
        self._compressed.write(header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape"))


class _BoundedHeader(tarfile.TarInfo):
    """A header whose extension, which is read into memory, cannot be large."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _BoundedHeader:
        found = super().frombuf(buf, encoding, errors)
        extension_most = 200_000
        if found.type not in (tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.XHDTYPE):
            raise CopyRefused("It holds more than files, directories and links.")
        if found.type == tarfile.XHDTYPE and found.size > extension_most:
            raise CopyRefused("A name in it is too long.")
        return found

    def _refused(self, *_: object, **__: object) -> None:
        """Refuse a file with holes: it could name any number of them, which are read into memory."""
        raise CopyRefused("It holds more than files, directories and links.")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = _refused


@dataclass(slots=True)
class CopyReader:
    """Reads such an archive, and puts its files into an empty directory, unless there is none."""

    into: int | None
    """The descriptor of the directory; None to compare only."""
    expected: CopiedFiles
    is_known: Callable[[str], bool]
    """Whether there is a workspace with this directory."""
    found: CopiedFiles = field(default_factory=CopiedFiles)
    _workspace: str = ""
    _modes: list[tuple[bytes, int]] = field(default_factory=list)
    """Directories that get their modes at the end, because nothing can be put into them afterwards."""

    def read(self, source: ArchiveSource) -> None:
        """Read the whole archive. Raise CopyRefused, or OSError if a file cannot be written."""
        try:
            with tarfile.open(
                fileobj=cast(IO[bytes], source), mode="r|gz", tarinfo=_BoundedHeader, encoding="utf-8"
            ) as archive:
                while (member := archive.next()) is not None:
                    self._take(archive, member)
                    # Otherwise all headers stay in memory; the type stubs do not know the list.
                    archive.members.clear()  # type: ignore[attr-defined]
        except (tarfile.TarError, zlib.error, EOFError, ValueError, OverflowError, RecursionError) as error:
            raise CopyRefused(f"It cannot be read: {error}.") from error
        self._end_workspace()
        if self.found != self.expected:
            raise CopyRefused("It does not hold as much as the manifest says.")

    def _take(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        # Judged by name before anything is opened; below, no directory on the way is a link.
        parts = member.name.split("/")
        is_odd = member.sparse is not None or member.size < 0
        if is_odd or any(each in ("", ".", "..") or "\0" in each for each in parts):
            raise CopyRefused(f"It has a member with the name {beneath.shown(member.name)}.")
        if len(parts) > COPY_LIMITS.depth + 2:
            raise CopyRefused(f"{beneath.shown(member.name)} is too deep.")
        if len(parts) == 1:
            self._begin_workspace(member)
        elif parts[0] != self._workspace:
            raise CopyRefused(f"{beneath.shown(member.name)} is in no workspace.")
        else:
            self.found.entries += 1
        self.found.bytes += member.size
        if self.found.entries > self.expected.entries or self.found.bytes > self.expected.bytes:
            raise CopyRefused("It holds more than the manifest says.")
        if self.into is not None:
            above, _, name = os.fsencode(member.name).rpartition(b"/")
            with (
                _refusing(member.name),
                beneath.closing(beneath.open_directory(self.into, above)) as directory,
            ):
                self._put(archive, member, name, directory)

    def _begin_workspace(self, member: tarfile.TarInfo) -> None:
        self._end_workspace()
        is_one = member.isdir() and _DIRECTORY.fullmatch(member.name) is not None
        if not is_one or not self.is_known(member.name):
            raise CopyRefused(f"{beneath.shown(member.name)} is the workspace of no conversation.")
        self._workspace = member.name
        self.found.workspaces += 1

    def _end_workspace(self) -> None:
        """Give the directories their modes, the inner ones first, and the files their owner."""
        if self.into is not None and self._workspace:
            while self._modes:
                path, mode = self._modes.pop()
                with beneath.closing(beneath.open_directory(self.into, path)) as directory:
                    os.fchmod(directory, mode)
            with beneath.closing(beneath.open_directory(self.into, self._workspace.encode())) as directory:
                ownership.give_all(directory)
        self._workspace = ""

    def _put(self, archive: tarfile.TarFile, member: tarfile.TarInfo, name: bytes, directory: int) -> None:
        mode = member.mode & 0o777
        if member.isdir():
            # First so that this account can put files into it, whatever the mode is to be.
            os.mkdir(name, 0o700, dir_fd=directory)
            # A workspace itself keeps it: only the server's account may enter that.
            if mode != 0o700 and member.name != self._workspace:
                self._modes.append((os.fsencode(member.name), mode))
        elif member.issym():
            os.symlink(os.fsencode(member.linkname), name, dir_fd=directory)
        else:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            with os.fdopen(os.open(name, flags, 0o600, dir_fd=directory), "wb") as file:
                for piece in _content(archive, member):
                    file.write(piece)
                file.flush()
                os.fchmod(file.fileno(), mode)
                os.utime(file.fileno(), (_usable(member.mtime),) * 2)


def _usable(seconds: float) -> int:
    """Return a time that every file system has: from 1970 to some centuries later."""
    latest = 2**33
    return int(min(max(seconds, 0), latest))


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> Iterator[bytes]:
    """Yield the bytes of a file; the archive breaks off with a TarError if there are fewer."""
    at_once = 256 * 1024
    if (source := archive.extractfile(member)) is not None:
        while piece := source.read(at_once):
            yield piece


@contextmanager
def _refusing(name: str) -> Iterator[None]:
    """Raise CopyRefused where a member is there already, or its directory is none."""
    try:
        yield
    except OSError as error:
        if error.errno not in beneath.OF_THE_NAME:
            raise
        raise CopyRefused(f"{beneath.shown(name)} cannot be put back: {error.strerror}.") from error

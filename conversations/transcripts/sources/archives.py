"""The files of an export: a zip file read in place, a directory, or a single file."""

from __future__ import annotations

import lzma
import os
import re
import stat
import struct
import tempfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Protocol
from zipfile import ZipFile, ZipInfo

from conversations.confined import processes
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.nodes import Unreadable
from conversations.transcripts.sources.packed import BOMB_MIN_BYTES, BOMB_RATIO

# A zip file's list of its members is read at once; a longer one is refused.
DIRECTORY_MAX_BYTES = 128 * 1024 * 1024
INNER_MAX = 100  # at most this many zip files are read in one zip file or directory: each stays open
# A member in more nested directories is refused: no program exports it, and it could not be removed again.
DEPTH_MAX = 50
ZIP_BEGINS = b"PK\x03\x04"
ENDS = struct.Struct("<4s4H2LH")
# The end of a zip file, which may be followed by a comment, says how long the list of its members is.
ENDS_WITH = b"PK\x05\x06"
LARGE_PLACE = struct.Struct("<4sLQL")
# In a large file, the place of a second end with room for large numbers is before it.
LARGE_ENDS = struct.Struct("<4sQ2H2L4Q")

# The ways of packing that exports use. With others a few bytes ask for gigabytes of memory.
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED = 0x1  # a bit of a member's flags
_DRIVE = re.compile("[A-Za-z]:")
# The errors of reading a damaged zip file.
_BROKEN = (
    EOFError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    lzma.LZMAError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


class Archive(Protocol):
    """Files by their names, which are relative and have slashes."""

    def names(self) -> Sequence[str]:
        """Return the names of the files, sorted."""

    def size(self, name: str) -> int:
        """Return the size of a file in bytes. Raise Unreadable."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file, at most processes.CHUNK_BYTES at a time. Raise Unreadable."""


def opened(
    path: Path,
    *,
    directory_max_bytes: int | None = None,
    are_inner_read: bool = True,
    check: Callable[[], object] = lambda: None,
) -> Archive:
    """Return the files of a zip file or of a directory, or a single file. Raise Unreadable.

    If there are only zip files, their files are returned, unless `are_inner_read` is false and they are in a
    zip file; zip files inside those are not opened. All lists of members together have at most
    DIRECTORY_MAX_BYTES, or the given number. `check` is called while they are read, and may raise.
    """
    most = DIRECTORY_MAX_BYTES if directory_max_bytes is None else directory_max_bytes
    try:
        if path.is_dir():
            # A link could lead out of the directory.
            found = (file for file in lines.below(path, "") if file.is_file() and not file.is_symlink())
            files = {file.relative_to(path).as_posix(): file for file in found}
            whole = _Files(files)
            if not has_only_zips(whole):
                return whole
            return _Zips({name: files[name] for name in _zip_names(whole)}, most, check)
        if not path.is_file():
            raise Unreadable(f"{path} does not exist")
        if not is_zip(path):
            return _Files({path.name: path})
        archive = _Zip(path, most, check)
        return _within(archive, path, most, check) if are_inner_read and has_only_zips(archive) else archive
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error


def has_only_zips(archive: Archive) -> bool:
    """Return whether an archive has zip files, and no other file that may contain conversations."""
    names = [PurePosixPath(name.lower()) for name in archive.names() if not _is_hidden(name)]
    endings = {name.suffix for name in names}
    return ".zip" in endings and endings.isdisjoint({".json", ".jsonl", ".zst"})


def _is_hidden(name: str) -> bool:
    """Return whether a file is metadata that macOS adds to zip files, or a hidden file."""
    return any(part.startswith((".", "__MACOSX")) for part in PurePosixPath(name).parts)


def _zip_names(archive: Archive) -> list[str]:
    return [name for name in archive.names() if name.lower().endswith(".zip") and not _is_hidden(name)]


def _within(archive: Archive, path: Path, most: int, check: Callable[[], object]) -> Archive:
    """Return the files of the zip files in a zip file; each is unpacked while it is read."""
    directory = tempfile.TemporaryDirectory(prefix="convserver-import-")
    try:
        files: dict[str, Path] = {}
        for number, name in enumerate(_zip_names(archive)):
            files[name] = Path(directory.name, str(number))
            _unpack(archive, name, files[name], check)
        found = _Zips(files, most, check)
        # Each is bounded by its own size, of which the outer one may have only a small part.
        if sum(map(found.size, found.names())) > max(BOMB_MIN_BYTES, path.stat().st_size * BOMB_RATIO):
            raise Unreadable(f"{path.name} would unpack to far more than it holds")
    except BaseException:
        directory.cleanup()
        raise
    weakref.finalize(found, directory.cleanup)
    return found


def _unpack(archive: Archive, name: str, to: Path, check: Callable[[], object]) -> None:
    """Write a member to a file. Raise Unreadable, before writing, if it is no zip file."""
    with to.open("wb") as unpacked:
        for chunk in archive.chunks(name):
            check()
            if not unpacked.tell() and not chunk.startswith(ZIP_BEGINS):
                break
            unpacked.write(chunk)
        if not unpacked.tell():
            raise Unreadable(f"{name} is a damaged zip file")


def is_zip(path: Path) -> bool:
    if zipfile.is_zipfile(path):
        return True
    with path.open("rb") as file:
        return file.read(len(ZIP_BEGINS)) == ZIP_BEGINS


class _Files:
    def __init__(self, files: dict[str, Path]) -> None:
        self._files = dict(sorted(files.items()))

    def names(self) -> Sequence[str]:
        return list(self._files)

    def size(self, name: str) -> int:
        try:
            return self._files[name].stat().st_size
        except OSError as error:
            raise Unreadable(f"{name} cannot be read: {error.strerror}") from error

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            with self._files[name].open("rb") as file:
                yield from _chunks(file)
        except OSError as error:
            raise Unreadable(f"{name} cannot be read: {error.strerror}") from error


class _Zip:
    """A zip file that stays open while this is referenced: nodes may be read late."""

    def __init__(
        self, path: Path, directory_max_bytes: int, check: Callable[[], object], name: str = ""
    ) -> None:
        try:
            is_too_long = _directory_bytes(path) > directory_max_bytes
            if not is_too_long:
                self._zip = ZipFile(path)
        except _BROKEN as error:
            raise Unreadable(f"{name or path.name} is a damaged zip file") from error
        if is_too_long:
            raise Unreadable(f"{name or path.name} is a zip file with more members than can be listed")
        members = self._zip.infolist()
        for member in members:
            check()
            _check(member)
        packed = sum(member.compress_size for member in members)
        if packed > path.stat().st_size:
            raise Unreadable("the members of the zip file lie over each other")
        # Each of many members may be within its bound, and all of them far beyond the file's.
        if sum(member.file_size for member in members) > max(BOMB_MIN_BYTES, packed * BOMB_RATIO):
            raise Unreadable("the zip file would unpack to far more than it holds")
        self._members = {member.filename: member for member in members if not member.is_dir()}

    def names(self) -> Sequence[str]:
        return sorted(self._members)

    def size(self, name: str) -> int:
        return self._members[name].file_size

    def chunks(self, name: str) -> Iterator[bytes]:
        try:
            with self._zip.open(self._members[name]) as file:
                yield from _chunks(file)
        except _BROKEN as error:
            raise Unreadable(f"{name} is damaged in the zip file") from error


class _Zips:
    """The files of several zip files, each below the name of its own."""

    def __init__(
        self,
        files: Mapping[str, Path],
        directory_max_bytes: int,
        check: Callable[[], object],
    ) -> None:
        if len(files) > INNER_MAX:
            raise Unreadable(f"there are more than {INNER_MAX} zip files in it")
        self._members: dict[str, tuple[_Zip, str]] = {}
        left = directory_max_bytes
        for name, file in files.items():
            archive = _Zip(file, left, check, name)
            left -= _directory_bytes(file)
            self._members |= {f"{name}/{each}": (archive, each) for each in archive.names()}

    def names(self) -> Sequence[str]:
        return sorted(self._members)

    def size(self, name: str) -> int:
        archive, inner = self._members[name]
        return archive.size(inner)

    def chunks(self, name: str) -> Iterator[bytes]:
        archive, inner = self._members[name]
        return archive.chunks(inner)


def _directory_bytes(path: Path) -> int:
    """Return the length of a zip file's list of members, as its end states it. Raise OSError."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        # A comment of at most 65,535 bytes may follow the end.
        start = file.seek(max(0, size - ENDS.size - LARGE_PLACE.size - 0xFFFF))
        tail = file.read()
        place = tail.rfind(ENDS_WITH)
        if place < 0 or len(tail) - place < ENDS.size:
            return 0  # reading it will raise
        directory: int = ENDS.unpack_from(tail, place)[5]
        if start + place < LARGE_PLACE.size or place < LARGE_PLACE.size:
            return directory
        signature, _, large, _ = LARGE_PLACE.unpack_from(tail, place - LARGE_PLACE.size)
        if signature != b"PK\x06\x07" or large + LARGE_ENDS.size > size:
            return directory
        file.seek(large)
        large_directory: int = LARGE_ENDS.unpack(file.read(LARGE_ENDS.size))[8]
        return max(directory, large_directory)


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    processes.check()  # also for each of many small files
    while chunk := file.read(processes.CHUNK_BYTES):
        yield chunk
        processes.check()


def _check(member: ZipInfo) -> None:
    """Raise Unreadable unless an exporting program would write such a member."""
    name = PurePosixPath(member.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or _DRIVE.match(member.filename):
        raise Unreadable(f"the zip file names a file outside of itself: {member.filename!r}")
    if len(name.parts) > DEPTH_MAX:
        raise Unreadable(f"the zip file has directories in directories, more than {DEPTH_MAX} deep")
    if member.flag_bits & ENCRYPTED:
        raise Unreadable(f"the zip file is encrypted: {member.filename!r}")
    if member.compress_type not in METHODS:
        raise Unreadable(f"the zip file is packed by another method than deflate: {member.filename!r}")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise Unreadable(f"the zip file has a link in it: {member.filename!r}")
    if member.file_size > max(BOMB_MIN_BYTES, member.compress_size * BOMB_RATIO):
        raise Unreadable(f"the zip file would unpack to far more than it holds: {member.filename!r}")

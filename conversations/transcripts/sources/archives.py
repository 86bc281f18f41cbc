"""The files of an export: a zip file that is read in place, a directory, or a single file."""

from __future__ import annotations

import lzma
import re
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Protocol
from zipfile import ZipFile, ZipInfo

from conversations.transcripts.sources import lines
from conversations.transcripts.sources.nodes import Unreadable

CHUNK_BYTES = 1024 * 1024
BOMB_MIN_BYTES = 100 * 1024 * 1024
"""A smaller member of a zip file may be packed as tightly as it likes."""
BOMB_RATIO = 200
"""A larger one that is so many times as large as it is packed is refused."""
ZIP_BEGINS = b"PK\x03\x04"
ENCRYPTED = 0x1
"""The bit of a member's flags that says so."""
_DRIVE = re.compile("[A-Za-z]:")
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
"""What reading a damaged zip file raises."""


class Archive(Protocol):
    """Files by their names, which are relative and have slashes."""

    def names(self) -> Sequence[str]:
        """Return the names of the files, sorted."""

    def size(self, name: str) -> int:
        """Return the size of a file in bytes. Raise Unreadable."""

    def chunks(self, name: str) -> Iterator[bytes]:
        """Yield the bytes of a file, at most CHUNK_BYTES at a time. Raise Unreadable."""


def opened(path: Path) -> Archive:
    """Return the files of a zip file or of a directory, or a file by itself. Raise Unreadable."""
    try:
        if path.is_dir():
            return _Files({_relative(file, path): file for file in lines.below(path, "") if _is_file(file)})
        if not path.is_file():
            raise Unreadable(f"{path} does not exist")
        return _Zip(path) if _is_zip(path) else _Files({path.name: path})
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error


def _is_zip(path: Path) -> bool:
    """Say whether a file is a zip file, or the beginning of one."""
    if zipfile.is_zipfile(path):
        return True
    with path.open("rb") as file:
        return file.read(len(ZIP_BEGINS)) == ZIP_BEGINS


def _is_file(file: Path) -> bool:
    return file.is_file() and not file.is_symlink()


def _relative(file: Path, directory: Path) -> str:
    return file.relative_to(directory).as_posix()


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
    """The file stays open until nobody refers to this any more: whoever reads nodes may come late."""

    def __init__(self, path: Path) -> None:
        try:
            self._zip = ZipFile(path)
        except _BROKEN as error:
            raise Unreadable(f"{path.name} is a damaged zip file") from error
        members = self._zip.infolist()
        for member in members:
            _check(member)
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


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(CHUNK_BYTES):
        yield chunk


def _check(member: ZipInfo) -> None:
    """Raise Unreadable unless a member is what a program that exports would write."""
    name = PurePosixPath(member.filename.replace("\\", "/"))
    if name.is_absolute() or ".." in name.parts or _DRIVE.match(member.filename):
        raise Unreadable(f"the zip file names a file outside of itself: {member.filename!r}")
    if member.flag_bits & ENCRYPTED:
        raise Unreadable(f"the zip file is encrypted: {member.filename!r}")
    if stat.S_ISLNK(member.external_attr >> 16):
        raise Unreadable(f"the zip file has a link in it: {member.filename!r}")
    if member.file_size > max(BOMB_MIN_BYTES, member.compress_size * BOMB_RATIO):
        raise Unreadable(f"the zip file would unpack to far more than it holds: {member.filename!r}")

"""Workspaces as archives that are made while they are sent: bounded as workspaces are, and without links."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, NamedTuple

import structlog
from zipstream import ZIP_DEFLATED, ZipStream

from conversations.events import ConversationRef
from conversations.server_log import ids_of
from sessions_app.workspaces import beneath, records
from sessions_app.workspaces.beneath import passing_over, pieces
from sessions_app.workspaces.excludes import Excludes
from sessions_app.workspaces.tree import Tree

logger = structlog.stdlib.get_logger(__name__)

_LEFT_OUT = "LEFT-OUT.txt"
_WHY_LEFT_OUT = b"The workspace holds more than its limits allow. This archive has the first part of it.\n"


class ArchiveMember(NamedTuple):
    """A file or directory of an archive."""

    path: str
    is_directory: bool
    size: int
    mode: int
    modified: float
    content: Iterator[bytes]
    """At most `size` bytes; to be read before the next member is asked for."""


def zipped(conversation: ConversationRef) -> Iterator[bytes]:
    """Return the whole workspace as a zip file.

    Raise StoreUnavailable; the iteration breaks off with it if the disk fails later.
    """

    def parts() -> Iterator[bytes]:
        stream = ZipStream(compress_type=ZIP_DEFLATED)
        with (
            records.opened(conversation) as tree,
            closing(members(tree, "")) as found,
            _ZipDirectory() as directory,
        ):
            stream._filelist = directory
            yield b""
            for each in found:
                if each is None:
                    yield b""
                    continue
                if each.is_directory:
                    stream.mkdir(_text(each.path))
                else:
                    stream.add(each.content, _text(each.path), size=each.size)
                yield from stream.all_files()
            yield from stream.finalize()

    return _begun(conversation, parts())


def tar_gz(conversation: ConversationRef, path: str, name: str, excludes: Sequence[str]) -> Iterator[bytes]:
    """Return a directory as a compressed tar file, in which it has this name, with a manifest at its end.

    Raise StoreUnavailable; the iteration breaks off with it if the disk fails later.
    """
    compressor = zlib.compressobj(wbits=31)  # with the header of gzip
    top = _plain(name)

    def parts() -> Iterator[bytes]:
        files = total = 0
        with (
            records.opened(conversation) as tree,
            closing(members(tree, path, Excludes(excludes, path))) as found,
        ):
            yield b""
            for each in found:
                if each is None:
                    yield b""
                    continue
                files += not each.is_directory
                total += each.size
                yield from _tar_member(each._replace(path=f"{top}/{each.path}"))
        about = {"format": "tar.gz", "source": name, "file_count": files, "total_bytes": total}
        text = json.dumps({**about, "excludes": list(excludes)}, indent=2, sort_keys=True)
        content = text.encode(errors="backslashreplace")
        yield from _tar_member(_note(f"{top}/archive_manifest.json", content))
        yield bytes(2 * tarfile.BLOCKSIZE)

    def compressed() -> Iterator[bytes]:
        for part in parts():
            yield compressor.compress(part)
        yield compressor.flush()

    return _begun(conversation, compressed())


def members(
    tree: Tree | None, path: str, excludes: Excludes | None = None
) -> Generator[ArchiveMember | None, None, None]:
    """Yield what an archive of a directory has, and None for each entry that it has not.

    What is gone meanwhile is left out. Raise OSError if the disk fails, or no descriptor is left.
    """
    if tree is None:
        return
    room, files = tree.limits.bytes, tree.limits.files
    walk = tree.walk(path) if excludes is None else tree.walk(path, excludes.leave_out)
    with passing_over():  # the directory itself may be gone
        for entry in walk:
            if entry.is_left_out:
                yield None
                continue
            files -= 1
            if files < 0:
                yield _note(_LEFT_OUT, _WHY_LEFT_OUT)
                return
            if entry.is_directory:
                yield ArchiveMember(_plain(entry.path), True, 0, 0o755, 0.0, iter(()))
                continue
            with passing_over():
                descriptor, about = entry.opened()
                with beneath.closing(descriptor):
                    room -= about.st_size
                    if room < 0:
                        yield _note(_LEFT_OUT, _WHY_LEFT_OUT)
                        return
                    mode = 0o755 if about.st_mode & stat.S_IXUSR else 0o644
                    content = pieces(descriptor, about.st_size)
                    yield ArchiveMember(
                        _plain(entry.path), False, about.st_size, mode, about.st_mtime, content
                    )


class _ZipDirectory:
    """The entries of a zip file for its end, in a file: a hundred thousand of them are not kept in memory.

    It has the place of ZipStream's list of them.
    """

    def __init__(self) -> None:
        in_memory_most = 256 * 1024
        self._file = tempfile.SpooledTemporaryFile(max_size=in_memory_most)  # noqa: SIM115
        self._count = 0

    def __enter__(self) -> _ZipDirectory:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def __len__(self) -> int:
        return self._count

    def append(self, entry: Any) -> None:
        self._file.write(entry._central_directory_header_data())
        self._count += 1

    def __iter__(self) -> Iterator[_PackedEntries]:
        self._file.seek(0)
        while packed := self._file.read(64 * 1024):
            yield _PackedEntries(packed)


class _PackedEntries(NamedTuple):
    """Some bytes of the directory, as ZipStream asks its entries for theirs."""

    packed: bytes

    def _central_directory_header_data(self) -> bytes:
        return self.packed


def _note(path: str, content: bytes) -> ArchiveMember:
    return ArchiveMember(path, False, len(content), 0o644, 0.0, iter((content,)))


def _tar_member(member: ArchiveMember) -> Iterator[bytes]:
    """Yield a member of a tar file, with exactly as many bytes as its header promises."""
    header = tarfile.TarInfo(member.path)
    header.size, header.mode, header.mtime = member.size, member.mode, int(member.modified)
    header.type = tarfile.DIRTYPE if member.is_directory else tarfile.REGTYPE
    yield header.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")
    missing = member.size
    for piece in member.content:
        missing -= len(piece)
        yield piece
    # The file became shorter while it was read.
    while missing > 0:
        yield bytes(min(missing, io.DEFAULT_BUFFER_SIZE))
        missing -= io.DEFAULT_BUFFER_SIZE
    yield bytes(-member.size % tarfile.BLOCKSIZE)


def _begun(conversation: ConversationRef, parts: Iterator[bytes]) -> Iterator[bytes]:
    """Take the first part, so that what cannot be opened is refused before an answer begins; return them all.

    A later error is logged, and breaks the answer off, so that its reader sees that it is not whole.
    """
    first = next(parts)

    def told() -> Iterator[bytes]:
        try:
            yield first
            yield from parts
        except OSError as error:
            logger.error("An archive of a workspace broke off", **ids_of(conversation), error=str(error))
            raise beneath.unavailable(error) from error

    return _gathered(told())


def _gathered(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Yield parts together, so that a thread is asked for fewer of them.

    After every few parts it yields what there is, even nothing: a client that has left ends the work there.
    """
    least_bytes, parts_most = 64 * 1024, 64
    held = bytearray()
    for number, part in enumerate(parts, 1):
        held += part
        if len(held) >= least_bytes or number % parts_most == 0:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _plain(path: str) -> str:
    """Return a path as a name in an archive, which on no system is a drive or leads out of a directory."""
    # Two names must not become one, so each of these signs has its own replacement.
    return path.replace("\\", "%5C").replace(":", "%3A")


def _text(name: str) -> str:
    """Return a name as text, which names in zip files are."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")

"""Workspaces as archives that are made while they are sent: bounded as workspaces are, and without links."""

from __future__ import annotations

import io
import json
import stat
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from zipstream import ZIP_DEFLATED, ZipStream

from conversations.models import ConversationRef
from sessions_app.workspaces import beneath, records
from sessions_app.workspaces.beneath import PathRefused, pieces
from sessions_app.workspaces.tree import Tree, WalkedFile

DEFAULT_EXCLUDES = (
    *(".git/", "node_modules/", ".venv/", "venv/", "__pycache__/", ".mypy_cache/", ".pytest_cache/"),
    *(".ruff_cache/", "dist/", "build/", ".next/", "target/", "*.pyc"),
)
"""What the wire leaves out of an archive unless a client asks for all."""
_GIT_SECRETS = frozenset({"config", "config.worktree", "credentials", ".git-credentials", "FETCH_HEAD"})
"""Files below `.git` in which a clone keeps its token."""
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
    """Yield the whole workspace as a zip file."""
    stream = ZipStream(compress_type=ZIP_DEFLATED)

    def parts() -> Iterator[bytes]:
        with records.opened(conversation) as tree:
            for each in members(tree, "", lambda _: False):
                name = _plain(each.path)
                if each.is_directory:
                    stream.mkdir(name)
                else:
                    stream.add(each.content, name, size=each.size)
                yield from stream.all_files()
        yield from stream.finalize()

    return _gathered(parts())


def tar_gz(conversation: ConversationRef, path: str, name: str, excludes: Sequence[str]) -> Iterator[bytes]:
    """Yield a directory as a compressed tar file, in which it has this name, with a manifest at its end."""
    compressor = zlib.compressobj(wbits=31)  # with the header of gzip

    def parts() -> Iterator[bytes]:
        files = total = 0
        with records.opened(conversation) as tree:
            for each in members(tree, path, lambda entry: is_excluded(entry, excludes)):
                files += not each.is_directory
                total += each.size
                yield from _tar_member(each._replace(path=f"{name}/{each.path}"))
        about = {"format": "tar.gz", "source": name, "file_count": files, "total_bytes": total}
        text = json.dumps({**about, "excludes": list(excludes)}, indent=2, sort_keys=True)
        content = text.encode(errors="backslashreplace")
        yield from _tar_member(_note(f"{name}/archive_manifest.json", content))
        yield bytes(2 * tarfile.BLOCKSIZE)

    def compressed() -> Iterator[bytes]:
        for part in parts():
            yield compressor.compress(part)
        yield compressor.flush()

    return _gathered(compressed())


def members(
    tree: Tree | None, path: str, is_left_out: Callable[[WalkedFile], bool]
) -> Iterator[ArchiveMember]:
    """Yield what an archive of a directory has; what is gone meanwhile is left out."""
    if tree is None:
        return
    room, files = tree.limits.bytes, tree.limits.files
    try:
        for entry in tree.walk(path):
            if is_left_out(entry):
                continue
            files -= 1
            if entry.is_directory and files >= 0:
                yield ArchiveMember(entry.path, True, 0, 0o755, 0.0, iter(()))
                continue
            try:
                descriptor, about = entry.opened()
            except (OSError, PathRefused):
                continue
            with beneath.closing(descriptor):
                room -= about.st_size
                if room < 0 or files < 0:
                    yield _note(_LEFT_OUT, _WHY_LEFT_OUT)
                    return
                mode = 0o755 if about.st_mode & stat.S_IXUSR else 0o644
                content = pieces(descriptor, about.st_size)
                yield ArchiveMember(entry.path, False, about.st_size, mode, about.st_mtime, content)
    except (OSError, PathRefused):  # the directory itself is gone
        return


def is_excluded(entry: WalkedFile, patterns: Sequence[str]) -> bool:
    """Return whether patterns leave out a path or a directory above it, in the way of the wire.

    One without a slash is of a name at any depth, one with a slash of a whole path from the top; a slash at
    the end makes it one of directories alone. What holds the token of a clone is always left out.
    """
    parts = entry.path.split("/")
    return _holds_token(parts) or any(
        _fits(parts[: length + 1], pattern)
        for pattern in patterns
        for length in range(len(parts))
        if length + 1 < len(parts) or entry.is_directory or not pattern.endswith("/")
    )


def _fits(parts: Sequence[str], pattern: str) -> bool:
    plain = pattern.rstrip("/")
    if "/" not in plain:
        return fnmatchcase(parts[-1], plain)
    wanted = plain.split("/")
    return len(parts) == len(wanted) and all(map(fnmatchcase, parts, wanted))


def _holds_token(parts: Sequence[str]) -> bool:
    if ".git" not in parts:
        return False
    inner = parts[parts.index(".git") + 1 :]
    return "logs" in inner or (bool(inner) and inner[-1] in _GIT_SECRETS)


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


def _gathered(parts: Iterator[bytes], least: int = 64 * 1024) -> Iterator[bytes]:
    """Yield parts together, so that a thread is asked for fewer of them."""
    held = bytearray()
    for part in parts:
        held += part
        if len(held) >= least:
            yield bytes(held)
            held.clear()
    if held:
        yield bytes(held)


def _plain(path: str) -> str:
    """Return a path as a name in a zip file: text, which on no system leads out of a directory."""
    text = path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return text.replace("\\", "_").replace(":", "_")

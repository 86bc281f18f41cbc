"""What an uploaded file is: of which format, and where its conversations are once it is unpacked."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from conversations.transcripts.sources import archives
from conversations.transcripts.sources.archives import Archive
from conversations.transcripts.sources.nodes import Empty, Unreadable
from sessions_app.imports.uploads import pieces, runs
from sessions_app.imports.ways import WAYS, Way, guessed, guessed_of
from sessions_app.models import ImportRun

UNPACKED_TIMES = 10
"""All members of a zip file may unpack to this many times the limit of an upload."""
# A zip file's list of some hundred thousand members: the server that reads it has other work.
DIRECTORY_MAX_BYTES = 16 * 1024 * 1024
UNKNOWN = "It is in no format that is known here. Choose its format, if it has one of these."
NONE_OF_FORMAT = "There is no conversation of this format in it"
TOO_LARGE = "the zip file would unpack to more than this server takes"


def opened(run: ImportRun, path: Path, check: Callable[[], None]) -> tuple[Way, Path]:
    """Return how an uploaded file is imported, and what is to be read: the file, or what was in it.

    `check` is called now and then while it is unpacked, and may raise. Raise Unreadable, and OSError.
    """
    if not archives.is_zip(path):
        return _of_file(run, path)
    archive = _archive(path, check)
    _require_size(archive, UNPACKED_TIMES * runs.max_bytes())
    if run.format:
        return _of_archive(WAYS[run.format], archive, run, path, check)
    if (way := guessed_of(archive, check)) is not None:
        return way, path
    for place in _unpacked(archive, run, check):
        with _passing_over_unknown():
            return guessed(place), place
    raise Unreadable(UNKNOWN)


def _of_file(run: ImportRun, path: Path) -> tuple[Way, Path]:
    if run.format:
        return WAYS[run.format], _of_format(WAYS[run.format], [path])
    with _passing_over_unknown():
        return guessed(path), path
    raise Unreadable(UNKNOWN)


@contextmanager
def _passing_over_unknown() -> Iterator[None]:
    """Continue after what is in no known format. Raise Empty."""
    try:
        yield
    except Empty:  # an export without conversations is known
        raise
    except Unreadable:
        pass


def _of_archive(
    way: Way, archive: Archive, run: ImportRun, path: Path, check: Callable[[], None]
) -> tuple[Way, Path]:
    if way.holds is not None and way.holds(archive):
        return way, path
    if way.holds is not None and not archives.has_only_zips(archive):
        raise Unreadable(f"{NONE_OF_FORMAT}: {way.described}.")
    return way, _of_format(way, _unpacked(archive, run, check))


def _archive(path: Path, check: Callable[[], None]) -> Archive:
    # Zip files in it are unpacked where other files of uploads are, and only if there is room for them.
    return archives.opened(path, directory_max_bytes=DIRECTORY_MAX_BYTES, are_inner_read=False, check=check)


def _of_format(way: Way, places: list[Path]) -> Path:
    for place in places:
        if way.is_source(place):
            return place
    raise Unreadable(f"{NONE_OF_FORMAT}: {way.described}.")


def _require_size(archive: Archive, most: int) -> None:
    if _size(archive) > most:
        raise Unreadable(TOO_LARGE)


def _size(archive: Archive) -> int:
    return sum(map(archive.size, archive.names()))


def _unpacked(archive: Archive, run: ImportRun, check: Callable[[], None]) -> list[Path]:
    """Unpack a zip file; return the directory, and those in it as long as each holds one directory alone."""
    _require_size(archive, runs.max_bytes())
    pieces.require_room(_size(archive))
    directory = pieces.unpacked_of(run)
    settled_at = time.time() - pieces.SETTLED_S
    for name in archive.names():
        check()
        file = directory / name
        try:
            with os.fdopen(pieces.private_file(file), "wb") as unpacked:
                for chunk in archive.chunks(name):
                    check()
                    unpacked.write(chunk)
            os.utime(file, (settled_at, settled_at))
        except (FileExistsError, IsADirectoryError, NotADirectoryError, ValueError) as error:
            raise Unreadable(f"the zip file has {name!r} twice, or as a file and a directory") from error
    # All zip files in it together have the bounds of one.
    if archives.has_only_zips(archive):
        _require_size(_archive(directory, check), UNPACKED_TIMES * runs.max_bytes())
    return list(_nested(directory))


def _nested(directory: Path) -> Iterator[Path]:
    yield directory
    entries = list(directory.iterdir()) if directory.is_dir() else []
    if len(entries) == 1 and entries[0].is_dir():
        yield from _nested(entries[0])

"""Following a program that writes its conversations meanwhile: what it writes is here within two seconds."""

from __future__ import annotations

import fcntl
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.db import DatabaseError, InterfaceError, close_old_connections

from conversations.exceptions import ConversationError
from conversations.transcripts.sources.formats import Format
from conversations.transcripts.sources.nodes import Unreadable
from sessions_app.imports.importer import Importer
from sessions_app.imports.report import ConversationReport

LOOK_S = 0.5
"""How often the files are looked at."""
FAILED_S = 5.0
"""After a failure of the database it is tried again so much later."""

Stamp = tuple[int, int, int]


class FollowedAlready(ConversationError):
    """Another process follows the same path for the same user."""

    code = "followed_already"


@contextmanager
def only_one(directory: Path, what: str) -> Iterator[None]:
    """Hold a lock on `what` among all processes that use this directory. Raise FollowedAlready.

    It ends with the process, however that ends.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(what.encode()).hexdigest()[:16]
    with (directory / f"follow-{name}.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FollowedAlready("Another process follows this already.") from error
        yield


@dataclass(kw_only=True, slots=True)
class Follower:
    """Imports what is new in the files of a path, whenever one has changed."""

    importer: Importer
    format: Format
    files: Callable[[Path], Iterator[Path]]
    path: Path
    said: Callable[[str], None]
    """Called with each sentence that somebody may want to read."""
    _seen: dict[Path, Stamp] = field(default_factory=dict)
    _stored: dict[str, set[str]] = field(default_factory=dict)
    """By conversation: the nodes that are known to be stored."""
    _failed: dict[Path, float] = field(default_factory=dict)
    """By file whose import failed: when it is tried again, as `time.monotonic` counts."""
    _told: set[str] = field(default_factory=set)
    """Failures that were said; they are not said at every try."""

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set. A failure of the database is reported, and the import tried again."""
        wait_s = 0.0
        while not stop.wait(wait_s):
            wait_s = LOOK_S
            try:
                self.look(stop)
            except (DatabaseError, InterfaceError) as error:
                self.said(f"The database failed, and is tried again: {str(error).strip()}")
                close_old_connections()
                wait_s = FAILED_S

    def look(self, stop: threading.Event) -> None:
        """Import what is new, until `stop` is set. Raise DatabaseError."""
        for file, stamp in self._changed():
            is_whole = True
            for done in self._import(file):
                if stop.is_set():
                    return
                is_whole = is_whole and done is not None
                if done is not None and done.events_added:
                    self.said(f"{done.source_id}: {done.events_added} new events")
            if is_whole:
                self._seen[file] = stamp
            else:
                self._failed[file] = time.monotonic() + FAILED_S

    def _changed(self) -> Iterator[tuple[Path, Stamp]]:
        """Yield the files that have changed, with what they looked like before they are read."""
        try:
            files = list(self.files(self.path))
        except Unreadable as error:  # it may be there later
            self._tell(str(error))
            return
        for file in files:
            try:
                told = file.stat()
            except OSError:  # gone meanwhile
                continue
            stamp = (told.st_ino, told.st_size, told.st_mtime_ns)
            if self._seen.get(file) != stamp and self._failed.get(file, 0.0) <= time.monotonic():
                yield file, stamp

    def _import(self, file: Path) -> Iterator[ConversationReport | None]:
        """Yield what was done with each conversation of a file; None for one that failed."""
        try:
            if not self.format.is_source(file):
                return
            for transcript in self.format.transcripts(file, is_growing=True):
                stored = self._stored.setdefault(transcript.source_id, set())
                try:
                    yield self.importer.take(transcript, stored)
                except (ConversationError, Unreadable) as error:
                    self._tell(f"{transcript.source_id}: failed. {error}")
                    yield None
        except Unreadable as error:
            self._tell(f"{file}: {error}")
            yield None

    def _tell(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self.said(sentence)

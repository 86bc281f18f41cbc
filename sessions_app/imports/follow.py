"""Following a program that writes its conversations meanwhile: what it writes is here within two seconds."""

from __future__ import annotations

import fcntl
import hashlib
import signal
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from django.db import DatabaseError, InterfaceError, close_old_connections

from conversations.exceptions import ConversationError
from conversations.transcripts.sources.formats import Format
from conversations.transcripts.sources.nodes import Changed, Unreadable
from sessions_app.imports.importer import Importer
from sessions_app.imports.report import ConversationReport

LOOK_S = 0.5  # what a program writes must be here within two seconds
FAILED_S = 5.0
"""The pause after a failure of the database."""

Stamp = tuple[int, int, int]
Said = Callable[[str], None]
"""Called with each sentence for people."""


class FollowedAlready(ConversationError):
    """Another process follows the same path for the same user."""

    code = "followed_already"


@contextmanager
def only_one(directory: Path, what: str) -> Iterator[None]:
    """Hold a lock on `what` among all processes that use this directory. Raise FollowedAlready."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = hashlib.sha256(what.encode()).hexdigest()[:16]
    with (directory / f"follow-{name}.lock").open("a") as lock:
        try:
            # The kernel releases it with the process, however that ends.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise FollowedAlready("Another process follows this already.") from error
        yield


def told_to_end() -> threading.Event:
    """Return an event that SIGINT and SIGTERM set."""
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    return stop


@dataclass(slots=True)
class Failures:
    """What could not be imported, and is tried again later."""

    said: Said
    _until: dict[Path, float] = field(default_factory=dict)
    """As `time.monotonic` counts."""
    _told: set[str] = field(default_factory=set)

    def tell(self, sentence: str) -> None:
        """Report a failure, but not at every try."""
        if sentence not in self._told:
            self._told.add(sentence)
            self.said(sentence)

    def postpone(self, path: Path) -> None:
        self._until[path] = time.monotonic() + FAILED_S

    def is_postponed(self, path: Path) -> bool:
        """Return whether it is too early to try a path again."""
        return self._until.get(path, 0.0) > time.monotonic()


@dataclass(kw_only=True, slots=True)
class Follower(ABC):
    """Imports new data of other programs' files, which it examines regularly."""

    path: Path
    said: Said
    _failures: Failures = field(init=False)

    def __post_init__(self) -> None:
        """Report failures by the same callback as all else."""
        self._failures = Failures(self.said)

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set. A failure of the database is reported, and the import tried again."""
        wait_s = 0.0
        while not stop.wait(wait_s):
            wait_s = LOOK_S
            try:
                self.look(stop)
            except (DatabaseError, InterfaceError) as error:
                self.said(f"The database failed, and is tried again: {str(error).strip()}")
                close_old_connections()  # a broken one would fail every later look
                wait_s = FAILED_S

    @abstractmethod
    def look(self, stop: threading.Event) -> None:
        """Import what is new, until `stop` is set. Raise DatabaseError."""


@dataclass(kw_only=True, slots=True)
class FileFollower(Follower):
    """Imports what is new in the files of a path, whenever one has changed."""

    importer: Importer
    format: Format
    files: Callable[[Path], Iterator[Path]]
    _seen: dict[Path, Stamp] = field(default_factory=dict)
    _stored: dict[str, set[str]] = field(default_factory=dict)
    """By conversation: the nodes that are known to be stored."""

    def look(self, stop: threading.Event) -> None:
        """Import what is new, until `stop` is set. Raise DatabaseError."""
        for file, stamp in self._changed():
            failures: list[Exception] = []
            for done in self._import(file):
                if stop.is_set():
                    return
                if isinstance(done, Exception):
                    failures.append(done)
                elif done.events_added:
                    self.said(f"{done.source_id}: {done.events_added} new events")
            if not failures:
                self._seen[file] = stamp
            # A file that has changed while it was read is read again at the next look.
            elif not all(isinstance(failure, Changed) for failure in failures):
                self._failures.postpone(file)

    def _changed(self) -> Iterator[tuple[Path, Stamp]]:
        """Yield the files that have changed, with what they looked like before they are read."""
        try:
            files = list(self.files(self.path))
        except Unreadable as error:  # it may be there later
            self._failures.tell(str(error))
            return
        for file in files:
            try:
                told = file.stat()
            except OSError:  # gone meanwhile
                continue
            stamp = (told.st_ino, told.st_size, told.st_mtime_ns)
            if self._seen.get(file) != stamp and not self._failures.is_postponed(file):
                yield file, stamp

    def _import(self, file: Path) -> Iterator[ConversationReport | Exception]:
        """Yield what was done with each conversation of a file, or why it failed."""
        try:
            if not self.format.is_source(file):
                return
            for transcript in self.format.transcripts(file, is_growing=True):
                stored = self._stored.setdefault(transcript.source_id, set())
                try:
                    yield self.importer.take(transcript, stored)
                except (ConversationError, Unreadable) as error:
                    self._tell(f"{transcript.source_id}: failed. {error}", error)
                    yield error
        except Unreadable as error:
            self._tell(f"{file}: {error}", error)
            yield error

    def _tell(self, sentence: str, error: Exception) -> None:
        """Report failures; a file that is being written is none."""
        if not isinstance(error, Changed):
            self._failures.tell(sentence)

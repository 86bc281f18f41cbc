"""Following a V1 agent server, or a program with its SDK: new events are imported within two seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import tzinfo
from pathlib import Path

from django.contrib.auth.models import User

from conversations.exceptions import ConversationError
from conversations.transcripts import openhands_v1
from conversations.transcripts.openhands_v1 import (
    BASE_STATE,
    EVENTS,
    META,
    Growing,
    Persisted,
)
from conversations.transcripts.sources.nodes import Unreadable
from sessions_app.imports.follow import Follower, Stamp
from sessions_app.openhands_v1 import imports

Stamps = tuple[Stamp | None, ...]


@dataclass(slots=True)
class Followed:
    growing: Growing
    seen: Stamps | None = None
    """Its state when everything in it was stored."""
    title: str | None = None


@dataclass(kw_only=True, slots=True)
class DirectoryFollower(Follower):
    """Imports what is new in the directories of conversations, whenever one has changed.

    A conversation that a running server holds is imported as well, since that is the purpose.
    """

    user: User
    zone: tzinfo
    _followed: dict[Path, Followed] = field(default_factory=dict)

    def look(self, stop: threading.Event) -> None:
        """Import what is new, until `stop` is set. Raise DatabaseError."""
        # Some file systems keep times to two seconds: within them, a second change leaves the same stamp.
        settled_ns = 2_000_000_000
        for directory, followed, stamps in self._changed():
            if stop.is_set():
                return
            try:
                is_whole = self._import(directory, followed)
            except (ConversationError, Unreadable) as error:
                self._failures.tell(f"{directory.name}: failed. {error}")
                self._failures.postpone(directory)
                continue
            are_settled = all(stamp is None or time.time_ns() - stamp[2] > settled_ns for stamp in stamps)
            # The stamps are from before the reading: what changed meanwhile is found at the next look.
            followed.seen = stamps if is_whole and are_settled else None

    def _changed(self) -> Iterator[tuple[Path, Followed, Stamps]]:
        """Yield the directories that have changed, with their state before they are read."""
        try:
            directories = openhands_v1.directories(self.path)
        except Unreadable as error:  # it may appear later
            self._failures.tell(str(error))
            return
        for directory in directories:
            if (followed := self._followed.get(directory)) is None:
                followed = self._followed[directory] = Followed(self._growing(directory))
            stamps = tuple(_stamp(directory / name) for name in (EVENTS, BASE_STATE, META))
            if followed.seen != stamps and not self._failures.is_postponed(directory):
                yield directory, followed, stamps

    def _growing(self, directory: Path) -> Growing:
        def skip(name: str, reason: str) -> None:
            self._failures.tell(f"{directory.name}: skipped {name}: {reason}")

        return Growing(directory=directory, zone=self.zone, skip=skip)

    def _import(self, directory: Path, followed: Followed) -> bool:
        """Import what is new; return whether all was.

        Raise ConversationError, Unreadable or DatabaseError.
        """
        problems: list[str] = []
        persisted = openhands_v1.read(directory, zone=self.zone, skip=lambda name, _: problems.append(name))
        is_unclear = _is_unclear(directory, persisted, problems)
        # The agent's setup is stored with the first event, and never completed later.
        if persisted.is_empty or (is_unclear and imports.standing(self.user, persisted) is None):
            return not is_unclear
        growing = followed.growing
        imported = imports.import_growing(self.user, persisted, growing.events())
        growing.remember()  # only now: an import that failed must read the same events again
        for event, reason in imported.refused:
            growing.skip(f"event {event.event_id}", reason)
        if imported.added:
            self.said(f"{directory.name}: {imported.added} new events")
        if imported.conversation is not None and not is_unclear:
            imports.keep_up(imported.conversation, persisted, title_was=followed.title)
            followed.title = persisted.title
        return not growing.is_waiting and not is_unclear


def _is_unclear(directory: Path, persisted: Persisted, problems: list[str]) -> bool:
    """Return whether a file beside the events is missing or incomplete, perhaps only for now."""
    if any(openhands_v1.is_fresh(directory / name) for name in problems):
        return True
    if persisted.state or persisted.request:
        return False
    first = openhands_v1.event_files(directory)[:1]
    return any(openhands_v1.is_fresh(directory / EVENTS / file.name) for file in first)


def _stamp(path: Path) -> Stamp | None:
    try:
        told = path.stat()
    except OSError:
        return None
    return told.st_ino, told.st_size, told.st_mtime_ns

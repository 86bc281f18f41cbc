"""The earlier contents of edited files, for the life of a loop and in bounded memory."""

from __future__ import annotations

from collections import deque
from hashlib import sha256
from typing import NamedTuple


class EarlierContent(NamedTuple):
    """A file before an edit."""

    path: str
    before: bytes
    after: bytes
    """The digest of what the edit has left."""

    def is_undone_from(self, content: bytes) -> bool:
        """Return whether a file still has what the edit has left."""
        return digest(content) == self.after


class UndoHistory:
    """The last edits of all files together, the newest last; the oldest are forgotten first."""

    def __init__(self, *, bytes_max: int = 8_000_000, edits_max: int = 100) -> None:
        self._edits: deque[EarlierContent] = deque()
        self._room, self._edits_max = bytes_max, edits_max

    def add(self, path: str, before: bytes, after: bytes) -> None:
        """Keep what a file was before an edit, if there is room for it."""
        self._edits.append(EarlierContent(path, before, digest(after)))
        self._room -= len(before)
        while self._edits and (self._room < 0 or len(self._edits) > self._edits_max):
            self._room += len(self._edits.popleft().before)

    def last(self, path: str) -> EarlierContent | None:
        """Return the newest edit of a file."""
        return next((each for each in reversed(self._edits) if each.path == path), None)

    def remove(self, edit: EarlierContent) -> None:
        """Forget an edit that was undone."""
        # The newest of equal ones: the order of the others stays.
        self._edits.reverse()
        self._edits.remove(edit)
        self._edits.reverse()
        self._room += len(edit.before)


def digest(content: bytes) -> bytes:
    return sha256(content).digest()

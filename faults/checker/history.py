"""The history of a run: what its clients did and were told, in the order of time, one JSON line each."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import orjson


class Did(StrEnum):
    """What a record says."""

    INVOKE = "invoke"
    """A client begins to send an event: `key` is its id."""
    ACK = "ack"
    """It was acknowledged: `seq`, or -1 where the wire does not tell the place."""
    REFUSED = "refused"
    """It was answered with an error that promises that this try stored nothing, such as `unavailable`."""
    UNKNOWN = "unknown"
    """No answer came, or one that promises nothing (`outcome_unknown`)."""
    UNEXPECTED = "unexpected"
    """The answer is none of those that clients are told of: `text`. Like UNKNOWN otherwise."""
    JOIN = "join"
    """A reader begins to read behind event `seq`, -1 for all; `key` is the reader."""
    READ = "read"
    """The reader was sent the event `text` as number `seq`."""
    SHOWN = "shown"
    """The same on a wire that leaves some events out, and tells the id of no event: `text` may be empty."""
    SHARED = "shared"
    """The server, or an agent, writes into the conversation as well."""
    LEAKED = "leaked"
    """A client was sent a secret, in `text`."""
    PURGED = "purged"
    """It was acknowledged that the conversation is removed for good."""
    LOOK = "look"
    """A client begins to ask how long the log is; `key` names the question."""
    LOOKED = "looked"
    """The answer: the newest event has the number `seq`."""
    CREATE = "create"
    """A client begins to create a conversation under the key `key`."""
    CREATED = "created"
    """It was answered that the conversation is `talk`, in which clients say `text`, if any."""
    STORED = "stored"
    """At the end, the log holds the event `key` as number `seq`."""
    MADE = "made"
    """At the end, the conversation `talk` exists, which was created under the key `key`, and has `text`."""
    REMOVING = "removing"
    """At the end, events of the conversation `talk` are being removed, by a purge that is not finished."""


AT_THE_END = frozenset({Did.STORED, Did.MADE, Did.REMOVING})
"""What is said of the store, and not by a client."""


class Record(NamedTuple):
    """One line of a history."""

    did: Did
    talk: str
    key: str
    seq: int = -1
    text: str = ""


class HistoryFile:
    """A history while it is written, by any thread; used as a context."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab")
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._file.close()

    def add(self, record: Record) -> None:
        """Write a record: its place in the file is its moment."""
        line = orjson.dumps(tuple(record)) + b"\n"
        with self._lock:
            self._file.write(line)

    def flush(self) -> None:
        """Let readers of the file find all that was added."""
        with self._lock:
            self._file.flush()


def written(path: Path, records: Iterable[Record]) -> None:
    """Write a history as a whole."""
    with path.open("wb") as file:
        file.writelines(orjson.dumps(tuple(record)) + b"\n" for record in records)


def read(path: Path) -> Iterator[Record]:
    """Yield the records of a file in their order."""
    kinds = {str(did): did for did in Did}
    with path.open("rb") as lines:
        for line in lines:
            did, talk, key, seq, text = orjson.loads(line)
            yield Record(kinds[did], talk, key, seq, text)

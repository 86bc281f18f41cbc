"""The agent's database, for conversations without a file. It is never changed, not even locked."""

from __future__ import annotations

import base64
import json
import weakref
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from conversations.confined import processes, sqlite_files
from conversations.confined.processes import NotRead
from conversations.confined.sqlite_files import ChangedMeanwhile
from conversations.confined.sqlite_reader import LINE_MAX_CHARACTERS
from conversations.dialects import columns
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.hermes import rows
from conversations.transcripts.sources.hermes.copies import DATABASE, Copy, Row
from conversations.transcripts.sources.nodes import Changed, Unreadable

NAME = "state.db"
# The tables that are read, and the columns by which their rows are found.
KEYS = {"sessions": "id", "messages": "session_id"}
JSON_COLUMNS = frozenset({"tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"})
WORKSPACE = (
    "[Workspace::v1: ",
    "[Workspace: ",
)  # the beginnings of a line that the agent adds to a prompt
SESSIONS_MAX = 100_000
LINE_MAX_BYTES = 4 * LINE_MAX_CHARACTERS + 1024
# The error of a line that the confined process would only print if the file had taken it over.
MALFORMED = (ValueError, TypeError, AttributeError, LookupError, RecursionError)


class Database:
    """The present rows of a database, as JSON lines in a temporary file."""

    def __init__(self, path: Path) -> None:
        """Read the database in a confined process. Raise Unreadable."""
        self._name = path.name
        # By the id's JSON, oldest first: the place of a conversation's row in the file.
        self._sessions: dict[str, int] = {}
        self._messages: dict[str, array[int]] = {}  # by the same: the places of its messages' rows
        try:
            self._lines = sqlite_files.rows(path, KEYS)
        except NotRead as error:
            kind = Changed if isinstance(error, ChangedMeanwhile) else Unreadable
            raise kind(f"{self._name} cannot be read: {error}") from error
        weakref.finalize(self, self._lines.close)
        with self._readable():
            self._find_rows()

    def sessions(self) -> Iterator[tuple[int, dict[str, object]]]:
        """Yield each conversation, oldest first: the place of its row, and the row. Raise Unreadable."""
        for offset in self._sessions.values():
            yield offset, self._told(offset)

    def copy(self, place: int) -> Copy:
        """Return the rows of the conversation whose row is at this place. Raise Unreadable."""
        told = self._told(place)
        copy = Copy(origin=DATABASE, told=told)
        offsets = self._messages.get(_json(told.get("id")), ())
        for number, offset in enumerate(offsets, 1):
            value = self._load(offset)
            is_inactive = value.get("active") == 0
            copy.rows.append(Row(number, partial(self._load, offset), rows.facts(value), is_inactive))
        return copy

    def _find_rows(self) -> None:
        """Note the place of each row. Ignore messages without a conversation."""
        offset = 0
        while line := self._lines.readline(LINE_MAX_BYTES):
            processes.check()
            table, key, row = line.split(b"\t", 2)  # JSON has no tabs of its own
            begins, session = offset + len(line) - len(row), key.decode()
            if table == b"sessions":
                if len(self._sessions) == SESSIONS_MAX:
                    raise Unreadable(f"{self._name} has more than {SESSIONS_MAX:,} conversations")
                self._sessions.setdefault(session, begins)
            elif session in self._sessions:
                self._messages.setdefault(session, array("Q")).append(begins)
            offset += len(line)

    def _told(self, offset: int) -> dict[str, object]:
        with self._readable():
            return _storable(self._decoded(offset))

    def _load(self, offset: int) -> dict[str, object]:
        with self._readable():
            return _row(self._decoded(offset))

    def _decoded(self, offset: int) -> dict[str, object]:
        """Return a row; its bytes are a list with one text."""
        self._lines.seek(offset)
        row: dict[str, object] = json.loads(self._lines.readline(LINE_MAX_BYTES))
        return {
            name: lines.kept(base64.b64decode(value[0])) if isinstance(value, list) else value
            for name, value in row.items()
        }

    @contextmanager
    def _readable(self) -> Iterator[None]:
        """Raise Unreadable for a line that no row becomes."""
        try:
            yield
        except Unreadable:
            raise
        except MALFORMED as error:
            raise Unreadable(f"{self._name} cannot be read: what was read of it is malformed") from error


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _storable(row: dict[str, object]) -> dict[str, object]:
    return dict(columns.fields(lines.storable(row)))


def _row(stored: dict[str, object]) -> dict[str, object]:
    """Return a row in the form of the files."""
    row = {name: value for name, value in _storable(stored).items() if value is not None}
    if others := {name: row.pop(name) for name in row.keys() - rows.KNOWN}:
        row["columns"] = others
    for name in JSON_COLUMNS & row.keys():
        row[name] = _read(row[name])
    content = row.get("content")
    if row.get("role") == "user" and isinstance(content, str) and content.startswith(WORKSPACE):
        line, _, rest = content.partition("\n")
        if line.rstrip().endswith("]"):
            row |= {"content": rest.lstrip("\n"), "api_content": content}
    return row


def _read(text: object) -> object:
    if not isinstance(text, str):
        return text
    try:
        return lines.storable(json.loads(text))
    except (ValueError, RecursionError):
        return text

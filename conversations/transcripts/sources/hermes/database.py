"""The database of the agent, for conversations that have no file. It is never changed, not even by a lock."""

from __future__ import annotations

import base64
import json
import weakref
from array import array
from collections import defaultdict
from functools import partial
from pathlib import Path

from conversations.confined import processes, sqlite_files
from conversations.confined.processes import NotRead
from conversations.confined.sqlite_files import ChangedMeanwhile
from conversations.dialects import columns
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.hermes import copies, rows
from conversations.transcripts.sources.hermes.copies import DATABASE, Copy, Row
from conversations.transcripts.sources.nodes import Changed, Unreadable

NAME = "state.db"
KEYS = {"sessions": None, "messages": "session_id"}
"""The tables that are read, and by which column their rows are found."""
JSON_COLUMNS = frozenset({"tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"})
WORKSPACE = ("[Workspace::v1: ", "[Workspace: ")
"""How a line begins that the agent put before a prompt."""
CHECKED_ROWS = 1000


class Database:
    """The rows of a database as it is now, as JSON lines in a temporary file."""

    def __init__(self, path: Path) -> None:
        """Read it in a confined process. Raise Unreadable."""
        self._name = path.name
        self._sessions: list[dict[str, object]] = []
        """Oldest first."""
        self._messages: defaultdict[str, array[int]] = defaultdict(lambda: array("Q"))
        """By conversation: where in the file its rows begin."""
        try:
            self._lines = sqlite_files.rows(path, KEYS)
        except NotRead as error:
            kind = Changed if isinstance(error, ChangedMeanwhile) else Unreadable
            raise kind(f"{self._name} cannot be read: {error}") from error
        weakref.finalize(self, self._lines.close)
        offset = 0
        for number, line in enumerate(self._lines):
            if number % CHECKED_ROWS == 0:
                processes.check()
            table, key, row = line.split(b"\t", 2)  # JSON has no tabs of its own
            if table == b"sessions":
                self._sessions.append(_storable(_decoded(row)))
            else:
                self._messages[key.decode()].append(offset + len(line) - len(row))
            offset += len(line)

    def sessions(self) -> list[dict[str, object]]:
        """Return the conversations, oldest first."""
        return self._sessions

    def copy(self, told: dict[str, object]) -> Copy:
        """Return the rows of a conversation."""
        copy = Copy(origin=DATABASE, told=told)
        offsets = self._messages.get(json.dumps(told.get("id"), ensure_ascii=False), ())
        for number, offset in enumerate(offsets, 1):
            value = self._load(offset)
            is_inactive = value.get("active") == 0
            copy.rows.append(Row(number, partial(self._load, offset), rows.facts(value), is_inactive))
        return copy

    def _load(self, offset: int) -> dict[str, object]:
        self._lines.seek(offset)
        return _row(_decoded(self._lines.readline()))


def _decoded(text: bytes) -> dict[str, object]:
    """Return a row; its bytes are a list with one text."""
    row: dict[str, object] = json.loads(text)
    return {
        name: lines.kept(base64.b64decode(value[0])) if isinstance(value, list) else value
        for name, value in row.items()
    }


def _storable(row: dict[str, object]) -> dict[str, object]:
    return dict(columns.fields(lines.storable(row)))


def _row(stored: dict[str, object]) -> dict[str, object]:
    """Return a row as the files have it."""
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


def session_id(told: dict[str, object]) -> str | None:
    """Return the id of a conversation."""
    return copies.session_id(told.get("id"))

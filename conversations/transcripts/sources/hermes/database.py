"""The database of the agent, for conversations that have no file. It is never changed, not even by a lock."""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import weakref
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

from conversations.dialects import columns
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.hermes import copies, rows
from conversations.transcripts.sources.hermes.copies import DATABASE, Copy, Row
from conversations.transcripts.sources.nodes import Unreadable

NAME = "state.db"
WITH_CHANGES = ("-wal", "-journal")
"""The ends of the names of files that hold what is not in the database yet."""
JSON_COLUMNS = frozenset({"tool_calls", "reasoning_details", "codex_reasoning_items", "codex_message_items"})
WORKSPACE = ("[Workspace::v1: ", "[Workspace: ")
"""How a line begins that the agent put before a prompt."""


class Database:
    """A database as it is now."""

    def __init__(self, path: Path) -> None:
        """Open it, or a copy of it if changes are waiting beside it. Raise Unreadable."""
        self._name = path.name
        beside = [path.with_name(path.name + end) for end in WITH_CHANGES]
        waiting = [each for each in beside if each.is_file() and each.stat().st_size]
        self._uri = f"{path.absolute().as_uri()}?mode=ro&immutable=1"
        if waiting:
            self._uri = f"{self._copied([path, *waiting]).as_uri()}?mode=rw"

    def sessions(self) -> list[dict[str, object]]:
        """Return the conversations, oldest first. Raise Unreadable."""
        with self._connection() as connection:
            found = connection.execute("SELECT * FROM sessions ORDER BY rowid")
            return [_storable(dict(row)) for row in found]

    def copy(self, told: dict[str, object]) -> Copy:
        """Return the rows of a conversation. Raise Unreadable."""
        copy = Copy(origin=DATABASE, told=told)
        with self._connection() as connection:
            found = connection.execute(
                "SELECT * FROM messages WHERE session_id = ? ORDER BY id", (told.get("id"),)
            )
            for number, row in enumerate(found, 1):
                value = _row(dict(row))
                load = partial(self._load, value.get("id"))
                copy.rows.append(Row(number, load, rows.facts(value), is_inactive=value.get("active") == 0))
        return copy

    def _load(self, row_id: object) -> object:
        with self._connection() as connection:
            row = connection.execute("SELECT * FROM messages WHERE id = ?", (row_id,)).fetchone()
        if row is None:
            raise Unreadable(f"{self._name} changed while it was read")
        return _row(dict(row))

    def _copied(self, files: list[Path]) -> Path:
        """Copy the files to where opening them may change them. Raise Unreadable."""
        folder = Path(tempfile.mkdtemp(prefix="convserver-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        try:
            before = [_stamp(file) for file in files]
            for file in files:
                shutil.copyfile(file, folder / file.name)
            if before != [_stamp(file) for file in files]:
                raise Unreadable(f"{self._name} changed while it was read")
        except OSError as error:
            raise Unreadable(f"{self._name} cannot be read: {error.strerror}") from error
        return folder / self._name

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        try:
            with closing(sqlite3.connect(self._uri, uri=True)) as connection:
                connection.row_factory = sqlite3.Row
                connection.text_factory = lambda text: text.decode(errors="replace")
                yield connection
        except (sqlite3.Error, OverflowError) as error:
            raise Unreadable(f"{self._name} cannot be read: {error}") from error


def _stamp(file: Path) -> tuple[int, int]:
    found = file.stat()
    return found.st_size, found.st_mtime_ns


def _storable(row: dict[str, object]) -> dict[str, object]:
    told = {name: lines.kept(value) if isinstance(value, bytes) else value for name, value in row.items()}
    return dict(columns.fields(lines.storable(told)))


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

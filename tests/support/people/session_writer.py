"""A program that writes sessions as Claude Code and Codex do, and may be killed and started at any moment.

It appends lines, some of them in two halves, begins new files, moves and rewrites files, and truncates,
rotates and deletes those of which it was told that they are stored. It never waits for anybody. After a
death it goes on as those programs do: it reads what is there and appends, also directly behind half a line.

A journal says of each line that it is begun, and that it is whole. Run as `session_writer.py ARGUMENTS`,
which are those of `Arguments` as JSON.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

MARK = re.compile(r"#(\d+)#")
"""What each line says: its number."""


@dataclass(frozen=True, kw_only=True)
class Arguments:
    """What to write, and where."""

    format: str
    """`claude-code` or `codex`."""
    directory: str
    journal: str
    stored: str
    """A file with, as JSON, the number of the last line by session, of sessions that are stored whole."""
    lines: int
    pause_s: float
    """The mean pause after a line; programs write in bursts."""
    seed: int

    def as_json(self) -> str:
        """Return them as the program takes them."""
        return json.dumps(asdict(self))


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One entry of the journal."""

    number: int
    session: str
    is_whole: bool
    is_glued: bool
    """It stands directly behind half a line."""
    at: float


def journal(path: Path) -> list[Entry]:
    """Return the entries of a journal; an empty list if there is none yet."""
    if not path.exists():
        return []
    whole = path.read_text().rpartition("\n")[0]
    return [entry(line) for line in whole.splitlines()]


def entry(line: str | bytes) -> Entry:
    return Entry(**json.loads(line))


class Writer:
    """The program."""

    def __init__(self, arguments: Arguments) -> None:
        self._given = arguments
        self._root = Path(arguments.directory)
        entries = journal(Path(arguments.journal))
        self._journal = os.open(arguments.journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        self._last = {entry.session: entry.number for entry in entries}
        self._number = max(self._last.values(), default=0)
        self._chance = random.Random(f"{arguments.seed} {len(entries)}")
        self._session = entries[-1].session if entries else ""
        if not entries or self._chance.random() < 0.3 or not self._find(self._session):
            self._begin()

    def run(self) -> None:
        """Write until there are as many lines as wanted."""
        while self._number < self._given.lines:
            self._step()
            if self._chance.random() < 0.1:
                time.sleep(self._given.pause_s * 10)

    def _step(self) -> None:
        what = self._chance.random()
        if what < 0.01:
            self._begin()
        elif what < 0.03:
            self._rewrite()
        elif what < 0.04:
            self._move()
        elif what < 0.045:
            self._tear()
        elif what < 0.07:
            self._change_what_is_stored()
        else:
            self._append(in_halves=what < 0.3)

    def _begin(self) -> None:
        made = UUID(int=self._chance.getrandbits(128), version=4)
        self._session = str(made)
        file = self._path()
        file.parent.mkdir(parents=True, exist_ok=True)
        if self._given.format == "codex":
            payload = {"id": self._session, "timestamp": _now(), "cwd": "/home/ana", "cli_version": "0.50.0"}
            self._write(file, _line({"timestamp": _now(), "type": "session_meta", "payload": payload}))

    def _path(self) -> Path:
        if self._given.format == "codex":
            return self._root / "2026/01/02" / f"rollout-2026-01-02T03-04-05-{self._session}.jsonl"
        return self._root / "-home-ana" / f"{self._session}.jsonl"

    def _find(self, session: str) -> Path | None:
        return next(self._root.rglob(f"*{session}.jsonl"), None)

    def _file(self) -> Path:
        return self._find(self._session) or self._path()

    def _append(self, *, in_halves: bool) -> None:
        file = self._file()
        is_glued = not _is_ended(file)
        self._number += 1
        self._note(is_whole=False, is_glued=is_glued)
        self._write(file, self._next(file), in_halves=in_halves)
        self._note(is_whole=True, is_glued=is_glued)

    def _tear(self) -> None:
        """Write half a line, as on a full disk, and go on."""
        file = self._file()
        self._number += 1
        self._note(is_whole=False, is_glued=not _is_ended(file))
        line = self._next(file)
        self._write(file, line[: self._chance.randrange(1, len(line) - 1)])

    def _rewrite(self) -> None:
        """Replace the file by one with the same lines."""
        file = self._file()
        if file.exists():
            copy = file.with_suffix(".tmp")
            copy.write_bytes(file.read_bytes())
            copy.replace(file)

    def _move(self) -> None:
        """Move the file to another directory and go on with it there."""
        file = self._file()
        if file.exists():
            moved = self._root / f"moved-{self._chance.randrange(5)}" / file.name
            moved.parent.mkdir(exist_ok=True)
            file.replace(moved)

    def _change_what_is_stored(self) -> None:
        stored: dict[str, int] = json.loads(Path(self._given.stored).read_text())
        settled = sorted(name for name, number in stored.items() if self._last.get(name) == number)
        if not settled or (file := self._find(name := self._chance.choice(settled))) is None:
            return
        what = self._chance.randrange(4)
        if what == 0 and name != self._session:
            file.unlink()
        elif what == 1:
            file.replace(file.with_suffix(".jsonl.1"))
        elif what == 2:
            os.truncate(file, self._chance.randrange(file.stat().st_size + 1))
        else:
            content = file.read_bytes()
            file.write_bytes(b"")  # and begins with nothing, as programs do that do not care
            self._write(file, content, in_halves=True)

    def _write(self, file: Path, line: bytes, *, in_halves: bool = False) -> None:
        middle = self._chance.randrange(len(line)) if in_halves and line else 0
        target = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        try:
            if middle:
                os.write(target, line[:middle])
                is_long = self._chance.random() < 0.05  # long enough for somebody to look
                time.sleep(self._given.pause_s * (50 if is_long else 1))
            os.write(target, line[middle:])
        finally:
            os.close(target)

    def _next(self, file: Path) -> bytes:
        author = "user" if self._chance.random() < 0.5 else "assistant"
        text = f"#{self._number}# " + "word " * self._chance.randrange(60)
        if self._given.format == "codex":
            kind = "input_text" if author == "user" else "output_text"
            payload = {"type": "message", "role": author, "content": [{"type": kind, "text": text}]}
            return _line({"timestamp": _now(), "type": "response_item", "payload": payload})
        message: dict[str, Any] = {"role": author, "content": [{"type": "text", "text": text}]}
        return _line(
            {
                "type": author,
                "uuid": str(UUID(int=self._chance.getrandbits(128), version=4)),
                "parentUuid": _last_uuid(file),
                "sessionId": self._session,
                "timestamp": _now(),
                "message": message if author == "user" else {"id": f"msg_{self._number}", **message},
            }
        )

    def _note(self, *, is_whole: bool, is_glued: bool) -> None:
        noted = Entry(
            number=self._number, session=self._session, is_whole=is_whole, is_glued=is_glued, at=time.time()
        )
        os.write(self._journal, _line(asdict(noted)))
        self._last[self._session] = self._number


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _now() -> str:
    return datetime.now(UTC).isoformat()


def _is_ended(file: Path) -> bool:
    try:
        with file.open("rb") as opened:
            if not opened.seek(0, os.SEEK_END):
                return True
            opened.seek(-1, os.SEEK_END)
            return opened.read() == b"\n"
    except FileNotFoundError:
        return True


def _last_uuid(file: Path) -> str | None:
    """Return the last line that can be read, which the next one follows."""
    lines = file.read_bytes().splitlines() if file.exists() else []
    for line in reversed(lines):
        try:
            return str(json.loads(line)["uuid"])
        except ValueError:
            continue
    return None


if __name__ == "__main__":
    Writer(Arguments(**json.loads(sys.argv[1]))).run()

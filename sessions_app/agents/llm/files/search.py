"""The tool `search`: lines of a workspace's files by a regular expression, and names by a pattern.

It goes in steps of bounded length, each in a thread, and ends at limits of time, files, bytes and matches.
The expression is run by a confined process: one that takes too long is killed, and holds up nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, NamedTuple

from conversations.confined import processes
from conversations.confined.processes import NotRead, ProcessLimits
from conversations.dialects import columns
from conversations.events import ConversationRef
from conversations.exceptions import ConversationError
from sessions_app import astore
from sessions_app.agents.llm.files import globs
from sessions_app.agents.llm.files.search_reader import HEADER
from sessions_app.agents.llm.tools import results
from sessions_app.agents.llm.tools.calls import Outcome
from sessions_app.event_loops import PerEventLoop, uncancelled
from sessions_app.workspaces import beneath, paths, records
from sessions_app.workspaces.beneath import PathRefused
from sessions_app.workspaces.tree import Tree, WalkedFile

READER = Path(__file__).with_name("search_reader.py")
TOO_LONG = "`pattern` and `include` may have at most {most:,} characters, so nothing was searched."
NOTHING_ASKED = "Give `pattern`, a regular expression for lines, or `include`, a pattern for names, or both."
_LEFT_OUT = frozenset(
    {".git", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".pytest_cache"}
)


@dataclass(frozen=True, kw_only=True, slots=True)
class SearchLimits:
    """How far one search goes."""

    seconds: float = 20.0
    files: int = 20_000
    bytes: int = 100_000_000
    matches: int = 200
    file_bytes: int = 5_000_000
    """Longer files are left out."""
    step_bytes: int = 8_000_000
    step_s: float = 0.5
    pattern_chars: int = 5_000
    """A longer expression is not run."""


class _OneFile(NamedTuple):
    """A file that is searched alone."""

    tree: Tree
    whole: str
    path: str
    """Relative to the directory of the search."""
    is_directory: bool = False

    def opened(self) -> tuple[int, os.stat_result]:
        return self.tree.file(self.whole)


class _Stopped(Exception):
    """The caller has left."""


@dataclass(slots=True)
class FileSearch:
    """One search, step after step; no two steps run at the same time."""

    pattern: str
    include: str
    ignores_case: bool
    limits: SearchLimits
    shown: str = ""
    """The absolute path of the directory."""
    lines: list[str] = field(default_factory=list)
    """Those of the result."""
    notes: list[str] = field(default_factory=list)
    """Sentences about what was left out."""
    is_over: bool = False
    _walk: Iterator[WalkedFile | _OneFile] = field(default_factory=lambda: iter(()))
    _held: ExitStack = field(default_factory=ExitStack)
    _until: float = 0.0
    _seen_files: int = 0
    _seen_bytes: int = 0
    _too_long: int = 0
    _is_stopped: bool = False

    def open(self, conversation: ConversationRef, given: str) -> None:
        """Open a directory or file, as a client names it. Raise PathRefused."""
        path, self.shown = paths.relative(conversation, given), paths.absolute(conversation, given)
        self._until = time.monotonic() + self.limits.seconds
        tree: Tree | None = self._held.enter_context(records.opened(conversation))
        if tree is None:
            if path:
                raise beneath.NoSuchFile(f"There is no {beneath.shown(path)}.")
            return
        try:
            tree.require_directory(path)
        except beneath.NoSuchFile:
            raise
        except PathRefused:
            os.close(tree.file(path)[0])  # also refuses what is no file
            self.shown, _, name = self.shown.rpartition("/")
            self._walk = iter((_OneFile(tree, path, name),))
        else:
            self._walk = tree.walk(path)

    def stop(self) -> None:
        """Stop the running step soon."""
        self._is_stopped = True

    def close(self) -> None:
        close = getattr(self._walk, "close", None)
        if close is not None:
            close()
        self._held.close()

    def step(self) -> None:
        """Search some files more."""
        with tempfile.TemporaryFile() as batch, processes.checked_by(self._check):
            names = self._gather(batch)
            if self.pattern and names and not self._is_stopped:
                batch.seek(0)
                self._match(batch, names)
        if len(self.lines) >= self.limits.matches:
            self._end(f"Only the first {self.limits.matches} are shown. Search for something narrower.")

    def _check(self) -> None:
        if self._is_stopped:
            raise _Stopped

    def _end(self, note: str = "") -> None:
        self.is_over = True
        if note:
            self.notes.append(note)

    def _gather(self, batch: IO[bytes]) -> list[str]:
        """Write the next files to a batch, and return their paths; end the search at its limits."""
        names: list[str] = []
        size, step_until = 0, time.monotonic() + self.limits.step_s
        for entry in self._walk:
            if self._is_stopped or time.monotonic() > self._until:
                self._end("The search was ended at its limit of time: give `path` or `include` to narrow it.")
                return names
            if self._is_wanted(entry):
                self._seen_files += 1
                path = f"{self.shown.rstrip('/')}/{entry.path}"
                if not self.pattern:
                    self.lines.append(path)
                elif (content := self._content(entry)) is not None:
                    batch.write(HEADER.pack(len(names), len(content)))
                    batch.write(content)
                    names.append(path)
                    size += len(content)
            is_full = size >= self.limits.step_bytes or len(self.lines) >= self.limits.matches
            if is_full or time.monotonic() > step_until:
                break
        else:
            self._end()
        self._seen_bytes += size
        if self._seen_files >= self.limits.files or self._seen_bytes >= self.limits.bytes:
            self._end(
                f"The search was ended after {self._seen_files:,} files with {self._seen_bytes:,} bytes: "
                "give `path` or `include` to narrow it."
            )
        return names

    def _is_wanted(self, entry: WalkedFile | _OneFile) -> bool:
        if entry.is_directory or not _LEFT_OUT.isdisjoint(entry.path.split("/")):
            return False
        return not self.include or globs.fits(entry.path, self.include)

    def _content(self, entry: WalkedFile | _OneFile) -> bytes | None:
        """Return a file's bytes; None for one that is too long, is no text, or is gone."""
        try:
            descriptor, about = entry.opened()
        except (OSError, PathRefused):
            return None
        with beneath.closing(descriptor):
            if about.st_size > self.limits.file_bytes:
                self._too_long += 1
                return None
            content = b"".join(beneath.pieces(descriptor, about.st_size))
        beginning = 8_000
        return None if b"\0" in content[:beginning] else content

    def _match(self, batch: IO[bytes], names: list[str]) -> None:
        left = self.limits.matches - len(self.lines)
        # A few seconds are enough for a step of 8 MB, unless the expression is one that never ends.
        cpu_s = 4
        limits = ProcessLimits(
            memory_bytes=512 * 1024 * 1024, cpu_s=cpu_s, wall_s=3.0 * cpu_s, output_bytes=2_000_000
        )
        try:
            arguments = [self.pattern, self.ignores_case, left]
            found = processes.run(READER, arguments, limits=limits, source=batch)
        except NotRead as error:
            why = str(error)
            if why == processes.TOO_SLOW:
                why = "it takes too long on these files; write a simpler one"
            self._end(f"The pattern can't be used: {why}.")
            return
        with found:
            for line in found:
                number, line_number, text = json.loads(line)
                self.lines.append(f"{names[number]}:{line_number}:{text}")

    @property
    def told(self) -> str:
        """Return what the model reads."""
        if self._too_long:
            most = self.limits.file_bytes // 1_000_000
            self.notes.append(f"{self._too_long} files of more than {most} MB were left out.")
        what, count = "line" if self.pattern else "file", len(self.lines)
        head = (
            f"{count} {what}{'' if count == 1 else 's'} below {self.shown}:"
            if count
            else f"No {what}s were found."
        )
        return "\n".join([head, *self.lines, *(f"[{note}]" for note in self.notes)])


async def run(conversation: ConversationRef, arguments: Mapping[str, Any], limits: SearchLimits) -> Outcome:
    """Run a call whose arguments match the tool's schema; the outcome has the error, if any."""
    pattern, include = arguments.get("pattern") or "", arguments.get("include") or ""
    if not (pattern or include):
        return Outcome(NOTHING_ASKED, is_error=True)
    if max(len(pattern), len(include)) > limits.pattern_chars:
        return Outcome(TOO_LONG.format(most=limits.pattern_chars), is_error=True)
    try:
        search = FileSearch(pattern, include, arguments.get("ignore_case") is True, limits)
        async with _searching.get():
            await _searched(search, conversation, arguments.get("path") or "")
    except ConversationError as refusal:
        return Outcome(columns.clean(str(refusal)), is_error=True)
    is_error = not search.lines and any(note.startswith("The pattern") for note in search.notes)
    return Outcome(results.bounded(columns.clean(search.told)), is_error=is_error)


async def _searched(search: FileSearch, conversation: ConversationRef, given: str) -> None:
    """Take all steps of a search. A cancellation ends the running one first."""
    try:
        await uncancelled(astore.call(search.open, conversation, given))
        while not search.is_over:
            step = asyncio.ensure_future(asyncio.to_thread(search.step))
            try:
                await asyncio.shield(step)
            except asyncio.CancelledError:
                search.stop()
                await asyncio.gather(step, return_exceptions=True)
                raise
    finally:
        await uncancelled(asyncio.to_thread(search.close))


# More searches at a time would leave too little of the processor to other users.
_searching: PerEventLoop[asyncio.Semaphore] = PerEventLoop(lambda: asyncio.Semaphore(2))

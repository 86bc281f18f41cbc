"""Conversations that another convserver has exported as JSON lines (`transcripts/jsonl`)."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from hashlib import sha256
from pathlib import Path
from typing import Any

from conversations.confined.processes import check
from conversations.dialects import columns
from conversations.events import NewEvent
from conversations.exceptions import InvalidEvent
from conversations.payloads import bounds
from conversations.transcripts import jsonl
from conversations.transcripts.sources import archives, lines, own_line, splices
from conversations.transcripts.sources.archives import Archive
from conversations.transcripts.sources.nodes import VALUES_MAX, Unreadable

NAME = "convserver"
ENDING = ".jsonl"
LINE_MAX_BYTES = 256 * 1024 * 1024
TRUNCATED = "it is truncated or was changed: its bytes are not those that its hash names"
_END = b'{"type":"' + jsonl.END.encode() + b'"'  # the beginning of the last line, and of no event
ANOTHER_COUNT = "it has another number of events than its first line says"


@dataclass(frozen=True, kw_only=True, slots=True)
class Exported:
    """One exported conversation, whose bytes match its hash."""

    archive: Archive
    name: str  # of the file
    manifest: Mapping[str, Any]
    problem: str = ""  # why the file cannot be read

    @property
    def about(self) -> Mapping[str, Any]:
        return columns.fields(self.manifest.get("conversation"))

    @property
    def source_id(self) -> str:
        return columns.first_text(self.about.get("id")) or self.name

    @property
    def links(self) -> list[str]:
        """Return the ids of the conversations that it names: its starter, and the one it leaves."""
        told = (self.about.get(name) for name in ("parent", "forked_from"))
        return [each for each in told if isinstance(each, str)]

    @property
    def event_count(self) -> int:
        return columns.wire_id(self.manifest.get("events")) or 0

    def whole(self, look: Callable[[], None] = lambda: None) -> Iterable[NewEvent]:
        """Read the file to its end, and return its events; a long file is read again for them.

        `look` is called again and again meanwhile; if it raises, the reading ends. Raise Unreadable unless
        the file is complete, and can be stored unchanged.
        """
        self._check(look)
        # All of them before the first is stored: otherwise half a conversation could be left.
        kept: list[NewEvent] = []
        count = characters = 0
        kept_max_events = 25_000
        # The part of a conversation that stays in memory between its check and its storing.
        kept_max_characters = 16 * 1024 * 1024
        for event in self.events():
            look()
            count, characters = count + 1, characters + len(event.payload)
            if count <= kept_max_events and characters <= kept_max_characters:
                kept.append(event)
        if count != self.event_count:
            raise Unreadable(ANOTHER_COUNT)
        return kept if len(kept) == count else self.events()

    def _check(self, look: Callable[[], None]) -> None:
        """Raise Unreadable if the bytes do not match the hash in the first or the last line."""
        if self.problem:
            raise Unreadable(self.problem)
        if self.manifest.get("version") not in (*jsonl.HASHED_FIRST, jsonl.VERSION):
            raise Unreadable("it was exported by a newer release: upgrade this server first")
        if self.manifest.get("version") in jsonl.HASHED_FIRST:
            named, digest = self.manifest.get("sha256"), self._digest_of_rest(look)
        else:
            named, digest = self._named_at_the_end(look)
        if digest != named:
            raise Unreadable(TRUNCATED)
        if self.event_count and self.manifest.get("first_seq") != 0:
            raise Unreadable("its log does not begin at the first event")

    def _named_at_the_end(self, look: Callable[[], None]) -> tuple[object, str]:
        """Return the hash in the last line, and that of the lines between it and the first."""
        digest, last = sha256(), b""
        for number, line in enumerate(_lines(self.archive, self.name)):
            look()
            if number > 1:
                digest.update(last + b"\n")
            last = line
        try:
            end = columns.fields(lines.parsed(last))
        except lines.Damaged:
            end = {}
        return (end.get("sha256") if end.get("type") == jsonl.END else None), digest.hexdigest()

    def _digest_of_rest(self, look: Callable[[], None]) -> str:
        """Return the hash of all bytes behind the first line."""
        digest, chunks = sha256(), self.archive.chunks(self.name)
        is_head = True
        for chunk in chunks:
            look()
            if is_head:
                _, line_feed, chunk = chunk.partition(b"\n")
                is_head = not line_feed
            digest.update(chunk)
        return digest.hexdigest()

    def events(self) -> Iterator[NewEvent]:
        """Yield the events as they were stored. Raise Unreadable."""
        for number, line in enumerate(_lines(self.archive, self.name)):
            if number and not line.startswith(_END):
                try:
                    text = line.decode()
                    bounds.require_bounded(text, values_max=VALUES_MAX, between=check)
                    yield own_line.event(text)
                except (ValueError, LookupError, TypeError, InvalidEvent) as error:
                    raise Unreadable(f"line {number + 1} is not an event: {error}") from error


def is_source(path: Path) -> bool:
    """Return whether there is an exported conversation. Raise Unreadable."""
    return holds(archives.opened(path))


def holds(archive: Archive) -> bool:
    """Return whether an archive has an exported conversation. Raise Unreadable."""
    for name in _names(archive):
        with suppress(Unreadable):  # another file may be an export
            if _manifest(archive, name) is not None:
                return True
    return False


def exports(path: Path) -> Iterator[Exported]:
    """Yield the exported conversations of a file, a directory or a zip file. Raise Unreadable.

    Each comes after those that it is linked to, if they are present.
    """
    archive = archives.opened(path)
    found: dict[str, Exported] = {}
    for name in _names(archive):
        try:
            manifest = _manifest(archive, name)
        except Unreadable as error:
            found[name] = Exported(archive=archive, name=name, manifest={}, problem=str(error))
            continue
        if manifest is not None:
            found[name] = Exported(archive=archive, name=name, manifest=manifest)
    yield from (found[name] for name in _in_order(found))


def _in_order(found: Mapping[str, Exported]) -> Iterable[str]:
    """Return the names, those of linked conversations first; unchanged if links form a circle."""
    names = {each.source_id: name for name, each in found.items()}
    links = {
        name: [names[link] for link in each.links if link in names and names[link] != name]
        for name, each in found.items()
    }
    try:
        return list(TopologicalSorter(links).static_order())
    except CycleError:
        return list(found)


def _names(archive: Archive) -> list[str]:
    return [name for name in archive.names() if name.endswith(ENDING)]


def _manifest(archive: Archive, name: str) -> Mapping[str, Any] | None:
    first = next(_lines(archive, name), b"")
    try:
        found = columns.fields(lines.storable(lines.parsed(first)))
    except lines.Damaged:
        return None
    if found.get("format") != jsonl.FORMAT:
        return None
    return found


def _lines(archive: Archive, name: str) -> Iterator[bytes]:
    """Yield the lines of an export, without padding by shells or crashes. Raise Unreadable."""
    for number, line in enumerate(_divided(archive, name)):
        written = line.removesuffix(b"\r") if number else line.removesuffix(b"\r").removeprefix(BOM_UTF8)
        if not splices.is_padding(written):
            yield written


def _divided(archive: Archive, name: str) -> Iterator[bytes]:
    """Yield the lines without their line feeds. Raise Unreadable for one that fills the memory."""
    parts: list[bytes] = []
    size = 0
    for chunk in archive.chunks(name):
        *whole, rest = chunk.split(b"\n")
        for line in whole:
            yield b"".join([*parts, line])
            parts, size = [], 0
        if rest:
            parts.append(rest)
            size += len(rest)
            if size > LINE_MAX_BYTES:
                raise Unreadable(f"{name} has a line of more than {LINE_MAX_BYTES} bytes")
    if parts:
        yield b"".join(parts)

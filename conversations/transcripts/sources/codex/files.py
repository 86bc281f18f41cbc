"""The files of sessions: found, and read a line at a time."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path

from conversations.dialects import columns
from conversations.events import Metrics
from conversations.transcripts.sources import lines, packed, session_lines
from conversations.transcripts.sources.codex import items, records
from conversations.transcripts.sources.lines import Digests, FoundRecord
from conversations.transcripts.sources.nodes import (
    Author,
    Leaving,
    Message,
    Node,
    Rests,
    ToolCall,
    Transcript,
    Unreadable,
    unreadable,
)
from conversations.transcripts.sources.session_lines import LinePlace

NAME = "codex"
ENDING = ".jsonl"
PROBED_LINES = 20
# The members of a `session_meta` that are kept for the whole reading.
_HEAD = (
    "timestamp",
    "cwd",
    "git",
    "source",
    "parent_thread_id",
    "forked_from_id",
    "history_base",
    "subagent_history_start_ordinal",
)
# The name of a session's file, with the id of the session, or two ids if it was taken back.
_NAMED = re.compile(r"rollout-\d{4}-\d\d-\d\dT\d\d-\d\d-\d\d-(.+)\.jsonl(\.zst)?")


@dataclass(slots=True)
class _Facts:
    # The first `session_meta`, without its long members: later ones are of copied sessions.
    meta: Mapping[str, object] = field(default_factory=dict)
    head: int = 0  # the number of its line
    name: str = ""
    request: str = ""  # the user's first request, if an editor put its context before it
    model: str = ""
    directory: str = ""
    began_at: str = ""
    used: Metrics = field(default_factory=Metrics)
    copied: Metrics = field(default_factory=Metrics)  # what was used in the session that this one copied
    is_said: bool = False
    is_asked: bool = False

    @property
    def origin(self) -> records.Origin:
        return records.origin(self.meta)

    @property
    def created_at(self) -> datetime | None:
        return columns.instant(self.meta.get("timestamp")) or columns.instant(self.began_at)

    @property
    def metrics(self) -> Metrics:
        """Return the totals of the session; the counts of a copy continue those of the original."""
        used, copied = self.used, self.copied
        if used.prompt_tokens < copied.prompt_tokens or used.completion_tokens < copied.completion_tokens:
            return used
        return Metrics(
            accumulated_cost=0.0,
            prompt_tokens=used.prompt_tokens - copied.prompt_tokens,
            completion_tokens=used.completion_tokens - copied.completion_tokens,
        )


def is_source(path: Path) -> bool:
    """Return whether this is a session, or a directory with sessions. Raise Unreadable."""
    # A packed session counts by its name, even if it is too damaged to be read.
    return any(
        (packed.is_packed(file) and _NAMED.fullmatch(file.name)) or _is_session(file) for file in files(path)
    )


def transcripts(path: Path, *, is_growing: bool = False) -> Iterator[Transcript]:
    """Yield the conversations of a session's file, or of all files below a directory. Raise Unreadable.

    They come in the order of their beginnings, so each before its forks and sub-agents. An unreadable one
    raises Unreadable when its nodes are read. With `is_growing` half a line at the end of a file is left for
    later, as the program still writes it, unless the file is packed.
    """
    for file in files(path):
        if path == file or _NAMED.fullmatch(file.name) or _is_session(file):
            may_grow = not packed.is_packed(file) and (is_growing or lines.is_fresh(file))
            yield _transcript(file, is_growing=may_grow)


def files(path: Path) -> Iterator[Path]:
    """Yield a file, or those below a directory in the order of their names. Raise Unreadable.

    If a session is packed and unpacked, as for a moment when the program continues it, the unpacked file has
    more.
    """

    def chosen(found: list[Path]) -> list[Path]:
        there = set(found)
        read = (file for file in found if not packed.is_packed(file) or file.with_suffix("") not in there)
        return sorted(read, key=lambda file: (file.name, file))

    yield from session_lines.files(path, (ENDING, ENDING + packed.ENDING), chosen)


def _is_session(file: Path) -> bool:
    with suppress(Unreadable):
        return session_lines.begins_with(file, _is_of_session, within=PROBED_LINES)
    return False


def _is_of_session(record: Mapping[str, object]) -> bool:
    if isinstance(record.get("payload"), Mapping):
        return record.get("type") in (records.META, records.ITEM, records.EVENT, records.TURN)
    return record.get("record_type") == records.STATE or {"id", "timestamp", "instructions"} <= record.keys()


def _source_id(file: Path) -> str:
    named = _NAMED.fullmatch(file.name)
    return columns.clean(named[1] if named else file.name.partition(ENDING)[0])


def _transcript(file: Path, *, is_growing: bool) -> Transcript:
    source_id = _source_id(file)
    try:
        index = _Index(file, is_growing=is_growing)
    except Unreadable as error:
        return unreadable(source_id, str(error))
    facts = index.facts
    parent, left = facts.origin
    return Transcript(
        source_id=source_id,
        nodes=partial(_nodes, file, index.places, facts),
        node_count=len(index.places),
        title=facts.name or facts.request or None,
        created_at=facts.created_at,
        model=facts.model or None,
        directory=facts.directory or None,
        repository=records.repository(facts.meta),
        branch=columns.first_text(columns.fields(facts.meta.get("git")).get("branch")) or None,
        metrics=facts.metrics,
        leaves=Leaving(source_id=left, after=None) if left and left != source_id else None,
        parent_id=parent if parent and parent != source_id else None,
        is_active=not left,  # the program lists both, so neither is the one that it shows
        is_empty=not facts.is_said,
    )


class _Index:
    """The places of a file's lines, and the facts of all of them that are needed before the first is read."""

    def __init__(self, file: Path, *, is_growing: bool) -> None:
        self.places: list[LinePlace] = []
        self.facts = _Facts()
        self._digests = Digests()
        self._has_envelopes = False
        for found in lines.records(file, self._is_record, is_growing=is_growing):
            self._add(found)

    def _add(self, found: FoundRecord) -> None:
        place = LinePlace.of(found)
        place.node_id = self._digests.id_of(found.text)
        self.places.append(place)
        if found.value is not None:
            self._has_envelopes = self._has_envelopes or isinstance(found.value.get("payload"), Mapping)
            self._learn(found.number, found.value)

    def _is_record(self, record: Mapping[str, object]) -> bool:
        """Return whether an object beside something damaged is a record; in the older layout items are."""
        if isinstance(record.get("payload"), Mapping):
            return isinstance(record.get("type"), str) and "timestamp" in record
        return _is_of_session(record) or (not self._has_envelopes and items.is_item(record))

    def _learn(self, number: int, record: Mapping[str, object]) -> None:
        facts = self.facts
        kind, payload = records.opened(record)
        if kind == records.META and not facts.head:
            facts.head = number
            facts.meta = {name: payload.get(name) for name in _HEAD if name in payload}
        facts.began_at = facts.began_at or columns.first_text(record.get("timestamp"))
        facts.name = records.name_given(kind, payload) or facts.name
        facts.model = records.model(kind, payload) or facts.model
        facts.directory = facts.directory or records.directory(kind, payload)
        if (used := records.usage(kind, payload)) is not None:
            facts.used = used
            facts.copied = used if self._is_copied(record) else facts.copied
        if kind == records.ITEM and not (facts.is_said and facts.is_asked):
            self._listen(record)

    def _listen(self, record: Mapping[str, object]) -> None:
        """Note whether the session has words, and the user's first request."""
        facts = self.facts
        for part in records.read(record, node_id="", is_head=False, is_sub_agents=False).parts:
            facts.is_said = facts.is_said or isinstance(part, Message | ToolCall)
            if isinstance(part, Message) and part.author is Author.USER and not facts.is_asked:
                facts.is_asked, facts.request = True, records.request(part.text)

    def _is_copied(self, record: Mapping[str, object]) -> bool:
        """Return whether a line was written in the copied session, as far as that shows."""
        meta = self.facts.meta
        number = columns.wire_id(record.get("ordinal"))
        first = columns.wire_id(meta.get("subagent_history_start_ordinal"))
        if number is not None and first is not None:
            return number < first
        at, began = columns.instant(record.get("timestamp")), columns.instant(meta.get("timestamp"))
        return any(self.facts.origin) and at is not None and began is not None and at < began


def _nodes(file: Path, places: list[LinePlace], facts: _Facts) -> Iterator[Node]:
    rest_of = Rests()

    def read(place: LinePlace, record: Mapping[str, object]) -> Node:
        told = records.read(
            record,
            node_id=place.node_id,
            is_head=place.number == facts.head,
            is_sub_agents=bool(facts.origin.parent),
        )
        parts = (*told.parts, *rest_of.parts(records.name(record), told.rest))
        return place.node(parts, told.noted, at=record.get("timestamp"))

    return session_lines.nodes(file, places, read)

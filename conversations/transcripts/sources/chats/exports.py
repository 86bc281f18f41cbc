"""An export of chats: its files, its conversations, and the branches of each."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple, Protocol

from conversations.dialects import columns
from conversations.transcripts.sources import archives, lines
from conversations.transcripts.sources.archives import Archive
from conversations.transcripts.sources.chats import json_arrays, tree
from conversations.transcripts.sources.chats.tree import ChatBranch, ChatPlace
from conversations.transcripts.sources.lines import Damaged
from conversations.transcripts.sources.nodes import (
    Kept,
    Leaving,
    Node,
    Part,
    Record,
    Transcript,
    Unreadable,
)
from conversations.transcripts.sources.rests import Rests

# The files with conversations; newer exports divide them into numbered ones.
CONVERSATIONS = re.compile(r"conversations(?:[-_]\d+)?\.json", re.IGNORECASE)
SAME_ID = "another conversation before this one has the same id"
TWICE = "an earlier conversation is the same to the last byte"
NO_FILE = "there is no conversations.json in it"
SECONDS_MAX = 1e11  # a greater time is not in seconds

TITLE_MAX_CHARS = 200
DAMAGED = "Damaged conversation"  # the title of an unreadable conversation
KEPT_MAX_BYTES = 1024 * 1024  # the part of a damaged conversation that is kept

Fields = Mapping[str, object]


@dataclass(frozen=True, kw_only=True, slots=True)
class Chat:
    """A conversation in the form of its format."""

    chat_id: str | None
    title: str
    created_at: datetime | None
    places: Sequence[ChatPlace]
    shown: str | None  # the last message that the program showed; None if the source does not say
    model: str = ""  # the one that is named for the whole; messages may name others
    # Its members beside its messages that no column has.
    rest: Mapping[str, object] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    is_pinned: bool = False
    is_archived: bool = False


class MessageReading(NamedTuple):
    """The content of one message."""

    parts: tuple[Part, ...] = ()
    at: datetime | None = None
    noted: tuple[str, ...] = ()
    skipped: str = ""  # why it has no parts, if it has none
    model: str = ""  # the one that wrote it
    rest: Mapping[str, object] = MappingProxyType({})  # what the parts do not say of it


class Reader(Protocol):
    """Reads the messages of a chain, in order: a result belongs to a call before it."""

    def read(self, place: ChatPlace) -> MessageReading:
        """Return the content of the next message."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ExportKind:
    """One format of exports."""

    is_chat: Callable[[Fields], bool]  # whether an object is a conversation in this format
    chat: Callable[[Fields], Chat | None]  # a conversation; None if it has no list of messages
    reader: Callable[[], Reader]
    # A reader that leaves out images, for when only the kinds of the parts matter.
    glancing: Callable[[], Reader]


def moment(value: object) -> datetime | None:
    """Read a time since 1970 in seconds, or in milli-, micro- or nanoseconds; None for anything else."""
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < SECONDS_MAX * 1e9:
        return None
    seconds = float(value)
    while seconds >= SECONDS_MAX:
        seconds /= 1000
    return datetime.fromtimestamp(seconds, UTC)


class _Fact(NamedTuple):
    is_said: bool
    model: str


def is_source(path: Path, is_chat: Callable[[Fields], bool]) -> bool:
    """Return whether a path has conversations of a kind. Raise Unreadable."""
    return holds(archives.opened(path), is_chat)


def holds(archive: Archive, is_chat: Callable[[Fields], bool]) -> bool:
    """Return whether an archive has conversations of a kind. Raise Unreadable."""
    return any(_has_chats(archive, name, is_chat) for name in _candidates(archive))


def is_empty(archive: Archive) -> bool:
    """Return whether an archive has files for conversations, and each of them is an empty array."""
    found = _candidates(archive)
    with suppress(Unreadable):
        return bool(found) and not any(_begins(archive, name) for name in found)
    return False


def _begins(archive: Archive, name: str) -> bool:
    return next(json_arrays.items(archive.chunks(name), name), None) is not None


def transcripts(archive: Archive, kind: ExportKind) -> Iterator[Transcript]:
    """Yield the conversations of all files, each before its branches.

    Raise Unreadable at the end if a file breaks off, and if there is none.
    """
    ids, seen = _SourceIds(), set[str]()
    broken: list[str] = []
    for name in _files(archive, kind):
        texts = json_arrays.items(archive.chunks(name), name)
        try:
            for number, text in enumerate(texts, 1):
                where, digest = f"{name}, conversation {number}", _digest(text)
                yield from _of_text(text, where, kind, ids, is_known=digest in seen)
                seen.add(digest)
        except Unreadable as error:
            broken.append(str(error))
    if broken:
        raise Unreadable("; ".join(broken))


def _candidates(archive: Archive) -> list[str]:
    """Return the files that may have conversations: a single file may have any name."""
    names = list(archive.names())
    named = [name for name in names if CONVERSATIONS.fullmatch(PurePosixPath(name).name)]
    return named or (names if len(names) == 1 else [])


def _files(archive: Archive, kind: ExportKind) -> list[str]:
    """Return the files with conversations, if at least one has some of this kind. Raise Unreadable."""
    found = _candidates(archive)
    if not found:
        raise Unreadable(NO_FILE)
    folders = {_folder(name) for name in found if _has_chats(archive, name, kind.is_chat)}
    return [name for name in found if not folders or _folder(name) in folders]


def _folder(name: str) -> PurePosixPath:
    return PurePosixPath(name).parent


def _has_chats(archive: Archive, name: str, is_chat: Callable[[Fields], bool]) -> bool:
    with suppress(Unreadable):
        for text in islice(json_arrays.items(archive.chunks(name), name), 20):
            with suppress(Damaged):
                if is_chat(lines.record(text)):
                    return True
    return False


class _SourceIds:
    """Makes the ids of conversations unique."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        # The last number that was tried behind each id: of many that are the same, none is tried twice.
        self._numbers: Counter[str] = Counter()

    def take(self, wanted: str) -> str:
        """Return the id, with a number after it if it was taken before."""
        found = wanted
        while found in self._taken:
            self._numbers[wanted] += 1
            found = f"{wanted}#{self._numbers[wanted] + 1}"
        self._taken.add(found)
        return found


def _of_text(
    text: bytes, where: str, kind: ExportKind, ids: _SourceIds, *, is_known: bool
) -> Iterator[Transcript]:
    try:
        value = lines.record(text)
    except Damaged as error:
        source_id = ids.take(f"damaged-{_digest(text)}")
        yield _damaged(source_id, where, lines.kept(text[:KEPT_MAX_BYTES]), str(error))
        return
    chat = kind.chat(value)
    if chat is None:
        yield _damaged(ids.take(f"damaged-{_digest_of(value)}"), where, value, "it has no list of messages")
    elif is_known:
        yield _repeated(chat, ids.take(chat.chat_id or _digest_of(value)), where)
    else:
        yield from _of_chat(chat, chat.chat_id or _digest_of(value), where, kind, ids)


def _digest_of(value: object) -> str:
    return _digest(columns.as_json(value).encode())


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def _damaged(source_id: str, where: str, value: object, why: str) -> Transcript:
    record = Record(name="conversation", value=value, why=Kept.DAMAGED)
    node = Node(node_id=source_id, place=where, parts=(record,), noted=(why,))
    told = columns.fields(value)
    title = columns.first_text(told.get("title"), told.get("name"))[:TITLE_MAX_CHARS] or DAMAGED
    return Transcript(source_id=source_id, title=title, nodes=lambda: iter([node]), node_count=1)


def _repeated(chat: Chat, source_id: str, where: str) -> Transcript:
    """Return a conversation of which nothing is stored, but each message is counted."""
    nodes = [
        Node(node_id=place.node_id, place=f"{where}, message {place.number}", skipped=TWICE)
        for place in chat.places
    ]
    return Transcript(
        source_id=source_id,
        title=chat.title[:TITLE_MAX_CHARS] or None,
        nodes=lambda: iter(nodes),
        node_count=len(nodes),
        is_empty=True,
    )


def _of_chat(chat: Chat, wanted: str, where: str, kind: ExportKind, ids: _SourceIds) -> Iterator[Transcript]:
    chat_id = ids.take(wanted)
    if chat_id != wanted and chat.places:
        chat.places[0].noted = (*chat.places[0].noted, SAME_ID)
    branches = tree.branches(chat.places)
    facts = _facts(chat, kind)
    shown = (each for each in branches if any(place.node_id == chat.shown for place in each.places))
    active = next(shown, branches[0])
    # Members beside the messages are stored at the end of one branch, the first that is stored.
    said = [branch for branch in branches if any(facts[place.node_id].is_said for place in branch.places)]
    telling = next(iter(said or branches)) if chat.rest else None
    source_ids: dict[ChatBranch, str] = {}
    for branch in branches:
        begins = branch.places[0].node_id if branch.leaves is not None else ""
        source_ids[branch] = ids.take(f"{chat_id}/{begins}") if begins else chat_id
        shared = branch.shared
        models = [facts[place.node_id].model for place in (*shared, *branch.places)]
        yield Transcript(
            source_id=source_ids[branch],
            nodes=partial(
                _nodes, [*shared, *branch.places], where, kind, chat.rest if branch is telling else {}
            ),
            node_count=len(shared) + len(branch.places) + (branch is telling),
            shared_count=len(shared),
            title=chat.title[:TITLE_MAX_CHARS] or None,
            created_at=chat.created_at,
            model=next(filter(None, reversed(models)), chat.model) or None,
            leaves=_leaving(branch, source_ids),
            is_active=branch is active,
            is_empty=branch not in said,
            labels=chat.labels,
            is_pinned=chat.is_pinned and branch is active,
            is_archived=chat.is_archived,
        )


def _leaving(branch: ChatBranch, source_ids: Mapping[ChatBranch, str]) -> Leaving | None:
    if branch.leaves is None:
        return None
    return Leaving(source_id=source_ids[branch.leaves], after=branch.after)


def _facts(chat: Chat, kind: ExportKind) -> dict[str, _Fact]:
    reader = kind.glancing()
    facts: dict[str, _Fact] = {}
    for place in chat.places:
        reading = reader.read(place)
        is_said = not place.skipped and any(not isinstance(part, Record) for part in reading.parts)
        facts[place.node_id] = _Fact(is_said, reading.model)
    return facts


def _nodes(
    places: Sequence[ChatPlace], where: str, kind: ExportKind, rest: Mapping[str, object]
) -> Iterator[Node]:
    reader, rests = kind.reader(), Rests()
    for place in places:
        name = f"{where}, message {place.number}"
        if place.skipped:
            yield Node(node_id=place.node_id, place=name, skipped=place.skipped, noted=place.noted)
            continue
        reading = reader.read(place)
        yield Node(
            node_id=place.node_id,
            place=name,
            at=reading.at,
            parts=(*reading.parts, *rests.parts("message", reading.rest)),
            skipped=reading.skipped,
            noted=(*place.noted, *reading.noted),
        )
    if rest:
        record = Record(name="members of conversation", value=dict(rest), why=Kept.BOOKKEEPING)
        yield Node(node_id=f"conversation-{_digest_of(rest)}", place=where, parts=(record,))

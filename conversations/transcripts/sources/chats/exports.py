"""An export of chats: its files, its conversations, and the branches of each."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from types import MappingProxyType
from typing import NamedTuple, Protocol

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import archives, lines, nodes
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
    Rests,
    Transcript,
    Unreadable,
)

# The files with conversations; newer exports divide them into numbered ones.
CONVERSATIONS = re.compile(r"conversations(?:[-_]\d+)?\.json", re.IGNORECASE)
SAME_ID = "another conversation before this one has the same id"
TWICE = "an earlier conversation is the same to the last byte"
NO_FILE = "there is no conversations.json in it"
# What several formats note of a message.
NAMED_ONLY = "a file is named only"
IMAGE_MISSING = "an image is not in the export"
CUT_OFF = "the answer was cut off"
SECONDS_MAX = 1e11  # a greater time is not in seconds

DAMAGED = "Damaged conversation"  # the title of an unreadable conversation
KEPT_MAX_BYTES = 1024 * 1024  # the part of a damaged conversation that is kept


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

    name: str
    is_chat: Callable[[Fields], bool]  # whether an object is a conversation in this format
    chat: Callable[[Fields], Chat | None]  # a conversation; None if it has no list of messages
    # Makes readers with the images of an archive; without one, for when only the kinds of the parts matter.
    readers: Callable[[Archive | None], Callable[[], Reader]]

    def is_source(self, path: Path, /) -> bool:
        """Return whether a path has conversations in this format. Raise Unreadable."""
        return self.holds(archives.opened(path))

    def holds(self, archive: Archive) -> bool:
        """Return whether an archive has conversations in this format. Raise Unreadable."""
        return any(_has_chats(archive, name, self.is_chat) for name in _candidates(archive))

    def transcripts(self, path: Path, *, is_growing: bool = False) -> Iterator[Transcript]:
        """Yield the conversations of a zip file, a directory, or a file, each before its branches.

        Raise Unreadable at the end if a file breaks off, and if there is none. An export does not grow:
        `is_growing` changes nothing.
        """
        yield from _Export(archives.opened(path), self).transcripts()


def moment(value: object) -> datetime | None:
    """Read a time since 1970 in seconds, or in milli-, micro- or nanoseconds; None for anything else."""
    number = columns.number(value)
    if number is None or not 0 < number < SECONDS_MAX * 1e9:
        return None
    seconds = float(number)
    while seconds >= SECONDS_MAX:
        seconds /= 1000
    return datetime.fromtimestamp(seconds, UTC)


class _Fact(NamedTuple):
    is_said: bool
    model: str


def is_empty(archive: Archive) -> bool:
    """Return whether an archive has files for conversations, and each of them is an empty array."""
    found = _candidates(archive)
    with suppress(Unreadable):
        return bool(found) and not any(any(json_arrays.items(archive.chunks(name), name)) for name in found)
    return False


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


def unique(node_id: str, taken: Container[str]) -> str:
    """Return the id of a message, with a number after it if it is taken."""
    found, number = node_id, 1
    while found in taken:
        number += 1
        found = f"{node_id}#{number}"
    return found


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


def digest_of(value: object) -> str:
    """Return an id for a message or conversation that has none."""
    return _digest(columns.as_json(value).encode())


def _digest(text: bytes) -> str:
    return hashlib.sha256(text).hexdigest()[:32]


def _damaged(source_id: str, where: str, value: object, why: str) -> Transcript:
    record = Record(name="conversation", value=value, why=Kept.DAMAGED)
    node = Node(node_id=source_id, place=where, parts=(record,), noted=(why,))
    told = columns.fields(value)
    title = columns.first_text(told.get("title"), told.get("name"))[: nodes.TITLE_MAX_CHARS] or DAMAGED
    return Transcript(source_id=source_id, title=title, nodes=lambda: iter([node]), node_count=1)


def _repeated(chat: Chat, source_id: str, where: str) -> Transcript:
    """Return a conversation of which nothing is stored, but each message is counted."""
    skipped = [
        Node(node_id=place.node_id, place=f"{where}, message {place.number}", skipped=TWICE)
        for place in chat.places
        if not place.is_frame
    ]
    return Transcript(
        source_id=source_id,
        title=chat.title[: nodes.TITLE_MAX_CHARS] or None,
        nodes=lambda: iter(skipped),
        node_count=len(skipped),
        is_empty=True,
    )


class _Export:
    """The conversations of an export while they are read."""

    def __init__(self, archive: Archive, kind: ExportKind) -> None:
        self._archive = archive
        self._kind = kind
        self._ids = _SourceIds()
        self._readers, self._glancing = kind.readers(archive), kind.readers(None)

    def transcripts(self) -> Iterator[Transcript]:
        """Yield the conversations of all files. Raise Unreadable."""
        seen, broken = set[str](), list[str]()
        for name in _files(self._archive, self._kind):
            texts = json_arrays.items(self._archive.chunks(name), name)
            try:
                for number, text in enumerate(texts, 1):
                    digest = _digest(text)
                    yield from self._of_text(text, f"{name}, conversation {number}", is_known=digest in seen)
                    seen.add(digest)
            except Unreadable as error:
                broken.append(str(error))
        if broken:
            raise Unreadable("; ".join(broken))

    def _of_text(self, text: bytes, where: str, *, is_known: bool) -> Iterator[Transcript]:
        try:
            value = lines.record(text)
        except Damaged as error:
            source_id = self._ids.take(f"damaged-{_digest(text)}")
            yield _damaged(source_id, where, lines.kept(text[:KEPT_MAX_BYTES]), str(error))
            return
        chat = self._kind.chat(value)
        if chat is None:
            source_id = self._ids.take(f"damaged-{digest_of(value)}")
            yield _damaged(source_id, where, value, "it has no list of messages")
        elif is_known:
            yield _repeated(chat, self._ids.take(chat.chat_id or digest_of(value)), where)
        else:
            yield from self._of_chat(chat, chat.chat_id or digest_of(value), where)

    def _of_chat(self, chat: Chat, wanted: str, where: str) -> Iterator[Transcript]:
        chat_id = self._ids.take(wanted)
        if chat_id != wanted:
            for first in [place for place in chat.places if not place.is_frame][:1]:
                first.noted = (*first.noted, SAME_ID)
        branches = tree.branches(chat.places)
        facts = self._facts(chat)
        shown = (each for each in branches if any(place.node_id == chat.shown for place in each.places))
        active = next(shown, branches[0])
        said = [branch for branch in branches if any(facts[place.node_id].is_said for place in branch.places)]
        # Members beside the messages are stored at the end of one branch, the first that is stored.
        telling = next(iter(said or branches)) if chat.rest else None
        source_ids: dict[ChatBranch, str] = {}
        for branch in branches:
            left = branch.leaves
            begins = branch.places[0].node_id if left is not None else ""
            source_ids[branch] = self._ids.take(f"{chat_id}/{begins}") if begins else chat_id
            # Readers of a report miss no message where the format has none.
            places = [place for place in (*branch.shared, *branch.places) if not place.is_frame]
            own = sum(not place.is_frame for place in branch.places)
            models = [facts[place.node_id].model for place in places]
            rest = chat.rest if branch is telling else {}
            yield Transcript(
                source_id=source_ids[branch],
                nodes=partial(self._nodes, places, where, rest),
                node_count=len(places) + (branch is telling),
                shared_count=len(places) - own,
                title=chat.title[: nodes.TITLE_MAX_CHARS] or None,
                created_at=chat.created_at,
                model=next(filter(None, reversed(models)), chat.model) or None,
                leaves=Leaving(source_id=source_ids[left], after=branch.after) if left else None,
                is_active=branch is active,
                is_empty=branch not in said,
                labels=chat.labels,
                is_pinned=chat.is_pinned and branch is active,
                is_archived=chat.is_archived,
            )

    def _facts(self, chat: Chat) -> dict[str, _Fact]:
        reader = self._glancing()
        facts: dict[str, _Fact] = {}
        for place in chat.places:
            reading = reader.read(place)
            is_said = not place.skipped and any(not isinstance(part, Record) for part in reading.parts)
            facts[place.node_id] = _Fact(is_said, reading.model)
        return facts

    def _nodes(self, places: Sequence[ChatPlace], where: str, rest: Fields) -> Iterator[Node]:
        reader, rests = self._readers(), Rests()
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
            yield Node(node_id=f"conversation-{digest_of(rest)}", place=where, parts=(record,))

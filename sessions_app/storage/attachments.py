"""Files that a user adds to a conversation: stored under safe names, and read by its agent."""

from __future__ import annotations

import secrets
import unicodedata
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import chain, count

from django.db import transaction
from django.db.models import Sum

from conversations.exceptions import ConversationNotFound
from conversations.log.locks import lock
from conversations.models import Conversation, ConversationRef
from sessions_app.models import ATTACHMENT_NAME_MAX_LENGTH, Attachment
from sessions_app.storage import usage

WORKSPACE = "/workspace"
"""The directory of attachments in paths of the V0 wire."""
FILE_MAX_BYTES = 15 * 1024 * 1024
TOTAL_MAX_BYTES = 128 * 1024 * 1024
"""The limit for all attachments of one conversation."""
FILES_MAX = 500
"""At most this many attachments per conversation."""
NAMELESS = "file"


@dataclass(frozen=True, kw_only=True, slots=True)
class NewFile:
    """A file as its sender named it."""

    name: str
    content: bytes
    is_said: bool = False
    """Whether a message will have its text for models."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Attached:
    """A file that a conversation has."""

    name: str
    r"""Unique in the conversation, and not a path: it contains neither `/` nor `\`."""
    size: int
    """Bytes."""
    created_at: datetime

    @property
    def path(self) -> str:
        """The path that the V0 wire shows."""
        return f"{WORKSPACE}/{self.name}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """A file that was not stored, with the reason."""

    name: str
    """The name that it would have had."""
    reason: str


def attachments_of(conversation: ConversationRef, *, with_said: bool = True) -> list[Attached]:
    """Return the files that the user gave to the conversation, with those of messages, the oldest first."""
    rows = Attachment.objects.of(conversation).values_list("name", "size", "created_at")
    if not with_said:
        rows = rows.filter(is_said=False)
    return [Attached(name=name, size=size, created_at=created_at) for name, size, created_at in rows]


def content_of(conversation: ConversationRef, name: str) -> bytes | None:
    """Return the bytes of the attachment with this name, as they were sent; None if there is none."""
    return Attachment.objects.of(conversation).content_of(name)


def attach(
    conversation: ConversationRef, files: Iterable[NewFile], *, taken: Collection[str] = ()
) -> list[Attached | Skipped]:
    """Store the files under safe, unused names; return the outcome of each in its place.

    No file gets a name that is `taken`. A file that is too large, or one too many, is skipped and affects no
    other. Raise ConversationNotFound for a deleted conversation, ConversationBusy, and QuotaExceeded if the
    owner may not store all of them.
    """
    with transaction.atomic():
        # The lock of everything that writes to a conversation also covers the choice of names and the
        # limits.
        if lock(Conversation.objects.active(), conversation) is None:
            raise ConversationNotFound("Conversation not found.")
        space = _Space.of(conversation, taken)
        uses = usage.locked(conversation.owner_id)
        results = [_attached(conversation, file, space) for file in files]
        usage.add_upload(uses, sum(each.size for each in results if isinstance(each, Attached)))
        return results


def withdraw(conversation: ConversationRef, attached: Attached) -> None:
    """Remove a file that was attached just now, as if it had never been; do nothing after a purge."""
    with transaction.atomic():
        lock(Conversation.objects.all(), conversation)
        uses = usage.locked(conversation.owner_id)
        if Attachment.objects.of(conversation).filter(name=attached.name).delete()[0]:
            usage.add_upload(uses, -attached.size)


def safe_name(text: str, taken: Collection[str] = ()) -> str:
    """Return a file's name without directories and invisible characters, numbered if it is `taken`.

    Where a thousand numbers are taken, which is not the work of a person, it gets a random one.
    """
    last = unicodedata.normalize("NFC", text).replace("\\", "/").rpartition("/")[2]
    name = "".join(character for character in last if character.isprintable()).strip()
    stem, ending = _parts("" if name in (".", "..") else name)
    # Names are chosen under a lock, which on SQLite keeps all other writers waiting.
    numbers_most = 1_000
    numbers = (f"-{number}" for number in range(1, numbers_most))
    randoms = (f"-{secrets.token_hex(8)}" for _ in count())
    marks = chain([""], numbers, randoms)
    return next(name for mark in marks if (name := _fitting(stem, mark + ending)) not in taken)


def _fitting(stem: str, rest: str) -> str:
    """Return a name with as much of its stem as it may have: file systems count bytes."""
    bytes_most = 255
    cut = stem[: ATTACHMENT_NAME_MAX_LENGTH - len(rest)].encode()[: bytes_most - len(rest.encode())]
    return cut.decode(errors="ignore") + rest


def _parts(name: str) -> tuple[str, str]:
    """Return the part of a name before its last dot, and the rest."""
    stem, dot, ending = name.rpartition(".")
    ending_most = 20  # a longer one is shortened with the name
    if not stem or len(ending) > ending_most:
        return name or NAMELESS, ""
    return stem, dot + ending


@dataclass(slots=True)
class _Space:
    """The space that a conversation's attachments use, which grows while files are stored."""

    files: int
    size: int
    names: set[str]
    """Those that no further file may have."""

    @classmethod
    def of(cls, conversation: ConversationRef, taken: Collection[str]) -> _Space:
        rows = Attachment.objects.of(conversation)
        size = rows.aggregate(sum=Sum("size"))["sum"] or 0
        names = set(rows.values_list("name", flat=True))
        return cls(len(names), size, names.union(taken))

    def refusal(self, size: int) -> str | None:
        """Return why a file of this size cannot be stored; None if it can."""
        if size > FILE_MAX_BYTES:
            return f"The file has {size} bytes; the limit is {FILE_MAX_BYTES}."
        if self.files >= FILES_MAX:
            return f"The conversation has {FILES_MAX} files already, and that is the most."
        if self.size + size > TOTAL_MAX_BYTES:
            return f"The files of a conversation may have {TOTAL_MAX_BYTES} bytes together."
        return None


def _attached(conversation: ConversationRef, file: NewFile, space: _Space) -> Attached | Skipped:
    size = len(file.content)
    if reason := space.refusal(size):
        return Skipped(name=safe_name(file.name), reason=reason)
    name = safe_name(file.name, space.names)
    row = Attachment.objects.create(
        conversation_id=conversation.pk, name=name, size=size, content=file.content, is_said=file.is_said
    )
    space.names.add(name)
    space.files += 1
    space.size += size
    return Attached(name=name, size=size, created_at=row.created_at)

"""A V1 conversation as a zip archive, made while it is sent (spec V1 §7.3)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import IO, cast
from zipfile import ZIP_DEFLATED, ZipFile

from conversations.dialects import v1
from conversations.events import EventEnvelope
from conversations.models import ConversationRef
from conversations.store import store
from sessions_app import astore

_UNUSUAL = re.compile(r"[^0-9A-Za-z._-]")


class _Outlet:
    """Where an archive is written to: no place in it can be gone back to."""

    def __init__(self) -> None:
        self._written: list[bytes] = []

    def write(self, written: bytes) -> int:
        """Keep it until it is drained."""
        self._written.append(bytes(written))
        return len(written)

    def flush(self) -> None:
        """Nothing is held back."""

    def drained(self) -> bytes:
        """Return what was written since the last time."""
        written, self._written = b"".join(self._written), []
        return written


async def archive(conversation: ConversationRef, meta: str) -> AsyncIterator[bytes]:
    """Yield the archive piece by piece: `meta.json`, and each event that stood when it began, in order."""
    outlet = _Outlet()
    through = await astore.call(store().last_seq, conversation)
    with ZipFile(cast(IO[bytes], outlet), "w", ZIP_DEFLATED) as zip_file:
        zip_file.writestr("meta.json", meta)
        last = -1
        while last < through:
            page = await astore.read_after(conversation, last)
            if not page:
                break
            last = page[-1]["seq"]
            await astore.call(_add, zip_file, conversation.public_id, page, through)
            yield outlet.drained()
    yield outlet.drained()


def _add(zip_file: ZipFile, public_id: str, page: list[EventEnvelope], through: int) -> None:
    for event in page:
        if event["seq"] <= through:
            zip_file.writestr(_name(event, public_id), v1.shown(event, public_id))


def _name(event: EventEnvelope, public_id: str) -> str:
    event_id = _UNUSUAL.sub("_", v1.shown_id(event, public_id))
    return f"event_{event['seq']:06d}_{event_id}.json"

"""A V1 conversation as a zip archive, made while it is sent (spec V1 §7.3)."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator

from zipstream import ZIP_DEFLATED, ZipStream

from conversations.dialects import v1
from conversations.events import ConversationRef, EventEnvelope
from conversations.log import reads
from sessions_app import astore

# Clients choose ids, also such as would leave the directory into which an archive is unpacked.
_UNUSUAL = re.compile(r"[^0-9A-Za-z._-]")


async def archive(conversation: ConversationRef, meta: str) -> AsyncIterator[bytes]:
    """Yield the archive in pieces: `meta.json`, and each event of the log at the beginning, in order."""
    zipped = ZipStream(compress_type=ZIP_DEFLATED)
    # The log may grow while it is sent, for as long as an agent works.
    through = await astore.call(reads.last_seq, conversation)
    zipped.add(meta, "meta.json")
    last = -1
    while last < through:
        page = await astore.read_after(conversation, last)
        if not page:
            break
        last = page[-1]["seq"]
        yield await astore.call(_with, zipped, conversation.public_id, page, through)
    yield await astore.call(lambda: b"".join(zipped.finalize()))


def _with(zipped: ZipStream, public_id: str, page: list[EventEnvelope], through: int) -> bytes:
    """Return the next piece of the archive, with the events of this page."""
    for event in page:
        if event["seq"] <= through:
            zipped.add(v1.shown(event, public_id), _name(event, public_id))
    return b"".join(zipped.all_files())


def _name(event: EventEnvelope, public_id: str) -> str:
    event_id = _UNUSUAL.sub("_", v1.shown_id(event, public_id))
    return f"event_{event['seq']:06d}_{event_id}.json"

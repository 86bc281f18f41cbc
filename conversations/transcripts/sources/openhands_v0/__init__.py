"""The file stores of OpenHands V0: a directory a conversation, a file an event (docs/formats.md)."""

from conversations.transcripts.sources.openhands_v0.events import events
from conversations.transcripts.sources.openhands_v0.files import Told
from conversations.transcripts.sources.openhands_v0.metadata import StoredFacts, read
from conversations.transcripts.sources.openhands_v0.stores import (
    NAME,
    EventFile,
    Stored,
    event_files,
    found,
    is_source,
)

__all__ = [
    "NAME",
    "EventFile",
    "Stored",
    "StoredFacts",
    "Told",
    "event_files",
    "events",
    "found",
    "is_source",
    "read",
]

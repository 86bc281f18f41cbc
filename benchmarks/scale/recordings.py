"""The events that a large log is made of: those of the recorded conversations, in their order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from conversations import dialects
from conversations.events import Reading
from conversations.payloads import jsontext
from conversations.search.fulltext.words import Words

DATA = Path(__file__).resolve().parent.parent.parent / "tests" / "data"
LISTS = ("openhands-v0-interactions", "openhands-v0-gui-trajectory", "openhands-v0-agent-run")
DIRECTORY = "openhands-v1"


class Recorded(NamedTuple):
    """One event of a recording, as the log would store it."""

    payload: str
    reading: Reading
    words: list[str]
    """What the search index would have of it."""


def recorded() -> list[Recorded]:
    """Return all recorded events."""
    return [_read(payload) for payload in _payloads()]


def _payloads() -> Iterator[str]:
    for name in LISTS:
        yield from (item.text for item in jsontext.items((DATA / f"{name}.json").read_text(encoding="utf-8")))
    for path in sorted((DATA / DIRECTORY).glob("conversation/*/events/event-*.json")):
        yield path.read_text(encoding="utf-8")


def _read(payload: str) -> Recorded:
    values = {name: member.value for name, member in jsontext.members(payload).items()}
    reading = dialects.read(values)
    words = [] if reading.hidden else sorted(Words(reading.text).different)
    return Recorded(payload, reading, words)

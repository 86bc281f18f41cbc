"""The events of a conversation, byte for byte as they are in their files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from uuid import UUID, uuid5

from conversations.dialects import columns, v0
from conversations.events import Metrics, NewEvent
from conversations.exceptions import InvalidEvent
from conversations.payloads import jsontext
from conversations.transcripts.local_times import LocalTimes
from conversations.transcripts.sources.nodes import Unreadable
from conversations.transcripts.sources.openhands_v0.files import MORE_TEXT, Told, object_in
from conversations.transcripts.sources.openhands_v0.stores import NO_EVENT_FILE, EventFile, Stored

REPEATED = "the same event is in another directory as well"
TWICE = "another directory has another event with its id"
OTHER_ID = "the event in it has another id"
NO_TYPE = "it is not an event: it names no type, or two"
COUNT_LIMIT = 2**62  # the sum of two smaller numbers is one that a column stores

_IDS = UUID("b0e3f6f4-1f2c-5f0e-9f55-0a61d5f7a0c2")


def events(
    stored: Stored,
    files: Sequence[EventFile],
    *,
    times: LocalTimes,
    skip: Told,
    note: Told,
) -> Iterator[NewEvent]:
    """Yield the events of the files, which are sorted; call `skip` for each file without one.

    If two directories have files with the same number, the later one is stored, too, if it differs.
    """
    number, digests = -1, set[bytes]()
    for file in files:
        name = columns.clean(file.path.name)
        if file.number is None:
            skip(name, NO_EVENT_FILE)
            continue
        if file.number != number:
            number, digests = file.number, set()
        try:
            text = _text(file, name, note)
            digest = hashlib.sha256(text.encode()).digest()
            if digest in digests:
                skip(name, REPEATED)
                continue
            again = f"/{digest.hex()}" if digests else ""
            event = _event(text, file.number, str(uuid5(_IDS, f"{stored.sid}/{number}{again}")), times)
        except (Unreadable, InvalidEvent) as error:
            skip(name, str(error))
            continue
        if digests:
            note(name, TWICE)
        if event.reading.wire_id != number:
            note(name, OTHER_ID)
        digests.add(digest)
        yield event


def _text(file: EventFile, name: str, note: Told) -> str:
    found = object_in(file.path)
    if not found.is_all:
        note(name, MORE_TEXT)
    return found.text


def _event(text: str, number: int, event_id: str, times: LocalTimes) -> NewEvent:
    """Return the event of a text that is an object. Raise Unreadable or InvalidEvent."""
    payload = {name: member.value for name, member in jsontext.members(text).items()}
    if len([name for name in ("action", "observation") if columns.first_text(payload.get(name))]) != 1:
        raise Unreadable(NO_TYPE)
    reading = v0.read(payload)
    return NewEvent(
        event_id=event_id,
        payload=text,
        reading=replace(
            reading,
            timestamp=times.at(payload.get("timestamp")),
            wire_id=number if reading.wire_id is None else reading.wire_id,
        ),
        is_input=False,
        asks=False,
        metrics=_metrics(columns.fields(payload.get("llm_metrics"))),
    )


def _metrics(told: Mapping[str, object]) -> Metrics | None:
    """Return the totals so far; None if an event has none."""
    if not told:
        return None
    usage = columns.fields(told.get("accumulated_token_usage"))
    return Metrics(
        accumulated_cost=columns.amount(told.get("accumulated_cost"), below=COUNT_LIMIT),
        prompt_tokens=tokens(usage.get("prompt_tokens")),
        completion_tokens=tokens(usage.get("completion_tokens")),
    )


def tokens(value: object) -> int:
    """Return a number of tokens; 0 for anything else, and if two columns could not sum it."""
    count = columns.wire_id(value) or 0
    return count if count < COUNT_LIMIT else 0

"""Reading the directories in which V1 agent servers store conversations (spec V1 §7.1)."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

from conversations.dialects import columns, refusals, v1
from conversations.dialects.v1.kinds import kind_of
from conversations.events import Metrics, NewEvent
from conversations.exceptions import InvalidEvent
from conversations.payloads import jsontext
from conversations.payloads.jsontext import InvalidJson, Member
from conversations.transcripts import local_times
from conversations.transcripts.local_times import LocalTimes
from conversations.transcripts.sources import lines, whole_files
from conversations.transcripts.sources.nodes import Unfinished, Unreadable

BASE_STATE = "base_state.json"
META = "meta.json"
LEASE = "owner_lease.json"
EVENTS = "events"

_EVENT_FILE = re.compile(r"event-([0-9]{5,})-([0-9a-fA-F-]{8,})\.json")
_FULL_STATE = "full_state"
_PADDING = "\ufeff\0"  # what shells and crashes leave around a text
_COMMAND_OBSERVATIONS = frozenset({"TerminalObservation", "ExecuteBashObservation"})

Skip = Callable[[str, str], None]  # called with the name of a skipped file and the reason


class EventFileName(NamedTuple):
    place: int
    name: str
    event_id: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Persisted:
    """The contents of a conversation's directory, except the events."""

    directory: Path
    conversation_id: UUID
    created_at: datetime  # aware, UTC
    request: Mapping[str, Any]  # `meta.json`; empty if it is missing, as after a crash
    state: Mapping[str, Any]  # `base_state.json`
    lease_expires_at: datetime | None  # until when a server has claimed the conversation for itself
    is_empty: bool  # there are no event files: the start failed

    @property
    def title(self) -> str | None:
        return columns.first_text(self.request.get("title"), self.state.get("title")) or None

    @property
    def tags(self) -> dict[str, str]:
        tags = columns.fields(self.fact("tags"))
        return {name: value for name, value in tags.items() if isinstance(value, str)}

    @property
    def execution_status(self) -> str | None:
        return columns.first_text(self.state.get("execution_status")) or None

    @property
    def metrics(self) -> Metrics:
        usages = columns.fields(columns.fields(self.state.get("stats")).get("usage_to_metrics"))
        each = list(usages.values()) or [self.request.get("metrics")]
        tokens = [columns.fields(columns.fields(one).get("accumulated_token_usage")) for one in each]
        costs = (columns.fields(one).get("accumulated_cost") for one in each)
        return Metrics(
            accumulated_cost=sum(columns.amount(cost, below=2**63) for cost in costs),
            prompt_tokens=sum(columns.wire_id(one.get("prompt_tokens")) or 0 for one in tokens),
            completion_tokens=sum(columns.wire_id(one.get("completion_tokens")) or 0 for one in tokens),
        )

    def fact(self, name: str) -> Any:
        """Return a member of the state or else of the request; None if neither has it."""
        value = self.state.get(name)
        return self.request.get(name) if value is None else value


def directories(path: Path) -> list[Path]:
    """Return `path` if it is the directory of a conversation, otherwise those inside it, by name.

    This includes unreadable ones: reading one raises Unreadable, which affects no other. Raise Unreadable
    for `path` itself.
    """
    try:
        if _is_conversation(path):
            return [path]
        return sorted(each for each in path.iterdir() if _may_be_conversation(each))
    except OSError as error:
        raise Unreadable(f"{path} cannot be read: {error.strerror}") from error


def read(directory: Path, *, zone: tzinfo, skip: Skip) -> Persisted:
    """Return the contents of the directory; times without a zone are in `zone`. Raise Unreadable."""
    is_empty = not event_files(directory)  # first, because it raises if a directory cannot be read
    state, request = _facts(directory / BASE_STATE, skip), _facts(directory / META, skip)
    for name in (state.get("id"), request.get("id"), directory.resolve().name):
        with suppress(ValueError):
            conversation_id = UUID(columns.first_text(name))
            break
    else:
        raise Unreadable("neither its files nor its name contain the id of the conversation")
    return Persisted(
        directory=directory,
        conversation_id=conversation_id,
        created_at=_created_at(directory, request, state, zone),
        request=request,
        state=state,
        lease_expires_at=_lease_expires_at(directory / LEASE),
        is_empty=is_empty,
    )


def event_files(directory: Path, skip: Skip | None = None) -> list[EventFileName]:
    """Return the event files by index; those with the same index by name. Raise Unreadable."""
    try:
        names = os.listdir(directory / EVENTS)  # noqa: PTH208 (a name each, of very many)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise Unreadable(f"{EVENTS} cannot be read: {error.strerror}") from error
    found = []
    for name in sorted(names):
        if match := _EVENT_FILE.fullmatch(name):
            found.append(EventFileName(int(match[1]), name, match[2]))
        elif skip is not None and not name.startswith("."):  # locks and markers are hidden
            skip(refusals.quoted(name), "its name is not the name of an event file")
    return sorted(found)


def events(directory: Path, *, zone: tzinfo, skip: Skip) -> Iterator[NewEvent]:
    """Yield the events by index, each as the text of its file; of those with one id, the first readable one.

    A file's index becomes the event's `wire_id`, so there may be gaps. Raise Unreadable for a directory.
    """
    seen: set[str] = set()
    times = LocalTimes(zone)
    for file in event_files(directory, skip):
        try:
            event = _event(directory / EVENTS / file.name, file, times)
        except (Unreadable, InvalidEvent) as error:
            skip(file.name, str(error))
            continue
        if event.event_id in seen:
            skip(file.name, "an earlier file has an event with this id")
            continue
        seen.add(event.event_id)
        yield event


@dataclass(kw_only=True, slots=True)
class Growing:
    """The events of a directory that a server still writes to: each is read once, and in order.

    An incomplete file or a missing number is waited for while the file at that place or after it is fresh.
    The log ends before it.
    """

    directory: Path
    zone: tzinfo
    skip: Skip
    is_waiting: bool = False  # there was something to wait for the last time
    _read: set[str] = field(default_factory=set)  # the names of files that need not be read again
    _new: list[str] = field(default_factory=list)
    _times: LocalTimes = field(init=False)

    def __post_init__(self) -> None:
        self._times = LocalTimes(self.zone)

    def events(self) -> Iterator[NewEvent]:
        """Yield the new events, by index. Raise Unreadable for the directory."""
        self._new, self.is_waiting = [], False
        expected = 0
        for file in event_files(self.directory):
            is_missing, expected = file.place > expected, file.place + 1
            if file.name in self._read:
                continue
            if is_missing and is_fresh(self.directory / EVENTS / file.name):
                self.is_waiting = True
                return
            try:
                event = self._event(file)
            except Unfinished:
                self.is_waiting = True
                return
            self._new.append(file.name)
            if event is not None:
                yield event

    def remember(self) -> None:
        """Do not read the yielded events again: they are stored."""
        self._read.update(self._new)

    def _event(self, file: EventFileName) -> NewEvent | None:
        """Return the event of a file; None if it has none. Raise Unfinished if it may have one later."""
        path = self.directory / EVENTS / file.name
        try:
            return _event(path, file, self._times)
        except (Unreadable, InvalidEvent) as error:
            if isinstance(error, Unfinished) and is_fresh(path):
                raise
            self.skip(file.name, str(error))
            return None


def is_fresh(path: Path) -> bool:
    """Return whether a file was written to recently, so that it may be incomplete."""
    try:
        # Either way, because the clocks of two machines differ a little.
        return abs(time.time() - path.stat().st_mtime) < lines.FRESH_S
    except OSError:
        return False


def _may_be_conversation(path: Path) -> bool:
    try:
        return path.is_dir() and _is_conversation(path)
    except (OSError, Unreadable):
        return True


def _is_conversation(directory: Path) -> bool:
    if any((directory / name).is_file() for name in (BASE_STATE, META)):
        return True
    return (directory / EVENTS).is_dir() and bool(event_files(directory))


def _event(path: Path, file: EventFileName, times: LocalTimes) -> NewEvent:
    """Return the event of a file. Raise Unreadable or InvalidEvent."""
    text = whole_files.text_of(path, padding=_PADDING)
    try:
        members = jsontext.members(text)
    except InvalidJson as error:
        raise Unfinished(str(error)) from error
    payload = {name: member.value for name, member in members.items()}
    if not columns.first_text(payload.get("kind")):
        raise Unreadable("it has no kind of event")
    if payload.get("key") == _FULL_STATE:
        raise Unreadable("it is a copy of the whole state, which logs do not contain")
    reading = v1.read(payload)
    return NewEvent(
        event_id=reading.event_id or file.event_id,
        payload=_complete(text, members),
        reading=replace(
            reading, timestamp=times.at(payload.get("timestamp")), wire_id=columns.wire_id(file.place)
        ),
    )


def _complete(text: str, members: Mapping[str, Member]) -> str:
    """Return the event's text with the one null that files omit and clients require."""
    observation = members.get("observation")
    seen = columns.fields(observation.value) if observation else {}
    if observation is None or kind_of(seen) not in _COMMAND_OBSERVATIONS or "command" in seen:
        return text
    texts = {name: member.text for name, member in members.items()}
    texts["observation"] = '{"command":null,' + observation.text[1:]
    return "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in texts.items()) + "}"


def _facts(path: Path, skip: Skip) -> Mapping[str, Any]:
    """Return the object of a file in a storable form; an empty one if it cannot be read."""
    try:
        try:
            if not path.exists():
                return {}
        except OSError as error:
            raise Unreadable(f"it cannot be read: {error.strerror}") from error
        value = json.loads(whole_files.text_of(path, padding=_PADDING))
        if isinstance(value, dict):
            return columns.fields(lines.storable(value))
        skip(path.name, "it is not a JSON object")
    except (Unreadable, lines.Damaged) as error:
        skip(path.name, str(error))
    except (ValueError, RecursionError):
        skip(path.name, "it is not valid JSON")
    return {}


def _created_at(
    directory: Path, request: Mapping[str, Any], state: Mapping[str, Any], zone: tzinfo
) -> datetime:
    for facts in (request, state):
        if moment := local_times.moment(facts.get("created_at"), zone):
            return moment
    for event in events(directory, zone=zone, skip=lambda *_: None):
        if event.reading.timestamp is not None:
            return event.reading.timestamp
    try:
        return datetime.fromtimestamp(directory.stat().st_mtime, UTC)
    except OSError as error:
        raise Unreadable(f"it cannot be read: {error.strerror}") from error


def _lease_expires_at(path: Path) -> datetime | None:
    expires_at = columns.number(_facts(path, lambda *_: None).get("expires_at"))
    if expires_at is None:
        return None
    try:
        return datetime.fromtimestamp(expires_at, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.max.replace(tzinfo=UTC) if expires_at > 0 else None

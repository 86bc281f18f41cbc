"""The journals beside the sessions: the events that runs sent to the browser, and the accepted prompts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.hermes.copies import session_id as safe_name
from conversations.transcripts.sources.nodes import Rests, rest_of

RUNS, TURNS = "_run_journal", "_turn_journal"
FINAL = frozenset({"completed", "interrupted"})
ENDS = frozenset({"done", "cancel", "apperror", "error"})
# An event has at least one of these members beside its name.
OF_EVENTS = frozenset({"session_id", "payload", "turn_id"})

# Members that identify an event and its run, or have the rest of it.
_ENVELOPE = frozenset(
    {"event", "type", "event_id", "seq", "run_id", "session_id", "turn_id", "created_at", "payload"}
)
# By kind of event: the members of its payload that rows have; the last has the whole conversation.
_CARRIED = {
    "token": frozenset({"text"}),
    "interim_assistant": frozenset({"text", "already_streamed"}),
    "reasoning": frozenset({"text"}),
    "tool": frozenset({"name", "tid", "args"}),
    "tool_complete": frozenset({"name", "tid", "preview", "is_error"}),
    "done": frozenset({"session"}),
}


@dataclass(kw_only=True, slots=True)
class Run:
    """The content of one run, as rows like those of a session."""

    rows: list[dict[str, object]] = field(default_factory=list)
    ended: str = ""  # the event that ended it; empty if the program stopped before
    damaged: int = 0  # lines that could not be read
    transcript: list[object] | None = None  # the whole conversation, as it was when the run was done
    # The members of its events that no row has, if they differ from the event before.
    rest: list[object] = field(default_factory=list)


def run(sessions: Path, session_id: str, stream_id: object) -> Run | None:
    """Return the content of a run's journal; None if there is none. Raise Unreadable."""
    name = safe_name(stream_id)
    path = sessions / RUNS / session_id / f"{name}.jsonl"
    return _read(path) if name and path.is_file() else None


def last_transcript(sessions: Path, session_id: str) -> list[object] | None:
    """Return the longest conversation with which one of its runs ended. Raise Unreadable."""
    longest: list[object] | None = None
    for path in sorted((sessions / RUNS / session_id).glob("*.jsonl")):
        for event in _events(path):
            if (found := _transcript(event)) is not None and len(found) >= len(longest or []):
                longest = found
    return longest


def unfinished_prompts(sessions: Path, session_id: str) -> Iterator[Fields]:
    """Yield the events of prompts whose turns have no end in any journal. Raise Unreadable."""
    turns: dict[str, Fields] = {}
    ended: set[str] = set()
    folder = sessions / TURNS
    for path in sorted([*folder.glob(f"{session_id}.jsonl"), *folder.glob(f"{session_id}~*.jsonl")]):
        for event in _events(path):
            turn_id = columns.first_text(event.get("turn_id"))
            kind = columns.first_text(event.get("event"))
            if kind in FINAL:
                ended.add(turn_id)
            elif kind == "submitted" and columns.first_text(event.get("content")):
                turns[turn_id] = event
    yield from (prompt for turn_id, prompt in turns.items() if turn_id not in ended)


def _events(path: Path) -> Iterator[Fields]:
    """Yield the readable records; an empty one for other lines. Raise Unreadable."""
    if path.is_file():
        yield from (found.value or {} for found in lines.records(path, _is_event))


def _is_event(record: Fields) -> bool:
    return isinstance(record.get("event"), str) and not OF_EVENTS.isdisjoint(record)


def _transcript(event: Fields) -> list[object] | None:
    if event.get("event") != "done":
        return None
    session = columns.fields(columns.fields(event.get("payload")).get("session"))
    messages = session.get("messages")
    return messages if isinstance(messages, list) else None


def _read(path: Path) -> Run:
    reading = _Reading()
    for event in _events(path):
        reading.take(event)
    return reading.finished()


class _Reading:
    """Joins the pieces of an answer: a row for each text with the call after it."""

    def __init__(self) -> None:
        self._run = Run()
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._at: object = None
        self._open: list[tuple[str, str]] = []  # the calls without a result: their ids and names
        self._rests = Rests()

    def take(self, event: Fields) -> None:
        payload = columns.fields(event.get("payload"))
        kind = columns.first_text(event.get("event"), event.get("type"))
        text = columns.first_text(payload.get("text"))
        self._at = event.get("created_at") or self._at
        carried = _CARRIED.get(kind, frozenset())
        if not event:
            self._run.damaged += 1
        elif kind == "token" or (kind == "interim_assistant" and not payload.get("already_streamed")):
            self._texts.append(text)
        elif kind == "interim_assistant":
            carried = frozenset()  # its text came in pieces, perhaps in other words
        elif kind == "reasoning":
            self._thoughts.append(text)
        elif kind == "tool":
            self._call(event, payload)
        elif kind == "tool_complete":
            carried = carried if self._result(payload) else frozenset()
        elif kind in ENDS:
            self._run.ended = kind
            self._run.transcript = _transcript(event) or self._run.transcript
        self._keep(kind, event, rest_of(payload, carried))

    def _keep(self, kind: str, event: Fields, payload: Fields) -> None:
        """Keep the members of an event that no row has."""
        for each in self._rests.parts(kind, rest_of(event, _ENVELOPE, {"payload": payload})):
            self._run.rest.append({"event": kind, **columns.fields(each.value)})

    def finished(self) -> Run:
        if any(self._texts) or any(self._thoughts):
            self._add(self._spoken())
        return self._run

    def _spoken(self) -> dict[str, object]:
        row: dict[str, object] = {"role": "assistant", "content": "".join(self._texts)}
        if thoughts := "".join(self._thoughts):
            row["reasoning"] = thoughts
        self._texts, self._thoughts = [], []
        return row

    def _call(self, event: Fields, payload: Fields) -> None:
        name = columns.first_text(payload.get("name")) or "unknown"
        call_id = columns.first_text(payload.get("tid"), event.get("event_id"), f"call {len(self._run.rows)}")
        function = {"name": name, "arguments": payload.get("args") or {}}
        self._add(self._spoken() | {"tool_calls": [{"id": call_id, "function": function}]})
        self._open.append((call_id, name))

    def _result(self, payload: Fields) -> bool:
        """Add the result of a call, and return whether there was a call without one."""
        named = [
            call
            for call in self._open
            if payload.get("tid") == call[0] or (not payload.get("tid") and payload.get("name") == call[1])
        ]
        if not named:
            return False
        call_id, name = named[0]
        self._open.remove(named[0])
        row = {"role": "tool", "tool_call_id": call_id, "name": name, "content": payload.get("preview")}
        self._add(row | {"is_error": payload.get("is_error") is True})
        return True

    def _add(self, row: dict[str, object]) -> None:
        self._run.rows.append(row | {"timestamp": self._at})

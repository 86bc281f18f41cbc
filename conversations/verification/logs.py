"""One log against its digests and its head: gaps, the chain, ids, answers, and calls with their results."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from conversations.events import Kind
from conversations.log.append import chain
from conversations.models import LAST_MESSAGE_MAX_LENGTH, SHOWN_TO_READERS, DamageKind
from conversations.verification.damage import Damage, DamageList
from conversations.verification.rows import SMALL_PAYLOAD, LogHead, Row, payload_of

_SAID = (
    f"CASE WHEN kind = '{Kind.MESSAGE}' AND NOT hidden THEN substr(text, 1, {LAST_MESSAGE_MAX_LENGTH}) END"
)
# The columns that `LogCheck.take` gets, after the place.
COLUMNS = (
    "event_id",
    "size",
    "digest",
    "kind",
    "cause_seq",
    "turn_id",
    "tool_call_id",
    _SAID,
    SMALL_PAYLOAD,
)

# The damage that the check of whole logs can find or rule out: columns and checkpoints have other checks.
EXAMINED = SHOWN_TO_READERS - {DamageKind.COLUMN, DamageKind.REWRITTEN, DamageKind.FACTS} | {
    DamageKind.ORPHAN
}

_ANSWERS = (Kind.TOOL_RESULT, Kind.ERROR)


class LogCheck:
    """The check of one log; it takes the rows in order.

    With `first` it begins in the middle, after an event with this digest (None if it is missing), and judges
    only the rest.
    """

    def __init__(self, head: LogHead, *, first: int = 0, digest: str | None = "") -> None:
        self._head = head
        self._found = DamageList(head.pk, head.public_id)
        self._is_whole_log = first == 0
        self._expected = first
        # The last event's digest as it is stored, and as it should have been.
        self._digest: str | None = digest or ""
        self._other_digest: str | None = digest or ""
        # The ids of a short log. The database groups those of a long one (`ids`).
        self._ids: set[str] | None = None if head.is_long else set()
        self._said = ""
        self._has_gap = False
        self._has_chain = digest is not None  # whether it is known what the next digest builds on
        self._beyond: int | None = None
        self._calls: dict[str, dict[int, str | None]] = {}  # by turn, the calls that have no result yet
        self._ended: set[str] = set()  # those of these turns that are over

    def take(self, row: Row) -> None:
        """Check the next event, whose columns are COLUMNS."""
        _, seq, pk, event_id, size, digest, kind, cause, turn, call, said, payload = row
        if not isinstance(seq, int):
            self._found.add(DamageKind.CHANGED, None, "The place of an event is no number.")
            return
        if seq != self._expected and not self._is_placed(seq, event_id):
            return
        if seq >= self._head.next_seq:
            self._beyond = seq if self._beyond is None else self._beyond
            self._expected = seq + 1
            return
        self._expected = seq + 1
        if payload is None:
            payload = payload_of(pk)
        computed = _chained(self._digest, seq, event_id, payload)
        if computed != digest and self._has_chain:
            other = _chained(self._other_digest, seq, event_id, payload)
            if other != digest:
                self._found.add(
                    DamageKind.CHANGED,
                    seq,
                    f"Event {seq} ({_shown(event_id)}) is not what was stored: its digest differs.",
                )
        self._digest, self._other_digest, self._has_chain = digest, computed, True
        if size != _bytes_of(payload):
            self._found.add(DamageKind.SIZE, seq, f"Event {seq} says that its payload has {size} bytes.")
        self._note_id(seq, event_id)
        if said is not None:
            self._said = said
        if cause is not None and not (isinstance(cause, int) and 0 <= cause < seq):
            self._found.add(
                DamageKind.CAUSE, seq, f"Event {seq} answers event {_shown(cause)}, which is not before it."
            )
        if turn is not None:
            self._pair(seq, kind, cause, turn, call)

    def finish(self) -> Iterable[Damage]:
        head, end = self._head, self._expected
        if head.is_purged:
            return ()
        if self._beyond is not None:
            self._found.add(
                DamageKind.COUNTER,
                self._beyond,
                f"The counter next_seq is {head.next_seq}, but there are events from {self._beyond} on.",
            )
        elif end < head.next_seq:
            self._lack_end(end)
        if end >= head.next_seq and head.head_digest not in (self._digest, self._other_digest):
            last = head.next_seq - 1 if head.next_seq else None
            self._found.add(DamageKind.HEAD, last, "The end of the log is not the one that was stored.")
        self._check_marks()
        for seq in sorted(seq for turn in self._ended for seq in self._calls.get(turn, ())):
            self._found.add(
                DamageKind.UNPAIRED_CALL, seq, f"The call {seq} has no result, and its turn is over."
            )
        return self._found

    def _is_placed(self, seq: int, event_id: str) -> bool:
        """Note a gap, or an event at a taken place; return whether the event counts nevertheless."""
        if seq < self._expected:
            self._found.add(
                DamageKind.DOUBLED_SEQ,
                seq,
                f"Another event ({_shown(event_id)}) stands at the place of event {seq}.",
            )
            return False
        if self._expected < self._head.next_seq:
            last = min(seq, self._head.next_seq) - 1
            self._found.add(DamageKind.MISSING, self._expected, _missing(self._expected, last))
            self._has_gap, self._has_chain = True, False
        return True

    def _note_id(self, seq: int, event_id: str) -> None:
        if self._ids is None:
            return
        if event_id in self._ids:
            self._found.add(
                DamageKind.DOUBLED_ID,
                seq,
                f"Event {seq} has the id {_shown(event_id)}, which an earlier event has.",
            )
        self._ids.add(event_id)

    def _pair(self, seq: int, kind: str, cause: int | None, turn: str, call: str | None) -> None:
        if kind == Kind.TOOL_CALL:
            self._calls.setdefault(turn, {})[seq] = call
        elif kind in _ANSWERS:
            if calls := self._calls.get(turn):
                _answer(calls, cause, call)
                if not calls:
                    del self._calls[turn]
        elif kind == Kind.TURN and turn in self._calls:
            self._ended.add(turn)

    def _lack_end(self, end: int) -> None:
        head = self._head
        if end and head.head_digest == self._digest and not self._has_gap:
            self._found.add(
                DamageKind.COUNTER,
                end,
                f"The counter next_seq is {head.next_seq}, but the log ends with event {end - 1}.",
            )
        else:
            self._found.add(DamageKind.MISSING, end, _missing(end, head.next_seq - 1))

    def _check_marks(self) -> None:
        """Check the other facts that the conversation's row has about its log."""
        head = self._head
        for name in ("asked_through", "answered_through"):
            value = getattr(head, name)
            if not -1 <= value < max(head.next_seq, self._expected):
                self._found.add(
                    DamageKind.COUNTER, None, f"The counter {name} is {value}, and no event is there."
                )
        is_complete = not self._has_gap and self._expected >= head.next_seq
        if is_complete and (self._is_whole_log or self._said) and head.last_message != self._said:
            self._found.add(DamageKind.HEAD, None, "The newest message is not the one that lists show.")


def _chained(before: object, seq: int, event_id: object, payload: object) -> str | None:
    """Return the digest of an event; None if a value is no text, or not UTF-8."""
    if not (isinstance(before, str) and isinstance(event_id, str) and isinstance(payload, str)):
        return None
    try:
        return chain(before, seq=seq, event_id=event_id, payload=payload)
    except UnicodeEncodeError:
        return None


def _bytes_of(payload: object) -> int:
    if isinstance(payload, str):
        return len(payload) if payload.isascii() else len(payload.encode(errors="surrogateescape"))
    return len(payload) if isinstance(payload, bytes) else 0


def _shown(value: object) -> str:
    """Return a printable form of an id or a number, whatever it is."""
    return str(value).encode(errors="backslashreplace").decode()


def _missing(first: int, last: int) -> str:
    return f"Event {first} is missing." if first == last else f"The events {first} to {last} are missing."


def _answer(calls: dict[int, str | None], cause: int | None, call: str | None) -> None:
    """Remove the calls that an event answers, by its cause or the call's id."""
    if cause is not None:
        with suppress(KeyError):
            del calls[cause]
    if call is not None:
        for seq in [seq for seq, name in calls.items() if name == call]:
            del calls[seq]

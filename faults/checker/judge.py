"""What a right history is: each rule, and the linear-time check of all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from faults.checker.history import Did, Record

SHOWN_MAX = 20
"""So many violations of one rule are kept as sentences; all are counted."""


class Rule(StrEnum):
    """The rules, each by the name of its violation."""

    LOST = "acknowledged and lost"
    MOVED = "acknowledged at another place"
    DOUBLED = "stored twice"
    GAP = "a gap in the log"
    DISORDER = "stored before what was acknowledged earlier"
    DENIED = "stored although every answer said that it was not"
    UNSENT = "stored and sent by nobody"
    READ_GAP = "read with a gap"
    READ_OTHER = "read and not stored so"
    STALE = "a read that misses what was acknowledged before it"
    TWICE_CREATED = "created twice under one key"
    NOT_CREATED = "answered as created and not there"
    CREATED_OTHERWISE = "created with something else in it than was sent"
    NOT_PURGED = "removed for good and still there"
    LEAKED = "a secret was shown"
    UNEXPECTED = "an answer that no client is told of"


class Violation(NamedTuple):
    """One breach of a rule."""

    rule: Rule
    talk: str
    sentence: str


@dataclass(slots=True)
class Findings:
    """What a check has counted and found."""

    counts: Counter[Did] = field(default_factory=Counter)
    broken: Counter[Rule] = field(default_factory=Counter)
    violations: list[Violation] = field(default_factory=list)
    """At most SHOWN_MAX for each rule."""

    @property
    def is_right(self) -> bool:
        """Whether no rule was broken."""
        return not self.broken

    @property
    def lost(self) -> int:
        """How many acknowledged things are not there, or not where they were said to be."""
        return sum(self.broken[rule] for rule in (Rule.LOST, Rule.MOVED, Rule.NOT_CREATED))

    @property
    def doubled(self) -> int:
        """How many things are there twice."""
        return self.broken[Rule.DOUBLED] + self.broken[Rule.TWICE_CREATED]

    def add(self, rule: Rule, talk: str, sentence: str) -> None:
        """Count a violation."""
        self.broken[rule] += 1
        if self.broken[rule] <= SHOWN_MAX:
            self.violations.append(Violation(rule, talk, sentence))


class _Sent:
    """An event that a client has sent, however often."""

    __slots__ = ("above", "is_acked", "is_denied", "is_known", "tries")

    def __init__(self) -> None:
        self.above = -1
        """The event must stand behind this number: what was acknowledged or read before it was sent."""
        self.tries = 0
        """Tries that have no answer yet."""
        self.is_known = True
        """Whether every try that ended was refused: nothing is stored, if the answers are true."""
        self.is_acked = False
        self.is_denied = False


class _Log:
    """What is known of one conversation."""

    __slots__ = ("is_purged", "is_removing", "is_shared", "keys", "newest", "places", "readers", "sent")

    def __init__(self) -> None:
        self.keys: list[str] = []
        """By number: the events that are stored at the end."""
        self.places: dict[str, int] = {}
        self.is_shared = self.is_purged = self.is_removing = False
        self.newest = -1
        """The highest number that was acknowledged or read so far."""
        self.sent: dict[str, _Sent] = {}
        self.readers: dict[str, int] = {}
        """By reader: the last number that it was sent; by question: the newest when it was asked."""


class Checker:
    """Checks one history: first what is stored at the end, then every record in the order of time."""

    def __init__(self) -> None:
        self.findings = Findings()
        self._logs: dict[str, _Log] = {}
        self._made: dict[str, Record] = {}
        self._takes: dict[Did, Callable[[_Log, Record], None]] = {
            Did.INVOKE: self._invoke,
            Did.ACK: self._ack,
            Did.REFUSED: self._refused,
            Did.UNKNOWN: self._unknown,
            Did.UNEXPECTED: self._unexpected,
            Did.JOIN: self._join,
            Did.READ: self._read,
            Did.SHOWN: self._shown,
            Did.SHARED: self._shared,
            Did.LEAKED: self._leaked,
            Did.PURGED: self._purged,
            Did.LOOK: self._look,
            Did.LOOKED: self._looked,
            Did.CREATED: self._created,
        }

    def hold(self, stored: Iterable[Record]) -> None:
        """Take what the store holds at the end: STORED in the order of each log, MADE, and REMOVING."""
        for record in stored:
            self.findings.counts[record.did] += 1
            if record.did is Did.MADE:
                self._hold_made(record)
            elif record.did is Did.REMOVING:
                self._log(record.talk).is_removing = True
            else:
                self._hold_event(record)

    def _hold_made(self, record: Record) -> None:
        other = self._made.setdefault(record.key, record).talk
        if other != record.talk:
            self.findings.add(Rule.TWICE_CREATED, record.talk, f"{record.key} has also created {other}")

    def _hold_event(self, record: Record) -> None:
        log = self._log(record.talk)
        if record.seq != len(log.keys):
            self.findings.add(Rule.GAP, record.talk, f"event {record.seq} stands behind {len(log.keys) - 1}")
        if record.key in log.places:
            places = f"{log.places[record.key]} and {record.seq}"
            self.findings.add(Rule.DOUBLED, record.talk, f"{record.key} is events {places}")
        log.places.setdefault(record.key, record.seq)
        log.keys.append(record.key)

    def take(self, history: Iterable[Record]) -> None:
        """Take what clients did, in the order of time."""
        counts, takes, logs = self.findings.counts, self._takes, self._logs
        for record in history:
            counts[record.did] += 1
            if (take := takes.get(record.did)) is not None:
                log = logs.get(record.talk)
                take(self._log(record.talk) if log is None else log, record)

    def end(self) -> Findings:
        """Judge what only the whole history shows, and return all findings."""
        for talk, log in self._logs.items():
            if log.is_purged and log.keys and not log.is_removing:
                self.findings.add(Rule.NOT_PURGED, talk, f"{len(log.keys)} events are there, and no purge")
            for key in log.places:
                sent = log.sent.get(key)
                if sent is None:
                    if not log.is_shared:
                        self.findings.add(Rule.UNSENT, talk, f"event {log.places[key]} is {key}")
                elif not sent.is_acked:
                    self._require_order(talk, log, key, sent)
                    if sent.is_known and not sent.tries:
                        self.findings.add(Rule.DENIED, talk, f"{key} is event {log.places[key]}")
        return self.findings

    def _log(self, talk: str) -> _Log:
        return self._logs.setdefault(talk, _Log())

    def _invoke(self, log: _Log, record: Record) -> None:
        sent = log.sent.get(record.key)
        if sent is None:
            sent = log.sent[record.key] = _Sent()
        if sent.is_known and not sent.tries:
            # Nothing that was sent before can be what is stored: so it is stored from now on, or the
            # answers were wrong.
            sent.above = log.newest
        sent.tries += 1

    def _ack(self, log: _Log, record: Record) -> None:
        sent = log.sent.setdefault(record.key, _Sent())
        sent.tries -= 1
        sent.is_known = False
        if not sent.is_acked:
            sent.is_acked = True
            self._require_order(record.talk, log, record.key, sent)
        place = log.places.get(record.key)
        # Without a place it is known that it is stored, and the store tells where.
        log.newest = max(log.newest, record.seq if record.seq >= 0 or place is None else place)
        if place is None:
            self.findings.add(Rule.LOST, record.talk, f"{record.key} was acknowledged as event {record.seq}")
        elif record.seq >= 0 and place != record.seq:
            sentence = f"{record.key} was acknowledged as event {record.seq}, and is event {place}"
            self.findings.add(Rule.MOVED, record.talk, sentence)

    def _require_order(self, talk: str, log: _Log, key: str, sent: _Sent) -> None:
        place = log.places.get(key)
        if place is None or place > sent.above:
            return
        if sent.is_denied:
            sentence = f"{key} is event {place}: it was stored by a try that was refused"
            self.findings.add(Rule.DENIED, talk, sentence)
        else:
            sentence = f"{key} is event {place}, and was sent when event {sent.above} was known"
            self.findings.add(Rule.DISORDER, talk, sentence)

    def _refused(self, log: _Log, record: Record) -> None:
        sent = log.sent.setdefault(record.key, _Sent())
        sent.tries -= 1
        sent.is_denied = True

    def _unknown(self, log: _Log, record: Record) -> None:
        sent = log.sent.setdefault(record.key, _Sent())
        sent.tries -= 1
        sent.is_known = False

    def _unexpected(self, log: _Log, record: Record) -> None:
        self.findings.add(Rule.UNEXPECTED, record.talk, f"{record.key}: {record.text}")
        self._unknown(log, record)

    def _join(self, log: _Log, record: Record) -> None:
        log.readers[record.key] = record.seq

    def _read(self, log: _Log, record: Record) -> None:
        last = log.readers.get(record.key, -1)
        if record.seq != last + 1:
            sentence = f"reader {record.key} was sent event {record.seq} behind {last}"
            self.findings.add(Rule.READ_GAP, record.talk, sentence)
        log.readers[record.key] = record.seq
        log.newest = max(log.newest, record.seq)
        if not 0 <= record.seq < len(log.keys) or log.keys[record.seq] != record.text:
            sentence = f"reader {record.key} was sent {record.text} as event {record.seq}"
            self.findings.add(Rule.READ_OTHER, record.talk, sentence)

    def _shown(self, log: _Log, record: Record) -> None:
        last = log.readers.get(record.key, -1)
        if record.seq <= last:
            sentence = f"reader {record.key} was shown event {record.seq} behind {last}"
            self.findings.add(Rule.READ_GAP, record.talk, sentence)
        log.readers[record.key] = record.seq
        log.newest = max(log.newest, record.seq)
        is_there = 0 <= record.seq < len(log.keys)
        if not is_there or (record.text and log.keys[record.seq] != record.text):
            sentence = f"reader {record.key} was shown {record.text or 'something'} as event {record.seq}"
            self.findings.add(Rule.READ_OTHER, record.talk, sentence)

    def _shared(self, log: _Log, record: Record) -> None:
        log.is_shared = True

    def _leaked(self, log: _Log, record: Record) -> None:
        self.findings.add(Rule.LEAKED, record.talk, record.text)

    def _purged(self, log: _Log, record: Record) -> None:
        log.is_purged = log.is_shared = True

    def _look(self, log: _Log, record: Record) -> None:
        log.readers[record.key] = log.newest

    def _looked(self, log: _Log, record: Record) -> None:
        asked_at = log.readers.pop(record.key, -1)
        if record.seq < asked_at:
            sentence = f"event {asked_at} was known, and the log was said to end at {record.seq}"
            self.findings.add(Rule.STALE, record.talk, sentence)

    def _created(self, log: _Log, record: Record) -> None:
        made = self._made.get(record.key)
        if made is None:
            self.findings.add(Rule.NOT_CREATED, record.talk, f"{record.key} was answered with {record.talk}")
        elif made.talk != record.talk:
            sentence = f"{record.key} was answered with {record.talk}, and is {made.talk}"
            self.findings.add(Rule.TWICE_CREATED, record.talk, sentence)
        elif record.text not in ("", made.text):
            sentence = f"{record.key} was sent with {record.text!r}, and has {made.text!r}"
            self.findings.add(Rule.CREATED_OTHERWISE, record.talk, sentence)


def checked(history: Iterable[Record], stored: Sequence[Record]) -> Findings:
    """Return what breaks a rule in a history, given what the store holds at the end."""
    checker = Checker()
    checker.hold(stored)
    checker.take(history)
    return checker.end()

"""A program that writes sessions, and the command that follows it: both as processes that are killed."""

from __future__ import annotations

import json
import random
import re
import signal
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path

from django.db.models import QuerySet

from conversations.models import Event
from tests.support.people import session_writer
from tests.support.people.clients import program_environment
from tests.support.people.session_writer import MARK, Arguments, Entry
from tests.support.runner import forks
from tests.support.wires.network import wait_until

SETTLED_S = 60.0
LOOK_S = 0.3
DAMAGED = re.compile(r'"why": ?"damaged"')


class Program:
    """`session_writer` as a process, and its journal."""

    def __init__(
        self,
        directory: Path,
        tmp_path: Path,
        *,
        format: str,
        lines: int,
        pause_s: float,
        chance: random.Random,
    ) -> None:
        self._journal = tmp_path / "journal.jsonl"
        self._stored = tmp_path / "stored.json"
        self._arguments = Arguments(
            format=format,
            directory=str(directory),
            journal=str(self._journal),
            stored=str(self._stored),
            lines=lines,
            pause_s=pause_s,
            seed=chance.getrandbits(32),
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._entries: list[Entry] = []
        self._read_bytes = 0
        self.tell_stored({})

    def start(self) -> None:
        """Start it, or start it again where it stopped."""
        command = [sys.executable, "-E", session_writer.__file__, self._arguments.as_json()]
        self._process = subprocess.Popen(command)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait(SETTLED_S)

    def run(self) -> None:
        self.start()
        assert self._process is not None
        assert self._process.wait(SETTLED_S) == 0

    def has_ended(self) -> bool:
        status = self._process.poll() if self._process is not None else None
        assert status in (None, 0)
        return status == 0

    def tell_stored(self, last: Mapping[str, int]) -> None:
        """Tell it which sessions are stored up to which line: it may destroy those that end there."""
        new = self._stored.with_suffix(".new")
        new.write_text(json.dumps(last))
        new.replace(self._stored)

    def journal(self) -> list[Entry]:
        if self._journal.exists():
            with self._journal.open("rb") as file:
                file.seek(self._read_bytes)
                whole = file.read().rpartition(b"\n")[0]
            self._entries += map(session_writer.entry, whole.splitlines())
            self._read_bytes += len(whole) + bool(whole)
        return self._entries

    def last_number(self) -> int:
        """Return the number of the last line that it has begun; 0 if there is none."""
        entries = self.journal()
        return entries[-1].number if entries else 0


class Followers:
    """`convserver import … --follow` as a process that is killed and started again."""

    def __init__(self, what: list[str], tmp_path: Path) -> None:
        self._what = ["convserver", "import", *what, "--follow"]
        self._environment = program_environment(tmp_path)
        self.log = tmp_path / "follow.log"
        self._running: list[forks.Running] = []
        self._started = 0

    def start(self) -> forks.Running:
        self._started += 1
        with self.log.open("ab") as log:
            running = forks.start(self._what, self._environment, stdout=log, stderr=log)
        self._running.append(running)
        return running

    def wait(self) -> None:
        """Wait until the latest one follows."""
        wait_until(lambda: self.log.read_text().count("Following") >= self._started, within_s=SETTLED_S)

    def kill(self) -> None:
        for running in self._running:
            running.send_signal(signal.SIGKILL)
            running.wait(SETTLED_S)
        self._running = []


class Stored:
    """The lines that are stored, as far as `look` has seen."""

    def __init__(self) -> None:
        self.of: dict[str, list[int]] = defaultdict(list)
        """By session: the numbers of the lines, in the order in which they were stored."""
        self._undamaged: dict[str, list[int]] = defaultdict(list)
        self.damaged: list[str] = []
        """The payloads of lines that could not be read."""
        self._at: dict[int, float] = {}
        self._seen = 0
        self._look_after_s = 0.0

    def look(self) -> bool:
        """See what is new; say whether it was looked: that is too much work to do it all the time."""
        if time.monotonic() < self._look_after_s:
            return False
        self._look_after_s = time.monotonic() + LOOK_S
        self._take(Event.objects.filter(pk__gt=self._seen).order_by("pk"))
        return True

    def look_anew(self) -> None:
        """See everything, in the order of the logs, also what a dead follower's transaction stored late."""
        self.of.clear()
        self._undamaged.clear()
        self.damaged.clear()
        self._take(Event.objects.order_by("conversation_id", "seq"))

    def _take(self, rows: QuerySet[Event]) -> None:
        found = rows.values_list("pk", "conversation__tags__source_id", "payload", "received_at")
        for self._seen, session, payload, at in found:
            if is_damaged := DAMAGED.search(payload) is not None:
                self.damaged.append(payload)
            if marks := MARK.findall(payload):  # a damaged line begins with what is left of another one
                number = int(marks[-1])
                self.of[session].append(number)
                # What a cut of the file leaves of a line that was stored whole before has its number, too.
                if not is_damaged:
                    self._undamaged[session].append(number)
                self._at.setdefault(number, at.timestamp())

    def whole_sessions(self, journal: list[Entry]) -> dict[str, int]:
        """Return those that end with a whole line and whose whole lines are stored, with the last number.

        Of a line that was only begun nobody knows yet whether it will be whole.
        """
        here = {session: set(numbers) for session, numbers in self.of.items()}
        last: dict[str, Entry] = {}
        missing: set[str] = set()
        for entry in journal:
            last[entry.session] = entry
            if entry.is_whole and entry.number not in here.get(entry.session, ()):
                missing.add(entry.session)
        return {
            session: entry.number
            for session, entry in last.items()
            if entry.is_whole and session not in missing
        }

    def require_order(self, journal: list[Entry]) -> None:
        """Fail if a whole line is stored twice or before an earlier one.

        Fail also if any is stored in another session, or was never written.
        """
        written = defaultdict(set)
        for entry in journal:
            written[entry.session].add(entry.number)
        for session, numbers in self.of.items():
            order = self._undamaged[session]
            wrong = [pair for pair in pairwise(order) if pair[0] >= pair[1]]
            assert not wrong, _told(session, {number for pair in wrong for number in pair})
            assert set(numbers) <= written[session]

    def require_no_halves(self, journal: list[Entry]) -> None:
        """Fail if half a line is stored, unless a later one of its session stands directly behind a half."""
        session_of = {entry.number: entry.session for entry in journal}
        glued = {entry.session: entry.number for entry in journal if entry.is_glued}
        for payload in self.damaged:
            marks = MARK.findall(payload)  # none is left of a line that was cut off before it
            assert not marks or int(marks[-1]) < glued.get(session_of[int(marks[-1])], 0), payload

    def delays_s(self, journal: list[Entry]) -> list[float]:
        """Return for each line how long after its last byte it was stored, in order of length."""
        whole = (entry for entry in journal if entry.is_whole and entry.number in self._at)
        return sorted(self._at[entry.number] - entry.at for entry in whole)


def lacking(journal: list[Entry], stored: Stored) -> dict[str, list[int]]:
    """Return by session the whole lines that are not stored and ought to be.

    A session in which nothing can be read but what stands behind half lines says nothing, and is not stored.
    """
    speaking = {entry.session for entry in journal if entry.is_whole and not entry.is_glued}
    found: dict[str, list[int]] = defaultdict(list)
    for entry in journal:
        if entry.is_whole and entry.session in speaking and entry.number not in stored.of[entry.session]:
            found[entry.session].append(entry.number)
    return found


def _told(session: str, numbers: set[int]) -> str:
    """Return the events that say these numbers, as they are stored."""
    rows = Event.objects.filter(conversation__tags__source_id=session).order_by("seq")
    found = rows.values_list("pk", "seq", "received_at", "payload")
    chosen = [row for row in found if numbers & set(map(int, MARK.findall(row[3])))]
    return "\n".join(f"{pk} {seq} {at} {payload}" for pk, seq, at, payload in chosen)


def said_of(delays_s: list[float]) -> str:
    """Return the figures that matter."""
    p95 = delays_s[len(delays_s) * 95 // 100]
    median = statistics.median(delays_s)
    return f"{len(delays_s)} lines: median {median:.2f} s, p95 {p95:.2f} s, at most {delays_s[-1]:.2f} s"

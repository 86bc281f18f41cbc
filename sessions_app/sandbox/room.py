"""The room that programs take in a workspace, watched from outside: what fills it too much is ended.

A look at the whole file system takes some microseconds, and says how much all its files have grown since
the workspace was measured: only if that may be too much, it is measured again. If they grow quickly
meanwhile, the programs are stopped until it is measured, because it may be they that write.
"""

from __future__ import annotations

import os
import random
import re
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from sessions_app.sandbox.measuring import HeldOnDisk, held_in
from sessions_app.sandbox.stopping import go_on, stop

_WRITTEN = re.compile(rb"^write_bytes: (\d+)", re.MULTILINE)


class _Used(NamedTuple):
    """How much of a file system is used, by whatever files."""

    bytes: int
    files: int

    @classmethod
    def of(cls, directory: int) -> _Used:
        found = os.fstatvfs(directory)
        size = (found.f_blocks - found.f_bfree) * found.f_frsize
        # Where the file system does not count files, none takes less than this.
        least = 256
        return cls(size, found.f_files - found.f_ffree if found.f_files else size // least)


@dataclass(eq=False, slots=True)
class _Measured:
    """What is known of a workspace, shared by all programs that run in it one after the other, or at once."""

    held: HeldOnDisk | None = None
    used: _Used | None = None
    """What the file system had when that was measured."""
    at: float = 0.0
    credit_s: float = 2.0
    """How long the files may still be counted."""
    watches: list[RoomWatch] = field(default_factory=list)
    """Those of the programs that run now."""
    ended: int = 0
    """How many were ended, because they had filled the workspace."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def may_measure(self) -> bool:
        """Return whether counting has not taken too much time lately."""
        share, most_s = 0.2, 2.0  # of one processor
        now = time.monotonic()
        self.credit_s = min(self.credit_s + share * (now - self.at), most_s) if self.at else most_s
        self.at = now
        return self.credit_s > 0

    def measure(self, directory: int) -> None:
        """Count the files, and let each watch judge that. Raise OSError."""
        began, used = time.monotonic(), _Used.of(directory)
        unharmed = 16_000_000  # in bytes: so programs that write slowly are not stopped
        stopped: list[str] = []

        def meanwhile() -> None:
            if stopped or _Used.of(directory).bytes > used.bytes + unharmed:
                stop(self._processes(), stopped)

        try:
            self.held, self.used = held_in(directory, self._processes, meanwhile), used
            for each in self.watches:
                each.judge()
        finally:
            go_on(stopped)
            self.credit_s -= time.monotonic() - began

    def _processes(self) -> list[str]:
        return [process for watch in self.watches for process in watch.processes()]


def _tight(most: int) -> float:
    """Return which part of its limit a workspace holds when it counts as nearly full."""
    return 0.8 * most


def nearly_full(held: HeldOnDisk, most: HeldOnDisk) -> str:
    """Return the sentence for a workspace that is nearly full, or full; empty for another one."""
    if held.bytes < _tight(most.bytes) and held.files < _tight(most.files):
        return ""
    held_mb, most_mb = held.bytes / 1_000_000, most.bytes / 1_000_000
    return (
        f"The workspace is nearly full: it holds {held_mb:,.0f} of {most_mb:,.0f} MB, and {held.files:,} of "
        f"{most.files:,} files and directories. Remove what is not needed."
    )


class RoomWatch:
    """Watches a workspace for as long as one program runs in it."""

    def __init__(
        self,
        directory: Path,
        most: HeldOnDisk,
        processes: Callable[[], Sequence[str]],
        end: Callable[[str], None],
    ) -> None:
        """`processes` gives the directories of /proc of the program and all that it has started."""
        self._most, self.processes, self._end = most, processes, end
        self._directory = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        self._measured = _measured_of(directory)
        self._began = self._seen = _Used.of(self._directory)
        self._seen_at = time.monotonic()
        self._written = 0
        self._is_over, self._has_ended = threading.Event(), False
        with self._measured.lock:
            # What is measured from now on, with what this program has written, is judged.
            self._least = self._judged = self._measured.held
            self._measured.watches.append(self)
            self._ended_before = self._measured.ended
        self._thread = threading.Thread(target=self._watch, name="room", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop, after the end of the program."""
        self._is_over.set()
        self._thread.join()
        with self._measured.lock:
            self._measured.watches.remove(self)
            self._measured.ended += self._has_ended
            os.close(self._directory)

    @property
    def is_nearly_full(self) -> bool:
        """Whether the workspace was nearly full when it was measured last."""
        held = self._measured.held or self._judged
        return held is not None and bool(nearly_full(held, self._most))

    def held(self) -> HeldOnDisk | None:
        """Return what the workspace holds, measured again where it was nearly full; None if it is unknown."""
        found = self._measured
        with found.lock, suppress(OSError):
            is_close = found.held and not self._is_over.is_set() and nearly_full(found.held, self._most)
            if is_close and found.may_measure():
                found.measure(self._directory)
        return found.held or self._judged

    def judge(self) -> None:
        """End the program if the workspace, which was just measured, is too full."""
        if not self._has_ended:
            self._has_ended = self._end_if_full()

    def _watch(self) -> None:
        seldom_s, first_s = 0.2, 1.0
        began, wait_s = time.monotonic(), 0.0
        while not self._is_over.wait(wait_s):
            with suppress(OSError), self._measured.lock:
                is_first = self._measured.held is None and time.monotonic() > began + first_s
                # Without credit, too, where the programs could be far beyond the limit.
                if not self._has_ended and (
                    ((is_first or self._may_be_much()) and self._measured.may_measure())
                    or self._may_be_much(128_000_000, 20_000)
                ):
                    self._measured.measure(self._directory)
            wait_s = seldom_s if self._has_ended else self._wait_s()
        if self._has_ended:
            # What was written until the end is not in it, and must not count for the next program.
            self._measured.held = None

    def _wait_s(self) -> float:
        """Return when to look again: earlier if the quickest program could fill the workspace until then."""
        seldom_s, often_s, quickest = 0.2, 0.02, 4_000_000_000  # bytes in a second
        quick, very_often_s = quickest / 8, 0.002
        before, self._seen = self._seen, _Used.of(self._directory)
        before_at, self._seen_at = self._seen_at, time.monotonic()
        if self._seen.bytes - before.bytes > quick * (self._seen_at - before_at):
            often_s = very_often_s
        held = self._measured.held
        left = 0 if held is None else max(self._next(0) - held.bytes - self._grown().bytes, 0)
        return min(max(left / quickest, often_s), seldom_s)

    def _grown(self) -> _Used:
        """Return by how much the file system has grown since the last measurement, or the program's start."""
        now = _Used.of(self._directory)
        then = self._measured.used if self._measured.held and self._measured.used else self._began
        return _Used(max(now.bytes - then.bytes, 0), max(now.files - then.files, 0))

    def _may_be_much(self, *more: int) -> bool:
        """Return whether the workspace may have got nearly full, full, or fuller than full.

        With `more`, whether by more bytes than the first, or by more files than the second.
        """
        held, grown = self._measured.held, self._grown()
        more = more or (0, 0)
        if held is None:
            unknown = _Used(4_000_000, 64)
            return any(grown[each] > unknown[each] + more[each] for each in (0, 1))
        seldom_s = 60.0  # other programs on the file system may have removed as much
        if not any(more) and grown != _Used(0, 0) and time.monotonic() > self._measured.at + seldom_s:
            return True
        return any(held[each] + grown[each] > self._next(each) + more[each] for each in (0, 1))

    def _next(self, each: int) -> float:
        """Return the size above which the workspace is measured: in bytes for 0, in files for 1."""
        held = (self._measured.held or HeldOnDisk(0, 0))[each]
        most = self._most[each]
        steps = [bound for bound in (_tight(most), self._bound(each)) if bound > held]
        # Near a bound others' files must not make it measure all the time.
        return max(min(steps, default=held), held + most / 100)

    def _bound(self, each: int) -> float:
        """Return how much the workspace may hold: more than its limit only if it did so before the program.

        So a full workspace can be emptied, and a few blocks that a file system adds by itself end nothing.
        """
        most = self._most[each]
        least = (self._least or HeldOnDisk(0, 0))[each]
        more = most / 250
        return max(most, least + (more if least < most + 16 * more else more / 16))

    def _end_if_full(self) -> bool:
        held = self._judged = self._measured.held
        if held is None:
            return False
        least = self._least or held
        if self._ended_before != self._measured.ended:
            # What another program has written until its end counts as what was there before this one.
            self._ended_before, least = self._measured.ended, held
        self._least = HeldOnDisk(min(least.bytes, held.bytes), min(least.files, held.files))
        written, self._written = self._written, _bytes_written_by(self.processes())
        if held.bytes <= self._bound(0) and held.files <= self._bound(1):
            return False
        # Of several programs those are ended that have written.
        if len(self._measured.watches) > 1 and written == self._written:
            return False
        most_mb, held_mb = self._most.bytes / 1_000_000, held.bytes / 1_000_000
        self._end(
            f"The workspace is full: it may hold {most_mb:,.0f} MB in {self._most.files:,} files and "
            f"directories, and now holds {held_mb:,.0f} MB in {held.files:,}, so all programs of this "
            "command were ended. Remove files, or let the server's operator raise the limit "
            "(CONVSERVER_WORKSPACE_MAX_MB, CONVSERVER_WORKSPACE_MAX_FILES)."
        )
        return True


def _bytes_written_by(processes: Sequence[str]) -> int:
    """Return how many bytes processes have written; if none can be asked, a number that is always another."""
    written = 0
    for each in processes:
        with suppress(OSError):  # the process has ended
            written += int(_WRITTEN.findall(Path(each, "io").read_bytes())[0])
    return written if processes else random.getrandbits(62)


_lock = threading.Lock()
_known: OrderedDict[Path, _Measured] = OrderedDict()


def _measured_of(directory: Path) -> _Measured:
    """Return what this process knows of a workspace; of very many it forgets the least recently used."""
    known_most = 1_000
    with _lock:
        found = _known.setdefault(directory, _Measured())
        _known.move_to_end(directory)
        if len(_known) > known_most:
            _known.popitem(last=False)
    return found

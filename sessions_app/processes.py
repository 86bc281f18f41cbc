"""The identity of processes, so that a dead one is recognised at once."""

from __future__ import annotations

import os
import socket
from functools import cache
from pathlib import Path
from typing import NamedTuple

import psutil

_PROC = Path("/proc")
_BOOT_ID = _PROC / "sys/kernel/random/boot_id"
"""Only on Linux."""

# A start time shifts a little with the clock that it was read from; ticks do not.
_START_TIME_TOLERANCE = 0.0 if _BOOT_ID.exists() else 1.0


class Process(NamedTuple):
    """One process of one host; the start time distinguishes it from a later one with the same number."""

    host: str
    """The host's name, on Linux with the id of its present boot and its namespace of process ids:
    containers may have the same name and number their processes alike."""
    pid: int
    started: float
    """On Linux ticks since the boot, which no correction of the clock changes; otherwise the time."""


@cache
def _host() -> str:
    name = socket.gethostname()
    if not _BOOT_ID.exists():
        return name
    return f"{name} {_BOOT_ID.read_text().strip()} {_namespace()}"


def _namespace() -> str:
    try:
        return str((_PROC / "self/ns/pid").stat().st_ino)
    except OSError:
        return ""


class _Found(NamedTuple):
    started: float
    is_zombie: bool


def _find(pid: int) -> _Found | None:
    if not _BOOT_ID.exists():
        return _ask_psutil(pid)
    try:
        stat = (_PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *fields = stat.rpartition(b")")[2].split()  # the name before may contain anything
    # The start, field 22 of `man 5 proc_pid_stat`: the first of these is field 4.
    return _Found(float(fields[18]), is_zombie=state in (b"Z", b"X"))


def _ask_psutil(pid: int) -> _Found | None:
    try:
        process = psutil.Process(pid)
        return _Found(process.create_time(), is_zombie=process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return None


@cache
def _process(pid: int) -> Process:
    found = _find(pid)
    if found is None:
        raise psutil.NoSuchProcess(pid)
    return Process(_host(), pid, found.started)


def this_process() -> Process:
    """Return the running process; correct even directly after a fork."""
    return _process(os.getpid())


def is_gone(process: Process) -> bool:
    """Return whether the process has certainly ended; always False for another host's."""
    if process.host != _host():
        return False
    found = _find(process.pid)
    if found is None:
        return not psutil.pid_exists(process.pid)  # it may exist and be hidden from this one
    return found.is_zombie or abs(found.started - process.started) > _START_TIME_TOLERANCE


def is_there(host: str, pid: int) -> bool:
    """Return whether a process with this number may be running; always True for another host's."""
    return host != _host() or _find(pid) is not None or psutil.pid_exists(pid)

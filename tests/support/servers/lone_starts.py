"""Starts of a server up to the moment at which its database is prepared.

Run as `python -m tests.support.servers.lone_starts`.

Each line read begins one, in a process of its own: the seconds after which it is killed, or nothing for one
that comes to its end. The answer is a line: the exit status, negative for a signal.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback

import django

from convserver.commands.database import prepare

LOOK_S = 0.001


def started() -> int:
    """Begin a start, a copy of this process, which has all modules already; return its process id."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        prepare()
        status = 0
    except BaseException:
        traceback.print_exc()
    os._exit(status)


def status_of(pid: int, kill_after_s: float | None) -> int:
    """Wait for the process, killing it in time; return its exit status."""
    kill_at = time.monotonic() + kill_after_s if kill_after_s is not None else None
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG if kill_at is not None else 0)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if kill_at is not None and time.monotonic() >= kill_at:
            os.kill(pid, signal.SIGKILL)
            kill_at = None
        else:
            time.sleep(LOOK_S)


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "convserver.settings")
    django.setup()
    for line in sys.stdin:
        after = line.strip()
        began = time.monotonic()
        status = status_of(started(), float(after) if after else None)
        print(status, time.monotonic() - began, flush=True)

"""The program of a confined process: load a reader, give up all rights but those of the task, and read.

Started by `processes.run` as `python -I -S child.py TASK`. It stands alone: the interpreter finds no module
of this project, and the readers import only the standard library.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

PROBLEM_MAX_CHARS = 1000
NICENESS = 10
OPEN_FILES = 32

# Landlock, since Linux 5.13: a process takes rights away from itself. See landlock(7).
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_WANTED, PATH_BENEATH = 1, 1
NO_NEW_PRIVILEGES = 38
WRITE_FILE, READ_FILE, READ_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}
"""The number of rights to files that can be taken away, by the version of Landlock; 16 in later ones."""
BIND_AND_CONNECT = 0b11
SOCKETS_AND_SIGNALS = 0b11


def main(task: dict[str, Any]) -> int:
    """Run the task's reader; return the exit code. A sentence on standard error says what went wrong."""
    read = runpy.run_path(task["reader"])["read"]
    try:
        limit(memory_bytes=task["memory_bytes"], cpu_s=task["cpu_s"])
        confine(task["readable"], task["writable"])
        read(*task["arguments"])
        sys.stdout.flush()
    except MemoryError:
        problem = "it takes more memory than reading such a file may take"
    except Exception as error:
        problem = str(error) or type(error).__name__
    else:
        return 0
    sys.stderr.write(problem[:PROBLEM_MAX_CHARS])
    return 1


def limit(*, memory_bytes: int, cpu_s: int) -> None:
    """Limit memory and processor time, and let no byte be written to any file."""
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: 0,  # pipes are no files
        resource.RLIMIT_NOFILE: OPEN_FILES,
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_AS: memory_bytes,
    }
    for what, most in limits.items():
        with suppress(ValueError, OSError):  # macOS has no limit of memory
            resource.setrlimit(what, (most, most))
    with suppress(OSError):
        os.nice(NICENESS)


def confine(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Leave the process no file but these, no network and no other process, where the kernel has Landlock.

    `writable` can be read, too, and opened for writing; nothing is created or removed anywhere.
    """
    version = landlock_version()
    if version < 1:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    handled = [(1 << FILE_RIGHTS.get(version, 16)) - 1]
    if version >= 4:
        handled.append(BIND_AND_CONNECT)
    if version >= 6:
        handled.append(SOCKETS_AND_SIGNALS)
    attributes = struct.pack(f"={len(handled)}Q", *handled)
    ruleset = _called(libc, CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    read = READ_FILE | READ_DIRECTORY
    for paths, rights in ((readable, read), (writable, read | WRITE_FILE)):
        for path in paths:
            opened = os.open(path, os.O_PATH | os.O_CLOEXEC)
            # A file has no right to list its files.
            allowed = rights if os.path.isdir(path) else rights & ~READ_DIRECTORY  # noqa: PTH112 - stands alone
            _called(libc, ADD_RULE, ruleset, PATH_BENEATH, struct.pack("=Qi", allowed, opened), 0)
            os.close(opened)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
    _called(libc, RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; less than 1 if it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    version: int = ctypes.CDLL(None, use_errno=True).syscall(
        CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_WANTED
    )
    return version


def _called(libc: Any, number: int, *arguments: Any) -> int:
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number} failed")
    return result


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))

"""The program of a confined process: load a reader, drop all rights but those of the task, and read.

Started by `processes.run` as `python -I -S child.py TASK`. It is self-contained: the interpreter finds no
module of this project, and the readers import only the standard library, and the libraries that the task
names. Its last line says how it ended.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import runpy
import signal
import sys
from contextlib import suppress
from typing import Any

END = "end\n"
PROBLEM = "problem\t"
PROBLEM_MAX_CHARS = 1000
NICENESS = 10
OPEN_FILES = 32


def main(task: dict[str, Any]) -> None:
    """Run the task's reader, and print the outcome."""
    end_with(task["parent"])
    raise_walls = runpy.run_path(task["walls"])["raise_walls"]
    # A reader imports before the walls are there: shared libraries lie in many places.
    sys.path += task["libraries"]
    read = runpy.run_path(task["reader"])["read"]
    sys.stdout.reconfigure(encoding="utf-8", newline="\n")  # type: ignore[union-attr]
    try:
        limit(memory_bytes=task["memory_bytes"], cpu_s=task["cpu_s"])
        raise_walls(task["readable"], task["writable"])
        read(*task["arguments"])
    except MemoryError:
        said = f"{PROBLEM}it takes more memory than reading such a file may take\n"
    except Exception as error:
        reason = str(error) or type(error).__name__
        said = f"{PROBLEM}{' '.join(reason.split())[:PROBLEM_MAX_CHARS]}\n"
    else:
        said = END
    sys.stdout.write(said)
    sys.stdout.flush()


def end_with(parent: int) -> None:
    """End together with the thread that started this process and waits for it, even if that is killed."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None).prctl(1, signal.SIGKILL, 0, 0, 0)  # PR_SET_PDEATHSIG
    if os.getppid() != parent:
        sys.exit()


def limit(*, memory_bytes: int, cpu_s: int) -> None:
    """Limit memory and processor time, and forbid writing to files."""
    limits = {
        resource.RLIMIT_CORE: (0, 0),
        resource.RLIMIT_FSIZE: (0, 0),  # pipes are no files
        resource.RLIMIT_NOFILE: (OPEN_FILES, OPEN_FILES),
        resource.RLIMIT_CPU: (cpu_s, cpu_s + 1),  # SIGXCPU, which says why, comes before SIGKILL
        resource.RLIMIT_AS: (memory_bytes, memory_bytes),
    }
    for what, most in limits.items():
        with suppress(ValueError, OSError):  # macOS has no limit of memory
            present = resource.getrlimit(what)[1]
            if present != resource.RLIM_INFINITY:
                most = (min(most[0], present), min(most[1], present))
            resource.setrlimit(what, most)
    with suppress(OSError):
        os.nice(NICENESS)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))

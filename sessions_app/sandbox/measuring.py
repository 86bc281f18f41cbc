"""How much the files beneath a directory take on the disk, counted by a process of its own.

In a thread of the server each look at a file would wait for the interpreter, and make others wait for it.
"""

from __future__ import annotations

import os
import random
import select
import subprocess
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

_SCRIPT = r"""
import os, stat, sys

root, blocks, files = int(sys.argv[1]), 0, 0
device, linked, pending = os.fstat(root).st_dev, set(), {root: 1}


def opened(base, path):
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    try:
        return os.open(path, flags, dir_fd=base)
    except PermissionError:
        # A program of this account could hide files in a directory that it may not list.
        place = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=base)
        try:
            os.chmod(f"/proc/self/fd/{place}", 0o700 | stat.S_IMODE(os.fstat(place).st_mode))
        finally:
            os.close(place)
        return os.open(path, flags, dir_fd=base)


def look(base, path, expected):
    global blocks, files
    directory = opened(base, path)
    try:
        found = os.fstat(directory)
        # Another directory may have this path meanwhile, also one outside.
        if expected not in (None, found.st_ino) or found.st_dev != device:
            return
        if len(path) > 3000:  # no path may be longer than 4096 bytes
            base, path = os.dup(directory), b"."
            pending[base] = 0
        for each in os.scandir(directory):
            try:
                about = each.stat(follow_symlinks=False)
            except OSError:
                continue
            files += 1
            if stat.S_ISDIR(about.st_mode):
                waiting.append((base, path + b"/" + os.fsencode(each.name), about.st_ino))
                pending[base] += 1
            elif about.st_nlink > 1:
                if about.st_ino in linked:
                    continue
                linked.add(about.st_ino)
            blocks += about.st_blocks
        if not pending[base]:
            os.close(base)
    finally:
        os.close(directory)


waiting = [(root, b".", None)]
while waiting:
    base, path, expected = waiting.pop()
    try:
        look(base, path, expected)
    except OSError:
        pass
    pending[base] -= 1
    if not pending[base] and base != root:
        os.close(base)
print(blocks * 512, files)
"""


class HeldOnDisk(NamedTuple):
    """What files take: sparse ones only what is written of them, and several names of one file once."""

    bytes: int
    files: int
    """Files and directories."""


def held_in(
    directory: int, processes: Callable[[], Sequence[str]], meanwhile: Callable[[], None]
) -> HeldOnDisk:
    """Count what is beneath a directory, given by its descriptor, and what these processes have open of it.

    `meanwhile` is called every few milliseconds until it is counted. Raise OSError if that is not possible.
    """
    often_ms = 2
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _SCRIPT, str(directory)],
        pass_fds=(directory,),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={},
    ) as counting:
        poll = select.poll()
        poll.register(counting.stdout or 0, select.POLLIN)
        while not poll.poll(often_ms):
            meanwhile()
        counted, errors = counting.communicate()
    try:
        size, files = map(int, counted.split())
    except ValueError:
        said = errors.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise OSError(f"the files could not be counted ({said[-1]})") from None
    return HeldOnDisk(size + _removed_bytes(processes(), os.fstat(directory).st_dev), files)


def _removed_bytes(processes: Sequence[str], device: int) -> int:
    """Return what files take that have no name any more, and that programs still write.

    `processes` are directories of /proc. Of very many open files, some chosen by chance are looked at.
    """
    looked_at_most = 2_000
    opened: list[str] = []
    for each in random.sample(processes, len(processes)):
        if len(opened) < 10 * looked_at_most:
            with suppress(OSError):  # the process has ended
                opened += [f"{each}/fd/{name}" for name in os.listdir(f"{each}/fd")]  # noqa: PTH208
    sizes = {}
    for descriptor in random.sample(opened, min(len(opened), looked_at_most)):
        with suppress(OSError):
            about = Path(descriptor).stat()
            if about.st_nlink == 0 and about.st_dev == device:
                sizes[about.st_ino] = about.st_blocks * 512
    return sum(sizes.values())

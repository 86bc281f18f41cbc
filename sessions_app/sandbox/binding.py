"""Directories bound to other places, for programs that a thread starts (root, Linux).

System calls, because each of the programs `unshare`, `sh` and `mount` took as long as a shell's start.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager


@contextmanager
def bound(directories: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Bind directories to places one after the other, for what this thread starts meanwhile.

    The thread gets a working directory and a umask of its own for good, so it should soon end. Raise OSError.
    """
    private, bind, recursive, new_namespace = 1 << 18, 1 << 12, 1 << 14, 0x20000
    libc = ctypes.CDLL(None, use_errno=True)
    own = os.open("/proc/thread-self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    try:
        _checked(libc.unshare(new_namespace))
        try:
            # Nothing of it may be seen outside.
            _checked(libc.mount(b"none", b"/", None, ctypes.c_ulong(private | recursive), None))
            for directory, place in directories:
                names = os.fsencode(directory), os.fsencode(place)
                _checked(libc.mount(*names, None, ctypes.c_ulong(bind), None))
            yield
        finally:
            _checked(libc.setns(own, new_namespace))
    finally:
        os.close(own)


def _checked(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

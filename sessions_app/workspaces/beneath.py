"""Files beneath a directory, opened so that neither a link nor a race leads out of it.

What is opened is judged by its descriptor, never by a look at its path before.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import ClassVar

from conversations.exceptions import ConversationError, StoreUnavailable

# A FIFO would wait for a writer, and a terminal would become this process's own.
_ALWAYS = os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
READ = os.O_RDONLY | _ALWAYS
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | _ALWAYS

_MISSING = frozenset({errno.ENOENT, errno.ENOTDIR})
_OF_THE_PATH = frozenset(
    {
        *(errno.EACCES, errno.EEXIST, errno.EINVAL, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
        *(errno.ENODEV, errno.ENOTEMPTY, errno.ENXIO, errno.EPERM, errno.EXDEV),
    }
)
"""Errors that another path would not have; all others are the server's."""
OF_THE_NAME = _MISSING | _OF_THE_PATH


class PathRefused(ConversationError):
    """The path names nothing that may be used so; the text says why."""

    code: ClassVar[str] = "path_refused"


class NoSuchFile(PathRefused):
    """The path names nothing."""

    code: ClassVar[str] = "file_not_found"


class _How(ctypes.Structure):
    """The `struct open_how` of Linux."""

    _fields_: ClassVar = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


class Openat2:
    """The system call that resolves a path beneath a directory in one step (Linux 5.6)."""

    NUMBER = 437  # of x86_64 and aarch64 alike
    BENEATH_WITHOUT_MAGIC_LINKS = 0x08 | 0x02
    WITHOUT_LINKS = 0x08 | 0x04
    WITHOUT_MOUNTS = 0x08 | 0x04 | 0x01
    TRIES = 100
    """The kernel gives up if `..` meets a rename at the same time; the next try succeeds almost always."""


def open_beneath(root: int, path: bytes, flags: int) -> int:
    """Open what a path names beneath the directory `root`; links that stay beneath it are followed.

    `flags` create nothing. Raise PathRefused if the path leads out, and OSError as open() does.
    """
    return (by_kernel if has_openat2() else by_hand)(root, path, flags)


@cache
def has_openat2() -> bool:
    """Return whether the kernel has the call and lets this process use it; some containers do not."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return False
    here = os.open("/", DIRECTORY)  # not the working directory: the account may not read that
    try:
        os.close(by_kernel(here, b".", DIRECTORY))
    except OSError:
        return False
    finally:
        os.close(here)
    return True


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    return libc


def by_kernel(root: int, path: bytes, flags: int) -> int:
    """Open a path by `openat2`."""
    try:
        return _opened(root, path, flags, Openat2.BENEATH_WITHOUT_MAGIC_LINKS)
    except OSError as error:
        if error.errno in (errno.EXDEV, errno.EAGAIN):
            raise _leads_out(path) from error
        raise


def _opened(root: int, path: bytes, flags: int, resolve: int) -> int:
    if b"\0" in path:
        raise ValueError("embedded null byte")  # C would read the path up to there
    how = _How(flags=flags, mode=0, resolve=resolve)
    code = errno.EAGAIN
    for _ in range(Openat2.TRIES):
        opened: int = _libc().syscall(
            ctypes.c_long(Openat2.NUMBER),
            ctypes.c_int(root),
            ctypes.c_char_p(path or b"."),
            ctypes.byref(how),
            ctypes.c_size_t(ctypes.sizeof(how)),
        )
        if opened >= 0:
            return opened
        code = ctypes.get_errno()
        if code not in (errno.EAGAIN, errno.EINTR):
            break
    raise OSError(code, os.strerror(code), os.fsdecode(path))


def by_hand(root: int, path: bytes, flags: int) -> int:
    """Open a path component by component, where the kernel cannot: no call here follows a link by itself."""
    if path.startswith(b"/"):
        raise _leads_out(path)
    links_most = opened_most = 40
    # The directories on the way: `..` goes back to the one before, and never above the root.
    way = [os.dup(root)]
    rest = path.split(b"/")[::-1]
    try:
        while rest:
            name = rest.pop()
            if name == b"..":
                if len(way) == 1:
                    raise _leads_out(path)
                os.close(way.pop())
            elif name not in (b"", b"."):
                is_last = not any(each not in (b"", b".") for each in rest)
                try:
                    found = os.open(name, (flags if is_last else DIRECTORY) | os.O_NOFOLLOW, dir_fd=way[-1])
                except OSError as error:
                    target = _target(name, way[-1], error)
                    links_most -= 1
                    if links_most < 0:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), os.fsdecode(path)) from error
                    if target.startswith(b"/"):
                        raise _leads_out(path) from error
                    rest.extend(target.split(b"/")[::-1])
                    continue
                if is_last:
                    return found
                way.append(found)
                # Each of them costs a descriptor; with the kernel's own way a path may be deeper.
                if len(way) > 8 * opened_most:
                    raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), os.fsdecode(path))
        return os.open(b".", flags, dir_fd=way[-1])
    finally:
        for each in way:
            os.close(each)


def _target(name: bytes, directory: int, error: OSError) -> bytes:
    """Return what a link names that could not be opened for being one; else raise the error."""
    # Linux answers ENOTDIR where a link was to be opened as a directory without being followed.
    if error.errno not in (errno.ELOOP, errno.ENOTDIR):
        raise error
    try:
        return os.readlink(name, dir_fd=directory)
    except OSError:  # no link, or one no more
        raise error from None


def _leads_out(path: bytes) -> PathRefused:
    return PathRefused(f"{shown(os.fsdecode(path))} leads out of the workspace.")


def open_directory(root: int, path: bytes) -> int:
    """Open a directory by the names of all those on the way to it, none of which may be a link.

    The path may be of any length. Raise OSError.
    """
    path_most_bytes = 4_000  # of the kernel 4,096, with the end
    if has_openat2() and len(path) < path_most_bytes:
        return _opened(root, path, DIRECTORY, Openat2.WITHOUT_LINKS)
    opened = os.dup(root)
    for name in filter(None, path.split(b"/")):
        with closing(opened) as above:
            opened = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
    return opened


def open_without_mounts(directory: int, name: bytes) -> int:
    """Open a directory in another one. Raise OSError: EXDEV if another file system begins there."""
    if has_openat2():  # which also knows a part of the same file system that is mounted there
        return _opened(directory, name, DIRECTORY, Openat2.WITHOUT_MOUNTS)
    opened = os.open(name, DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
    if os.fstat(opened).st_dev != os.fstat(directory).st_dev:
        os.close(opened)
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV), os.fsdecode(name))
    return opened


def open_file(root: int, path: bytes) -> tuple[int, os.stat_result]:
    """Open a regular file for reading; return its descriptor, and what that is.

    Raise PathRefused for directories, devices, FIFOs and sockets.
    """
    opened = open_beneath(root, path, READ)
    found = os.fstat(opened)
    if not stat.S_ISREG(found.st_mode):
        os.close(opened)
        raise PathRefused(f"{shown(os.fsdecode(path))} is not a file.")
    return opened, found


def sync(directory: int) -> None:
    """Write the names in a directory to the disk."""
    try:
        os.fsync(directory)
    except OSError as error:
        # Some network filesystems cannot sync a directory: they keep its names by themselves.
        if error.errno != errno.EINVAL:
            raise


def pieces(descriptor: int, size: int, at_once: int = 256 * 1024) -> Iterator[bytes]:
    """Yield at most `size` bytes from the beginning of a file, however it changes meanwhile."""
    place = 0
    while place < size and (piece := os.pread(descriptor, min(at_once, size - place), place)):
        place += len(piece)
        yield piece


@contextmanager
def closing(descriptor: int) -> Iterator[int]:
    """Close a descriptor at the end of the block."""
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def passing_over() -> Iterator[None]:
    """End the block early where something was removed or replaced meanwhile, or may not be opened.

    Errors that another path would have too, such as those of the disk, are raised.
    """
    try:
        yield
    except PathRefused:
        return
    except OSError as error:
        if error.errno not in OF_THE_NAME:
            raise


@contextmanager
def refusals(path: str) -> Iterator[None]:
    """Raise what the block's errors mean for a client that named this path.

    NoSuchFile, PathRefused, or StoreUnavailable if the path is not the reason.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _MISSING:
            raise NoSuchFile(f"There is no {shown(path)}.") from error
        if error.errno in _OF_THE_PATH:
            raise PathRefused(f"{shown(path)} cannot be used: {error.strerror}.") from error
        raise unavailable(error) from error
    except ValueError as error:  # a null character, or text that is no name of a file
        raise PathRefused(f"{shown(path)} cannot be the name of a file.") from error


def unavailable(error: OSError) -> StoreUnavailable:
    """Return the refusal where the disk is the reason."""
    return StoreUnavailable(f"The files of the workspace cannot be used now: {error.strerror or error}.")


def shown(path: str) -> str:
    """Return a path for a sentence: without control characters and halves of characters, cut if long."""
    most = 200
    seen = "".join(each if each.isprintable() else "�" for each in path)
    return f"“{seen[:most]}…”" if len(seen) > most else f"“{seen}”"

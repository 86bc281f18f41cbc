"""The rights that a confined process drops before it reads: files, network, other processes.

Two walls, both of Linux. A filter of system calls (seccomp) refuses changes of names, rights, times or
lengths of files, starting or reaching a process, and opening a socket. Landlock, since Linux 5.13, allows
opening only the files of the task. This module is self-contained, as `child` is.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct
import sys
from collections.abc import Iterable
from typing import Any

NO_NEW_PRIVILEGES, SET_SECCOMP, FILTER = 38, 22, 2

# Landlock, see landlock(7).
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
VERSION_WANTED, PATH_BENEATH = 1, 1
WRITE_FILE, READ_FILE, READ_DIRECTORY = 1 << 1, 1 << 2, 1 << 3
# The number of rights to files that can be taken away, by the version of Landlock; 16 in later ones.
FILE_RIGHTS = {1: 13, 2: 14, 3: 15, 4: 15}


# The filter, see seccomp(2): a program of the Berkeley Packet Filter.
LOAD, EQUAL, AT_LEAST, ANY_BIT, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
ALLOW, REFUSE = 0x7FFF0000, 0x00050000 | errno.EPERM
NUMBER_AT, MACHINE_AT = 0, 4
# From here on are the calls of x86-64 with pointers of 32 bits: the same under other numbers.
OTHER_CALLS = 0x40000000
# On every machine: pidfd_send_signal, io_uring_setup, pidfd_open, clone3, openat2, pidfd_getfd,
# process_madvise, mount_setattr, fchmodat2, setxattrat, removexattrat.
LATE = [424, 425, 434, 435, 437, 438, 440, 442, 452, 463, 466]
TRUNCATING, SHARED = 0x200, 1
ARGUMENTS_AT, ARGUMENT_BYTES = 16, 8
# By machine: the number by which the kernel knows it, the system calls that are refused, and those that are
# refused if an argument, counted from 0, has one of these bits.
MACHINES = {
    "x86_64": (
        0xC000003E,
        [
            # socket socketpair clone fork vfork execve kill truncate ftruncate
            *(41, 53, 56, 57, 58, 59, 62, 76, 77),
            # rename mkdir rmdir creat link unlink symlink chmod fchmod chown fchown lchown ptrace
            *(82, 83, 84, 85, 86, 87, 88, 90, 91, 92, 93, 94, 101),
            # utime mknod setpriority sched_setparam sched_setscheduler setrlimit mount umount2
            *(132, 133, 141, 142, 144, 160, 165, 166),
            # setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr tkill sched_setaffinity
            *(188, 189, 190, 197, 198, 199, 200, 203),
            # utimes ioprio_set mkdirat mknodat fchownat futimesat unlinkat renameat linkat symlinkat fchmodat
            *(235, 251, 258, 259, 260, 261, 263, 264, 265, 266, 268),
            # unshare utimensat fallocate prlimit64 setns process_vm_readv process_vm_writev sched_setattr
            *(272, 280, 285, 302, 308, 310, 311, 314),
            # renameat2 memfd_create bpf execveat tgkill rt_sigqueueinfo rt_tgsigqueueinfo
            *(316, 319, 321, 322, 234, 129, 297),
        ],
        # open openat mmap
        [(2, 1, TRUNCATING), (257, 2, TRUNCATING), (9, 3, SHARED)],
    ),
    "aarch64": (
        0xC00000B7,
        [
            # setxattr lsetxattr fsetxattr removexattr lremovexattr fremovexattr ioprio_set
            *(5, 6, 7, 14, 15, 16, 30),
            # mknodat mkdirat unlinkat symlinkat linkat renameat umount2 mount truncate ftruncate fallocate
            *(33, 34, 35, 36, 37, 38, 39, 40, 45, 46, 47),
            # fchmod fchmodat fchownat fchown utimensat unshare ptrace
            *(52, 53, 54, 55, 88, 97, 117),
            # sched_setparam sched_setscheduler sched_setaffinity kill tkill setpriority setrlimit
            *(118, 119, 122, 129, 130, 140, 164),
            # socket socketpair clone execve prlimit64 setns process_vm_readv process_vm_writev sched_setattr
            *(198, 199, 220, 221, 261, 268, 270, 271, 274),
            # renameat2 memfd_create bpf execveat tgkill rt_sigqueueinfo rt_tgsigqueueinfo
            *(276, 279, 280, 281, 131, 138, 240),
        ],
        # openat mmap
        [(56, 2, TRUNCATING), (222, 3, SHARED)],
    ),
}


def raise_walls(readable: Iterable[str], writable: Iterable[str]) -> None:
    """Leave the process only these files, as far as the system can. Raise OSError.

    Files in `writable` can be read, too, and opened for writing; nothing is created, removed or renamed.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "no_new_privs cannot be set")
    if landlock_version() > 0:
        _restrict_files(libc, readable, writable)
    if platform.machine() in MACHINES:
        _refuse_calls(libc, *MACHINES[platform.machine()])


def landlock_version() -> int:
    """Return the version of Landlock that the kernel has; less than 1 if it has none."""
    if not sys.platform.startswith("linux"):
        return 0
    libc = ctypes.CDLL(None, use_errno=True)
    version: int = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), VERSION_WANTED)
    return version


def _restrict_files(libc: Any, readable: Iterable[str], writable: Iterable[str]) -> None:
    version = landlock_version()
    handled = [(1 << FILE_RIGHTS.get(version, 16)) - 1]
    if version >= 4:
        handled.append(0b11)  # TCP: bind and connect
    if version >= 6:
        handled.append(0b11)  # abstract sockets and signals
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
    _called(libc, RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _refuse_calls(
    libc: Any, machine: int, refused: list[int], refused_with: list[tuple[int, int, int]]
) -> None:
    """Refuse system calls from now on. Raise OSError."""
    # A step says how many of the next to pass over if it holds, and if not; None leads to the refusal.
    steps = [(LOAD, 0, 0, NUMBER_AT), (AT_LEAST, None, 0, OTHER_CALLS)]
    steps += [(EQUAL, None, 0, number) for number in (*refused, *LATE)]
    for number, argument, bits in refused_with:
        at = ARGUMENTS_AT + argument * ARGUMENT_BYTES
        steps += [(EQUAL, 0, 3, number), (LOAD, 0, 0, at), (ANY_BIT, None, 0, bits), (LOAD, 0, 0, NUMBER_AT)]
    end = len(steps) + 3
    steps = [(LOAD, 0, 0, MACHINE_AT), (EQUAL, 0, end - 2, machine), *steps, (RETURN, 0, 0, ALLOW)]
    code = b"".join(
        struct.pack("=HBBI", step, end - place - 1 if holds is None else holds, fails, value)
        for place, (step, holds, fails, value) in enumerate([*steps, (RETURN, 0, 0, REFUSE)])
    )
    kept = ctypes.create_string_buffer(code)
    program = ctypes.create_string_buffer(struct.pack("@HP", end + 1, ctypes.addressof(kept)))
    if libc.prctl(SET_SECCOMP, FILTER, program, 0, 0):
        raise OSError(ctypes.get_errno(), "system calls cannot be filtered")


def _called(libc: Any, number: int, *arguments: Any) -> int:
    result: int = libc.syscall(number, *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), f"system call {number} failed")
    return result

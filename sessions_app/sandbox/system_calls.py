"""A filter of system calls, as the kernel reads it (`seccomp`, classic BPF).

It refuses what reserves room on the disk without writing: a loop of such calls would fill a disk in less
than a second. Programs that ask for it go on without, as on a file system that cannot do it.
"""

from __future__ import annotations

import errno
import struct

# Of `struct seccomp_data`: the number of the call, the machine, the lower half of the second argument.
_CALL, _MACHINE, _SECOND = 0, 4, 24
_LOAD, _EQUAL, _HAS_BITS, _AND, _RETURN = 0x20, 0x15, 0x45, 0x54, 0x06
_ALLOW, _ERROR = 0x7FFF0000, 0x00050000
_NUMBERS = {
    0xC000003E: (285, 16),  # x86_64
    0x40000003: (324, 54),  # i386
    0xC00000B7: (47, 29),  # aarch64
    0x40000028: (352, 54),  # arm
    0xC00000F3: (47, 29),  # riscv64
}
"""The numbers of `fallocate` and of `ioctl`; one that is unknown here has no filter."""
_RESERVING = (0x40305828, 0x4030582A, 0x40305839, 0x402C5828, 0x402C582A, 0x402C5839)
"""The requests of `ioctl` that do the same: FS_IOC_RESVSP, RESVSP64, ZERO_RANGE; also those of 32 bits."""


def _step(code: int, value: int, if_so: int = 0, if_not: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_so, if_not, value)


def _of_machine(machine: int, fallocate: int, ioctl: int) -> bytes:
    punch_hole = 0x02  # the flag of `fallocate` that gives room back
    io_uring_setup = 425  # by which programs would ask the kernel without a system call
    refused = _step(_RETURN, _ERROR | errno.EOPNOTSUPP)
    allowed = _step(_RETURN, _ALLOW)
    requests = b"".join(
        _step(_EQUAL, each, if_so=len(_RESERVING) - number) for number, each in enumerate(_RESERVING)
    )
    of_ioctl = _step(_LOAD, _SECOND) + requests + allowed + refused
    of_fallocate = _step(_LOAD, _SECOND) + _step(_HAS_BITS, punch_hole, if_not=1) + allowed + refused
    of_uring = _step(_RETURN, _ERROR | errno.ENOSYS)
    steps = [
        _step(_LOAD, _CALL),
        _step(_AND, 0xBFFFFFFF),  # x32 has a bit more
        _step(_EQUAL, io_uring_setup, if_not=1),
        of_uring,
        _step(_EQUAL, fallocate, if_not=len(of_fallocate) // 8),
        of_fallocate,
        _step(_EQUAL, ioctl, if_not=len(of_ioctl) // 8),
        of_ioctl,
        allowed,
    ]
    whole = b"".join(steps)
    return _step(_EQUAL, machine, if_not=len(whole) // 8) + whole


WITHOUT_RESERVING = (
    _step(_LOAD, _MACHINE)
    + b"".join(_of_machine(machine, *numbers) for machine, numbers in _NUMBERS.items())
    + _step(_RETURN, _ALLOW)
)

"""Lets the rights of files bind a process of root, too (Linux)."""

from __future__ import annotations

import ctypes
import os

VERSION = 0x20080522
DAC_OVERRIDE, DAC_READ_SEARCH = 1, 2


class _Header(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _Data(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def be_bound() -> None:
    """Give up, in this process and its children, the right to pass over the rights of files.

    Nothing to do for anybody but root. Raise OSError if the kernel refuses.
    """
    if os.geteuid():
        return
    libc = ctypes.CDLL(None, use_errno=True)
    header, data = _Header(VERSION, 0), (_Data * 2)()
    if libc.capget(ctypes.byref(header), data):
        raise OSError(ctypes.get_errno(), "capget")
    data[0].effective &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    data[0].permitted &= ~(1 << DAC_OVERRIDE | 1 << DAC_READ_SEARCH)
    if libc.capset(ctypes.byref(header), data):
        raise OSError(ctypes.get_errno(), "capset")

"""A socket that listens inside the network namespace of a sandbox, and is accepted on outside (Linux)."""

from __future__ import annotations

import socket
import subprocess
import sys

ADDRESS = ("127.0.0.1", 3128)
"""Where programs in a sandbox find the proxy. Each sandbox has a loopback device of its own."""
# `setns` takes no process with several threads into a user namespace, so this is a program of its own. It
# ends before the sandbox begins, and runs nothing of it. Root enters the network at once. Another account
# owns the user namespace that the network belongs to, and has all rights in it. Python has no names for
# NS_GET_USERNS and IP_FREEBIND, which is needed while the loopback device is not up yet.
_ENTER = """
import ctypes, errno, fcntl, os, socket, sys
namespace, channel, port = int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[4])
libc = ctypes.CDLL(None, use_errno=True)
NEW_USER, NEW_NET, NS_GET_USERNS, IP_FREEBIND = 0x10000000, 0x40000000, 0xB701, 15
def enter(descriptor, kind):
    if libc.setns(descriptor, kind):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
try:
    enter(namespace, NEW_NET)
except PermissionError:
    enter(fcntl.ioctl(namespace, NS_GET_USERNS), NEW_USER)
    enter(namespace, NEW_NET)
listener = socket.socket()
listener.setsockopt(socket.SOL_IP, IP_FREEBIND, 1)
listener.bind((sys.argv[3], port))
listener.listen(64)
socket.send_fds(socket.socket(fileno=channel), [b"1"], [listener.fileno()])
"""


class CannotListen(Exception):
    """No socket could be made in the network namespace; the text has the reason."""


def listener_in(namespace: int) -> socket.socket:
    """Return a socket that listens at ADDRESS in the network namespace of this descriptor.

    It blocks for some milliseconds, so the caller has a thread of its own. Raise CannotListen.
    """
    within_s = 20.0
    ours, theirs = socket.socketpair()
    with ours, theirs:
        channel = theirs.fileno()
        arguments = (namespace, channel, *ADDRESS)
        try:
            ended = subprocess.run(
                [sys.executable, "-I", "-S", "-c", _ENTER, *map(str, arguments)],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=False,
                cwd="/",
                env={},
                pass_fds=(namespace, channel),
                timeout=within_s,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotListen(str(error)) from error
        theirs.close()
        _, descriptors, _, _ = socket.recv_fds(ours, 1, 1)
    if not descriptors:
        said = ended.stderr.decode(errors="replace").strip().splitlines() or ["no reason given"]
        raise CannotListen(said[-1])
    return socket.socket(fileno=descriptors[0])

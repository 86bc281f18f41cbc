"""Argon2 with a bound: each computation takes 100 MB and all processors for a tenth of a second."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.contrib.auth.hashers import Argon2PasswordHasher

T = TypeVar("T")

COMPUTATIONS_MAX = 2
"""At most this many passwords are computed at a time in a process."""
NICENESS = 19
"""The threads that compute take what others leave of the processors, where a thread has a priority."""


class BoundedArgon2PasswordHasher(Argon2PasswordHasher):
    """The framework's hasher, which computes in few threads of low priority.

    Log-ins wait on the event loop before that (`password_line`), so that they keep no threads.
    """

    def encode(self, password: str, salt: str) -> str:
        """Return the hash of a new password."""
        return _computed(lambda: super(BoundedArgon2PasswordHasher, self).encode(password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        """Say whether a password is the one of a hash."""
        return _computed(lambda: super(BoundedArgon2PasswordHasher, self).verify(password, encoded))


def _give_way() -> None:
    """Lower the priority of this thread, and of those that it starts."""
    if sys.platform == "linux":  # elsewhere this would be the priority of a whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


_threads = ThreadPoolExecutor(COMPUTATIONS_MAX, thread_name_prefix="passwords", initializer=_give_way)


def _computed(compute: Callable[[], T]) -> T:
    return _threads.submit(compute).result()

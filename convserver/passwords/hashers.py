"""Argon2 with a bound."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from django.contrib.auth.hashers import Argon2PasswordHasher

T = TypeVar("T")

# At a time: each computation takes 100 MB and all processors for a tenth of a second.
COMPUTATIONS_MAX = 2
NICENESS = 19  # Argon2 releases the interpreter and takes all processors: other requests come first


class BoundedArgon2PasswordHasher(Argon2PasswordHasher):
    """The framework's hasher, on few threads of low priority.

    Log-ins wait on the event loop before that (`password_queue`), so that they occupy no threads.
    """

    def encode(self, password: str, salt: str) -> str:
        return _computed(lambda: super(BoundedArgon2PasswordHasher, self).encode(password, salt))

    def verify(self, password: str, encoded: str) -> bool:
        return _computed(lambda: super(BoundedArgon2PasswordHasher, self).verify(password, encoded))


def _lower_priority() -> None:
    """Lower the priority of this thread, and of those that it starts."""
    if sys.platform == "linux":  # elsewhere this would be the priority of a whole process
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICENESS)


_threads = ThreadPoolExecutor(COMPUTATIONS_MAX, thread_name_prefix="passwords", initializer=_lower_priority)


def _computed(compute: Callable[[], T]) -> T:
    return _threads.submit(compute).result()

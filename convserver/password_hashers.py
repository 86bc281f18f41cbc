"""Argon2 with a bound: each computation takes 100 MB and all processors for a tenth of a second."""

from __future__ import annotations

import threading

from django.contrib.auth.hashers import Argon2PasswordHasher

COMPUTATIONS_MAX = 2
"""At most this many passwords are computed at a time in a process."""

_slots = threading.BoundedSemaphore(COMPUTATIONS_MAX)


class BoundedArgon2PasswordHasher(Argon2PasswordHasher):
    """The framework's hasher, which waits in its thread while others compute.

    Log-ins wait on the event loop before that (`password_line`), so that they keep no threads.
    """

    def encode(self, password: str, salt: str) -> str:
        """Return the hash of a new password."""
        with _slots:
            return super().encode(password, salt)

    def verify(self, password: str, encoded: str) -> bool:
        """Say whether a password is the one of a hash."""
        with _slots:
            return super().verify(password, encoded)

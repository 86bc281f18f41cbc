"""A hasher that tests look into: how many passwords are computed, and how many at a time."""

from __future__ import annotations

import threading

from django.contrib.auth.hashers import MD5PasswordHasher


class Watch:
    """What is known of the computations; each waits until they may end."""

    def __init__(self) -> None:
        self.may_end = threading.Event()
        self.may_end.set()
        self.count = self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.count += 1
            self.now += 1
            self.most = max(self.most, self.now)
        self.may_end.wait()

    def __exit__(self, *others: object) -> None:
        with self._lock:
            self.now -= 1


watch = Watch()


class WatchedHasher(MD5PasswordHasher):
    """A quick one."""

    algorithm = "watched"

    def encode(self, password: str, salt: str) -> str:
        with watch:
            return super().encode(password, salt)

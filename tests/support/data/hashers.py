"""Hashers of tests: one to look into, how many passwords are computed at a time, and one for servers."""

from __future__ import annotations

import threading

from django.contrib.auth.hashers import MD5PasswordHasher

QUICK_PASSWORDS = {
    "django.contrib.auth.hashers.Argon2PasswordHasher.time_cost": 1,
    "django.contrib.auth.hashers.Argon2PasswordHasher.memory_cost": 8,
    "django.contrib.auth.hashers.Argon2PasswordHasher.parallelism": 1,
}
"""Constants of a server that computes passwords quickly: the real way is slow on purpose."""


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

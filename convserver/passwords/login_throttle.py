"""Limits on guessing keys and passwords: by address, and by account over all addresses."""

from __future__ import annotations

from unicodedata import normalize

from django.core.cache import caches
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from conversations.storage import shared_counts
from sessions_app.identity.addresses import subscriber

GUESSES_MAX = 10  # attempts at one name's password, or at the key, from one address in a window
# Attempts at all of them, so that a client does not have ten attempts at each of many names.
ADDRESS_GUESSES_MAX = 50
WINDOW_S = 300
TOO_MANY = (
    "Too many wrong attempts. Wait five minutes before the next one; until then, even the right one is "
    "refused. If you don't know it, ask the administrator of this server."
)
BUSY = "Too many people are logging in at the moment. Try again in a few seconds."
"""The answer where the password was not checked."""

ACCOUNT_FREE = 30
"""Wrong passwords for one account in a window, from all addresses, before attempts are delayed."""
ACCOUNT_DELAY_S = 0.5
ACCOUNT_DELAY_MAX_S = 8.0

SALT = "convserver.passwords.login_throttle"
CACHE = "guesses"


class Guesses:
    """The attempts at one password or key from one address.

    While Redis is away, or where there is none, each process counts by itself.
    """

    def __init__(self, request: HttpRequest, what: str) -> None:
        address = subscriber(request.META.get("REMOTE_ADDR", ""))
        self._all = _Count(address)
        self._these = _Count(f"{address} {what}")

    def may_go_on(self) -> bool:
        """Count one more attempt; return False above the limit."""
        # Counted before it is checked: parallel attempts cannot pass the limit together.
        # An address above its limit is not counted by name, so that it cannot fill the cache with names.
        return self._all.add(1) <= ADDRESS_GUESSES_MAX and self._these.add(1) <= GUESSES_MAX

    def left(self) -> int:
        """Return how many more wrong attempts are allowed."""
        return max(0, min(ADDRESS_GUESSES_MAX - self._all.add(0), GUESSES_MAX - self._these.add(0)))

    def take_back(self) -> None:
        """Count a correct attempt no more; wrong ones before it stay counted."""
        self._these.add(-1)
        self._all.add(-1)

    def forget(self) -> None:
        """Reset the counter after a correct attempt; attempts at other names stay counted."""
        self._these.forget()
        self._all.add(-1)


class AccountAttempts:
    """The attempts at one account's password from all addresses; counted before they are checked."""

    def __init__(self, username: str) -> None:
        name = normalize("NFKC", username.strip()).lower()  # as the form reads it
        account_window_s = 900
        self._count = _Count(f"account {name}", window_s=account_window_s)

    def one_more(self) -> float:
        """Count one more attempt, and return its delay in seconds, which each wrong one doubles."""
        delayed = self._count.add(1) - ACCOUNT_FREE
        if delayed <= 0:
            return 0.0
        # At most 30 doublings: a power of thousands would overflow.
        return float(min(ACCOUNT_DELAY_S * 2.0 ** min(delayed - 1, 30), ACCOUNT_DELAY_MAX_S))

    def forget(self) -> None:
        """Reset the counter after a correct attempt."""
        self._count.forget()


class _Count:
    """A number that ends with its window: in Redis; without it, or while it is away, in this process."""

    def __init__(self, what: str, *, window_s: int = WINDOW_S) -> None:
        self._window_s = window_s
        # Hashed: Redis gets neither user names nor addresses.
        self._name = f"guesses:{salted_hmac(SALT, what, algorithm='sha256').hexdigest()}"

    def add(self, number: int) -> int:
        """Add a number and return the sum."""
        shared = shared_counts.added(self._name, number, lasts_s=self._window_s)
        if shared is not None:
            return shared
        caches[CACHE].add(self._name, 0, self._window_s)
        try:
            return int(caches[CACHE].incr(self._name, number))
        except ValueError:  # the window has ended in between
            return 0

    def forget(self) -> None:
        shared_counts.forget(self._name)
        caches[CACHE].delete(self._name)

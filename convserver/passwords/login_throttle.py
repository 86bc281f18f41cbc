"""How often keys and passwords may be guessed: by address, and by account over all addresses."""

from __future__ import annotations

from unicodedata import normalize

from django.core.cache import caches
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

from conversations.storage import shared_counts
from sessions_app.identity.addresses import subscriber

GUESSES_MAX = 10
"""At one name's password, or at the key."""
ADDRESS_GUESSES_MAX = 50
"""At all of them: who tries many names may not have ten attempts at each."""
WINDOW_S = 300
TOO_MANY = (
    "Too many wrong attempts. Wait five minutes before the next one; until then, even the right one is "
    "refused. If you don't know it, ask the administrator of this server."
)
FEW_LEFT = 3
"""From so few attempts on, the pages say how many are left."""

BUSY = "Too many people are logging in at the moment. Try again in a few seconds."
"""Said where a password was not even looked at."""

ACCOUNT_FREE = 30
"""After this many wrong passwords for an account in a window, from all addresses, attempts are delayed."""
ACCOUNT_WINDOW_S = 900
ACCOUNT_DELAY_S = 0.5
"""The first delay; each further wrong password doubles it."""
ACCOUNT_DELAY_MAX_S = 8.0

SALT = "convserver.passwords.login_throttle"
CACHE = "guesses"


class Guesses:
    """The attempts at one thing from one address; counted before they are judged, so that none slips through.

    While Redis is away, or where there is none, each process counts by itself.
    """

    def __init__(self, request: HttpRequest, what: str) -> None:
        address = subscriber(request.META.get("REMOTE_ADDR", ""))
        self._all = _Count(address)
        self._these = _Count(f"{address} {what}")

    def may_go_on(self) -> bool:
        """Count one more; False once there were too many.

        An address that may not go on is not counted any further, so it fills the cache with no more names.
        """
        return self._all.one_more() <= ADDRESS_GUESSES_MAX and self._these.one_more() <= GUESSES_MAX

    def left(self) -> int:
        """Return how many more wrong attempts will be judged, after those that were counted."""
        return max(0, min(ADDRESS_GUESSES_MAX - self._all.value(), GUESSES_MAX - self._these.value()))

    def forget(self) -> None:
        """Begin anew, after one that was right; what was guessed at others stays counted."""
        self._these.forget()
        self._all.one_less()


def said_of_attempts(left: int) -> str:
    """Return what follows "Wrong password.", after a space; nothing while many attempts are left."""
    if left > FEW_LEFT:
        return ""
    if left == 0:
        return " That was the last attempt: wait five minutes before the next one."
    return f" {left} attempt{'' if left == 1 else 's'} left, then you have to wait five minutes."


class AccountAttempts:
    """The attempts at one account's password from all addresses; counted before they are judged."""

    def __init__(self, username: str) -> None:
        name = normalize("NFKC", username.strip()).lower()  # as the form reads it
        self._count = _Count(f"account {name}", window_s=ACCOUNT_WINDOW_S)

    def one_more(self) -> float:
        """Count one more, and return how many seconds it has to wait."""
        delayed = self._count.one_more() - ACCOUNT_FREE
        if delayed <= 0:
            return 0.0
        return float(min(ACCOUNT_DELAY_S * 2.0 ** min(delayed - 1, 30), ACCOUNT_DELAY_MAX_S))

    def forget(self) -> None:
        """Begin anew, after one that was right."""
        self._count.forget()


class _Count:
    """A number that ends with its window: in Redis; without it, or while it is away, in this process."""

    def __init__(self, what: str, *, window_s: int = WINDOW_S) -> None:
        self._window_s = window_s
        self._name = f"guesses:{salted_hmac(SALT, what, algorithm='sha256').hexdigest()}"

    def one_more(self) -> int:
        """Count one more and return how many there are."""
        return self._changed(by=1)

    def value(self) -> int:
        """Return how many there are."""
        return self._changed(by=0)

    def one_less(self) -> None:
        """Take one back."""
        self._changed(by=-1)

    def forget(self) -> None:
        """Reset the counter."""
        shared_counts.forget(self._name)
        caches[CACHE].delete(self._name)

    def _changed(self, *, by: int) -> int:
        shared = shared_counts.added(self._name, by, lasts_s=self._window_s)
        if shared is not None:
            return shared
        caches[CACHE].add(self._name, 0, self._window_s)
        try:
            return int(caches[CACHE].incr(self._name, by))
        except ValueError:  # the window has ended in between
            return 0

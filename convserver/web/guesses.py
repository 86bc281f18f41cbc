"""How often keys and passwords may be guessed from one address: so often each, more often in all."""

from __future__ import annotations

from ipaddress import IPv6Address, IPv6Network, ip_address

from django.core.cache import caches
from django.http import HttpRequest
from django.utils.crypto import salted_hmac

GUESSES_MAX = 10
"""At one name's password, or at the key."""
ADDRESS_GUESSES_MAX = 50
"""At all of them: who tries many names may not have ten attempts at each."""
WINDOW_S = 300
NETWORK_BITS = 64
"""So much of an IPv6 address tells one subscriber from another; the rest everybody chooses as they like."""
TOO_MANY = "Too many wrong attempts. Wait five minutes, then try again."

SALT = "convserver.web.guesses"
CACHE = "guesses"


class Guesses:
    """The attempts at one thing from one address; counted before they are judged, so that none slips through.

    While the cache that all processes share is out of reach, each process counts by itself.
    """

    def __init__(self, request: HttpRequest, what: str) -> None:
        address = _subscriber(request.META.get("REMOTE_ADDR", ""))
        self._all = _Count(address)
        self._these = _Count(f"{address} {what}")

    def may_go_on(self) -> bool:
        """Count one more; False once there were too many.

        An address that may not go on is not counted any further, so it fills the cache with no more names.
        """
        return self._all.one_more() <= ADDRESS_GUESSES_MAX and self._these.one_more() <= GUESSES_MAX

    def forget(self) -> None:
        """Begin anew, after one that was right; what was guessed at others stays counted."""
        self._these.forget()
        self._all.one_less()


class _Count:
    """A number in the cache, that ends with its window."""

    def __init__(self, what: str) -> None:
        self._name = f"guesses:{salted_hmac(SALT, what, algorithm='sha256').hexdigest()}"

    def one_more(self) -> int:
        """Count one more and return how many there are."""
        caches[CACHE].add(self._name, 0, WINDOW_S)
        return self._changed(by=1)

    def one_less(self) -> None:
        """Take one back."""
        self._changed(by=-1)

    def forget(self) -> None:
        """Have counted nothing."""
        caches[CACHE].delete(self._name)

    def _changed(self, *, by: int) -> int:
        try:
            return int(caches[CACHE].incr(self._name, by))
        except ValueError:  # the window has ended in between
            return 0


def _subscriber(address: str) -> str:
    """Return what stands for everybody who can have this address: an IPv6 network, or the address itself."""
    try:
        read = ip_address(address)
    except ValueError:
        return address
    if not isinstance(read, IPv6Address):
        return address
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    return str(IPv6Network((int(read), NETWORK_BITS), strict=False))

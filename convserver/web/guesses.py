"""How often keys and passwords may be guessed: so many times from one address, then not for a while."""

from __future__ import annotations

import logging
from ipaddress import IPv6Address, IPv6Network, ip_address

from django.core.cache import cache
from django.http import HttpRequest
from django.utils.crypto import salted_hmac
from redis.exceptions import RedisError

logger = logging.getLogger(__name__)

GUESSES_MAX = 10
WINDOW_S = 300
NETWORK_BITS = 64
"""So much of an IPv6 address tells one subscriber from another; the rest everybody chooses as they like."""
TOO_MANY = "There were too many wrong attempts from your address. Wait five minutes, then try again."

SALT = "convserver.web.guesses"


class Guesses:
    """The attempts at one thing from one address; counted before they are judged, so that none slips through.

    Where the cache is out of reach nothing is counted.
    """

    def __init__(self, request: HttpRequest, what: str) -> None:
        address = _subscriber(request.META.get("REMOTE_ADDR", ""))
        self._name = f"guesses:{salted_hmac(SALT, f'{address} {what}', algorithm='sha256').hexdigest()}"

    def may_go_on(self) -> bool:
        """Count one more; False once there were too many."""
        try:
            cache.add(self._name, 0, WINDOW_S)
            return int(cache.incr(self._name)) <= GUESSES_MAX
        except ValueError:  # the window has ended in between
            return True
        except RedisError:
            logger.warning("The cache is out of reach; wrong keys and passwords are not counted")
            return True

    def forget(self) -> None:
        """Begin anew, after one that was right."""
        try:
            cache.delete(self._name)
        except RedisError:
            logger.warning("The cache is out of reach; wrong keys and passwords are not counted")


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

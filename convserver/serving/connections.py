"""The open connections of a server: how many there may be, and which give way when there is no room.

A connection waits while the server waits for a whole request on it; otherwise it works. Only waiting
connections give way, those first that have waited longest.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from conversations.outages import Outage
from convserver.variables import ConfigurationError
from sessions_app.identity.addresses import Networks, subscriber

# For everything but clients: SQLite's files, PostgreSQL, Redis, outgoing requests.
RESERVED_DESCRIPTORS = 256
# There is room for this many connections, however few descriptors there are.
CONNECTIONS_MIN = 32
# CONNECTIONS_MIN, and the fewest for the database threads, Redis, the log and templates that load late.
DESCRIPTORS_MIN = 128
HELD_MAX_BYTES = 16 * 1024 * 1024
"""Unfinished requests of unknown clients hold at most this much memory in all."""


class NoRoom(OSError):
    """There is no room for another connection; the text says how many there are."""


class ConnectionPlace:
    """The place of one connection."""

    __slots__ = ("evict", "held_bytes", "subscriber")

    def __init__(self, subscriber: str | None, evict: Callable[[], None]) -> None:
        self.subscriber = subscriber  # whom the connection counts for; None if it does not count
        self.evict: Callable[[], None] | None = evict
        self.held_bytes = 0


class Connections:
    """All connections of a server; used on its event loop."""

    def __init__(self, *, limit: int, per_address: int, exempt: Networks) -> None:
        """`per_address`: how many each address may have, 0 for any number; `exempt` ones any number."""
        self._limit = limit
        self._per_address = per_address
        self._exempt = exempt
        self._places: set[ConnectionPlace] = set()
        self._by_subscriber: Counter[str] = Counter()
        # In the order in which they began to wait.
        self._waiting: dict[ConnectionPlace, None] = {}
        # Those with a part of a request, in the order in which it began.
        self._holding: dict[ConnectionPlace, None] = {}
        self._held_bytes = 0
        self._crowd = Outage(
            __name__,
            "There is no room for more connections, so silent ones are closed",
            "There is room for connections again",
        )

    def enter(self, address: str, evict: Callable[[], None]) -> ConnectionPlace | None:
        """Return a place for a new connection, which waits; None if its address has too many."""
        client = self._counted(address)
        if client is not None:
            if self._by_subscriber[client] >= self._per_address:
                return None
            self._by_subscriber[client] += 1
        place = ConnectionPlace(client, evict)
        self._places.add(place)
        self._waiting[place] = None
        if len(self._places) > self._limit:
            # One line in the log for the whole time, however many connections are closed.
            self._crowd.failed(NoRoom(f"{self._limit} connections are open"))
            # The one that has waited longest; the new one waits as well, so there is one.
            self._evict(next(iter(self._waiting)))
        return place

    def leave(self, place: ConnectionPlace) -> None:
        """Give the place up; a second time changes nothing."""
        if place not in self._places:
            return
        self._places.remove(place)
        self.work(place)
        if place.subscriber is not None:
            self._by_subscriber[place.subscriber] -= 1
            if not self._by_subscriber[place.subscriber]:  # else the table would grow with every address
                del self._by_subscriber[place.subscriber]
        # Below this share of the limit there is room again, as far as the log is concerned.
        recovered = 0.75
        if len(self._places) < self._limit * recovered:
            self._crowd.worked()

    def wait(self, place: ConnectionPlace) -> None:
        """Note that the server waits for a request on this connection."""
        if place in self._places:
            self._waiting[place] = None

    def hold(self, place: ConnectionPlace, held_bytes: int) -> None:
        """Note how much of an unfinished request is in memory; beyond the bound the oldest gives way."""
        if place not in self._waiting:
            return
        self._held_bytes += held_bytes - place.held_bytes
        place.held_bytes = held_bytes
        self._holding[place] = None
        while self._held_bytes > HELD_MAX_BYTES:
            self._evict(next(iter(self._holding)))

    def work(self, place: ConnectionPlace) -> None:
        """Note that the connection does not wait any more."""
        self._waiting.pop(place, None)
        if place.held_bytes:
            self._held_bytes -= place.held_bytes
            place.held_bytes = 0
        self._holding.pop(place, None)

    def _counted(self, address: str) -> str | None:
        if not self._per_address or address in self._exempt:
            return None
        return subscriber(address)

    def _evict(self, place: ConnectionPlace) -> None:
        evict = place.evict
        self.leave(place)
        if evict is not None:
            evict()


def room(wanted: int) -> int:
    """Return how many connections there may be: as many as wanted, if there are descriptors for them.

    Raise the limit of this process for that, as far as the operator allows. Raise ConfigurationError if
    the process may have fewer than DESCRIPTORS_MIN: it would run out of them at work.
    """
    needed = wanted + RESERVED_DESCRIPTORS
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < needed:
        soft = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return wanted
    if soft < DESCRIPTORS_MIN:
        raise ConfigurationError(
            f"The server may open {soft} files at a time and needs at least {DESCRIPTORS_MIN}, one for each "
            "connection: raise the limit (`ulimit -n`, or `LimitNOFILE` of systemd)."
        )
    return min(wanted, max(soft - RESERVED_DESCRIPTORS, CONNECTIONS_MIN))

"""The principals of open sockets whose access may have ended: checked after an announcement or slowly.

A removal by this process is known before its request is answered; one by another process as soon as its
hint arrives. The hub's poll finds a removal whose hint was lost.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Protocol
from weakref import WeakSet

from conversations import live
from conversations.hints import Hint
from conversations.outages import Outage
from sessions_app import astore
from sessions_app.models import ACCESS_GROUP, AccessRemoval, ApiToken

GROUP = ACCESS_GROUP
"""The group of the hints that `take` handles."""

# A handshake takes less. If the user's access was reduced this shortly before, the principal may have been
# checked before that, so it is checked again.
ARRIVING_S = 30.0

_unseen = Outage(
    __name__, "Access that was taken away could not be looked for", "Access that was taken away is seen again"
)
_lock = threading.Lock()
# Weak, so that a socket need not sign off, however it ends.
_guests: defaultdict[int, WeakSet[Watched]] = defaultdict(WeakSet)
_removed: dict[int, float] = {}
"""The users whose access was reduced in the last ARRIVING_S, with the time of `time.monotonic`."""


class Watched(Protocol):
    """A principal of an open socket."""

    checked_at: datetime
    """When its credentials were last found valid."""

    def suspect(self) -> None:
        """Require a check of the principal's credentials before its next action, from any thread."""


def watch(user_id: int, principal: Watched) -> None:
    """Notify this principal when the user's access is reduced."""
    with _lock:
        _guests[user_id].add(principal)
        is_new_removal = time.monotonic() - _removed.get(user_id, -ARRIVING_S) < ARRIVING_S
    if is_new_removal:
        principal.suspect()


_listeners: list[Callable[[int], None]] = []


def add_listener(listen: Callable[[int], None]) -> None:
    """Call `listen` with the key of each user whose access is reduced, in any thread, from now on."""
    _listeners.append(listen)


def _tell(user_id: int) -> None:
    for listen in _listeners:  # caches first: the checks below must not find what they knew before
        listen(user_id)
    now = time.monotonic()
    with _lock:
        for old in [each for each, moment in _removed.items() if now - moment > ARRIVING_S]:
            del _removed[old]
        _removed[user_id] = now
        told = list(_guests.get(user_id, ()))
    for principal in told:
        principal.suspect()


def _listen(hint: Hint) -> None:
    if hint["kind"] == "access":
        _tell(hint["user"])


live.add_listener(_listen)


async def take(hint: Hint) -> None:
    match hint["kind"]:
        case "access":
            _tell(hint["user"])
        case "polled":
            with _unseen.counted():
                await astore.call(_look)


def _look() -> None:
    """Find removals whose hints were lost, and tokens that have expired."""
    with _lock:
        for user_id in [each for each, principals in _guests.items() if not principals]:
            del _guests[user_id]
        watched = {user_id: list(principals) for user_id, principals in _guests.items()}
    ApiToken.objects.end_lapsed()  # first, since it notes removals
    removals = AccessRemoval.objects.filter(pk__in=list(watched))
    # Clocks of two processes differ by less: a removal this shortly before a check counts as later.
    skew = timedelta(seconds=30)
    for user_id, removed_at in removals.values_list("pk", "removed_at") if watched else ():
        for principal in watched[user_id]:
            if principal.checked_at <= removed_at + skew:
                principal.suspect()

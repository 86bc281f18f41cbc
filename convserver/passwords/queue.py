"""Requests that bring a password wait in a queue on the event loop, where they occupy no thread.

Attempts at an account with many wrong passwords, from any address, are delayed. An account is never locked:
the right password logs in after the delay.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from django.http import HttpRequest

from convserver.configuration import UNKNOWN_BODY_MAX_BYTES
from convserver.passwords.hashers import COMPUTATIONS_MAX
from convserver.passwords.login_throttle import AccountAttempts
from convserver.serving.admission import Limit
from sessions_app.event_loops import PerEventLoop
from sessions_app.identity.addresses import subscriber

LOGINS = frozenset({"login", "admin:login"})
VIEWS = LOGINS | frozenset(
    {
        "settings-password",
        "admin:password_change",
        "admin:auth_user_add",
        "admin:auth_user_password_change",
    }
)
"""The views that compute passwords."""
WAITING_MAX = 40  # the requests that wait; further ones are refused
WAITING_OF_ONE_MAX = 8  # those of one address
WAIT_S = 10.0
RETRY_AFTER_S = 5
_REFUSED = "is_refused_by_password_queue"  # the attribute of a request whose password is not computed


class PasswordQueue:
    """The queue of one event loop, with one slot for each password that is computed at a time."""

    def __init__(self) -> None:
        self._slots = asyncio.Semaphore(COMPUTATIONS_MAX)
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def slot(self, request: HttpRequest, view_name: str) -> AsyncIterator[list[Limit]]:
        """Wait for a slot; mark a request that gets none, so that its form refuses it.

        The slot is released at the end of the block, unless it is taken out of the list.
        """
        # Before the slot: an attempt that is delayed keeps no other from its turn.
        if view_name in LOGINS and (name := _username_in(request)):
            await asyncio.sleep(await asyncio.to_thread(AccountAttempts(name).one_more))
        is_admitted = await self._is_admitted(subscriber(request.META.get("REMOTE_ADDR", "")))
        if not is_admitted:
            setattr(request, _REFUSED, True)
        held: list[Limit] = [self._slots] if is_admitted else []
        try:
            yield held
        finally:
            for limit in held:
                limit.release()

    async def _is_admitted(self, client: str) -> bool:
        """Wait for a slot; return False if too many requests wait, or after WAIT_S."""
        if self._waiting.total() >= WAITING_MAX or self._waiting[client] >= WAITING_OF_ONE_MAX:
            return False
        self._waiting[client] += 1
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._slots.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]


_queues = PerEventLoop(PasswordQueue)


def password_queue() -> PasswordQueue:
    """Return the queue of the running event loop."""
    return _queues.get()


def is_refused(request: HttpRequest) -> bool:
    """Return whether the request got no slot, so that its password must not be computed."""
    return bool(getattr(request, _REFUSED, False))


def _username_in(request: HttpRequest) -> str:
    """Return the user name in a login's form; empty in any other form, and in one that cannot be read."""
    try:
        if int(request.META.get("CONTENT_LENGTH") or 0) > UNKNOWN_BODY_MAX_BYTES:
            return ""  # no login is this long, and to parse it here would hold up the event loop
        return str(request.POST.get("username", ""))
    except Exception:  # the view reads the form again and reports the error
        return ""

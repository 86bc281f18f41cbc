"""Requests that bring a password: they take turns, and wait on the event loop, where waiting costs nothing.

An account that many wrong passwords were tried at, from whatever addresses, is tried more slowly. It is
never locked: who knows the password logs in after the delay.
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
from convserver.serving.admission import Line
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
WAITING_MAX = 40
"""At most this many requests wait for their turn; further ones are refused."""
WAITING_OF_ONE_MAX = 8
"""At most this many of them are of one address."""
WAIT_S = 10.0
RETRY_AFTER_S = 5
_REFUSED = "is_refused_by_password_line"
"""The attribute of a request whose password is not to be computed."""


class PasswordLine:
    """The turns of one event loop."""

    def __init__(self) -> None:
        self._turns = asyncio.Semaphore(COMPUTATIONS_MAX)
        self._waiting: Counter[str] = Counter()

    @asynccontextmanager
    async def turn(self, request: HttpRequest, view_name: str) -> AsyncIterator[list[Line]]:
        """Wait for a turn. A request that gets none is marked, so that its form refuses it.

        The turn ends with the block, unless it is taken out of the list.
        """
        if view_name in LOGINS:
            await self._slow_down(request)
        is_admitted = await self._is_admitted(subscriber(request.META.get("REMOTE_ADDR", "")))
        if not is_admitted:
            setattr(request, _REFUSED, True)
        held: list[Line] = [self._turns] if is_admitted else []
        try:
            yield held
        finally:
            for line in held:
                line.release()

    async def _slow_down(self, request: HttpRequest) -> None:
        """Wait for as long as attempts at this account have to."""
        name = _username_in(request)
        if name:
            delay_s = await asyncio.to_thread(AccountAttempts(name).one_more)
            await asyncio.sleep(delay_s)

    async def _is_admitted(self, client: str) -> bool:
        """Wait for a turn; False if too many wait already, or if it takes too long."""
        if self._waiting.total() >= WAITING_MAX or self._waiting[client] >= WAITING_OF_ONE_MAX:
            return False
        self._waiting[client] += 1
        try:
            async with asyncio.timeout(WAIT_S):
                return await self._turns.acquire()
        except TimeoutError:
            return False
        finally:
            self._waiting[client] -= 1
            if not self._waiting[client]:
                del self._waiting[client]


_lines = PerEventLoop(PasswordLine)


def password_line() -> PasswordLine:
    """Return the line of the running event loop."""
    return _lines.get()


def is_refused(request: HttpRequest) -> bool:
    """Say whether the request got no turn, so that nobody may compute its password."""
    return bool(getattr(request, _REFUSED, False))


def _username_in(request: HttpRequest) -> str:
    """Return the name in a login's form; empty in any other form, and in one that cannot be read."""
    try:
        if int(request.META.get("CONTENT_LENGTH") or 0) > UNKNOWN_BODY_MAX_BYTES:
            return ""
        return str(request.POST.get("username", ""))
    except Exception:  # the view reads the form again, and says what is wrong with it
        return ""

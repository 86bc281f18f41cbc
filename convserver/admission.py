"""Which requests that change something have a thread: a few for each conversation, and never all threads.

Whoever changes something may have to wait for a lock that somebody else holds, and keeps a thread meanwhile.
The others wait here, on the event loop, where waiting costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from weakref import WeakKeyDictionary, WeakValueDictionary

THREADS = 32
"""At most this many requests are in views at a time; the others wait for a thread."""
WRITERS = 24
"""At most this many of them may change something; the other threads are left to those that read."""
WRITERS_OF_ONE = 4
"""At most this many of them change the same conversation, which takes one change after the other anyway."""


class Place:
    """Leave to change something, in a thread that somebody may have to wait for."""

    def __init__(self, lines: Iterable[asyncio.Semaphore]) -> None:
        self._loop = asyncio.get_running_loop()
        self._lines = list(lines)
        self.is_used = False
        """A thread is at it, and gives it up at its end, also if nobody waits for the answer any more."""

    def use(self) -> None:
        """Note that this thread is at it."""
        self.is_used = True

    def leave(self) -> None:
        """Give it up, on the event loop; a second time changes nothing."""
        lines, self._lines = self._lines, []
        for line in lines:
            line.release()

    def leave_from_thread(self) -> None:
        """Give it up, in any thread."""
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.leave)


class Admission:
    """The places of one event loop."""

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(WRITERS)
        self._by_conversation: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def place(self, conversation_id: str | None, *, within_s: float) -> Place:
        """Wait for a place to change this conversation, or whatever else. Raise TimeoutError after so long.

        Who waits for one of the conversation's keeps nobody from one of all.
        """
        held: list[asyncio.Semaphore] = []
        try:
            async with asyncio.timeout(within_s):
                for line in self._lines(conversation_id):
                    await line.acquire()
                    held.append(line)
        except BaseException:
            for line in held:
                line.release()
            raise
        return Place(held)

    def _lines(self, conversation_id: str | None) -> list[asyncio.Semaphore]:
        if conversation_id is None:
            return [self._all]
        line = self._by_conversation.get(conversation_id)
        if line is None:  # it lasts for as long as anybody is in it
            line = self._by_conversation[conversation_id] = asyncio.Semaphore(WRITERS_OF_ONE)
        return [line, self._all]


_admissions: WeakKeyDictionary[asyncio.AbstractEventLoop, Admission] = WeakKeyDictionary()


def admission() -> Admission:
    """Return the admission of the running event loop."""
    loop = asyncio.get_running_loop()
    if loop not in _admissions:
        _admissions[loop] = Admission()
    return _admissions[loop]

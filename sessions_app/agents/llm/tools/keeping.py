"""The tools of a turn, open until its end is stored, also while it waits for the user.

All calls of a turn go to the same processes, which may keep a state between calls. At most KEPT_MAX waiting
turns of this server keep their processes, each for at most KEPT_S.
"""

from __future__ import annotations

import asyncio

import structlog

from conversations.events import ConversationRef
from sessions_app.agents.llm.tools.hands import Hands
from sessions_app.agents.llm.tools.opening import Needed, OpenTools, needed, open_tools
from sessions_app.event_loops import PerEventLoop, uncancelled

logger = structlog.stdlib.get_logger(__name__)

KEPT_S = 600.0
KEPT_MAX = 32


class TurnTools:
    """The tools of a conversation's turns."""

    def __init__(self, conversation: ConversationRef, *, only_reading: bool) -> None:
        self._conversation = conversation
        self._only_reading = only_reading
        self._hands = Hands(conversation)
        self._turn_id = ""
        self._needed: Needed | None = None
        self._open: OpenTools | None = None
        self._ending: asyncio.TimerHandle | None = None
        self._closing: set[asyncio.Task[None]] = set()

    async def of(self, turn_id: str) -> OpenTools:
        """Return the tools of a turn, which stay open unless the settings change."""
        self._expect_use()
        wanted = await needed(self._conversation, only_reading=self._only_reading)
        if self._open is None or (turn_id, wanted) != (self._turn_id, self._needed):
            self.let_go()
            self._open = await open_tools(wanted, self._hands, only_reading=self._only_reading)
            self._turn_id, self._needed = turn_id, wanted
        return self._open

    def wait(self) -> None:
        """Keep the tools of a waiting turn for KEPT_S, and close those of the oldest beyond KEPT_MAX."""
        if self._open is None:
            return
        waiting = _waiting.get()
        waiting[self] = None
        self._ending = asyncio.get_running_loop().call_later(KEPT_S, self.let_go)
        if len(waiting) > KEPT_MAX:
            next(iter(waiting)).let_go()

    def let_go(self) -> None:
        """Close the tools in the background."""
        # Programs may take seconds to end, and readers see the answer before that.
        self._expect_use()
        if self._open is not None:
            closing = asyncio.get_running_loop().create_task(self._take().close())
            self._closing.add(closing)
            closing.add_done_callback(self._note_closed)

    async def close(self) -> None:
        """Close the tools, and wait for their end: the loop is over."""
        self.let_go()
        try:
            await self._hands.close()
        finally:
            if self._closing:
                await uncancelled(asyncio.wait(set(self._closing)))

    def _take(self) -> OpenTools:
        opened, self._open = self._open, None
        assert opened is not None  # noqa: S101 - asked before
        return opened

    def _expect_use(self) -> None:
        _waiting.get().pop(self, None)
        if self._ending is not None:
            self._ending.cancel()
            self._ending = None

    def _note_closed(self, closing: asyncio.Task[None]) -> None:
        self._closing.discard(closing)
        if not closing.cancelled() and (error := closing.exception()) is not None:
            logger.error("The tools of a turn could not be closed", error=str(error))


_waiting: PerEventLoop[dict[TurnTools, None]] = PerEventLoop(dict)
"""The tools of waiting turns, the oldest first."""

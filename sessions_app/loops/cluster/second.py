"""The manager of a second server on one SQLite file: it runs no loop until the first one has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import structlog

from conversations.models import ConversationRef
from conversations.outages import Outage
from sessions_app.loops.cluster.loopless import LooplessConversationManager
from sessions_app.loops.manager import SWEEP_S
from sessions_app.models import AgentLoop

logger = structlog.stdlib.get_logger(__name__)

LOOK_S = 1.0

_unready = Outage(
    __name__, "The check of the database failed and is tried again", "The database is checked again"
)


class SecondConversationManager(LooplessConversationManager):
    """Leaves the loops to the first server of the file, whose sweep finds what is asked here.

    A loop that nothing is asked of is not started from here: it starts with the next message.
    """

    keeps_house = True
    claim_wait_s = 0.0
    may_run_loops: Callable[[], bool]
    """Says whether the first server has ended and this one takes its place. The command line sets it."""

    def _works(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        return (*super()._works(), self._wait_to_be_first)

    async def _check(self) -> None:
        while self._leaves_loops:
            with _unready.counted():
                await self._require_ready()
            await asyncio.sleep(SWEEP_S)

    async def _wait_to_be_first(self) -> None:
        while not type(self).may_run_loops():  # noqa: ASYNC110 - another process tells nobody that it ends
            await asyncio.sleep(LOOK_S)
        self._leaves_loops = False
        logger.warning("The other server has ended: this one runs the agents from now on")
        self._own(self._sweep())
        self._own(self._stop_deactivated())

    def _request_start(self, conversation: ConversationRef) -> None:
        """Have its state known, which is `stopped`: the first server would have nothing to do."""
        AgentLoop.objects.get_or_create(conversation_id=conversation.pk)

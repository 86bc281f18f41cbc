"""What all managers have in common that leave the loops to other processes."""

from __future__ import annotations

import asyncio
import time
from abc import abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from conversations.events import NewEvent
from conversations.models import Conversation, ConversationRef
from conversations.outages import Outage
from conversations.server_log import ids_of
from sessions_app import astore
from sessions_app.agents.remote import names
from sessions_app.loops import commands, pending_work, recovery, titles
from sessions_app.loops.conversation_manager import AgentLoopInfo
from sessions_app.loops.manager import StandaloneConversationManager
from sessions_app.models import THERE

CLAIM_LOOK_S = 0.1

_untold = Outage(__name__, "An agent could not be told of a message", "Agents are told of messages again")


class LooplessConversationManager(StandaloneConversationManager):
    """Has other processes run the loops; here run only those of remote agents that are attached here."""

    keeps_house = False
    claim_wait_s = 3.0
    """Whoever starts a loop waits at most this long for another process to take it."""
    _leaves_loops = True

    @abstractmethod
    def _request_start(self, conversation: ConversationRef) -> None:
        """Store that the loop is to start, and show it as starting until a process takes it."""

    def _forget_starts(self, conversation: ConversationRef) -> None:
        """Take requests back that nobody has taken: the loop was stopped since."""

    def _works(self) -> Sequence[Callable[[], Coroutine[Any, Any, None]]]:
        """Return those that a process without loops needs: others sweep, and stop deactivated users."""
        return (self._check, self._renew, self._keep_house, self._look_for_commands, self._commands.listen)

    @abstractmethod
    async def _check(self) -> None:
        """Check the database and its guards, for ever: no sweep does it here."""

    async def maybe_start_agent_loop(
        self,
        conversation: ConversationRef,
        settings: Mapping[str, Any] | None = None,
        initial_user_msg: NewEvent | None = None,
    ) -> AgentLoopInfo:
        """Have another process start the loop, and wait for it a little; see the seam."""
        info = await super().maybe_start_agent_loop(conversation, settings, initial_user_msg)
        until = time.monotonic() + self.claim_wait_s
        while info.status not in THERE and time.monotonic() < until:
            await asyncio.sleep(CLAIM_LOOK_S)
            info = (await self._infos(Conversation.objects.filter(pk=conversation.pk)))[0]
        return info

    async def _start(
        self, conversation: ConversationRef, *, patiently: bool = False, stops: int | None = None
    ) -> None:
        """Have a process start the loop; that of a remote agent starts where its program is attached."""
        stops = self._stops.now if stops is None else stops
        if await self._is_ours(conversation):
            await super()._start(conversation, patiently=patiently, stops=stops)
            return
        await self.ensure_started()
        await self._require_unheld(conversation)
        self._require_wanted(conversation, stops)
        await astore.change(self._request_start, conversation)

    async def _start_if_asked(self, conversation: ConversationRef, stops: int) -> None:
        """Notify the holder; where there is none, another process finds what was stored."""
        with _untold.counted(**ids_of(conversation)):  # the message is stored, and found by a look
            if await self._is_ours(conversation):
                await super()._start_if_asked(conversation, stops)
                return
            await astore.change(titles.set_provisional_title, conversation)
            await astore.call(commands.wake_holder, conversation, self._process)

    async def _is_ours(self, conversation: ConversationRef) -> bool:
        """Say whether the loop runs here, if it runs."""
        if conversation.pk in self._loops or not self._leaves_loops:
            return True
        return await astore.call(names.name_of, conversation) is not None

    async def _close_here(self, conversation: ConversationRef, through: int, until: float) -> None:
        """Stop the loop here, or a turn that waits for the user without a loop."""
        if conversation.pk in self._loops or not self._leaves_loops:
            await super()._close_here(conversation, through, until)
        elif await astore.call(pending_work.is_suspended, conversation):
            await astore.change(recovery.stop_unheld, conversation, self._process, through)
        else:
            await astore.change(self._forget_starts, conversation)
            await astore.change(recovery.give_up_unheld, conversation, through)

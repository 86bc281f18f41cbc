"""The repository of a conversation, made ready for its agent before the first request of a turn."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from math import inf
from uuid import uuid4

from conversations.exceptions import ConversationError
from sessions_app import astore
from sessions_app.agents.base import ToolCall, Turn
from sessions_app.agents.llm.tools import hands
from sessions_app.repositories import preparing
from sessions_app.repositories.preparing import NamedRepository

CLONING = "The repository {name} is being cloned into {directory}."
CLONED = "The repository {name} is in {directory}."
NOT_CLONED = "The repository {name} was not cloned. {why} The agent goes on without it."


class AgentRepository:
    """The repository of one conversation in the hands of one loop's agent."""

    def __init__(self, *, only_reads: bool) -> None:
        self._only_reads = only_reads
        self._failed_at = -inf
        self._failure = ""
        self._note = ""
        self._told = ""
        """The failure that the user has read."""

    async def ready(self, turn: Turn) -> str:
        """Clone the repository if it is not there yet, and return what the model reads of its place.

        A failure is stored as a notice, and the turn goes on. A pause ends the clone.
        """
        named = await astore.call(preparing.named_by, turn.conversation)
        if named is None:
            return ""
        offered = await astore.call(hands.offer_of, turn.conversation, only_reads=self._only_reads)
        if not offered.names:
            return ""
        if not named.is_cloned:
            # Each message tries it again, but not each step of a talk without it.
            tried_again_s = 30.0
            if time.monotonic() - self._failed_at > tried_again_s:
                self._failure = self._note = ""
                await self._clone(turn, named)
                self._failed_at = time.monotonic() if self._failure else -inf
            if self._failure:
                return f"It is not in the workspace, because it was not cloned: {self._failure}"
        return f"It is in the directory {named.directory}. {self._note}".rstrip()

    async def _clone(self, turn: Turn, named: NamedRepository) -> None:
        """Clone the repository, and keep why that has failed, or what differs from what was named."""
        shown = {"name": f"`{named.full_name}`", "directory": f"`{named.directory}`"}
        announcing: ToolCall | None = None

        async def report(text: str, *, done: float | None, total: float | None) -> None:
            nonlocal announcing
            if announcing is None:  # not before there is something to show: most failures come before
                event_id = str(uuid4())
                announcing = ToolCall(name="", arguments={}, tool_call_id="", event_id=event_id, seq=-1)
                turn.identify(event_id)
                await turn.notify(CLONING.format(**shown))
            await turn.show_progress(announcing, text, done=done, total=total)

        # A clone may take minutes, in which the user may want to pause.
        working = asyncio.ensure_future(preparing.prepare(turn.conversation, report))
        pausing = asyncio.ensure_future(turn.pausing())
        try:
            await asyncio.wait({working, pausing}, return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                working.cancel()
                with suppress(asyncio.CancelledError):
                    await working
                await turn.checkpoint()
            cloned = await working
            self._note = "" if cloned is None else cloned.note
        except ConversationError as error:
            if self._told != str(error):  # once for each loop: where no sandbox works, it fails each time
                self._told = str(error)
                await turn.notify(NOT_CLONED.format(**shown, why=error))
            self._failure = str(error)
            return
        finally:
            for each in (working, pausing):
                each.cancel()
            await asyncio.gather(working, pausing, return_exceptions=True)
        await turn.notify(f"{CLONED.format(**shown)} {self._note}".rstrip())

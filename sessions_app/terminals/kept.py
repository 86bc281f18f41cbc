"""The terminal of an agent's loop: opened when the agent first needs it, closed with the loop."""

from __future__ import annotations

import asyncio

from conversations.events import ConversationRef
from sessions_app.event_loops import uncancelled
from sessions_app.terminals.terminal import Terminal


class LoopTerminal:
    """The one terminal of a conversation's loop."""

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._terminal: Terminal | None = None
        self._opening = asyncio.Lock()

    async def opened(self) -> Terminal:
        """Return the terminal. Raise as `Terminal.opened` does."""
        async with self._opening:
            if self._terminal is None:
                self._terminal = await Terminal.opened(self._conversation)
            return self._terminal

    async def close(self) -> None:
        """End its programs; a cancellation takes effect after that."""
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            await uncancelled(terminal.close())

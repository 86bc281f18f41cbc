"""Agents for servers in processes of their own (CONVSERVER_AGENT)."""

from __future__ import annotations

import asyncio
import gc
from typing import NoReturn

from sessions_app.agents.base import Turn
from sessions_app.agents.demo import DemoAgent


class StandingStillAgent(DemoAgent):
    """The demo agent, but told to hang it does so, for ever: before it says anything, or inside a tool."""

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        text = "\n".join(event["text"] for event in turn.inputs)
        if "hang at once" in text:
            await _for_ever()
        if "hang in a tool" in text:
            await turn.call_tool("run", {"command": "sleep infinity"})
            await _for_ever()
        await super().play(turn)


class CollectorAgent(DemoAgent):
    """Says whether its process looks for garbage."""

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        await turn.say(f"The collector is {'on' if gc.isenabled() else 'off'}.")


async def _for_ever() -> NoReturn:
    while True:
        await asyncio.Event().wait()

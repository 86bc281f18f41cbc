"""The demo agent, whose words take no time: what is measured is the way to it and back."""

from __future__ import annotations

from django.conf import settings

from sessions_app.agents.base import Turn
from sessions_app.agents.demo import DemoAgent


class PromptAgent(DemoAgent):
    """Plays as the demo agent does, at once."""

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        settings.DEMO_AGENT_WORD_S = 0.0
        await super().play(turn)

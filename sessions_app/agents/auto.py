"""The agent of a server that does not name one: a model where somebody has named one, else the demo agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.agents.base import Agent, AgentFailure, Turn
from sessions_app.agents.demo import CUES, DemoAgent
from sessions_app.agents.llm import choice
from sessions_app.agents.llm.agent import LlmAgent


class AutoAgent:
    """Lets the model or the demo agent play, as the settings are when a turn begins."""

    title = "Automatic"
    description = "A model answers if one is set, otherwise the demo agent."
    takes_conversation = True
    uses_model = True

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._demo = DemoAgent()
        self._llm = LlmAgent(conversation)

    @staticmethod
    def cues_of(user_id: int | None) -> Mapping[str, str]:
        """Return the demo agent's messages for a user whose messages it answers."""
        if user_id is None:
            return CUES
        try:
            return CUES if choice.model_of_user(user_id) is None else {}
        except AgentFailure:  # the model cannot be used, but it answers, and says so
            return {}

    @staticmethod
    def continues_in(conversation: ConversationRef) -> bool:
        """Say whether a model plays, which can go on after a crash."""
        try:
            return choice.model_of(conversation) is not None
        except AgentFailure:  # the model cannot be used, and the turn ends by saying so
            return True

    async def play(self, turn: Turn) -> None:
        """Play one turn."""
        await (await self._agent()).play(turn)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Answer a question beside the conversation."""
        return await (await self._agent()).complete(messages)

    def turn_ended(self) -> None:
        """Pass it on to the model, which keeps tools."""
        self._llm.turn_ended()

    async def loop_ended(self) -> None:
        """Pass it on to the model, which keeps tools."""
        await self._llm.loop_ended()

    async def _agent(self) -> Agent:
        model = await astore.call(choice.model_of, self._conversation)
        return self._demo if model is None else self._llm

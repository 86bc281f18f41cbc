"""The agent of a server that names none: the model, if one is set, otherwise the demo agent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.agents.base import Agent, AgentFailure, Turn
from sessions_app.agents.demo import CUES, DemoAgent
from sessions_app.agents.llm import choice
from sessions_app.agents.llm.agent import LlmAgent
from sessions_app.models import AgentLoop


class AutoAgent:
    """Plays each turn with the model or the demo agent, by the settings at its start."""

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
        """Return the demo agent's commands, unless the user has a model."""
        if user_id is None:
            return CUES
        try:
            return CUES if choice.model_of_user(user_id) is None else {}
        except AgentFailure:  # the model is unusable, and its answer says why
            return {}

    @staticmethod
    def continues_in(conversation: ConversationRef) -> bool:
        """Return whether a model plays, which can go on after a crash."""
        try:
            turn_model = AgentLoop.objects.of(conversation).values_list("turn_model", flat=True).first()
            return choice.model_of(conversation, turn_model) is not None
        except AgentFailure:  # the model is unusable, and its turn ends with the reason
            return True

    async def play(self, turn: Turn) -> None:
        await (await self._agent(turn.model)).play(turn)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return await (await self._agent()).complete(messages)

    def turn_ended(self) -> None:
        self._llm.turn_ended()

    async def loop_ended(self) -> None:
        await self._llm.loop_ended()

    async def _agent(self, of_turn: Mapping[str, Any] | None = None) -> Agent:
        model = await astore.call(choice.model_of, self._conversation, of_turn)
        return self._demo if model is None else self._llm

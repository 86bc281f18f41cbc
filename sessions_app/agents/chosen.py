"""The agent of one conversation: the user's choice, or the configuration's default."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from django.db import Error as DatabaseProblem

from conversations.events import ConversationRef
from sessions_app import astore
from sessions_app.agents import registry
from sessions_app.agents.base import Agent, Turn
from sessions_app.agents.registry import AgentUnusable, class_of
from sessions_app.agents.remote.agent import RemoteAgent
from sessions_app.agents.remote.names import PREFIX, name_in
from sessions_app.settings import run_options

logger = logging.getLogger(__name__)


class ConversationAgent:
    """Plays each turn with the agent of its start, and answers questions with the chosen agent.

    Each agent is created at its first use, and kept as long as this object.
    """

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._made: dict[str, Agent] = {}
        self.class_path = ""
        """Of the newest agent."""

    async def make(self) -> None:
        """Create the agent of the next turn; the turn itself reports an unusable one.

        Raise what its class raises.
        """
        with suppress(AgentUnusable):
            await self._chosen()

    async def play(self, turn: Turn) -> None:
        """Play one turn. Raise AgentUnusable."""
        await (await self._named(turn.agent)).play(turn)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return await (await self._chosen()).complete(messages)

    def turn_ended(self) -> None:
        for agent in self._made.values():
            turn_ended(agent)

    async def loop_ended(self) -> None:
        for agent in self._made.values():
            await loop_ended(agent)

    async def _chosen(self) -> Agent:
        return await self._named(await astore.call(run_options.agent_of, self._conversation))

    async def _named(self, name: str) -> Agent:
        agent = self._made.get(name)
        if agent is None:
            agent = self._made[name] = await self._make(name)
            self.class_path = path_of(agent)
        return agent

    async def _make(self, name: str) -> Agent:
        remote = name_in(name)
        if remote is not None:
            return RemoteAgent(self._conversation, remote)
        found = await asyncio.to_thread(class_of, name)  # the import may take seconds
        return made_for(found, self._conversation)


def made_for(agent_class: type[Agent], conversation: ConversationRef) -> Agent:
    """Create a conversation's agent of this class."""
    make: Any = agent_class
    agent: Agent = make(conversation) if getattr(agent_class, "takes_conversation", False) else make()
    return agent


def turn_ended(agent: Agent) -> None:
    """Call `turn_ended` of an agent that has it; log what it raises."""
    try:
        if (listen := getattr(agent, "turn_ended", None)) is not None:
            listen()
    except Exception:  # of any package's agent: the turn is stored, and the loop goes on
        logger.exception("An agent failed after its turn")


async def loop_ended(agent: Agent) -> None:
    """Call `loop_ended` of an agent that has it; log what it raises."""
    try:
        if (listen := getattr(agent, "loop_ended", None)) is not None:
            await listen()
    except Exception:
        logger.exception("An agent failed after its loop")


def path_of(agent: Agent) -> str:
    """Return the dotted path of an agent's class, or a remote agent's name."""
    if isinstance(agent, ConversationAgent):
        return agent.class_path
    if isinstance(agent, RemoteAgent):
        return f"{PREFIX}{agent.name}"
    return f"{type(agent).__module__}.{type(agent).__qualname__}"


def uses_model() -> bool:
    """Return whether any agent that users can choose calls the model of their settings."""
    return any(kind.uses_model for kind in registry.kinds())


def needs_model(name: str = "") -> bool:
    """Return whether an agent needs settings with a model's key."""
    try:
        return bool(getattr(class_of(name), "needs_model", False))
    except AgentUnusable:  # its turn says so
        return False


def conversation_needs_model(conversation: ConversationRef) -> bool:
    """Return whether the conversation's agent needs settings with a model's key."""
    return needs_model(run_options.agent_of(conversation))


def continues(conversation: ConversationRef, name: str = "") -> bool:
    """Return whether an agent can continue a turn of the conversation after a crash."""
    if name_in(name) is not None:
        return True
    try:
        agent_class = class_of(name)
        if (continues_in := getattr(agent_class, "continues_in", None)) is not None:
            return bool(continues_in(conversation))
    except DatabaseProblem:  # which says nothing about the agent
        raise
    except Exception:
        logger.warning("An agent failed when asked whether it continues", exc_info=True)
        return False
    return bool(getattr(agent_class, "continues", False))


def cues(user_id: int | None, name: str = "") -> Mapping[str, str]:
    """Return the messages that an agent suggests to a user, with what each does.

    A class has `cues`, or a function `cues_of` if they depend on the user; most have none.
    """
    try:
        agent_class = class_of(name)
    except AgentUnusable:
        return {}
    if (cues_of := getattr(agent_class, "cues_of", None)) is not None:
        return cast(Mapping[str, str], cues_of(user_id))
    offered: Mapping[str, str] = getattr(agent_class, "cues", {})
    return offered


def cues_in(conversation: ConversationRef) -> Mapping[str, str]:
    """Return the cues of a conversation's agent for its owner."""
    return cues(conversation.owner_id, run_options.agent_of(conversation))

"""The agent of one conversation: what its user has chosen for it, or what the configuration names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from django.db import Error as DatabaseProblem

from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.agents import registry
from sessions_app.agents.base import Agent, Turn
from sessions_app.agents.registry import AgentUnusable, class_of
from sessions_app.agents.remote.agent import RemoteAgent
from sessions_app.agents.remote.names import PREFIX, name_in
from sessions_app.settings import run_options

logger = logging.getLogger(__name__)


class ConversationAgent:
    """Lets each turn be played by the agent that it began with, and questions be answered by the chosen one.

    An agent is made when it is first asked for, and kept as long as this object.
    """

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._made: dict[str, Agent] = {}
        self.class_path = ""
        """The path of the class that was made last."""

    async def make(self) -> None:
        """Make the agent of the next turn, unless it is unusable, which the turn will say.

        Raise whatever its class raises.
        """
        with suppress(AgentUnusable):
            await self._chosen()

    async def play(self, turn: Turn) -> None:
        """Play one turn. Raise AgentUnusable if its agent cannot be used any more."""
        agent = await self._named(turn.agent)
        await agent.play(turn)

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Answer a question beside the conversation."""
        agent = await self._chosen()
        return await agent.complete(messages)

    def turn_ended(self) -> None:
        """Tell the agents that were made, as far as they listen."""
        for agent in self._made.values():
            turn_ended(agent)

    async def loop_ended(self) -> None:
        """Tell the agents that were made, as far as they listen."""
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
        found = await asyncio.to_thread(class_of, name)  # to import it may take long
        return made_for(found, self._conversation)


def made_for(agent_class: type[Agent], conversation: ConversationRef) -> Agent:
    """Create a conversation's agent of this class."""
    make: Any = agent_class
    agent: Agent = make(conversation) if getattr(agent_class, "takes_conversation", False) else make()
    return agent


def turn_ended(agent: Agent) -> None:
    """Tell an agent that the end of its turn is stored, if it listens."""
    try:
        if (listen := getattr(agent, "turn_ended", None)) is not None:
            listen()
    except Exception:
        logger.exception("An agent failed after its turn")


async def loop_ended(agent: Agent) -> None:
    """Tell an agent that its loop is over, if it listens."""
    try:
        if (listen := getattr(agent, "loop_ended", None)) is not None:
            await listen()
    except Exception:
        logger.exception("An agent failed after its loop")


def path_of(agent: Agent) -> str:
    """Return the dotted path of an agent's class; of a remote agent its name."""
    if isinstance(agent, ConversationAgent):
        return agent.class_path
    if isinstance(agent, RemoteAgent):
        return f"{PREFIX}{agent.name}"
    return f"{type(agent).__module__}.{type(agent).__qualname__}"


def uses_model() -> bool:
    """Say whether the settings of a user's model have an effect on an agent that can be chosen."""
    return any(kind.uses_model for kind in registry.kinds())


def needs_model(name: str = "") -> bool:
    """Say whether an agent calls a model, for which a user needs settings with a key."""
    try:
        return bool(getattr(class_of(name), "needs_model", False))
    except AgentUnusable:  # its turn says so
        return False


def conversation_needs_model(conversation: ConversationRef) -> bool:
    """Say the same of a conversation's agent."""
    return needs_model(run_options.agent_of(conversation))


def continues(conversation: ConversationRef, name: str = "") -> bool:
    """Say whether an agent can play a turn of the conversation on that a crash has cut off."""
    if name_in(name) is not None:
        return True
    try:
        agent_class = class_of(name)
        if (continues_in := getattr(agent_class, "continues_in", None)) is not None:
            return bool(continues_in(conversation))
    except DatabaseProblem:
        raise
    except Exception:
        logger.warning("An agent cannot be asked whether it goes on", exc_info=True)
        return False
    return bool(getattr(agent_class, "continues", False))


def cues(user_id: int | None, name: str = "") -> Mapping[str, str]:
    """Return the messages that an agent suggests to a user, and what each does; most agents have none.

    A class whose `cues` depend on the user has a function `cues_of`.
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
    """Return the messages that a conversation's agent suggests to its owner."""
    return cues(conversation.owner_id, run_options.agent_of(conversation))

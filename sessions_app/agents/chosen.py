"""The agent class that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, cast

from django.conf import settings
from django.utils.module_loading import import_string

from conversations.models import ConversationRef
from sessions_app.agents.base import Agent


def chosen_agent() -> type[Agent]:
    """Return the agent's class, which CONVSERVER_AGENT names."""
    return _agent_class(settings.CONFIGURATION.agent)


def made_for(agent_class: type[Agent], conversation: ConversationRef) -> Agent:
    """Create a conversation's agent of this class."""
    make: Any = agent_class
    agent: Agent = make(conversation) if getattr(agent_class, "takes_conversation", False) else make()
    return agent


def uses_model() -> bool:
    """Say whether the settings of a user's model have an effect on the agent."""
    return bool(getattr(chosen_agent(), "uses_model", False)) or needs_model()


def needs_model() -> bool:
    """Say whether the agent calls a model, for which a user needs settings with a key."""
    return bool(getattr(chosen_agent(), "needs_model", False))


def cues(user_id: int | None) -> Mapping[str, str]:
    """Return the messages that the agent suggests to a user, and what each does; most agents have none.

    A class whose `cues` depend on the user has a function `cues_of`.
    """
    agent_class = chosen_agent()
    if (cues_of := getattr(agent_class, "cues_of", None)) is not None:
        return cast(Mapping[str, str], cues_of(user_id))
    offered: Mapping[str, str] = getattr(agent_class, "cues", {})
    return offered


@cache
def _agent_class(path: str) -> type[Agent]:
    return cast(type[Agent], import_string(path))

"""The agent class that the configuration names."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import cast

from django.conf import settings
from django.utils.module_loading import import_string

from sessions_app.agents.base import Agent


def chosen_agent() -> type[Agent]:
    """Return the agent's class, which CONVSERVER_AGENT names."""
    return _agent_class(settings.CONFIGURATION.agent)


def needs_model() -> bool:
    """Say whether the agent calls a model, for which a user needs settings with a key."""
    return bool(getattr(chosen_agent(), "needs_model", False))


def cues() -> Mapping[str, str]:
    """Return the messages that the agent suggests, and what each does; most agents have none."""
    offered: Mapping[str, str] = getattr(chosen_agent(), "cues", {})
    return offered


@cache
def _agent_class(path: str) -> type[Agent]:
    return cast(type[Agent], import_string(path))

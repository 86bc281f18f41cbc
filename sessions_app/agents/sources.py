"""The paths of agents: those built in, and those of installed packages. None is imported here."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Final

logger = logging.getLogger(__name__)

BUILT_IN_AGENTS: Final[Mapping[str, str]] = {
    "auto": "sessions_app.agents.auto.AutoAgent",
    "demo": "sessions_app.agents.demo.DemoAgent",
    "llm": "sessions_app.agents.llm.agent.LlmAgent",
    "plan": "sessions_app.agents.plan.PlanAgent",
    "replay": "sessions_app.agents.replay.agent.ReplayAgent",
}
"""Dotted paths of classes by the agents' names; the first is the default."""
REMOTE: Final = "remote"
"""The operator's name for all agents that are programs outside the server."""
GROUP: Final = "convserver.agents"
"""The group of entry points of packages with agents."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)


def paths() -> Mapping[str, str]:
    """Return the dotted path of each agent's class by the agent's name, those built in first."""
    return {**BUILT_IN_AGENTS, **packaged()}


@cache
def packaged() -> Mapping[str, str]:
    """Return the dotted paths of installed packages' agents by their names, sorted; read once.

    A package cannot take the name of a built-in agent, and of two with one name the first is used.
    """
    found: dict[str, str] = {}
    # Sorted, since the order of entry points is that of directories on the disk.
    for point in sorted(entry_points(group=GROUP), key=lambda point: (point.name, point.value)):
        if point.name in BUILT_IN_AGENTS or point.name in found or not _NAME.fullmatch(point.name):
            logger.warning("The agent %r of an installed package is left out: rename it", point.name)
        else:
            found[point.name] = f"{point.module}.{point.attr}"
    return found

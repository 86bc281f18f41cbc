"""The agents of this server by their names, and which of them users may choose."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Mapping
from functools import cache
from typing import NamedTuple, cast

from django.conf import settings
from django.utils.module_loading import import_string

from sessions_app.agents import sources
from sessions_app.agents.base import Agent, AgentFailure
from sessions_app.agents.remote.names import name_in

logger = logging.getLogger(__name__)

UNKNOWN = "This server has no agent `{name}`. Choose another one for this conversation."
NOT_OFFERED = "The agent `{name}` isn't offered on this server. Choose another one for this conversation."
UNUSABLE = "The agent `{name}` can't be used: {why}."
NO_PLAY = "its class has no `play`"


class AgentUnusable(AgentFailure):
    """A chosen agent cannot play; the text says why."""


class AgentKind(NamedTuple):
    """An agent as forms show it."""

    name: str
    title: str
    description: str = ""
    uses_model: bool = False
    """Whether it calls the model of the settings."""
    is_default: bool = False
    problem: str = ""
    """Why it cannot be used; empty if it can."""
    connected: bool | None = None
    """Whether a remote agent's program is connected; None for the server's own agents."""


def default_name() -> str:
    """Return the name of the default agent; the path of a class that has no name."""
    path = settings.CONFIGURATION.agent
    return next((name for name, each in sources.paths().items() if each == path), path)


def offered() -> Mapping[str, str]:
    """Return the dotted paths of the agents that users may choose, by their names, the default first."""
    # The default also where the operator's list does not have it: a conversation must have an agent.
    default = default_name()
    allowed = settings.CONFIGURATION.agents
    found = {name: path for name, path in sources.paths().items() if not allowed or name in allowed}
    return {default: settings.CONFIGURATION.agent, **found}


def path_of(name: str) -> str:
    """Return the dotted path of an agent's class, or a remote agent's name; empty for an unknown agent."""
    if name_in(name) is not None:
        return name
    return offered().get(name or default_name(), "")


def class_of(name: str = "") -> type[Agent]:
    """Return an agent's class, imported at its first use; without a name, the default one.

    Raise AgentUnusable with a sentence for the user if a chosen agent is unknown, not offered or cannot be
    imported. A default agent that cannot be imported raises its own error.
    """
    if not name or name == default_name():
        return _imported(settings.CONFIGURATION.agent)
    path = offered().get(name)
    if path is None:
        raise AgentUnusable((NOT_OFFERED if name in sources.paths() else UNKNOWN).format(name=name))
    if path not in _unimportable:
        try:
            return _imported(path)
        except Exception as error:  # modules of others raise anything
            logger.warning("The agent %r cannot be imported", name, exc_info=error)
            _unimportable[path] = _reason(error)
    raise AgentUnusable(UNUSABLE.format(name=name, why=_unimportable[path]))


def kinds() -> list[AgentKind]:
    """Return the agents that users may choose, the default first; this imports them."""
    return [_kind(name, number == 0) for number, name in enumerate(offered())]


def require_offered(name: str) -> None:
    """Raise AgentUnusable with a sentence that names the offered agents, unless this is one."""
    names = offered()
    if name_in(name) is not None:
        require_remote()
        return
    if name not in names:
        raise AgentUnusable(f"There is no agent {name!r} to choose. There are {', '.join(names)}.")
    class_of(name)


def remote_is_offered() -> bool:
    """Return whether users' own programs may play turns."""
    allowed = settings.CONFIGURATION.agents
    return not allowed or sources.REMOTE in allowed


def require_remote() -> None:
    """Raise AgentUnusable unless users' own programs may play turns."""
    if not remote_is_offered():
        raise AgentUnusable("This server lets no programs outside it play an agent's turns.")


def _kind(name: str, is_default: bool) -> AgentKind:
    try:
        found = class_of(name)
    except Exception as error:  # a form must show the other agents
        problem = str(error) if isinstance(error, AgentUnusable) else _reason(error)
        return AgentKind(name, _title(name), is_default=is_default, problem=problem)
    return AgentKind(
        name,
        title=str(getattr(found, "title", "") or _title(name)),
        description=str(
            getattr(found, "description", "") or (inspect.getdoc(found) or "").partition("\n")[0]
        ),
        uses_model=any(getattr(found, each, False) for each in ("uses_model", "needs_model")),
        is_default=is_default,
    )


def _title(name: str) -> str:
    """Return a title for an agent that has none."""
    plain = name.rpartition(".")[2].replace("_", " ").replace("-", " ")
    return plain[:1].upper() + plain[1:]


def _reason(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text.rstrip(".")


# By path: an import is tried once, since it may take seconds and would fail again.
_unimportable: dict[str, str] = {}


@cache
def _imported(path: str) -> type[Agent]:
    found = import_string(path)
    if not callable(getattr(found, "play", None)):
        raise TypeError(NO_PLAY)
    return cast(type[Agent], found)

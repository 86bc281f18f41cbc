"""Variables that name classes by dotted paths, or agents and stores by their short names."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec

from convserver.variables import ConfigurationError, Given, Parser, words
from sessions_app.agents import sources
from sessions_app.agents.sources import BUILT_IN_AGENTS


def class_path(built_in: Mapping[str, str], what: str) -> Parser:
    """Read the dotted path of a class, whose module exists, or the name of a built-in one."""

    def parse(name: str, text: str, _: Given) -> str:
        if text in built_in:
            return built_in[text]
        if not _may_be_imported(text):
            known = ", ".join(built_in)
            raise ConfigurationError(
                f"{name} is {text!r}, but it must be {known} or the dotted path of {what} class."
            )
        return text

    return parse


def agent(name: str, text: str, given: Given) -> str:
    """Return the dotted path of the agent's class; only an unknown name looks through the packages."""
    if text not in BUILT_IN_AGENTS and not _may_be_imported(text) and text in sources.packaged():
        return sources.packaged()[text]
    path: str = class_path(BUILT_IN_AGENTS, "an agent")(name, text, given)
    return path


def agents(name: str, text: str, given: Given) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(words(name, text, given)))
    for each in names:
        if each not in (*BUILT_IN_AGENTS, sources.REMOTE) and each not in sources.packaged():
            known = ", ".join((*sources.paths(), sources.REMOTE))
            raise ConfigurationError(f"{name} names {each!r}, but the agents of this server are {known}.")
    return names


def hooks(name: str, text: str, given: Given) -> tuple[str, ...]:
    paths = words(name, text, given)
    for path in paths:
        if not _may_be_imported(path):
            raise ConfigurationError(
                f"{name} names {path!r}, but a hook is the dotted path of a class or object."
            )
    return tuple(dict.fromkeys(paths))


def _may_be_imported(path: str) -> bool:
    module, _, attribute = path.rpartition(".")
    try:
        # Found, not imported: its models would need settings, which are read just now.
        return bool(module and attribute and find_spec(module))
    except (ImportError, ValueError):
        return False

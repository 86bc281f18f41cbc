"""The classes that the configuration names: loaded, and checked before the server starts."""

from __future__ import annotations

from typing import Any

from django.utils.module_loading import import_string

from convserver.configuration import BUILT_IN_VALIDATORS, STANDALONE, Configuration
from convserver.variables import ConfigurationError


def require(configuration: Configuration) -> None:
    """Raise ConfigurationError if a class that the configuration names cannot be used."""
    _class_of("CONVSERVER_AGENT", configuration.agent)
    # By their paths: the models that they import need Django to be set up.
    _require_class("CONVSERVER_STORE", configuration.store, "conversations.store.ConversationStore")
    _require_class("CONVSERVER_VALIDATOR", configuration.validator, BUILT_IN_VALIDATORS[STANDALONE])
    _require_class(
        "CONVSERVER_MANAGER",
        configuration.manager,
        "sessions_app.loops.conversation_manager.ConversationManager",
    )


def _require_class(variable: str, path: str, base_path: str) -> None:
    """Raise ConfigurationError unless there is a complete subclass at this path."""
    # Now, not with the first request: a class that is not complete fails only when it is made.
    found, base = _class_of(variable, path), import_string(base_path)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConfigurationError(f"{variable} is {path!r}, but that is no subclass of {base.__name__}.")
    # Of the methods that a configured class lacks, at most this many are named
    missing_shown = 5
    if missing := sorted(getattr(found, "__abstractmethods__", ())):
        raise ConfigurationError(
            f"{variable} is {path!r}, but its class lacks {', '.join(missing[:missing_shown])}."
        )


def _class_of(variable: str, path: str) -> Any:
    try:
        return import_string(path)
    except Exception as error:  # a module of another project may raise anything
        reason = " ".join(str(error).split())
        raise ConfigurationError(f"{variable} is {path!r}, but it cannot be loaded: {reason}.") from error

"""Bugs that are planted to try the suite: each replaces one named function of a server that a run starts."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from django.utils.module_loading import import_string

BUGS = (
    "ack_before_commit",
    "fence_off",
    "seq_reused",
    "hint_trusted",
    "retry_without_key",
    "trigger_gone",
    "lock_gone",
    "digest_not_chained",
    "start_not_awaited",
    "fork_without_key",
    "digest_of_clear_text",
    "ack_before_store",
    "lost_commit_denied",
    "lease_ignored",
    "checkpoint_without_turn",
    "commits_not_synced",
)
"""Each is a module here: REPLACES names the function, `bug` takes the true one and returns the other."""


def plant(name: str) -> None:
    """Replace the bug's function in this process. Raise AttributeError if there is no such function."""
    module: Any = import_module(f"{__name__}.{name}")
    place, _, attribute = module.REPLACES.rpartition(".")
    owner = _at(place)
    setattr(owner, attribute, module.bug(getattr(owner, attribute)))


def _at(place: str) -> Any:
    try:
        return import_module(place)
    except ModuleNotFoundError:
        return import_string(place)

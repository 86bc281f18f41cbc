"""What both wires say of commands beside their text: how they are given, where and how they end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from conversations.dialects import columns


class CommandEnd(NamedTuple):
    """What is known when a command gives its result, beside the exit code."""

    working_directory: str = ""
    """As the command sees it; empty if unknown."""
    has_timed_out: bool = False
    """Whether the command still runs; its exit code is then -1."""


def is_input(arguments: Mapping[str, object]) -> bool:
    """Return whether a call types its command into the program that runs."""
    return arguments.get("is_input") is True


def resets(arguments: Mapping[str, object]) -> bool:
    """Return whether a call wants a new shell."""
    return arguments.get("reset") is True


def timeout_of(arguments: Mapping[str, object]) -> int | float | None:
    """Return the seconds that a call gives its command; None without a usable number."""
    seconds = columns.number(arguments.get("timeout"))
    return seconds if seconds is not None and 0 < seconds < float("inf") else None


def without_defaults(arguments: Mapping[str, object]) -> dict[str, object]:
    """Return what a call says beside its command."""
    seconds = timeout_of(arguments)
    return {
        **({"is_input": True} if is_input(arguments) else {}),
        **({} if seconds is None else {"timeout": seconds}),
        **({"reset": True} if resets(arguments) else {}),
    }


def metadata_of(exit_code: int, end: CommandEnd) -> dict[str, object]:
    """Return the members that both wires have for a command's end; unknown ones are left out."""
    directory = {"working_dir": end.working_directory} if end.working_directory else {}
    return {"exit_code": exit_code, "pid": -1, **directory}

"""Calls of tools as a model writes them, and their outcomes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from conversations.dialects import columns, v1
from conversations.dialects.command_tool import CommandEnd
from conversations.dialects.file_tool import FileEdit
from conversations.payloads import halves
from sessions_app.agents.llm.tools import arguments as arguments_check
from sessions_app.agents.llm.tools.offers import NoServer, Tool
from sessions_app.agents.llm.tools.schemas import NAME_MAX_CHARS

ARGUMENTS_MAX_CHARS = 100_000
SHOWN_MAX_CHARS = 1_000
NAMED_MAX = 50
NO_SUCH_TOOL = "There is no tool `{name}`, so nothing was run. {offer}"
NOT_AN_OBJECT = "The arguments are no JSON object, so nothing was run. Write them again."
NOT_AS_DECLARED = (
    "The arguments don't match the tool's schema, so nothing was run. Write them again, with the names and "
    "types that it has."
)
UNCLEAR = "It is unclear which arguments belong to this call, so nothing was run. Write it again."
CUT_SHORT = (
    "The answer ended at the model's limit of length before this call was complete, so nothing was run. "
    "Write it again with less in one answer: fewer calls, or shorter arguments."
)
FILTERED = (
    "The provider's content filter ended the answer before this call was complete, so nothing was run. Go on "
    "without it, or write it in other words."
)
NOT_VALID = (
    "The arguments don't match the tool's schema, so nothing was run: {problems}. Write all of them again."
)
TOO_LONG = (
    "The arguments have {chars:,} characters, so nothing was run. Write at most {most:,}, in several calls "
    "if need be."
)


class Outcome(NamedTuple):
    """The result of a call, as text."""

    text: str
    is_error: bool = False
    files: tuple[str, ...] = ()
    """Data URLs."""
    exit_code: int | None = None
    """That of a command; None for any other tool."""
    end: CommandEnd | None = None
    """Where and how a command has ended."""
    edit: FileEdit | None = None
    """What a call of the tool for files did to a file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class WantedCall:
    """A call in a model's answer."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    tool: Tool | None = None
    problem: str = ""
    """Why it cannot be run; empty if it can."""
    signed: Sequence[Mapping[str, Any]] = ()
    """Blocks to return to the model's server."""

    @property
    def logged_name(self) -> str:
        """Return the tool's name in the log."""
        if self.tool is None or self.tool.server != NoServer.WORKSPACE:
            return self.name
        return self.tool.own_name


def wanted(name: str, arguments: str, tools: Mapping[str, Tool]) -> WantedCall:
    """Read a call; one that cannot run has its problem, and arguments that can be stored."""
    name = columns.clean(name)[:NAME_MAX_CHARS] or "?"
    text = halves.whole(arguments)
    tool = tools.get(name)
    if text.strip() in ("", "null") and tool is not None and not tool.schema.get("properties"):
        text = "{}"  # some servers write calls without arguments so
    if len(text) > ARGUMENTS_MAX_CHARS:
        problem = TOO_LONG.format(chars=len(text), most=ARGUMENTS_MAX_CHARS)
        return WantedCall(name=name, arguments=_beginning(text), problem=problem)
    given = _object(text)
    if given is None:
        return WantedCall(name=name, arguments=_beginning(text), problem=NOT_AN_OBJECT)
    if tool is None:
        return WantedCall(name=name, arguments=given, problem=no_such_tool(name, tools))
    if tool.server == NoServer.WORKSPACE:  # some models write null for what they leave out
        given = {key: value for key, value in given.items() if value is not None}
    if problems := arguments_check.problems_of(tool.schema, given):
        return WantedCall(name=name, arguments=given, problem=NOT_VALID.format(problems="; ".join(problems)))
    if tool.server == NoServer.CLIENT and v1.client_action(name, tool.schema, given) is None:
        return WantedCall(name=name, arguments=given, problem=NOT_AS_DECLARED)
    return WantedCall(name=name, arguments=tool.own_arguments(given), tool=tool)


def incomplete(name: str, arguments: str, problem: str) -> WantedCall:
    """Return an incomplete call, which is not run."""
    name = columns.clean(name)[:NAME_MAX_CHARS] or "?"
    return WantedCall(name=name, arguments=_beginning(arguments), problem=problem)


def no_such_tool(name: str, tools: Mapping[str, Tool]) -> str:
    """Return the sentence that names the known tools."""
    names = ", ".join(f"`{each}`" for each in list(tools)[:NAMED_MAX])
    offer = f"There are {names}." if names else "There are no tools now."
    return NO_SUCH_TOOL.format(name=name, offer=offer)


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(halves.whole_json(text))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _beginning(text: str) -> dict[str, str]:
    return {"beginning": columns.clean(text[:SHOWN_MAX_CHARS])}

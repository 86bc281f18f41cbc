"""The offered tools of a model: bounded, under names that every provider takes."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

from conversations.dialects import columns
from conversations.dialects.author import COMMAND_TOOL
from conversations.payloads import halves
from sessions_app.agents.llm.tools import schemas
from sessions_app.agents.llm.tools.schemas import NAME_MAX_CHARS

TOOLS_MAX = 128
DESCRIPTION_MAX_CHARS = 4_000
SCHEMA_MAX_CHARS = 20_000
SCHEMA_MAX_DEPTH = 40
# Of all descriptions and schemas together: each request has them.
OFFERED_MAX_CHARS = 200_000
# Names of the wires' own tools: clients would show a call as one of these.
RESERVED = frozenset(
    {"run", "bash", "execute_bash", "terminal", "file_editor", "finish", "think", "message", "recall"}
)
LEFT_OUT = "The tool server `{name}` has more or longer tools than a model can be offered; some are left out."
UNUSABLE = (
    "The tool server `{name}` has tools that can't be offered to a model: {tools}. The others are used."
)
NAMED_MAX = 5
NO_TOOL = "one that is no JSON object"
NO_NAME = "one without a name"
TOO_LONG = "its schema is too long or too deep"
TWICE = "it has the name of another one"

_OFFERED = {COMMAND_TOOL: "terminal"}
"""The offered names of tools that have other names in the log."""
_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)


class NoServer(IntEnum):
    """What carries out a tool that no tool server has, in the place of the server's number."""

    CLIENT = -1  # the client that has declared it
    TURN = -2  # the turn itself: the start names it
    WORKSPACE = -3  # the server, on the files of the conversation (`tools.hands`)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool as a model sees it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """A JSON schema of the arguments, which are an object."""
    server: int
    """The number of its server, or NoServer."""
    own_name: str
    """The name at its server; for a tool of the workspace, in the log."""
    risk: str = "UNKNOWN"
    risks: Mapping[str, str] = field(default_factory=dict)
    """Other risks of calls, by the argument `command`."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """The server's names of the renamed arguments."""

    def own_arguments(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call under the server's names."""
        return {self.renamed.get(name, name): value for name, value in given.items()}

    def risk_of(self, given: Mapping[str, Any]) -> str:
        """Return the risk of a call with these arguments."""
        return self.risks.get(str(given.get("command")), self.risk)

    @property
    def chars(self) -> int:
        """Return its length in each request."""
        return len(self.description) + len(json.dumps(self.schema))


@dataclass(frozen=True, kw_only=True, slots=True)
class Listed:
    """A tool as its server lists it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    is_destructive: bool = False
    """Whether the server says that it destroys something."""
    is_read_only: bool = False
    """Whether the server says that it changes nothing."""


def listed(entries: Sequence[object]) -> tuple[list[Listed], list[str]]:
    """Return the tools in a server's list, and words about unusable ones."""
    tools: dict[str, Listed] = {}
    left_out: list[str] = []
    known: dict[str, object] = {}
    for entry in entries:
        fields = columns.fields(entry)
        name = fields.get("name")
        if not isinstance(name, str) or not name.strip():
            left_out.append(NO_NAME if isinstance(entry, dict) else NO_TOOL)
        elif name in known:
            if entry != known[name]:  # some servers page in circles
                left_out.append(f"`{_shown(name)}` ({TWICE})")
        else:
            known[name] = entry
            try:
                tools[name] = _listed(name, fields)
            except ValueError as error:
                left_out.append(f"`{_shown(name)}` ({error})")
    return list(tools.values()), list(dict.fromkeys(left_out))


def _listed(name: str, fields: Mapping[str, Any]) -> Listed:
    """Return one tool. Raise ValueError with the reason if it is unusable."""
    if not is_bounded(schema := fields.get("inputSchema")):
        raise ValueError(TOO_LONG)
    hints = columns.fields(fields.get("annotations"))
    return Listed(
        name=name,
        description=columns.first_text(fields.get("description"), fields.get("title"), hints.get("title")),
        schema=schemas.usable(schema),
        is_destructive=hints.get("destructiveHint") is True,
        is_read_only=hints.get("readOnlyHint") is True,
    )


def _shown(name: str) -> str:
    shown = "".join(char for char in columns.clean(name) if char.isprintable() and char != "`")
    return shown[:NAME_MAX_CHARS] or "?"


def unusable(server: str, left_out: Sequence[str]) -> str:
    """Return the sentence about unusable tools of a server."""
    more = [f"{len(left_out) - NAMED_MAX} more"] if len(left_out) > NAMED_MAX else []
    return UNUSABLE.format(name=server, tools=", ".join([*left_out[:NAMED_MAX], *more]))


def offered(
    lists: Sequence[tuple[str, Sequence[Listed]]], *, taken: Collection[str] = ()
) -> tuple[dict[str, Tool], list[str]]:
    """Return the offered tools by their new names, and sentences about omitted ones.

    `lists` has each server's name and tools; `taken` are other used names.
    """
    tools: dict[str, Tool] = {}
    notices: list[str] = []
    room = OFFERED_MAX_CHARS
    for number, (server, found) in enumerate(lists):
        is_whole = True
        for each in found:
            tool = tool_of(each, number, _free_name(each.name, server, {*tools, *taken}))
            if len(tools) + len(taken) >= TOOLS_MAX or tool.chars > room:
                is_whole = False
                continue
            room -= tool.chars
            tools[tool.name] = tool
        if not is_whole:
            notices.append(LEFT_OUT.format(name=server))
    return tools, notices


def tool_of(listed: Listed, server: int, name: str) -> Tool:
    """Return a tool as it is offered."""
    schema, renamed = schemas.with_plain_names(halves.whole_value(listed.schema))
    return Tool(
        name=name,
        description=columns.clean(listed.description)[:DESCRIPTION_MAX_CHARS],
        schema=schema,
        renamed=renamed,
        server=server,
        own_name=listed.name,
        risk="HIGH" if listed.is_destructive else "UNKNOWN",
    )


def is_bounded(schema: object) -> bool:
    """Return whether a schema is neither too deep nor too long."""
    return _depth(schema) <= SCHEMA_MAX_DEPTH and len(json.dumps(schema)) <= SCHEMA_MAX_CHARS


def _free_name(name: str, server: str, taken: Collection[str]) -> str:
    """Return a free name; the server's name distinguishes equal ones."""
    plain = nameable(name)
    if plain not in taken and plain.lower() not in RESERVED:
        return plain
    base = nameable(f"{server}_{name}")
    numbers = (nameable(f"{number}_{base}") for number in range(2, TOOLS_MAX + 3))
    return next(each for each in (base, *numbers) if each not in taken)


def offered_name(logged: str, offered: Collection[str]) -> str:
    """Return the name under which the tool is offered whose calls have a name in the log."""
    name = _OFFERED.get(logged, logged)
    return name if name in offered else logged


def nameable(name: str) -> str:
    """Return a name with characters that every provider takes."""
    return _UNNAMEABLE.sub("_", name)[:NAME_MAX_CHARS] or "_"


def _depth(value: object) -> int:
    """Return how deep a JSON value is, without recursion."""
    depth, level = 0, [value]
    while level and depth <= SCHEMA_MAX_DEPTH:
        depth += 1
        level = [
            member
            for each in level
            if isinstance(each, dict | list)
            for member in (each.values() if isinstance(each, dict) else each)
        ]
    return depth

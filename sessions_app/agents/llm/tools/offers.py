"""The tools that a model is offered, under names that every provider takes, within bounds."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conversations.dialects import columns
from conversations.payloads import halves

TOOLS_MAX = 128
DESCRIPTION_MAX_CHARS = 4_000
SCHEMA_MAX_CHARS = 20_000
SCHEMA_MAX_DEPTH = 40
OFFERED_MAX_CHARS = 200_000
"""Of all descriptions and schemas together: each request has them."""
NAME_MAX_CHARS = 64
CLIENT = -1
"""The number of the "server" of tools that the client carries out."""
RESERVED = frozenset({"run", "bash", "execute_bash", "terminal", "finish", "think", "message", "recall"})
"""Names that the wires have for tools of their own."""
LEFT_OUT = "The tool server `{name}` has more or longer tools than a model can be offered; some are left out."

_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_-]+", re.ASCII)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool as a model is offered it."""

    name: str
    description: str
    schema: Mapping[str, Any]
    """A JSON schema of the arguments, which are an object."""
    server: int
    """The number of its server, or CLIENT."""
    own_name: str
    """What its server calls it."""
    risk: str = "UNKNOWN"

    @property
    def chars(self) -> int:
        """Return what it adds to each request."""
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


def offered(
    lists: Sequence[tuple[str, Sequence[Listed]]], *, taken: Collection[str] = ()
) -> tuple[dict[str, Tool], list[str]]:
    """Return the tools of servers by their new names, and sentences about what is left out.

    `lists` has each server's name and tools; `taken` are names of others.
    """
    tools: dict[str, Tool] = {}
    notices: list[str] = []
    room = OFFERED_MAX_CHARS
    for number, (server, listed) in enumerate(lists):
        is_whole = True
        for each in listed:
            tool = tool_of(each, number, _free_name(each.name, server, {*tools, *taken}))
            if len(tools) + len(taken) >= TOOLS_MAX or tool is None or tool.chars > room:
                is_whole = False
                continue
            room -= tool.chars
            tools[tool.name] = tool
        if not is_whole:
            notices.append(LEFT_OUT.format(name=server))
    return tools, notices


def tool_of(listed: Listed, server: int, name: str) -> Tool | None:
    """Return a tool as it is offered; None if its schema is too long or too deep."""
    schema = halves.whole_value(listed.schema)
    if _depth(schema) > SCHEMA_MAX_DEPTH or len(json.dumps(schema)) > SCHEMA_MAX_CHARS:
        return None
    if schema.get("type") != "object":
        schema = {**schema, "type": "object"}
    return Tool(
        name=name,
        description=columns.clean(listed.description)[:DESCRIPTION_MAX_CHARS],
        schema={"properties": {}, **schema},
        server=server,
        own_name=listed.name,
        risk="HIGH" if listed.is_destructive else "UNKNOWN",
    )


def _free_name(name: str, server: str, taken: Collection[str]) -> str:
    """Return a name that no other tool has; the server's name tells equal ones apart."""
    plain = nameable(name)
    if plain not in taken and plain.lower() not in RESERVED:
        return plain
    base = nameable(f"{server}_{name}")
    numbers = (nameable(f"{number}_{base}") for number in range(2, TOOLS_MAX + 3))
    return next(each for each in (base, *numbers) if each not in taken)


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

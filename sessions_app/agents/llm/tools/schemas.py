"""Schemas of tools, cleaned so that every provider of models takes them.

Invalid parts are removed: one bad tool must not make the model unusable.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

# Of a tool and of an argument: every provider takes as many.
NAME_MAX_CHARS = 64
TYPES = frozenset({"object", "array", "string", "number", "integer", "boolean", "null"})
NO_OBJECT = "its schema is no JSON object"
NO_ARGUMENTS = "its arguments are no JSON object"
_OF_MANY = frozenset({"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"})
_OF_ONE = frozenset(
    {"items", "additionalProperties", "contains", "propertyNames", "not", "if", "then", "else"}
)
_OF_SOME = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_TEXTS = frozenset({"description", "title", "pattern", "format", "$ref", "$id", "$schema", "$comment"})
# Providers refuse a whole request for one of these there.
_NOT_AT_THE_TOP = frozenset({"anyOf", "oneOf", "allOf", "not", "if", "then", "else", "enum", "const"})

_UNNAMEABLE = re.compile(r"[^A-Za-z0-9_.-]", re.ASCII)


def usable(schema: object) -> dict[str, Any]:
    """Return a usable schema of a tool's arguments; None means no arguments. Raise ValueError."""
    if schema is None:
        schema = {}
    if not isinstance(schema, Mapping):
        raise ValueError(NO_OBJECT)
    kind = schema.get("type", "object")
    if kind != "object" and not (isinstance(kind, list) and "object" in kind):
        raise ValueError(NO_ARGUMENTS)
    cleaned = _cleaned(schema)
    properties: dict[str, Any] = {}
    for branch in _branches(cleaned):
        properties |= branch.get("properties", {})
    properties |= cleaned.get("properties", {})
    beside = {name: value for name, value in cleaned.items() if name not in _NOT_AT_THE_TOP}
    return {**beside, "type": "object", "properties": properties}


def with_plain_names(schema: Mapping[str, Any]) -> tuple[Mapping[str, Any], Mapping[str, str]]:
    """Return a schema with argument names that every provider takes, and the own names of renamed ones."""
    # Anthropic refuses a whole request for one argument called `$filter`.
    names: dict[str, str] = {}
    # One step for each name: schemas of strangers have thousands, and this is on the event loop.
    taken, unused = {*schema.get("properties", ())}, dict[str, Iterator[str]]()
    for own in schema.get("properties", ()):
        plain = _UNNAMEABLE.sub("_", own)[:NAME_MAX_CHARS] or "_"
        if plain != own:
            candidates = unused.setdefault(plain, _plain_names(plain))
            plain = next(each for each in candidates if each not in taken)
            taken.add(plain)
        names[own] = plain
    renamed = {plain: own for own, plain in names.items() if plain != own}
    if not renamed:
        return schema, {}
    shown = {names[own]: value for own, value in schema["properties"].items()}
    required = [names.get(each, each) for each in schema.get("required", ())]
    return {**schema, "properties": shown, **({"required": required} if required else {})}, renamed


def _plain_names(plain: str) -> Iterator[str]:
    yield plain
    for number in count(2):
        yield f"{plain[: NAME_MAX_CHARS - 6]}_{number}"


def _branches(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for name in ("allOf", "anyOf", "oneOf"):
        yield from (each for each in schema.get(name, ()) if isinstance(each, dict))


def _cleaned(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema without invalid members; its depth is bounded."""
    found: dict[str, Any] = {}
    for name, value in schema.items():
        if (cleaned := _member(name, value)) is not None:
            found[name] = cleaned
    return found


def _member(name: str, value: object) -> object:
    """Return a cleaned member of a schema; None for an invalid one."""
    match value:
        case dict() if name in _OF_MANY:
            return {key: _schema(each) for key, each in value.items()}
        case dict() | bool() if name in _OF_ONE:
            return _cleaned(value) if isinstance(value, dict) else value
        case list() if name in _OF_SOME:
            return [_schema(each) for each in value] or None
        case list() if name == "required":
            return [each for each in value if isinstance(each, str)]
        case list() if name == "enum":
            return value or None
        case list() if name == "type":
            return [each for each in value if isinstance(each, str) and each in TYPES] or None
        case str() if name == "type":
            return value if value in TYPES else None
        case str() if name in _TEXTS:
            return value
    known = name in _OF_MANY | _OF_ONE | _OF_SOME | _TEXTS or name in ("required", "enum", "type")
    return None if known else value


def _schema(value: object) -> dict[str, Any]:
    return _cleaned(value) if isinstance(value, dict) else {}

"""Checks of a call's arguments against the tool's schema, in bounded time.

They cover types, required members, enumerations and constants, in objects, arrays and references inside the
schema. Patterns, formats and references to other documents, which could take hours or fetch something, are
left to the tool's server.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

# Values and members that a check examines, on the event loop; it leaves the rest to the tool's server.
STEPS_MAX = 20_000
DEPTH_MAX = 40
PROBLEMS_MAX = 3
ALLOWED_MAX = 10
NAME_MAX_CHARS = 80

_KINDS: Final = {
    "object": "an object",
    "array": "an array",
    "string": "a string",
    "number": "a number",
    "integer": "an integer",
    "boolean": "true or false",
    "null": "null",
}


def problems_of(schema: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """Return sentences about the first arguments that do not match a schema; none if all do."""
    try:
        return list(islice(_Check(schema).problems(schema, given, "", 0), PROBLEMS_MAX))
    except RecursionError:  # compared values are too deep
        return []


class _Check:
    """One check, and its remaining steps."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._left = STEPS_MAX

    def problems(self, schema: object, value: object, path: str, depth: int) -> Iterator[str]:
        self._left -= 1
        if self._left < 0 or depth > DEPTH_MAX or not isinstance(schema, Mapping):
            return
        if isinstance(reference := schema.get("$ref"), str):
            yield from self.problems(self._named(reference), value, path, depth + 1)
        # A value of a wrong kind has nothing inside that the model should hear about.
        if (problem := self._own(schema, value)) is not None:
            yield f"`{path}` {problem}"
            return
        yield from self._inside(schema, value, path, depth + 1)

    def _named(self, reference: str) -> object:
        """Return the target of a reference inside the schema; None for others."""
        if reference != "#" and not reference.startswith("#/"):
            return None
        found: object = self._root
        for name in reference.split("/")[1:]:
            name = name.replace("~1", "/").replace("~0", "~")
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def _own(self, schema: Mapping[str, Any], value: object) -> str | None:
        """Return the problem of a value itself."""
        kinds = schema.get("type")
        kinds = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
        known = [kind for kind in kinds if isinstance(kind, str) and kind in _KINDS]
        if known and not any(_is(value, kind) for kind in known):
            return f"must be {' or '.join(_KINDS[kind] for kind in known)}, and is {_kind_of(value)}"
        allowed = schema.get("enum")
        if "const" in schema:
            allowed = [schema["const"]]
        if isinstance(allowed, list) and allowed:
            self._left -= len(allowed)
            if self._left >= 0 and value not in allowed:
                shown = ", ".join(f"`{str(each)[:NAME_MAX_CHARS]}`" for each in allowed[:ALLOWED_MAX])
                more = " …" if len(allowed) > ALLOWED_MAX else ""
                return f"must be {'one of ' if len(allowed) > 1 else ''}{shown}{more}"
        return None

    def _inside(self, schema: Mapping[str, Any], value: object, path: str, depth: int) -> Iterator[str]:
        if isinstance(value, dict):
            required, properties = schema.get("required"), schema.get("properties")
            required = required if isinstance(required, list) else []
            properties = properties if isinstance(properties, dict) else {}
            # An array may have thousands of small objects beside a schema with as many members.
            self._left -= len(required) + len(properties)
            if self._left < 0:
                return
            for name in required:
                if isinstance(name, str) and name not in value:
                    yield f"`{_joined(path, name)}` is missing"
            for name, each in properties.items():
                if name in value:
                    yield from self.problems(each, value[name], _joined(path, name), depth)
        elif isinstance(value, list) and isinstance(items := schema.get("items"), Mapping):
            for number, each in enumerate(value):
                if self._left < 0:
                    return
                yield from self.problems(items, each, f"{path}[{number}]", depth)


def _joined(path: str, name: str) -> str:
    name = name.replace("`", "'")[:NAME_MAX_CHARS]
    return f"{path}.{name}" if path else name


def _is(value: object, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, dict)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case _:
            if not isinstance(value, int | float) or isinstance(value, bool):
                return False
            return kind == "number" or isinstance(value, int) or value.is_integer()


def _kind_of(value: object) -> str:
    kinds = ("null", "boolean", "integer", "number", "string", "array", "object")
    return next(_KINDS[kind] for kind in kinds if _is(value, kind))

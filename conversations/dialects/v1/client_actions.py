"""Calls of tools that a V1 client runs itself (since 1.28): each has its own kind of action.

The client's library makes a class of the tool's schema, and refuses a whole history for one action that does
not match it. So this is as strict as that class.
"""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects import columns

OBSERVATION_KIND = "ClientToolObservation"
_TAKEN = "kind"  # an argument of this name cannot be written: the wire names an action's kind by it

# Requested from models beside a tool's own arguments; the library removes them from the arguments.
_BESIDE = frozenset({"summary", "security_risk"})

Schema = Mapping[str, object]


def is_writable(schema: Schema) -> bool:
    """Return whether calls with this schema of arguments can be written."""
    return schema.get("type") == "object" and _TAKEN not in columns.fields(schema.get("properties"))


def action_of(name: str, schema: Schema, arguments: Mapping[str, object]) -> dict[str, object] | None:
    """Return the action of a call; None if the client could not read it."""
    properties, required = columns.fields(schema.get("properties")), schema.get("required")
    needed = set(required) if isinstance(required, list) else set()
    arguments = {key: value for key, value in arguments.items() if key in properties or key not in _BESIDE}
    if not (is_writable(schema) and needed <= arguments.keys() <= properties.keys()):
        return None
    fits = all(
        _fits(value, columns.fields(properties[key]), is_optional=key not in needed)
        for key, value in arguments.items()
    )
    return {"kind": f"ClientAction_{name}", **arguments} if fits else None


def summary_of(arguments: Mapping[str, object]) -> str:
    """Return the model's short description of a call; empty if there is none."""
    return columns.first_text(arguments.get("summary"))


def _fits(value: object, schema: Schema, *, is_optional: bool = False) -> bool:
    if value is None and is_optional:
        return True
    match _type_in(schema):
        case "string":
            return isinstance(value, str)
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, int | float) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "object":
            return isinstance(value, Mapping)
        case "array":
            items = columns.fields(schema.get("items"))
            return isinstance(value, list) and all(_fits(item, items) for item in value)
        case _:
            return True


def _type_in(schema: Schema) -> object:
    """Return the one type of a value; None for several."""
    named = schema.get("type")
    if not isinstance(named, list):
        return named
    types = [each for each in named if each != "null"]
    return types[0] if len(types) == 1 else None

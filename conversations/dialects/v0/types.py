"""One type of V0 event: its fields, their defaults, and its message."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from conversations.exceptions import InvalidEvent

_REQUIRED = object()

Fields = Mapping[str, "Field"]


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a type: the JSON it takes, and its default."""

    description: str
    is_met_by: Callable[[object], bool]
    default: object = _REQUIRED
    # The fields of an object; its other members are left out.
    members: Fields = field(default_factory=dict)

    def by_default(self, value: object) -> Field:
        return replace(self, default=value)

    def or_null(self) -> Field:
        return Field(
            f"{self.description} or null", lambda value: value is None or self.is_met_by(value), default=None
        )

    def taken(self, value: object, *, name: str) -> object:
        """Return the value to store; `name` is for errors. Raise InvalidEvent for JSON of another type."""
        if not self.is_met_by(value):
            raise InvalidEvent(f"{name} must be {self.description}.")
        if not self.members or not isinstance(value, Mapping):
            return value
        known = {key: value[key] for key in self.members if key in value}
        return filled(known, self.members, of=name)


@dataclass(frozen=True, kw_only=True, slots=True)
class EventType:
    """One type of event; an observation's `content` is a field like those in its `extras`."""

    fields: Fields
    # Return the text for people; called with all fields, as they are stored.
    message: Callable[[Mapping[str, Any]], str]
    # Return `success`, a member beside the fields, for the types that have it.
    success: Callable[[Mapping[str, Any]], bool] | None = None


def filled(given: Mapping[str, object], fields: Fields, *, of: str) -> dict[str, object]:
    """Return all fields in their declared order, then all other given members; `of` names the owner.

    Raise InvalidEvent if a required one is missing, or one is JSON of another type.
    """
    values: dict[str, object] = {}
    for name, wanted in fields.items():
        if name in given:
            values[name] = wanted.taken(given[name], name=f"`{name}` of {of}")
        elif wanted.default is _REQUIRED:
            raise InvalidEvent(f"`{name}` of {of} is missing; it must be {wanted.description}.")
        else:
            values[name] = wanted.default
    return values | {name: value for name, value in given.items() if name not in fields}


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_list_of(is_met_by: Callable[[object], bool]) -> Callable[[object], bool]:
    return lambda value: isinstance(value, list) and all(map(is_met_by, value))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> bool:
    return isinstance(value, Mapping)


TEXT = Field("a string", _is_text)
FLAG = Field("true or false", lambda value: isinstance(value, bool))
NUMBER = Field("a whole number", _is_whole)
OBJECT = Field("an object", _is_object)
LIST = Field("a list", lambda value: isinstance(value, list))
TEXTS = Field("a list of strings", _is_list_of(_is_text))
NUMBERS = Field("a list of whole numbers", _is_list_of(_is_whole))
OBJECTS = Field("a list of objects", _is_list_of(_is_object))

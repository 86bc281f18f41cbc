"""Text of a request: valid for every database, and possibly JSON."""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import AfterValidator

from conversations.payloads import bounds
from conversations.payloads.jsontext import InvalidJson, is_sendable


def storable(text: str) -> str:
    """Return the text. Raise ValueError if some database could not store it."""
    # PostgreSQL stores no NUL in a text.
    if "\0" in text:
        raise ValueError("the text holds a NUL")
    # It has no form in UTF-8, which databases and sockets need.
    if not is_sendable(text):
        raise ValueError("the text holds half of a surrogate pair")
    return text


StorableText = Annotated[str, AfterValidator(storable)]
"""It contains neither a NUL nor half of a surrogate pair."""


def decoded(text: str) -> Any:
    """Return the value of a JSON text whose numbers can be written as JSON again.

    Raise TooManyValues, and ValueError (which that is, too) for invalid JSON and too deep nesting.
    """
    return bounds.loads(text, parse_float=_finite)


def _finite(digits: str) -> float:
    number = float(digits)
    # Python would write it as `Infinity`, which is no JSON.
    if not math.isfinite(number):
        raise InvalidJson("a number is beyond the range of numbers")
    return number

"""Text of a request that every database can keep."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator

from conversations.jsontext import is_sendable


def storable(text: str) -> str:
    """Return the text. Raise ValueError if no database could keep it."""
    if "\0" in text:
        raise ValueError("the text holds a NUL")
    if not is_sendable(text):
        raise ValueError("the text holds half of a surrogate pair")
    return text


StorableText = Annotated[str, AfterValidator(storable)]
"""Neither a NUL nor half of a surrogate pair is in it."""

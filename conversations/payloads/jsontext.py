"""Splitting JSON text without changing a byte of its parts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, NamedTuple, NoReturn, TypeVar

T = TypeVar("T")

INTEGER_MAX_DIGITS = 640  # the longest integer that Python converts, whatever its own limit is

# In a longer text, other threads may run at each integer: it may have thousands of digits.
LONG_CHARACTERS = 64 * 1024

_SPACE = re.compile(r"[ \t\n\r]*")


class Member(NamedTuple):
    """One value: decoded, and its slice of the text as received."""

    value: Any
    text: str


class InvalidJson(ValueError):
    """The text is not the expected JSON; the message says why."""


class TooManyItems(InvalidJson):
    """The array or object has more items or members than the caller takes."""


def members(text: str, *, at_most: int | None = None) -> dict[str, Member]:
    """Return the members of the object that `text` is; of a repeated name the last one counts.

    Raise InvalidJson if it is anything else, and TooManyItems at the first name beyond `at_most`.
    """
    found, at = _object(text, 0, at_most)
    _end(text, at)
    return found


def items(text: str, *, at_most: int | None = None) -> list[Member]:
    """Return the items of the array that `text` is.

    Raise InvalidJson if it is anything else, and TooManyItems before an item beyond `at_most` is decoded.
    """
    return _array(text, _member, at_most)


def objects(text: str, *, at_most: int | None = None) -> list[dict[str, Member]]:
    """Return the members of each object in the array that `text` is. Raise like `items`."""
    return _array(text, _object, at_most)


def _array(text: str, item: Callable[[str, int], tuple[T, int]], at_most: int | None) -> list[T]:
    found: list[T] = []
    at = _after(text, 0, "[")
    if _next(text, at) != "]":
        while True:
            if len(found) == at_most:
                raise TooManyItems(f"it has more than {at_most} items")
            value, at = item(text, at)
            found.append(value)
            if _next(text, at) != ",":
                break
            at = _after(text, at, ",")
    _end(text, _after(text, at, "]"))
    return found


def _object(text: str, at: int, at_most: int | None = None) -> tuple[dict[str, Member], int]:
    found: dict[str, Member] = {}
    at = _after(text, at, "{")
    if _next(text, at) != "}":
        while True:
            name, at = _decode(text, at)
            if not isinstance(name, str):
                raise InvalidJson(f"a member's name must be a string, before character {at}")
            if len(found) == at_most and name not in found:
                raise TooManyItems(f"it has more than {at_most} members of its own")
            found[name], at = _member(text, _after(text, at, ":"))
            if _next(text, at) != ",":
                break
            at = _after(text, at, ",")
    return found, _after(text, at, "}")


def is_sendable(text: str) -> bool:
    """Return whether the text can be encoded: half of a surrogate pair has no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_array(text: str) -> bool:
    """Return whether the text, if it is JSON at all, is an array."""
    return _next(text, 0) == "["


def _member(text: str, at: int) -> tuple[Member, int]:
    start = _skip(text, at)
    value, end = _decode(text, start)
    return Member(value, text[start:end]), end


def _skip(text: str, at: int) -> int:
    if text[at : at + 1] > " ":  # most JSON has no space to skip
        return at
    match = _SPACE.match(text, at)
    return match.end() if match else at


def _next(text: str, at: int) -> str:
    at = _skip(text, at)
    return text[at : at + 1]


def _after(text: str, at: int, character: str) -> int:
    at = _skip(text, at)
    if text[at : at + 1] != character:
        seen = repr(text[at]) if at < len(text) else "the end"
        raise InvalidJson(f"expected {character!r} at character {at}, found {seen}")
    return at + 1


def _end(text: str, at: int) -> None:
    if _skip(text, at) != len(text):
        raise InvalidJson(f"there is more text after the value, from character {at}")


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python's decoder would accept. Raise InvalidJson."""
    raise InvalidJson(f"{name} is not JSON")


def loads(text: str, *, parse_float: Callable[[str], object] | None = None) -> Any:
    """Return the value of a JSON text, strictly: like json.loads, without NaN and Infinity.

    Raise ValueError, which InvalidJson and json.JSONDecodeError are, or RecursionError.
    """
    parse_int = integer if len(text) > LONG_CHARACTERS else None
    return json.loads(text, parse_constant=refuse_constant, parse_int=parse_int, parse_float=parse_float)


def value_at(text: str, at: int) -> tuple[Any, int]:
    """Return the value that begins at this character, decoded like `loads`, and where it ends.

    Raise ValueError or RecursionError.
    """
    decoder = _gentle_decoder if len(text) > LONG_CHARACTERS else _decoder
    return decoder.raw_decode(text, at)


def integer(digits: str) -> int:
    """Return the number. Unlike `int` itself, a Python function lets other threads run in between."""
    return int(digits)


_decoder = json.JSONDecoder(parse_constant=refuse_constant)
_gentle_decoder = json.JSONDecoder(parse_constant=refuse_constant, parse_int=integer)
# Python refuses to create an int of more than about 4,300 digits, and takes long for one of a thousand.
# Looking at a value needs no such number, so this decoder keeps its digits.
_patient_decoder = json.JSONDecoder(
    parse_constant=refuse_constant,
    parse_int=lambda digits: digits if len(digits) > INTEGER_MAX_DIGITS else int(digits),
)


def _decode(text: str, at: int) -> tuple[Any, int]:
    at = _skip(text, at)
    try:
        if len(text) > LONG_CHARACTERS:
            return _patient_decoder.raw_decode(text, at)
        try:
            return _decoder.raw_decode(text, at)
        except (json.JSONDecodeError, InvalidJson):
            raise
        except ValueError:
            return _patient_decoder.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise InvalidJson(f"{error.msg} at character {error.pos}") from None
    except RecursionError:
        raise InvalidJson("it is nested too deeply") from None

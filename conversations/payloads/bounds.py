"""Bounds on JSON from outside, checked on its text before anything is decoded.

The values of a text are the members of all its objects and the items of all its lists, at any depth. A
decoder blocks all other threads while it makes them, so their number bounds that time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import accumulate, chain
from typing import Any, NamedTuple

from conversations.payloads import jsontext
from conversations.payloads.jsontext import InvalidJson

VALUES_MAX = 100_000  # a decoder makes this many in about 50 ms
LARGE_VALUES_MAX = 500_000  # of what is rarely read: a host's list, or a recording
DEPTH_MAX = 500  # lists and objects inside each other; more is not safe to write again
# A text within both takes a millisecond or two to decode.
LIGHT_MAX_CHARACTERS = 64 * 1024
LIGHT_MAX_VALUES = 1_000

_OPENING, _CLOSING, _SPACE = b"[{", b"]}", b" \t\n\r"
_NO_BRACKETS = bytes(set(range(256)) - set(_OPENING + _CLOSING))
# Every other byte is a part of a string, a number or a word.
_STRUCTURE = bytes(byte if byte in b",[]{}" + _SPACE else ord("0") for byte in range(256))
_STEP: Callable[[int], int] = {**dict.fromkeys(_OPENING, 1), **dict.fromkeys(_CLOSING, -1)}.__getitem__


class TooManyValues(InvalidJson):
    """The text has too many values."""


class TooDeep(InvalidJson):
    """The text is nested too deeply."""


class Shape(NamedTuple):
    """The size of the value of a text."""

    values: int  # members of objects and items of lists, at any depth
    depth: int  # lists and objects inside each other: 0 for a string or a number, 1 for `{}`


def require_bounded(
    text: str,
    *,
    values_max: int = VALUES_MAX,
    depth_max: int = DEPTH_MAX,
    between: Callable[[], object] = lambda: None,
) -> None:
    """Raise TooManyValues or TooDeep if the text has more than this, whether or not it is JSON.

    `between` is called after each slice, and may raise. This takes 1 to 25 ns a character up to the place
    where the limit is exceeded, and never blocks other threads for more than a millisecond.
    """
    if _is_surely_bounded(text, values_max=values_max, depth_max=depth_max):
        return
    for shape in _shapes(text, depth_max):
        between()
        if shape.depth > depth_max:
            raise TooDeep(f"it is nested too deeply: at most {depth_max} lists and objects inside each other")
        if shape.values > values_max:
            raise TooManyValues(
                f"it has more than {values_max:,} values (members of objects and items of lists): split it, "
                "or put large data into strings"
            )


def loads(text: str, *, parse_float: Callable[[str], object] | None = None) -> Any:
    """Return the value of a JSON text within the bounds.

    Raise TooManyValues, or another ValueError for any other fault.
    """
    require_bounded(text)
    try:
        return jsontext.loads(text, parse_float=parse_float)
    except RecursionError as error:
        raise TooDeep("it is nested too deeply") from error


def is_light(text: str) -> bool:
    """Return whether the text is so small that decoding it delays no other thread."""
    if len(text) > LIGHT_MAX_CHARACTERS:
        return False
    # A value has a character and a separator.
    return len(text) <= 2 * LIGHT_MAX_VALUES or text.count(",") + text.count("[") + text.count("{") <= (
        LIGHT_MAX_VALUES
    )


def is_light_value(value: object) -> bool:
    """Return whether a decoded value is as small."""
    values, characters = 0, 0
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                characters += len(text)
            case dict() | list() as container:
                values += len(container)
                if values > LIGHT_MAX_VALUES:
                    return False
                waiting.extend(
                    chain(container, container.values()) if isinstance(container, Mapping) else container
                )
        if characters > LIGHT_MAX_CHARACTERS:
            return False
    return True


def _is_surely_bounded(text: str, *, values_max: int, depth_max: int) -> bool:
    """Return whether the limits hold even if brackets and commas inside strings are counted."""
    opened = commas = 0
    for at in range(0, len(text), LIGHT_MAX_CHARACTERS):
        end = at + LIGHT_MAX_CHARACTERS
        opened += text.count("[", at, end) + text.count("{", at, end)
        commas += text.count(",", at, end)
        if opened > depth_max or opened + commas > values_max:
            return False
    return True


def _shapes(text: str, exact_from: int) -> Iterator[Shape]:
    """Yield the shape of growing parts of the text, at last of all of it.

    Up to a depth of `exact_from` the depth may be a little greater than the true one.
    """
    values = depth = deepest = 0
    last = b""
    for structure in _structures(text):
        compact = last + structure.translate(None, _SPACE)
        opened = structure.count(b"[") + structure.count(b"{")
        # An opening bracket stands for the first value of what it opens, unless that is empty.
        values += structure.count(b",") + opened - compact.count(b"[]") - compact.count(b"{}")
        if depth + opened <= exact_from:
            deepest = max(deepest, depth + opened)
            depth += opened - structure.count(b"]") - structure.count(b"}")
        else:
            depths = list(accumulate(map(_STEP, structure.translate(None, _NO_BRACKETS)), initial=depth))
            deepest, depth = max(deepest, max(depths)), depths[-1]
        last = compact[-1:]
        is_maybe_empty = last in (b"[", b"{")
        yield Shape(values - is_maybe_empty, deepest)


def _structures(text: str) -> Iterator[bytes]:
    """Yield the text in slices: brackets, commas and space as they are, `0` for everything else.

    Only the quotes of a string are left.
    """
    is_in_string = False
    at = 0
    while at < len(text):
        piece = text[at : at + LIGHT_MAX_CHARACTERS]
        backslashes = len(piece) - len(piece.rstrip("\\"))
        if backslashes % 2 and len(piece) > 1:  # the escaped character comes with its backslash
            piece = piece[:-1]
        at += len(piece)
        encoded = piece.encode("utf-8", "surrogatepass")
        if b"\\" in encoded:
            encoded = encoded.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = encoded.split(b'"')
        outside = b'"'.join(parts[is_in_string::2])
        if len(parts) % 2 == 0:
            is_in_string = not is_in_string
            # Between two of `outside` is one quote; a string that continues is not between any.
            outside = outside + b'"' if is_in_string else outside
        yield outside.translate(_STRUCTURE)
    if not text:
        yield b""

"""Reading the files of a store, as far as they are complete; never writing them."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from conversations.confined.processes import check
from conversations.payloads import bounds, jsontext
from conversations.payloads.jsontext import InvalidJson
from conversations.transcripts.sources import whole_files
from conversations.transcripts.sources.nodes import VALUES_MAX, Unreadable

MORE_TEXT = "more text follows after its end, and is left out"

_PADDING = "\ufeff\0 \t\r\n"  # space, and what shells and crashes leave around a text
_decoder = json.JSONDecoder()

# Called with the name of a file, and a remark of a few words.
Told = Callable[[str, str], None]


class JsonObject(NamedTuple):
    """The object of a file as text, without the space around it."""

    text: str
    is_all: bool  # whether the file has nothing else


def names(directory: Path) -> list[str]:
    """Return the names in a directory, sorted; none if it is not there. Raise Unreadable."""
    try:
        return sorted(each.name for each in directory.iterdir()) if directory.exists() else []
    except OSError as error:
        raise Unreadable(f"{directory} cannot be read: {error.strerror}") from error


def object_in(path: Path) -> JsonObject:
    """Return the object of a file, which may have the end of a longer one after it. Raise Unreadable."""
    text = whole_files.text_of(path, padding=_PADDING)
    try:
        bounds.require_bounded(text, values_max=VALUES_MAX, between=check)
    except InvalidJson as error:
        raise Unreadable(str(error)) from error
    with suppress(InvalidJson):
        jsontext.members(text)
        return JsonObject(text, is_all=True)
    try:
        _, end = _decoder.raw_decode(text)
        jsontext.members(text[:end])
    except (ValueError, RecursionError) as error:  # InvalidJson is a ValueError
        raise Unreadable("it is not a JSON object, or only the beginning of one") from error
    return JsonObject(text[:end], is_all=False)

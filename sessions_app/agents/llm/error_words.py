"""The words of a model's server about a rejected request, from a body of any shape."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from html import unescape

from conversations.dialects import columns
from conversations.payloads import halves

WORDS_MAX_CHARS = 300
READ_MAX_CHARS = 20_000
DEPTH_MAX = 6
ITEMS_MAX = 5
"""At most this many problems of a list are shown."""
# Members that may hold the words; the first present one counts.
_TOLD_UNDER = ("message", "error", "detail", "errors", "msg", "error_description", "description", "reason")
_TITLE = re.compile(r"<(title|h1)[^>]*>(.*?)</\1", re.IGNORECASE | re.DOTALL)
_IS_HTML = re.compile(r"\s*<(?:!doctype|html|head|body|center|h1)\b", re.IGNORECASE)
_TAG = re.compile(r"<[^>]*>")


def words_of(body: object, *, most: int = WORDS_MAX_CHARS) -> str:
    """Return the words of a body on one line; empty if there are none."""
    text = "; ".join(dict.fromkeys(_words(body, DEPTH_MAX)))
    return halves.whole(" ".join(columns.clean(text).split()))[:most]


def _words(value: object, depth: int) -> Iterator[str]:
    if depth == 0:
        return
    match value:
        case str():
            yield from _words_of_text(value[:READ_MAX_CHARS], depth)
        case bytes():
            yield from _words_of_text(value[:READ_MAX_CHARS].decode(errors="replace"), depth)
        case Mapping():
            place = _place(value.get("loc"))
            found = (list(_words(value.get(name), depth - 1)) for name in _TOLD_UNDER)
            yield from (f"{place}{words}" for words in next(filter(None, found), []))
        case list():
            for each in value[:ITEMS_MAX]:
                yield from _words(each, depth - 1)


def _words_of_text(text: str, depth: int) -> Iterator[str]:
    # Routers put the body of the server behind them into their own as a text.
    if text.lstrip()[:1] in ("{", "["):
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            yield text
        else:
            yield from _words(parsed, depth - 1)
    elif _IS_HTML.match(text):  # a proxy's page
        title = _TITLE.search(text)
        yield from filter(None, [unescape(_TAG.sub(" ", title[2])).strip() if title else ""])
    elif text.strip():
        yield text


def _place(loc: object) -> str:
    """Return the place of a problem in the request, as validators of servers name it."""
    named = [str(each) for each in loc if isinstance(each, str | int)] if isinstance(loc, list) else []
    return f"{'.'.join(named)}: " if named else ""

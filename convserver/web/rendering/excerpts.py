"""The beginning of a message on one line: what its Markdown says, without the signs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache, lru_cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from convserver.web.rendering import visible

KEPT = 1_000
"""So many lines are remembered: a list shows the same ones again and again."""


@lru_cache(maxsize=KEPT)
def excerpt(text: str) -> str:
    """Return text, at most a few hundred characters of Markdown, as one line of plain words."""
    said = " ".join(" ".join(_words(_parser().parse(visible.prose(text)))).split())
    return visible.prose(said)  # again: entities are characters only now


def _words(tokens: Iterable[Token]) -> Iterator[str]:
    """Yield what each block says."""
    for token in tokens:
        if token.type == "inline":
            yield "".join(map(_inline, token.children or []))
        elif token.content:  # code
            yield token.content


def _inline(token: Token) -> str:
    return "" if token.type in ("link_open", "link_close") else token.content or _BREAKS.get(token.type, "")


_BREAKS = {"softbreak": " ", "hardbreak": " "}


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])

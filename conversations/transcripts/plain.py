"""What Markdown says on one line, without its signs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

from conversations.dialects import columns
from conversations.transcripts import formulas


def words(text: str) -> str:
    """Return the beginning of Markdown as one line of plain words; it can be empty, as that of a rule is."""
    read_max_chars = 1_000  # a line of words shows no more
    said = " ".join(_words(_parser().parse(text[:read_max_chars])))
    # The parser turns entities into characters, also into those that a column cannot hold.
    return " ".join(columns.clean(said).split())


def _words(tokens: Iterable[Token]) -> Iterator[str]:
    """Yield what each block says."""
    for token in tokens:
        if token.type == "inline":
            yield "".join(
                each.content or _BREAKS.get(each.type, "")
                for each in token.children or []
                if each.type not in ("link_open", "link_close")
            )
        elif token.content:  # code
            yield token.content


_BREAKS = {"softbreak": " ", "hardbreak": " "}


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
    formulas.add_to(parser)  # else their backslashes and underscores would be signs
    return parser

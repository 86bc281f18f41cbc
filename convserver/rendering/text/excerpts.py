"""The beginning of a message on one line: what its Markdown says, without the signs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from conversations.transcripts.plain import words
from convserver.rendering.text import visible


@lru_cache(maxsize=1_000)  # lists show the same lines again and again
def excerpt(text: str) -> str:
    """Return text, at most a few hundred characters of Markdown, as one line of plain words."""
    # Twice, since the parser turns entities into characters.
    return visible.prose(words(visible.prose(text)))


def plain_parts(parts: Sequence[tuple[str, bool]]) -> list[tuple[str, bool]]:
    """Return the parts of a snippet of Markdown, (text, whether it is marked), without most of its signs.

    A snippet begins and ends anywhere, so it cannot be parsed; what stands inside code may lose signs, too.
    """
    texts = [(_MARKS.sub("", text), marked) for text, marked in parts]
    joined = "".join(f"{_BEGIN}{text}{_END}" if marked else text for text, marked in texts)
    plain = _SIGNS.sub(lambda sign: sign[1] or sign[2] or "", joined)
    return [(text, place % 2 == 1) for place, text in enumerate(_MARKS.split(plain)) if text]


_BEGIN, _END = "\2", "\3"
# Around what is marked, while signs are looked for in the whole text.
_MARKS = re.compile(f"[{_BEGIN}{_END}]")
_SIGNS = re.compile(
    r"!?\[([^\]\n]*)\]\([^)\s]*\)"  # a link: its words
    r"|(?<!\w)_{1,2}(?=\S)([^_\n]+)(?<=\S)_{1,2}(?!\w)"  # _slanted_, but not a_name_like_this
    r"|\*\*|~~|`+|(?<!\w)\*(?=\w)|(?<=\w)\*(?!\w)"
    r"|(?:^|(?<=\s))\#{1,6}\s+"  # a heading
    r"|\|(?:\s*:?-{3,}:?\s*\|)+"  # the line below a table's head
)

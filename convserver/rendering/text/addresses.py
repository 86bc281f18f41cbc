"""The addresses that a link may lead to."""

from __future__ import annotations

import re

LINK_SCHEMES = ("http://", "https://", "mailto:")

_LINK = re.compile(rf"(?:{'|'.join(LINK_SCHEMES)})[^\s<>\"'`\\\x00-\x20\x7f\ud800-\udfff]+", re.IGNORECASE)


def is_link(url: str) -> bool:
    """Return whether a URL may be the target of a link."""
    return _LINK.fullmatch(url) is not None

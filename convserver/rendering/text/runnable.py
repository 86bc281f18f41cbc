"""Code that a reader can run: HTML, SVG and the diagrams of Mermaid."""

from __future__ import annotations

import re
from enum import StrEnum
from hashlib import sha256
from typing import NamedTuple

from django.utils.safestring import SafeString, mark_safe

ADDRESS = re.compile(r"(?:/ui)?/c/[^/\s<>\"'`\\]{1,600}/events/\d{1,18}/preview/[0-9a-f]{16}")


class Language(StrEnum):
    """What can be run; the words that people write for it are in _NAMES."""

    HTML = "html"
    SVG = "svg"
    MERMAID = "mermaid"


class Runnable(NamedTuple):
    """One block of code."""

    language: Language
    code: str


_NAMES = {"html": Language.HTML, "htm": Language.HTML, "svg": Language.SVG, "mermaid": Language.MERMAID}


class Origin:
    """The event that a text is from; collects the code in it that can be run."""

    def __init__(self, seq: int, address: str = "") -> None:
        """`address` is the one of its previews, before their digests; without it nothing is linked."""
        self.seq = seq
        self.found: dict[str, Runnable] = {}
        self._address = address

    def link(self, code: str, language: str) -> SafeString:
        """Return the link that runs a block of code; empty if it cannot be run."""
        kind = _NAMES.get(language.lower())
        # Models often call a picture XML.
        if kind is None and language.lower() == "xml" and code.lstrip().startswith("<svg"):
            kind = Language.SVG
        if kind is None or not code.strip():
            return SafeString("")
        digest = sha256(code.encode(errors="replace")).hexdigest()[:16]
        self.found[digest] = Runnable(kind, code)
        if not self._address:
            return SafeString("")
        made = f'<a class="run" href="{self._address}{digest}" target="_blank">Run</a>'
        return mark_safe(made)  # noqa: S308 - an address of ours, which is cleaned once more

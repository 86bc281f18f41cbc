"""Text without characters that reorder, colour or break a page: they are removed or made visible."""

from __future__ import annotations

import re

_OVERRIDES = re.compile("[\u202d\u202e]")
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_ESCAPES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours and cursors
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # titles and links
    r"|\x1b[ -/]*[0-~]?"
)
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
# Characters that are invisible, look like a space, or are in no font.
_HIDDEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\xa0\xad\u034f\u061c\u115f\u1160\u1680\u17b4\u17b5\u180b-\u180f\u2000-\u200f"
    "\u2028-\u202f\u205f-\u206f\u2800\u3000\u3164\ud800-\uf8ff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\uffff"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U0010ffff]"
)
# What a terminal writes over: a bar of progress shows its last state alone.
_OVERWRITTEN = re.compile(r"^[^\n]*\r(?=[^\n])", re.MULTILINE)


def name(text: str) -> str:
    """Return a name, a path or code; characters that change its direction are shown as numbers."""
    return _clean(_BIDI.sub(_number, text))


def prose(text: str) -> str:
    """Return text of any language; only characters that override its order are shown as numbers."""
    return _clean(_OVERRIDES.sub(_number, text))


def output(text: str) -> str:
    """Return a program's output as a terminal shows it at the end, without colours."""
    plain = _ESCAPES.sub("", text) if "\x1b" in text else text
    if "\r" in plain:
        plain = _OVERWRITTEN.sub("", plain.replace("\r\n", "\n"))
    return name(plain)


def exact(text: str) -> str:
    """Return text with every invisible character as a number, except spaces, tabs and line ends."""
    return _HIDDEN.sub(_number, text)


def _clean(text: str) -> str:
    # Controls mean nothing in a page, and lone surrogates cannot be sent as UTF-8.
    return _CONTROLS.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def _number(found: re.Match[str]) -> str:
    return f"⟨U+{ord(found[0]):04X}⟩"

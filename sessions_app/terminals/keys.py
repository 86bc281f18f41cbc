"""What is typed into a running program: text with Enter, or a control key by its name (`C-c`)."""

from __future__ import annotations

import re

INTERRUPT = b"\x03"
_CONTROL = re.compile(r"C-([a-zA-Z\\\]^_])")


def typed(text: str) -> bytes:
    """Return the bytes that a keyboard sends for a text or a control key."""
    if (control := _CONTROL.fullmatch(text.strip())) is not None:
        return bytes([ord(control[1].upper()) & 0x1F])
    return f"{text.removesuffix(chr(10))}\n".encode(errors="replace")

"""The forms of a secret value that a program may have encoded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterator

_URL_SAFE = str.maketrans("+/", "-_")


def written_forms(value: str) -> Iterator[str]:
    """Yield the value and its encodings: hexadecimal in either case, and base64 of both alphabets.

    Percent-encoding is decoded instead (`readings`). It keeps a `+` for a space, which is a form here.
    """
    yield value
    if " " in value:
        yield value.replace(" ", "+")
    encoded = value.encode(errors="replace")
    # Encodings of shorter values are not searched for, because they occur by chance
    encoded_min_bytes = 6
    if len(encoded) >= encoded_min_bytes:
        yield encoded.hex()
        yield encoded.hex().upper()
        for bytes_before in range(3):
            core = _base64_core(encoded, bytes_before)
            yield core
            yield core.translate(_URL_SAFE)


def _base64_core(encoded: bytes, bytes_before: int) -> str:
    """Return the characters that depend only on these bytes, wherever they are in the encoded text.

    At each end up to five bits share a character with the neighbouring bytes. Padding is not part of it.
    """
    text = b64encode(bytes(bytes_before) + encoded).decode()
    first = -(-bytes_before * 8 // 6)
    return text[first : (bytes_before + len(encoded)) * 8 // 6]

"""Numbers of the database as opaque texts, which reveal no count of rows or transactions.

The same number always gives the same text, so a page has the same cursor whenever it is read. A text that was
not written with one of the server's keys, for the same purpose, is rejected.
"""

from __future__ import annotations

import base64
import binascii
from functools import lru_cache

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESSIV
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings

KEY_PURPOSE = b"convserver opaque numbers"  # another use of SECRET_KEY derives another key


class NotOpaque(ValueError):
    """The text was not written by `conceal` for this purpose under any of the server's keys."""


def conceal(text: str, purpose: str) -> str:
    """Return an ASCII text as URL-safe text that reveals only its length."""
    sealed = _cipher(settings.SECRET_KEY).encrypt(text.encode("ascii"), [purpose.encode()])
    return text_of(sealed)


def reveal(text: str, purpose: str) -> str:
    """Return the text that `conceal` was given. Raise NotOpaque."""
    sealed = bytes_of(text)
    for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS):
        try:
            return _cipher(key).decrypt(sealed, [purpose.encode()]).decode("ascii")
        except (InvalidTag, ValueError):
            continue
    raise NotOpaque


def text_of(written: bytes) -> str:
    """Return bytes as URL-safe text, which hides nothing."""
    return base64.urlsafe_b64encode(written).decode().rstrip("=")


def bytes_of(text: str) -> bytes:
    """Return the bytes that `text_of` was given. Raise NotOpaque."""
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (UnicodeError, binascii.Error, ValueError) as error:
        raise NotOpaque from error


@lru_cache(maxsize=8)
def _cipher(key: str) -> AESSIV:
    derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=KEY_PURPOSE).derive(key.encode())
    return AESSIV(derived)

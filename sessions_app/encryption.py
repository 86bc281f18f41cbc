"""Secrets at rest: stored values are sealed, and decrypted only on request.

The keys are derived from SECRET_KEY, which encrypts, and from SECRET_KEY_FALLBACKS, which only decrypt.
"""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import models

from conversations.exceptions import ConversationError

# Other uses of SECRET_KEY derive other keys. Changing this makes every stored secret unreadable.
KEY_PURPOSE = b"convserver secrets at rest"

_TOKEN = re.compile(r"gAAAAA[A-Za-z0-9_-]{90,}={0,2}")
"""The shape of a Fernet token, which begins with its version and the time."""


class SecretUnreadable(ConversationError):
    """No key of the server decrypts the stored value."""

    code = "secret_unreadable"


class InvalidSecret(ConversationError):
    """The secret cannot be stored: it is blank, or its name or value is not valid text."""

    code = "invalid_secret"


@dataclass(frozen=True, slots=True)
class Sealed:
    """An encrypted text; its `repr` shows neither it nor the clear text."""

    token: str = field(repr=False)
    """The stored text."""

    def open(self) -> str:
        """Return the clear text. Raise SecretUnreadable if no key decrypts it."""
        try:
            return _cipher(_keys()).decrypt(self.token.encode(errors="replace")).decode()
        except InvalidToken:
            raise SecretUnreadable(
                "No key opens a stored secret: put the SECRET_KEY that it was stored under into "
                "SECRET_KEY_FALLBACKS, or store the secret again."
            ) from None

    def resealed(self) -> Sealed:
        """Return the same text under the newest key. Raise SecretUnreadable."""
        return seal(self.open())

    @property
    def is_newest(self) -> bool:
        """Whether the newest key decrypts it, so that it depends on no other."""
        try:
            _cipher(_keys()[:1]).decrypt(self.token.encode(errors="replace"))
        except InvalidToken:
            return False
        return True


def seal(text: str) -> Sealed:
    """Encrypt with the newest key.

    Raise InvalidSecret for a blank text, and for one that cannot be encoded as UTF-8.
    """
    if not text.strip():  # as a mask, it would match everywhere
        raise InvalidSecret("A secret cannot be blank.")
    try:
        encoded = text.encode()
    except UnicodeEncodeError:
        raise InvalidSecret("A secret must be text that can be written as UTF-8.") from None
    return Sealed(_cipher(_keys()).encrypt(encoded).decode())


def _keys() -> tuple[str, ...]:
    """Return the configured keys, the newest first; read each time, because settings can change."""
    return (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS)


@lru_cache(maxsize=32)
def _cipher(keys: tuple[str, ...]) -> MultiFernet:
    ciphers = []
    for key in keys:
        derived = HKDF(algorithm=SHA256(), length=32, salt=None, info=KEY_PURPOSE).derive(key.encode())
        ciphers.append(Fernet(base64.urlsafe_b64encode(derived)))
    return MultiFernet(ciphers)


if TYPE_CHECKING:
    _TextField = models.TextField[Sealed, Sealed]
else:
    _TextField = models.TextField


class EncryptedTextField(_TextField):
    """A text column of Sealed values, to which clear text cannot be written and by which it cannot be found.

    Reading a row decrypts nothing, so an unreadable value can still be listed and replaced.
    """

    def from_db_value(self, value: str | None, *args: Any) -> Sealed | None:
        return None if value is None else Sealed(value)

    def get_prep_value(self, value: Any) -> str:
        if not isinstance(value, Sealed):
            raise TypeError(f"{self.name} takes sealed values only: seal() makes them.")
        return value.token

    def to_python(self, value: Any) -> Sealed:
        """Accept a sealed value, or its stored text from a fixture. Raise ValidationError for clear text."""
        if isinstance(value, Sealed):
            return value
        if isinstance(value, str) and _TOKEN.fullmatch(value):
            return Sealed(value)
        raise ValidationError("Only a sealed value can be stored.")

    def value_to_string(self, obj: models.Model) -> str:
        return self.get_prep_value(self.value_from_object(obj))

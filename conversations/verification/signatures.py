"""The operator's key: an Ed25519 key in a PEM file, which signs checkpoints and verifies them."""

from __future__ import annotations

import base64
import binascii
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

HOW_TO_MAKE = "make one with `openssl genpkey -algorithm ed25519 -out checkpoint.pem`"


class KeyUnusable(Exception):
    """The file has no suitable key; the text says what to do."""


class Key(NamedTuple):
    """A public key, or a private one, which can also sign."""

    public: Ed25519PublicKey
    private: Ed25519PrivateKey | None

    @property
    def name(self) -> str:
        """Return a fingerprint of the public key: 16 hex digits."""
        raw = self.public.public_bytes(Encoding.Raw, PublicFormat.Raw)
        return sha256(raw).hexdigest()[:16]

    def sign(self, digest: bytes) -> str:
        """Return the signature of a digest as base64. Raise KeyUnusable for a public key."""
        if self.private is None:
            raise KeyUnusable(f"A public key signs nothing. Name the private key, or {HOW_TO_MAKE}.")
        return base64.b64encode(self.private.sign(digest)).decode()

    def has_signed(self, digest: bytes, signature: str) -> bool:
        """Return whether this key, or its private part, has signed the digest."""
        try:
            self.public.verify(base64.b64decode(signature, validate=True), digest)
        except (InvalidSignature, binascii.Error, ValueError):
            return False
        return True


def read_key(path: Path) -> Key:
    """Return the key in a PEM file, private or public. Raise KeyUnusable."""
    try:
        pem = path.read_bytes()
    except OSError as error:
        raise KeyUnusable(f"The key {path} cannot be read: {error.strerror}.") from error
    try:
        if b"PRIVATE KEY" in pem:
            private = load_pem_private_key(pem, password=None)
            if isinstance(private, Ed25519PrivateKey):
                return Key(private.public_key(), private)
        else:
            public = load_pem_public_key(pem)
            if isinstance(public, Ed25519PublicKey):
                return Key(public, None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise KeyUnusable(f"{path} holds no key that can be used: {HOW_TO_MAKE}.") from error
    raise KeyUnusable(f"{path} holds a key of another sort than Ed25519: {HOW_TO_MAKE}.")

"""The secret key in a backup: sealed with a passphrase, which scrypt makes slow to guess."""

from __future__ import annotations

import base64
import getpass
import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cryptography.fernet import Fernet, InvalidToken
from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

from convserver.backups.failures import BackupError

NAME = "secret_key.sealed"
# The variable with the passphrase: arguments can be seen by other users.
PASSPHRASE = "CONVSERVER_BACKUP_PASSPHRASE"  # noqa: S105 - a name
PASSPHRASE_MIN_LENGTH = 12
# 64 MB and about a quarter of a second for each guess.
_COST = {"n": 2**16, "r": 8, "p": 1}


@dataclass(frozen=True, slots=True)
class Keys:
    """The secret key and those before it."""

    newest: str = field(repr=False)
    earlier: tuple[str, ...] = field(repr=False)


def seal(keys: Keys, passphrase: str, directory: Path) -> None:
    """Write the keys into the directory. Raise BackupError if the passphrase is too short."""
    if len(passphrase) < PASSPHRASE_MIN_LENGTH:
        raise BackupError(
            f"The passphrase is too short: it needs at least {PASSPHRASE_MIN_LENGTH} characters."
        )
    salt = os.urandom(16)
    text = json.dumps([keys.newest, *keys.earlier]).encode()
    sealed = {
        "scrypt": _COST,
        "salt": base64.b64encode(salt).decode(),
        "fernet": _cipher(passphrase, salt).encrypt(text).decode(),
    }
    (directory / NAME).write_text(f"{json.dumps(sealed, indent=1)}\n")


def unseal(directory: Path, passphrase: str) -> Keys:
    """Return the keys of a backup. Raise BackupError without one, or for another passphrase."""
    path = directory / NAME
    try:
        sealed: dict[str, Any] = json.loads(path.read_bytes())
        # The costs are never taken from the file: a stranger could have made them too large for the memory.
        if sealed["scrypt"] != _COST:
            raise BackupError(
                f"{path} was sealed by another version of convserver: restore it with that one."
            )
        cipher = _cipher(passphrase, base64.b64decode(sealed["salt"]))
        newest, *earlier = json.loads(cipher.decrypt(sealed["fernet"].encode()))
    except FileNotFoundError:
        raise BackupError(
            f"{path.parent} has no secret key: it was made without --with-secret-key. "
            "Restore it without that option, and bring the key by SECRET_KEY."
        ) from None
    except InvalidToken:
        raise BackupError(f"The passphrase does not open {path}: nothing was changed. Try again.") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{path} cannot be read as a sealed key: choose another backup.") from error
    return Keys(newest, tuple(earlier))


def _cipher(passphrase: str, salt: bytes) -> Fernet:
    derived = Scrypt(salt=salt, length=32, **_COST).derive(passphrase.encode())
    return Fernet(base64.urlsafe_b64encode(derived))


def new_passphrase() -> str:
    """Return a passphrase to seal with; a person enters it twice. Raise BackupError."""
    passphrase = known_passphrase()
    if not os.environ.get(PASSPHRASE) and getpass.getpass("Passphrase again: ") != passphrase:
        raise BackupError("The two passphrases differ: nothing was written. Try again.")
    return passphrase


def known_passphrase() -> str:
    """Return a passphrase to open with. Raise BackupError if there is none and no terminal to ask for it."""
    if passphrase := os.environ.get(PASSPHRASE):
        return passphrase
    if not sys.stdin.isatty():
        raise BackupError(f"There is no passphrase: set {PASSPHRASE}.")
    return getpass.getpass("Passphrase of the secret key: ")

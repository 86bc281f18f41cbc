"""The passphrase of a sealed secret key: from the environment, or from the person at the terminal."""

from __future__ import annotations

import getpass
import os
import sys

from convserver.backups.failures import BackupError
from convserver.backups.sealed_key import PASSPHRASE


def new() -> str:
    """Return a passphrase to seal with; a person enters it twice. Raise BackupError."""
    passphrase = known()
    if not os.environ.get(PASSPHRASE) and getpass.getpass("Passphrase again: ") != passphrase:
        raise BackupError("The two passphrases differ: nothing was written. Try again.")
    return passphrase


def known() -> str:
    """Return a passphrase to open with. Raise BackupError if there is none and no terminal to ask for it."""
    if passphrase := os.environ.get(PASSPHRASE):
        return passphrase
    if not sys.stdin.isatty():
        raise BackupError(f"There is no passphrase: set {PASSPHRASE}.")
    return getpass.getpass("Passphrase of the secret key: ")

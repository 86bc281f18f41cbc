"""Why a backup or a restore was refused or failed."""

from __future__ import annotations


class BackupError(Exception):
    """A backup or a restore was refused or failed; the text says why and what to do, for people."""

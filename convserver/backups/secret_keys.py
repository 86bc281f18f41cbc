"""The secret key of an installation, brought back from a backup."""

from __future__ import annotations

import os
from hashlib import sha256
from pathlib import Path

from django.utils import timezone

from convserver.backups import directories
from convserver.backups.failures import BackupError
from convserver.backups.sealed_key import Keys
from convserver.configuration import Configuration, installation_of


def is_known(configuration: Configuration, installation: str) -> bool:
    """Say whether one of the configured keys is that of the installation."""
    keys = (configuration.secret_key, *configuration.secret_key_fallbacks)
    return installation in map(installation_of, keys)


def require_place(configuration: Configuration, keys: Keys) -> None:
    """Raise BackupError if the environment has another key, which would be used instead of the file."""
    if os.environ.get("SECRET_KEY") and configuration.secret_key != keys.newest:
        raise BackupError(
            "SECRET_KEY is set to another key than the backup's, and is used instead of one in the data "
            "directory: unset it, or leave out --with-secret-key. Nothing was changed."
        )


def put_back(configuration: Configuration, keys: Keys) -> str:
    """Write the key into the data directory, keep the one that was there, and say what was done."""
    path = configuration.data_dir / "secret_key"
    if configuration.secret_key == keys.newest:
        return f"The secret key is the same.{_earlier(keys)}"
    kept = path.with_name(f"{path.name}.before-{directories.stamp(timezone.now())}")
    _write(path, keys.newest, kept)
    return f"The secret key is in {path}; the one that was there is kept as {kept}.{_earlier(keys)}"


def _write(path: Path, key: str, kept: Path) -> None:
    draft = path.with_name(f"{path.name}.{sha256(os.urandom(8)).hexdigest()[:8]}")
    try:
        draft.touch(mode=0o600)
        draft.write_text(key)
        directories.sync(draft)
        if path.exists():
            kept.hardlink_to(path)
        draft.replace(path)
        directories.sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _earlier(keys: Keys) -> str:
    """Return what to do with earlier keys, after a space: only the environment names them."""
    if not keys.earlier:
        return ""
    return f" Set SECRET_KEY_FALLBACKS to the earlier ones: {','.join(keys.earlier)}"

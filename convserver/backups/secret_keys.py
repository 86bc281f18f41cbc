"""The secret key of an installation, brought back from a backup."""

from __future__ import annotations

import os

from django.utils import timezone

from conversations import synced_files
from convserver.backups import directories
from convserver.backups.failures import BackupError
from convserver.backups.sealed_key import Keys
from convserver.configuration import Configuration, installation_of


def is_known(configuration: Configuration, installation: str) -> bool:
    """Return whether one of the configured keys is that of the installation."""
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
    """Write the key into the data directory, keep the one that was there, and say what was done.

    Earlier keys are written to a file beside it, for the environment; nothing that is said has a key.
    """
    path, stamp = configuration.data_dir / "secret_key", directories.stamp(timezone.now())
    earlier = ""
    if keys.earlier:
        listed = path.with_name(f"{path.name}.earlier-{stamp}")
        synced_files.write(listed, ",".join(keys.earlier))
        earlier = (
            f" The earlier keys are in {listed}: set SECRET_KEY_FALLBACKS to what it holds, and remove it."
        )
    if configuration.secret_key == keys.newest:
        return f"The secret key is the same.{earlier}"
    kept = path.with_name(f"{path.name}.before-{stamp}")
    if path.exists():
        kept.hardlink_to(path)  # at no moment is the present key without a name
    synced_files.write(path, keys.newest)
    return f"The secret key is in {path}; the one that was there is kept as {kept}.{earlier}"

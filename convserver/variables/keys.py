"""Variables with keys; a secret key that is not set is generated and kept in the data directory."""

from __future__ import annotations

import secrets
from pathlib import Path

from conversations import synced_files
from convserver.variables import ConfigurationError, Given, words

SECRET_KEY_MIN_LENGTH = 32
# In accounts mode, where the key may come from the network; local mode only warns.
SESSION_API_KEY_MIN_LENGTH = 16


def session_api_key(name: str, key: str, given: Given) -> str | None:
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigurationError(
            f"{name} must be printable ASCII without spaces, because it is sent in a header."
        )
    if key and not given.is_local and len(key) < SESSION_API_KEY_MIN_LENGTH:
        raise ConfigurationError(
            f"{name} is too short: it needs at least {SESSION_API_KEY_MIN_LENGTH} random characters."
        )
    return key or None


def llm_api_key(name: str, text: str, _: Given) -> str | None:
    key = text.strip() or None
    if key and not (key.isascii() and key.isprintable()):
        raise ConfigurationError(f"{name} must be printable ASCII, because it is sent in a header.")
    return key


def secret_key(name: str, key: str, given: Given) -> str:
    if not given.is_local and not key:
        raise ConfigurationError(
            f"{name} is not set, but accounts mode needs one: "
            f"set it to at least {SECRET_KEY_MIN_LENGTH} random characters and keep it."
        )
    if key and len(key) < SECRET_KEY_MIN_LENGTH:
        raise ConfigurationError(
            f"{name} is too short: it needs at least {SECRET_KEY_MIN_LENGTH} characters."
        )
    return key or _kept_secret_key(given.known["data_dir"])


def secret_key_fallbacks(name: str, text: str, given: Given) -> tuple[str, ...]:
    keys = words(name, text, given)
    if any(len(key) < SECRET_KEY_MIN_LENGTH for key in keys):
        raise ConfigurationError(
            f"{name} has a key that is too short: separated by commas, each needs at least "
            f"{SECRET_KEY_MIN_LENGTH} characters."
        )
    return keys


def _kept_secret_key(data_dir: Path) -> str:
    """Return the key in the data directory; on first use create it, readable by its owner only."""
    path = data_dir / "secret_key"
    try:
        synced_files.make_directory(data_dir)
        if not path.exists():
            # Never over a key that another process has stored meanwhile: secrets are sealed with it.
            synced_files.write(path, secrets.token_urlsafe(64), replaces=False)
    except OSError as error:
        is_file = data_dir.exists() and not data_dir.is_dir()
        reason = (
            "that is a file, not a directory" if is_file else f"nothing can be stored there: {error.strerror}"
        )
        raise ConfigurationError(f"CONVSERVER_DATA_DIR is {str(data_dir)!r}, but {reason}.") from error
    try:
        key = path.read_text().strip()
    except OSError as error:
        raise ConfigurationError(f"The file {path} cannot be read: {error.strerror}.") from error
    if len(key) < SECRET_KEY_MIN_LENGTH:
        raise ConfigurationError(
            f"SECRET_KEY is not set, and {str(path)!r} does not contain one: restore that file, or delete it "
            "to have a new key generated."
        )
    return key

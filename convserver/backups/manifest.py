"""The manifest of a backup: what it is of, and the SHA-256 of every file in it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from convserver.backups.failures import BackupError

FORMAT = 1
NAME = "manifest.json"
DATABASE = {"sqlite": "database.sqlite3", "postgresql": "database.dump"}  # by engine
SUM = f"{NAME}.sha256"  # beside the manifest: its own SHA-256, as `sha256sum` writes it
CHUNK_BYTES = 1024 * 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class StoredFile:
    """One file of a backup."""

    size: int  # in bytes
    sha256: str


@dataclass(frozen=True, kw_only=True, slots=True)
class WorkspaceFiles:
    """The files of conversations in a backup."""

    workspaces: int
    entries: int  # files, directories and links in them
    bytes: int
    changed: int  # files that were written while they were read
    unread: int  # files that were gone, or could not be opened


@dataclass(frozen=True, kw_only=True, slots=True)
class Manifest:
    """What a backup is of."""

    format: int = FORMAT
    version: str  # of the program that made it
    engine: str  # `sqlite` or `postgresql`
    made_at: str
    """When the snapshot was taken: everything acknowledged before is in it. ISO 8601, UTC."""
    installation: str  # names the secret key, without saying anything about it
    migrations: list[str]  # those that were applied, as `app.name`, sorted
    counts: dict[str, int]  # the number of rows of each table
    heads: str  # SHA-256 over the heads of all conversations, in hex
    triggers: list[str] = field(default_factory=list)
    """The names of those that were switched on, sorted: the guards. Empty: not recorded."""
    problems: list[str] = field(default_factory=list)
    """What was damaged already in the store that the backup is of."""
    is_checked: bool = False  # whether the store was read for such problems
    schema: str = ""  # PostgreSQL: the name of the schema that was dumped
    extensions: list[str] = field(default_factory=list)  # PostgreSQL: the extensions that its tables need
    workspaces: WorkspaceFiles | None = None
    """The files of conversations; None if they are not in the backup."""
    files: dict[str, StoredFile] = field(default_factory=dict)
    """Every other file of the backup, by its name."""


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex, reading it in pieces."""
    digest = hashlib.sha256()
    for piece in pieces_of(path):
        digest.update(piece)
    return digest.hexdigest()


def pieces_of(path: Path) -> Iterator[bytes]:
    """Return the content of a file in pieces of at most CHUNK_BYTES."""
    with path.open("rb") as source:
        while piece := source.read(CHUNK_BYTES):
            yield piece


def described(path: Path) -> StoredFile:
    """Return the size and hash of a file."""
    return StoredFile(size=path.stat().st_size, sha256=sha256_of(path))


def write(manifest: Manifest, directory: Path) -> None:
    """Write the manifest and its own hash."""
    text = f"{json.dumps(asdict(manifest), indent=1, ensure_ascii=False, sort_keys=True)}\n".encode()
    (directory / NAME).write_bytes(text)
    (directory / SUM).write_text(f"{hashlib.sha256(text).hexdigest()}  {NAME}\n")


def read(directory: Path) -> Manifest:
    """Return the manifest of a backup, and compare every file with it. Raise BackupError."""
    manifest = _parsed(_text(directory), directory)
    for name, expected in manifest.files.items():
        _require_file(directory / name, expected)
    return manifest


def _text(directory: Path) -> bytes:
    if not directory.is_dir():
        raise BackupError(f"{directory} is no directory: name the one that `convserver backup` has written.")
    manifest_max_bytes = 16 * 1024 * 1024
    try:
        with (directory / NAME).open("rb") as source:
            text = source.read(manifest_max_bytes)
        expected = (directory / SUM).read_bytes()
    except FileNotFoundError as error:
        missing = Path(error.filename).name
        raise BackupError(
            f"{directory} has no {missing}, so it is no complete backup: choose another one."
        ) from error
    except OSError as error:
        raise BackupError(f"{error.filename} cannot be read: {error.strerror}.") from error
    # Compared before it is parsed: a damaged manifest would name other differences than its damage.
    if expected != f"{hashlib.sha256(text).hexdigest()}  {NAME}\n".encode():
        raise BackupError(f"{directory / NAME} was changed or damaged: choose another backup.")
    return text


def _parsed(text: bytes, directory: Path) -> Manifest:
    try:
        value: dict[str, Any] = json.loads(text)
        if value["format"] != FORMAT:
            raise BackupError(
                f"{directory} has format {value['format']}, but this version reads {FORMAT} only: "
                "restore it with the version of convserver that has made it."
            )
        files = {name: StoredFile(**facts) for name, facts in value.pop("files").items()}
        held = value.pop("workspaces", None)
        workspaces = None if held is None else WorkspaceFiles(**held)
        manifest = Manifest(**value, workspaces=workspaces, files=files)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise BackupError(f"{directory / NAME} is no manifest of a backup: choose another backup.") from error
    # The hash proves no origin: a manifest by anyone must not make a restore read other files.
    if any(os.path.basename(name) != name for name in files):  # noqa: PTH119 - not a path yet
        raise BackupError(f"{directory / NAME} names files outside the backup: choose another backup.")
    return manifest


def _require_file(path: Path, expected: StoredFile) -> None:
    try:
        size = path.stat().st_size
        found = sha256_of(path) if size == expected.size else ""  # a large file takes minutes to read
    except FileNotFoundError:
        raise BackupError(f"{path} is missing, so the backup is not complete: choose another one.") from None
    except OSError as error:
        raise BackupError(f"{path} cannot be read: {error.strerror}.") from error
    if size != expected.size:
        raise BackupError(
            f"{path} has {size:,} bytes, but the manifest says {expected.size:,}: choose another backup."
        )
    if found != expected.sha256:
        raise BackupError(f"{path} was changed or damaged (its SHA-256 differs): choose another backup.")

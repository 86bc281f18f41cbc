"""Files that must survive a power cut, with their names."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from pathlib import Path


def sync(path: Path) -> None:
    """Write a file, or the names in a directory, to the disk. Raise OSError."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    except OSError as error:
        # Some network filesystems cannot sync a directory: they keep its names by themselves.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(opened)


def write(path: Path, text: str, *, replaces: bool = True) -> None:
    """Write a file that only this account can read; a reader never finds half of it. Raise OSError.

    Without `replaces`, a file that exists stays as it is.
    """
    draft = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    try:
        draft.touch(mode=0o600)
        draft.write_text(text)
        sync(draft)
        if replaces:
            draft.replace(path)
        else:
            with suppress(FileExistsError):  # another process was first
                path.hardlink_to(draft)
            draft.unlink()  # its name must not come back after a power cut
        sync(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def rewrite(path: Path) -> None:
    """Write the bytes of a file to their places once more, and sync it. Raise OSError."""
    with path.open("r+b") as file:
        place = 0
        while piece := file.read(1024 * 1024):
            file.seek(place)
            file.write(piece)
            place += len(piece)
            file.seek(place)
        file.flush()
        os.fsync(file.fileno())


def make_directory(path: Path) -> None:
    """Make a directory that only this account can read, and its parents as usual. Raise OSError."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    for each in missing:
        sync(each.parent)

"""Directories of the user's own in which conversations may work: below CONVSERVER_WORKSPACE_ROOTS.

What the path of one names may change at any time, so each use goes from its root, and follows no link.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from django.conf import settings

from conversations.exceptions import StoreUnavailable
from sessions_app.sandbox.base import NoSandbox, Sandbox, SandboxedProgram
from sessions_app.sandbox.ownership import Account


def root_of(directory: Path) -> Path | None:
    """Return the root that a directory is below, or is itself; None if no conversation may work in it."""
    roots: tuple[Path, ...] = settings.CONFIGURATION.workspace_roots
    if ".." in directory.parts:
        return None
    return next((each for each in roots if directory.is_relative_to(each)), None)


def opened(directory: Path) -> int:
    """Open a directory below a root by the names of all those on the way, none of which may be a link.

    Raise OSError, also if it is below no root.
    """
    root = root_of(directory)
    if root is None:
        raise FileNotFoundError(2, f"{directory} is in none of CONVSERVER_WORKSPACE_ROOTS")
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    found = os.open(root, flags)
    for name in directory.relative_to(root).parts:
        above = found
        try:
            found = os.open(name, flags, dir_fd=above)
        finally:
            os.close(above)
    return found


def started(sandbox: Sandbox, argv: Sequence[str], directory: Path, **options: Any) -> SandboxedProgram:
    """Start a program as `Sandbox.start` does, in a workspace of the server or a directory of the user's own.

    Raise NoSandbox or StoreUnavailable.
    """
    if root_of(directory) is None:
        return sandbox.start(argv, directory, **options)
    try:
        descriptor = opened(directory)
    except OSError as error:
        words = f"The directory of the conversation cannot be used: {error.strerror}."
        raise StoreUnavailable(words) from error
    try:
        about = os.fstat(descriptor)
    finally:
        os.close(descriptor)
    identity = (about.st_dev, about.st_ino)
    return sandbox.of_owner(_owner(about)).start(argv, directory, identity=identity, **options)


def _owner(about: os.stat_result) -> Account | None:
    """Return as whom commands run in a directory of the user's own; None for the server's account.

    A server that root has started gives no file to another account, so commands run as the directory's
    owner. Raise NoSandbox if that is root.
    """
    if os.geteuid() != 0:
        return None
    if about.st_uid == 0 or about.st_gid == 0:
        raise NoSandbox(
            "The directory of this conversation belongs to root, as whom no command runs. Start the server "
            "as the person whose directory it is, or give the directory to them (chown)."
        )
    return Account(about.st_uid, about.st_gid)

"""Whose the files of workspaces are: a server that root started runs commands as another user."""

from __future__ import annotations

import os
import pwd
from contextlib import suppress
from typing import NamedTuple

from django.conf import settings

from sessions_app.sandbox.base import NoSandbox, SandboxName


class Account(NamedTuple):
    """The user and the group that own files and run programs."""

    uid: int
    gid: int


def account() -> Account | None:
    """Return the account of commands; None if it is the server's own.

    Raise NoSandbox if the setting names no account, or one with the rights of root.
    """
    if os.geteuid() != 0 or settings.CONFIGURATION.sandbox in (SandboxName.NONE, SandboxName.OFF):
        return None
    name = settings.CONFIGURATION.sandbox_settings.user
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise NoSandbox(
            f"CONVSERVER_SANDBOX_USER is {name!r}, and this machine has no such account. Make one "
            f"(useradd --system {name}), or name another."
        ) from None
    if found.pw_uid == 0 or found.pw_gid == 0:
        raise NoSandbox(f"CONVSERVER_SANDBOX_USER is {name!r}, which has the rights of root. Name another.")
    return Account(found.pw_uid, found.pw_gid)


def give(name: bytes, directory: int, *, is_users: bool) -> None:
    """Give a file or directory that the server has made in a workspace to the account of commands.

    In a directory of the user's own the owner of the directory gets it. Raise OSError.
    """
    if is_users:
        if os.geteuid() == 0:
            about = os.fstat(directory)
            os.chown(name, about.st_uid, about.st_gid, dir_fd=directory, follow_symlinks=False)
        return
    with suppress(NoSandbox, PermissionError):  # the first start of a program says what is wrong
        if (owner := account()) is not None:
            os.chown(name, *owner, dir_fd=directory, follow_symlinks=False)


def give_all(root: int) -> None:
    """The same for a whole workspace, unless it is given already. Raise OSError."""
    with suppress(NoSandbox, PermissionError):
        owner = account()
        if owner is None or os.fstat(root).st_uid == owner.uid:
            return
        # The workspace itself is last: until then no program of an agent was here, to put links in the way.
        for _, directories, files, opened in os.fwalk(".", topdown=False, dir_fd=root):
            for name in (*directories, *files):
                os.chown(name, *owner, dir_fd=opened, follow_symlinks=False)
        os.fchown(root, *owner)

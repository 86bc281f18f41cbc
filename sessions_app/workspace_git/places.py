"""Which repositories of a workspace a path means. Nothing of them is run or read to find that out."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from conversations.events import ConversationRef
from sessions_app.workspaces import paths, records
from sessions_app.workspaces.beneath import NoSuchFile, PathRefused, closing, pieces
from sessions_app.workspaces.tree import Tree

_INSIDE = ".git"


class RepositoryPlaces(NamedTuple):
    """The repositories that a directory of a workspace shows, relative to the workspace."""

    owner_pk: int
    workspace: Path
    directory: str
    """Empty for the workspace itself."""
    is_inside: bool
    """Whether the directory is one, or is in one."""
    below: list[str]
    """The names of directories in it that are repositories of their own."""


class FilePlace(NamedTuple):
    """A file, or what was one, in a repository."""

    owner_pk: int
    workspace: Path
    repository: str
    path: str
    """Relative to the repository."""


def of_directory(conversation: ConversationRef, path: str) -> RepositoryPlaces | None:
    """Return the repositories that a directory shows; None for none. Raise PathRefused for one outside."""
    target = paths.relative(conversation, path)
    looked_at_most = 1000  # of the names in the directory; clients ask often
    with records.opened(conversation) as tree:
        if tree is None:
            return None
        try:
            tree.require_directory(target)
            names = tree.names(target, looked_at_most)
        except PathRefused:
            return None
        directories = [name.rstrip("/") for name in names if name.endswith("/")]
        below = [each for each in directories if each != _INSIDE and _is_one(tree, _joined(target, each))]
        is_inside = _closest(tree, target) is not None
    if not is_inside and not below:
        return None
    # Only now: it makes a directory where there is none.
    workspace = records.directory_of(conversation)
    return RepositoryPlaces(conversation.owner_id, workspace, target, is_inside, below)


def of_file(conversation: ConversationRef, path: str) -> FilePlace | None:
    """Return the repository of a file; None for none. Raise PathRefused for a path outside."""
    target = paths.relative(conversation, path)
    with records.opened(conversation) as tree:
        repository = None if tree is None else _closest(tree, target.rpartition("/")[0])
    if repository is None or not target:
        return None
    inside = target[len(repository) :].lstrip("/")
    return FilePlace(conversation.owner_id, records.directory_of(conversation), repository, inside)


def content(conversation: ConversationRef, path: str, most: int) -> tuple[int, bytes] | None:
    """Return the size of a file as it is, and its first bytes; None for none."""
    name = paths.relative(conversation, path)
    with records.opened(conversation) as tree, suppress(PathRefused):
        if tree is not None:
            descriptor, about = tree.file(name)
            with closing(descriptor):
                return about.st_size, b"".join(pieces(descriptor, min(about.st_size, most)))
    return None


def _closest(tree: Tree, directory: str) -> str | None:
    """Return the repository in which a directory is; None for none."""
    while not _is_one(tree, directory):
        if not directory:
            return None
        directory = directory.rpartition("/")[0]
    return directory


def _is_one(tree: Tree, directory: str) -> bool:
    try:
        tree.require_directory(_joined(directory, _INSIDE))
    except NoSuchFile:
        return False
    except PathRefused:  # a file that names where the repository is, as linked work trees have
        with suppress(PathRefused):
            tree.require_directory(directory)
            return True
        return False
    return True


def _joined(directory: str, name: str) -> str:
    return f"{directory}/{name}".strip("/")

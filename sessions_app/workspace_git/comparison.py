"""The files that differ from a commit, and what they were."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sessions_app.workspace_git import program
from sessions_app.workspace_git.places import FilePlace, RepositoryPlaces
from sessions_app.workspace_git.program import GitBounds, GitFailed, UnknownRevision
from sessions_app.workspaces.beneath import shown
from sessions_app.workspaces.tree import is_draft

V0, V1 = "wire:v0", "wire:v1"
"""What files are compared with where a client names nothing: the rules of the two wires."""


class ChangedFile(NamedTuple):
    """A file that differs; a renamed one is two, as on the wires."""

    status: str
    """As git prints it: A, D, M, T or U."""
    path: str


class FileDiff(NamedTuple):
    """A file before and after; empty where it was not there, or is no text."""

    original: str
    modified: str


class ShownCommit(NamedTuple):
    """A commit in a list."""

    sha: str
    short_sha: str
    author: str
    timestamp: str
    subject: str


class FileTooLong(GitFailed):
    """The file has more than can be shown beside another."""

    code = "too_large"


class NoFile(GitFailed):
    """The file is not there, and was not."""

    code = "file_not_found"


async def changes(place: RepositoryPlaces, against: str) -> list[ChangedFile]:
    """Return the changed files of a directory by their paths in it, also of repositories directly in it.

    `against` is V0, V1, or a revision. Raise NoSandbox, UnknownRevision or GitFailed.
    """
    revision = _required(against)
    # One start of the sandbox for all of them: it costs more than git itself.
    own = [place.directory or "."] if place.is_inside else []
    below = [f"{place.directory}/{name}".lstrip("/") for name in place.below]
    output = await program.run(
        place.owner_pk, place.workspace, "changes", revision, *map(os.fsencode, (*own, *below))
    )
    prefixes = {each: f"{name}/" for each, name in zip(below, place.below, strict=True)}
    inside = tuple(prefixes.values())
    changed: dict[str, str] = {}
    for directory, status, name in _listed(_fields(output)):
        prefix = prefixes.get(directory, "")
        # What is in a repository of its own is listed by that one.
        is_own = bool(prefix) or not name.startswith(inside)
        # A file that the server is writing is no change of anybody.
        if is_own and not is_draft(name.rpartition("/")[2]):
            changed.setdefault(prefix + name, status)
    return _sorted(changed)


def _sorted(changed: Mapping[str, str]) -> list[ChangedFile]:
    """Return the first files by path, of their statuses by path."""
    return [ChangedFile(status, path) for path, status in sorted(changed.items())[: GitBounds.files]]


def _fields(output: bytes) -> Iterator[bytes]:
    """Yield the fields that are whole: the end may have been cut."""
    return iter(output.split(b"\0")[:-1])


def _listed(fields: Iterator[bytes]) -> Iterator[tuple[str, str, str]]:
    """Yield directory, status and path of each changed file."""
    for directory in fields:
        for status, path in _named(fields):
            yield os.fsdecode(directory), status, path
        for path in _until_empty(fields):
            yield os.fsdecode(directory), "A", path


def _named(fields: Iterator[bytes]) -> Iterator[tuple[str, str]]:
    for status in _until_empty(fields):
        if (path := next(fields, b"")) and re.fullmatch("[A-Z]", status):
            yield status, os.fsdecode(path)


def _until_empty(fields: Iterator[bytes]) -> Iterator[str]:
    for each in fields:
        if not each:
            return
        yield os.fsdecode(each)


async def diff(place: FilePlace, now: tuple[int, bytes] | None, against: str) -> FileDiff:
    """Return a file as it was, and as it is: its size and content, None for none.

    Raise NoSandbox, UnknownRevision, FileTooLong, NoFile or GitFailed.
    """
    revision = _required(against)
    if now is not None:
        _require_short(now[0], place)
    original = await _content(place, "before", revision)
    if now is None and original is None:
        raise NoFile(f"There is no {shown(place.path)}.")
    return FileDiff(_text(original), _text(None if now is None else now[1]))


def _required(revision: str) -> str:
    """Return a revision that git cannot take for an option. Raise UnknownRevision."""
    if revision.startswith("-") or not revision.isprintable():
        raise UnknownRevision("The repository has no such branch, tag or commit.")
    return revision


async def commit_diff(place: FilePlace, commit: str) -> FileDiff:
    """Return a file as a commit has changed it. Raise as `diff` does."""
    revision = _required(commit)
    before = await _content(place, "at", revision, "before")
    after = await _content(place, "at", revision, "after")
    return FileDiff(_text(before), _text(after))


async def commit_changes(place: RepositoryPlaces, commit: str) -> list[ChangedFile]:
    """Return the files that a commit has changed. Raise as `changes` does."""
    directory = os.fsencode(place.directory or ".")
    output = await program.run(place.owner_pk, place.workspace, "in_commit", _required(commit), directory)
    return _sorted({path: status for status, path in _named(_fields(output))})


async def commits(place: RepositoryPlaces, most: int) -> list[ShownCommit]:
    """Return at most `most` of the newest commits. Raise NoSandbox or GitFailed."""
    directory = os.fsencode(place.directory or ".")
    output = await program.run(place.owner_pk, place.workspace, "commits", directory, str(most))
    lines = (each.decode(errors="replace").split("\x1f", 4) for each in _fields(output))
    return [ShownCommit(*fields) for fields in lines if len(fields) == len(ShownCommit._fields)]


async def _content(place: FilePlace, action: str, revision: str, *further: str) -> bytes | None:
    """Return the content of a file that git has; None for none. Raise FileTooLong."""
    named = (
        revision,
        os.fsencode(place.repository or "."),
        os.fsencode(place.path),
        str(GitBounds.file_bytes),
    )
    output = await program.run(place.owner_pk, place.workspace, action, *named, *further)
    size, _, content = output.partition(b"\0")
    if not size.isdigit():  # there is none, or it is no file
        return None
    _require_short(int(size), place)
    return content


def _require_short(size: int, place: FilePlace) -> None:
    if size > GitBounds.file_bytes:
        raise FileTooLong(
            f"{shown(place.path)} has {size:,} bytes; at most {GitBounds.file_bytes:,} are compared. "
            "Download it instead."
        )


def _text(content: bytes | None) -> str:
    """Return a text without the end of its last line, as the wires have it; empty for what is none."""
    if content is None or b"\0" in content:
        return ""
    try:
        return content.decode().removesuffix("\n")
    except UnicodeDecodeError:
        return ""

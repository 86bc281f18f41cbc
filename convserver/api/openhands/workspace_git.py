"""What git says of a workspace, and the form in which the two faces of the V1 wire have it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from pydantic import BaseModel

from conversations.events import ConversationRef
from convserver.event_loop import in_loop
from sessions_app.workspace_git import comparison, places
from sessions_app.workspace_git.comparison import ChangedFile, FileDiff, ShownCommit
from sessions_app.workspace_git.program import GitBounds


class ChangeStatus(StrEnum):
    """What has happened to a file; a renamed one is deleted and added."""

    ADDED = "ADDED"
    DELETED = "DELETED"
    UPDATED = "UPDATED"


class WorkspaceChange(BaseModel):
    """A file that differs from the commit that the work began with, or from the one that was asked for."""

    status: ChangeStatus
    path: str


class WorkspaceDiff(BaseModel):
    """A file before and after, without the end of its last line; null where there is no repository."""

    modified: str | None
    original: str | None


def changes_of(conversation: ConversationRef, path: str, against: str) -> list[ChangedFile]:
    """Return the changed files of a directory; none where there is no repository.

    Raise PathRefused for one outside, and as `comparison.changes` does.
    """
    place = places.of_directory(conversation, path)
    return [] if place is None else in_loop(comparison.changes, place, against)


def diff_of(conversation: ConversationRef, path: str, against: str) -> FileDiff | None:
    """Return a file before and after; None where there is no repository.

    Raise PathRefused for one outside, and as `comparison.diff` does.
    """
    place = places.of_file(conversation, path)
    if place is None:
        return None
    now = places.content(conversation, path, GitBounds.file_bytes)
    return in_loop(comparison.diff, place, now, against)


def commit_diff_of(conversation: ConversationRef, path: str, commit: str) -> FileDiff | None:
    """Return a file as a commit has changed it; None where there is no repository. Raise as `diff_of`."""
    place = places.of_file(conversation, path)
    return None if place is None else in_loop(comparison.commit_diff, place, commit)


def commit_changes_of(conversation: ConversationRef, path: str, commit: str) -> list[ChangedFile]:
    """Return the files that a commit has changed. Raise as `changes_of` does."""
    place = places.of_directory(conversation, path)
    return [] if place is None or not place.is_inside else in_loop(comparison.commit_changes, place, commit)


def commits_of(conversation: ConversationRef, path: str, most: int) -> list[ShownCommit]:
    """Return the newest commits. Raise as `changes_of` does."""
    place = places.of_directory(conversation, path)
    return [] if place is None or not place.is_inside else in_loop(comparison.commits, place, most)


def shown(found: list[ChangedFile]) -> list[dict[str, Any]]:
    """Return changed files in the wire's form."""
    statuses = {"A": ChangeStatus.ADDED, "D": ChangeStatus.DELETED}
    return [
        {"status": statuses.get(each.status, ChangeStatus.UPDATED).value, "path": each.path} for each in found
    ]


def beside(found: FileDiff | None) -> dict[str, Any]:
    """Return a file before and after in the wire's form."""
    if found is None:
        return {"modified": None, "original": None}
    return {"modified": found.modified, "original": found.original}

"""What git says of a workspace: changed files, a file before and after, commits (spec V1 §2.5, c)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel, Field
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.events import ConversationRef
from convserver.api.openhands import workspace_git
from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.view import body_in, query_of
from convserver.api.openhands.workspace_git import WorkspaceChange, WorkspaceDiff
from convserver.api.scopes import WRITES
from convserver.api.v1.agent import meant
from convserver.api.v1.agent.meant import PATH
from convserver.api.v1.agent.pages import missing
from convserver.api.v1.agent.view import AgentViewSet, described
from convserver.serving.admission import Lane, in_lane
from sessions_app.workspace_git import comparison

_REFUSED: dict[Any, Any] = {400: Detail, 404: Detail, 422: ValidationProblems, 503: Detail}
_SHA = r"^[0-9a-fA-F]{4,64}$"
SHA = OpenApiParameter("sha", {"type": "string", "pattern": _SHA}, "path", required=True)


class RefQuery(BaseModel):
    """What the files are compared with, unless that is where the work began."""

    ref: str | None = Field(default=None, min_length=1, max_length=1000, description="A branch or commit.")


class FileDiffQuery(RefQuery):
    """The same for one file, which can also be shown as one commit has changed it."""

    commit: str | None = Field(default=None, pattern=_SHA)


class CommitsQuery(BaseModel):
    """How many commits to return."""

    limit: int = Field(default=50, ge=1, le=200)


class CommitQuery(BaseModel):
    """A commit, by the beginning of its name."""

    sha: str = Field(pattern=_SHA)


class WorkspaceCommit(BaseModel):
    """A commit in a list."""

    sha: str
    short_sha: str
    subject: str
    author: str
    timestamp: str


class WorkspaceCommits(BaseModel):
    """The newest commits, the newest first."""

    commits: list[WorkspaceCommit]
    has_more: bool


@in_lane(Lane.ABROAD)  # git may take seconds
class AgentGitViewSet(AgentViewSet):
    """The repositories in the workspace of the conversation that a request means; nothing without one."""

    needs = WRITES

    @extend_schema(parameters=described(PATH, RefQuery), responses={200: list[WorkspaceChange], **_REFUSED})
    def changes(self, request: Request, path: str = "", conversation_id: str = "") -> Response:
        """Return the files of a directory that differ, by their paths in it."""
        conversation, directory = self._meant(request, conversation_id, path)
        ref = query_of(request, RefQuery).ref
        if conversation is None:
            return Response([])
        found = workspace_git.changes_of(conversation, directory, ref or comparison.V1)
        return Response(workspace_git.shown(found))

    @extend_schema(parameters=described(PATH, FileDiffQuery), responses={200: WorkspaceDiff, **_REFUSED})
    def diff(self, request: Request, path: str = "", conversation_id: str = "") -> Response:
        """Return a file before and after."""
        conversation, file = self._meant(request, conversation_id, path)
        query = query_of(request, FileDiffQuery)
        if query.ref is not None and query.commit is not None:
            raise Refused(400, {"detail": "'ref' and 'commit' are mutually exclusive"})
        if conversation is None:
            return Response(workspace_git.beside(None))
        if query.commit is not None:
            return Response(
                workspace_git.beside(workspace_git.commit_diff_of(conversation, file, query.commit))
            )
        found = workspace_git.diff_of(conversation, file, query.ref or comparison.V1)
        return Response(workspace_git.beside(found))

    @extend_schema(parameters=described(PATH, CommitsQuery), responses={200: WorkspaceCommits, **_REFUSED})
    def commits(self, request: Request, conversation_id: str = "") -> Response:
        """Return the commits of a directory's repository, the newest first."""
        conversation, directory = self._meant(request, conversation_id, "")
        limit = query_of(request, CommitsQuery).limit
        found = [] if conversation is None else workspace_git.commits_of(conversation, directory, limit + 1)
        return Response(
            {"commits": [each._asdict() for each in found[:limit]], "has_more": len(found) > limit}
        )

    @extend_schema(parameters=described(SHA, PATH), responses={200: list[WorkspaceChange], **_REFUSED})
    def commit_changes(self, request: Request, sha: str, conversation_id: str = "") -> Response:
        """Return the files that a commit has changed, compared with the commit before it."""
        conversation, directory = self._meant(request, conversation_id, "")
        commit = body_in({"sha": sha}, CommitQuery, "path").sha
        if conversation is None:
            return Response([])
        found = workspace_git.commit_changes_of(conversation, directory, commit)
        return Response(workspace_git.shown(found))

    def _meant(self, request: Request, conversation_id: str, path: str) -> tuple[ConversationRef | None, str]:
        """Return the conversation, if any is meant, and the path of the address or the query.

        Raise InvalidRequest for no path, but ConversationNotFound first.
        """
        found = path or meant.given_path(request)
        conversation = meant.if_any(request, conversation_id, found)
        if not found:
            raise missing("query", PATH.name)
        return conversation, found

"""The V0 wire's requests about a conversation's workspace: its files, and their changes (spec V0 §1.7)."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal

from django.http import StreamingHttpResponse
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.exceptions import ConversationError, ConversationNotFound
from conversations.models import ConversationRef, Version
from convserver.api.openhands import workspace_files, workspace_git
from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.view import query_of
from convserver.api.openhands.workspace_files import NotShown
from convserver.api.scopes import WRITES
from convserver.api.v0.view import V0ViewSet
from convserver.event_loop import in_loop
from convserver.serving.admission import Lane, in_lane
from sessions_app.loops.manager import get_manager
from sessions_app.openhands_v1 import sandboxes
from sessions_app.repository_skills import reading
from sessions_app.sandbox.base import NoSandbox
from sessions_app.workspace_git import comparison
from sessions_app.workspace_git.comparison import FileTooLong, NoFile
from sessions_app.workspace_git.program import GitFailed
from sessions_app.workspaces import archives, paths, records
from sessions_app.workspaces.beneath import NoSuchFile, PathRefused

_OF_ONE: dict[int, Any] = {400: Detail, 404: Detail}


class RuntimeConfig(BaseModel):
    """Where the agent's commands run: a sandbox, which only V1 conversations have."""

    runtime_id: str | None
    session_id: str | None


class MicroagentInput(BaseModel):
    """What a user is to give for one."""

    name: str
    description: str


class Microagent(BaseModel):
    """A microagent, with the names of the tool servers that it declares."""

    name: str
    type: Literal["repo", "knowledge"]
    content: str
    triggers: list[str]
    inputs: list[MicroagentInput]
    tools: list[str]


class Microagents(BaseModel):
    """The microagents that are loaded."""

    microagents: list[Microagent]


class WebHosts(BaseModel):
    """The services of the agent: the port of each address."""

    hosts: dict[str, int]


class EditorAddress(BaseModel):
    """Where an editor shows the workspace."""

    vscode_url: str | None


class Change(BaseModel):
    """A file that differs from what was last committed."""

    status: str
    path: str


class WorkspaceProblem(BaseModel):
    """Why a file, or what git says of it, cannot be shown."""

    error: str


class FolderQuery(BaseModel):
    """Which folder to list; none for the whole workspace."""

    path: str | None = None


class FileQuery(BaseModel):
    """Which file to return."""

    file: str


class DiffQuery(BaseModel):
    """Which file to compare."""

    path: str


class FileDiff(BaseModel):
    """A file before and after."""

    modified: str
    original: str


class FileText(BaseModel):
    """A file as text."""

    code: str


_NOT_LISTED = frozenset({".git/", ".DS_Store", "node_modules/", "__pycache__/", "lost+found/", ".vscode/"})
"""What the wire leaves out of lists."""

_file_list: dict[str, Any] = {
    "parameters": [FolderQuery],
    "responses": {200: list[str], **_OF_ONE, 422: ValidationProblems, 503: Detail},
}
_refused: dict[int, Any] = {404: Detail | WorkspaceProblem, 422: ValidationProblems}
_file: dict[str, Any] = {
    "parameters": [FileQuery],
    "responses": {
        200: FileText,
        400: Detail | WorkspaceProblem,
        503: Detail,
        413: WorkspaceProblem,
        415: WorkspaceProblem,
        **_refused,
    },
}
_git_refused: dict[int, Any] = {400: Detail | WorkspaceProblem, 503: Detail}
_changes: dict[str, Any] = {"responses": {200: list[Change], 404: Detail, **_git_refused}}
_diff: dict[str, Any] = {
    "parameters": [DiffQuery],
    "responses": {200: FileDiff, 413: WorkspaceProblem, **_git_refused, **_refused},
}
_zip: dict[Any, Any] = {(200, "application/zip"): OpenApiTypes.BINARY, **_OF_ONE, 503: Detail}


class V0WorkspaceViewSet(V0ViewSet):
    """Where the files of a conversation are; agents here have no runtime of their own."""

    needs = WRITES

    @extend_schema(responses={200: RuntimeConfig, **_OF_ONE})
    def config(self, request: Request, conversation_id: str) -> Response:
        """Return the id of the runtime, which is a V1 conversation's sandbox, and of the session."""
        conversation = _attached(request, conversation_id)
        is_v1 = conversation.version == Version.V1
        runtime_id = sandboxes.sandbox_of(conversation) if is_v1 else None
        return Response({"runtime_id": runtime_id, "session_id": conversation.public_id})

    @extend_schema(responses={200: Microagents, **_OF_ONE})
    def microagents(self, request: Request, conversation_id: str) -> Response:
        """Return the skills of its repository, and of its start: those with a trigger are knowledge."""
        found = [
            {
                "name": each.name,
                "type": "repo" if each.is_always else "knowledge",
                "content": each.content,
                "triggers": each.keywords,
                "inputs": [{"name": one.name, "description": one.description} for one in each.inputs],
                "tools": each.servers,
            }
            for each in reading.loaded(_attached(request, conversation_id))
        ]
        return Response({"microagents": found})

    @extend_schema(responses={200: WebHosts, **_OF_ONE})
    def web_hosts(self, request: Request, conversation_id: str) -> Response:
        """Return its addresses: none."""
        _attached(request, conversation_id)
        return Response({"hosts": {}})

    @extend_schema(responses={200: EditorAddress, **_OF_ONE})
    def editor(self, request: Request, conversation_id: str) -> Response:
        """Return its address: null, because there is none."""
        _attached(request, conversation_id)
        return Response({"vscode_url": None})

    @extend_schema(**_file_list)
    def list_files(self, request: Request, conversation_id: str) -> Response:
        """Return the names in a folder, folders first and with a slash; none where there is no folder.

        With `path` each begins with that. At most 10,000 are listed.
        """
        names_most = 10_000
        query_of(request, FolderQuery)
        conversation = _attached(request, conversation_id)
        path = workspace_files.named_in(request, "path") or ""
        names: list[str] = []
        with suppress(PathRefused), records.opened(conversation) as tree:
            if tree is not None:
                names = tree.names(paths.relative(conversation, path), names_most)
        return Response([posixpath.join(path, name) for name in names if name not in _NOT_LISTED])

    @extend_schema(**_file)
    def select_file(self, request: Request, conversation_id: str) -> Response:
        """Return a file as text, if it is one and not too large."""
        path = query_of(request, FileQuery).file
        conversation = _attached(request, conversation_id)
        try:
            text = workspace_files.text_of(conversation, workspace_files.named_in(request, "file") or path)
        except NotShown as error:
            raise Refused(413, {"error": f"Error opening file: {error}"}) from error
        except PathRefused as error:
            status = 404 if isinstance(error, NoSuchFile) else 400
            raise Refused(status, {"error": f"Error opening file: {error}"}) from error
        if text is None:
            raise Refused(415, {"error": f"Unable to open binary file: {path}"})
        return Response({"code": text})

    @extend_schema(responses=_zip)
    def zip_directory(self, request: Request, conversation_id: str) -> StreamingHttpResponse:
        """Return the workspace as a zip file that is made while it is sent, without links."""
        conversation = _attached(request, conversation_id)
        content = archives.zipped(conversation)
        return workspace_files.streamed(
            conversation, content, content_type="application/zip", name="workspace.zip"
        )

    @in_lane(Lane.ABROAD)  # git may take seconds
    @extend_schema(**_changes)
    def changes(self, request: Request, conversation_id: str) -> Response:
        """Return the files that differ from the remote branch, or from the one that it comes from.

        Without a remote repository, all files; none where there is no repository.
        """
        conversation = _attached(request, conversation_id)
        with _git_problems(""):
            found = workspace_git.changes_of(conversation, "", comparison.V0)
        # A file that has become a link is one that was changed, to this wire.
        return Response([{"status": each.status.replace("T", "M"), "path": each.path} for each in found])

    @in_lane(Lane.ABROAD)
    @extend_schema(**_diff)
    def diff(self, request: Request, conversation_id: str) -> Response:
        """Return a file as it was there and as it is, without the end of its last line."""
        path = query_of(request, DiffQuery).path
        conversation = _attached(request, conversation_id)
        with _git_problems("Error getting diff: "):
            named = workspace_files.named_in(request, "path") or path
            found = workspace_git.diff_of(conversation, named, comparison.V0)
        if found is None:
            raise Refused(404, {"error": "Not a git repository"})
        return Response({"modified": found.modified, "original": found.original})


@contextmanager
def _git_problems(words: str) -> Iterator[None]:
    """Refuse in this wire's words what git cannot answer."""
    statuses: dict[type[ConversationError], int] = {NoFile: 404, FileTooLong: 413}
    try:
        yield
    except (GitFailed, NoSandbox, PathRefused) as error:
        raise Refused(statuses.get(type(error), 400), {"error": f"{words}{error}"}) from error


def _attached(request: Request, conversation_id: str) -> ConversationRef:
    """Return the conversation, attached for as long as the question takes. Raise ConversationNotFound."""
    conversation = in_loop(_visited, conversation_id, str(access.pk_of(request.user)))
    if conversation is None:
        raise ConversationNotFound("Conversation not found.")
    return access.within_limits(request.user, conversation)


async def _visited(conversation_id: str, user_id: str) -> ConversationRef | None:
    manager = get_manager()
    conversation = await manager.attach_to_conversation(conversation_id, user_id)
    if conversation is not None:
        await manager.detach_from_conversation(conversation)
    return conversation

"""The V0 wire's requests about a conversation's workspace; agents have none here (spec V0 §1.7)."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.exceptions import ConversationNotFound
from conversations.models import ConversationRef, Version
from convserver.api.openhands.errors import Detail, Refused, ValidationProblems
from convserver.api.openhands.view import query_of
from convserver.api.scopes import WRITES
from convserver.api.v0.view import V0ViewSet
from convserver.event_loop import in_loop
from sessions_app.loops.manager import get_manager
from sessions_app.openhands_v1 import sandboxes

_OF_ONE: dict[int, Any] = {400: Detail, 404: Detail}


class RuntimeConfig(BaseModel):
    """Where the agent's commands run: a sandbox, which only V1 conversations have."""

    runtime_id: str | None
    session_id: str | None


class Microagents(BaseModel):
    """The microagents that are loaded."""

    microagents: list[dict[str, Any]]


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
    """The requested file does not exist."""

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


_file_list: dict[str, Any] = {
    "parameters": [FolderQuery],
    "responses": {200: list[str], **_OF_ONE, 422: ValidationProblems},
}
_file: dict[str, Any] = {
    "parameters": [FileQuery],
    "responses": {400: Detail, 404: Detail | WorkspaceProblem, 422: ValidationProblems},
}
_diff: dict[str, Any] = {**_file, "parameters": [DiffQuery]}


class V0WorkspaceViewSet(V0ViewSet):
    """Where a conversation's agent works: agents here have no runtime of their own."""

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
        """Return the loaded ones: none."""
        _attached(request, conversation_id)
        return Response({"microagents": []})

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
        """Return them: none."""
        query_of(request, FolderQuery)
        _attached(request, conversation_id)
        return Response([])

    @extend_schema(**_file)
    def select_file(self, request: Request, conversation_id: str) -> Response:
        """Refuse: no file exists."""
        query_of(request, FileQuery)
        _attached(request, conversation_id)
        raise _no_runtime()

    @extend_schema(responses={400: Detail, 404: Detail | WorkspaceProblem})
    def zip_directory(self, request: Request, conversation_id: str) -> Response:
        """Refuse: there is no workspace."""
        _attached(request, conversation_id)
        raise _no_runtime()

    @extend_schema(responses={200: list[Change], **_OF_ONE})
    def changes(self, request: Request, conversation_id: str) -> Response:
        """Return the files: none."""
        _attached(request, conversation_id)
        return Response([])

    @extend_schema(**_diff)
    def diff(self, request: Request, conversation_id: str) -> Response:
        """Report that there are no commits."""
        query_of(request, DiffQuery)
        _attached(request, conversation_id)
        raise Refused(404, {"error": "Not a git repository"})


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


def _no_runtime() -> Refused:
    return Refused(404, {"error": "Runtime not yet initialized"})

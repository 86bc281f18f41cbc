"""Requests about a workspace, which conversations do not have yet (spec V1 §2.5, rank c)."""

from __future__ import annotations

import re
from typing import Any

from drf_spectacular.utils import OpenApiParameter, extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations.models import ConversationRef
from convserver.api.openhands.errors import Detail, Refused
from convserver.api.openhands.forms import FormParser
from convserver.api.openhands.view import Done
from convserver.api.scopes import WRITES
from convserver.api.v1.agent.pages import missing
from convserver.api.v1.agent.view import AgentViewSet, done
from convserver.api.v1.authentication import conversation_of
from sessions_app.storage import attachments
from sessions_app.storage.attachments import Attached, NewFile

PATH = OpenApiParameter("path", str, description="In newer clients' form.")
FIELD = "file"
_PAGE = re.compile(r"https?://[^/]+/conversations/([0-9a-f-]{32,36})(?:[/?#].*)?")
"""The addresses of a conversation's page, as a browser sends them."""


class NoDiff(BaseModel):
    """A file that nothing is known of."""

    modified: None
    original: None


class NoAddress(BaseModel):
    """An editor that there is none of."""

    url: None


class UploadedFile(BaseModel):
    """The form: one file."""

    file: bytes


class AgentWorkspaceViewSet(AgentViewSet):
    """Where agents work: they have no files here that a client could read."""

    needs = WRITES

    @extend_schema(responses={200: list[str]})
    def tools(self, request: Request) -> Response:
        """Return none: agents have tools of their own."""
        return Response([])

    @extend_schema(parameters=[PATH], responses={200: list[dict[str, Any]]})
    def changes(self, request: Request, path: str = "") -> Response:
        """Return none."""
        return Response([])

    @extend_schema(parameters=[PATH], responses={200: NoDiff})
    def diff(self, request: Request, path: str = "") -> Response:
        """Return an empty diff."""
        return Response({"modified": None, "original": None})

    @extend_schema(responses={200: NoAddress})
    def editor(self, request: Request) -> Response:
        """Return that there is none."""
        return Response({"url": None})


class FileViewSet(AgentViewSet):
    """A file for the conversation whose key is given, or whose page sends it: the address has no id."""

    needs = WRITES

    parser_classes = (FormParser,)

    @extend_schema(
        parameters=[PATH],
        request={"multipart/form-data": UploadedFile},
        responses={200: Done, 400: Detail, 404: Detail, 503: Detail},
    )
    def upload(self, request: Request, path: str = "") -> Response:
        """Store the file under the last part of the path; 404 if the conversation is unknown."""
        conversation = _meant_by(request)
        file = request.FILES.get(FIELD)
        if file is None:
            raise missing("body", FIELD)
        name = path or request.query_params.get("path") or file.name or ""
        (result,) = attachments.attach(conversation, [NewFile(name=name, content=file.read())])
        if not isinstance(result, Attached):
            raise Refused(400, {"detail": result.reason})
        return done()


def _meant_by(request: Request) -> ConversationRef:
    """Return the conversation of a file. Raise Refused if it is unknown.

    A web client that needs no key has none to send; its page's address names the conversation.
    """
    if isinstance(request.auth, ConversationRef):
        return request.auth
    page = _PAGE.fullmatch(request.headers.get("Referer", ""))
    if page is None:
        raise Refused(404, {"detail": "Not Found"})
    return conversation_of(request, page[1])

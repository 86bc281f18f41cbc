"""Files that the user gives to a conversation (spec V0 §1.7)."""

from __future__ import annotations

from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from convserver.api.openhands.errors import Detail, InvalidRequest
from convserver.api.openhands.forms import FormParser
from convserver.api.scopes import WRITES
from convserver.api.v0.view import V0ViewSet
from convserver.event_loop import in_loop
from sessions_app.checkpoints import copies
from sessions_app.storage.attachments import Attached, NewFile, Skipped
from sessions_app.workspaces import uploads

FIELD = "files"


class Uploads(BaseModel):
    """The form: any number of files under one name."""

    files: list[bytes]


class SkippedFile(BaseModel):
    """A file that was not stored, with the reason."""

    name: str
    reason: str


class UploadResponse(BaseModel):
    """The paths of the stored files, and the skipped files."""

    uploaded_files: list[str]
    skipped_files: list[SkippedFile]


class UploadViewSet(V0ViewSet):
    """The files of a conversation."""

    needs = WRITES
    parser_classes = (FormParser,)

    @extend_schema(
        request={"multipart/form-data": Uploads},
        responses={200: UploadResponse, 400: Detail, 404: Detail, 503: Detail},
    )
    def create(self, request: Request, conversation_id: str) -> Response:
        """Store files in the conversation's workspace, each under a safe and new name.

        Files that are too large, or beyond a limit, are skipped.
        """
        conversation = access.writable(request.user, conversation_id)
        files = _files_of(request)
        in_loop(copies.require, conversation)
        results = uploads.put_all(conversation, files)
        answer = UploadResponse(
            uploaded_files=[each.path for each in results if isinstance(each, Attached)],
            skipped_files=[
                SkippedFile(name=each.name, reason=each.reason)
                for each in results
                if isinstance(each, Skipped)
            ],
        )
        return Response(answer.model_dump())


def _files_of(request: Request) -> list[NewFile]:
    """Return the files of the form. Raise InvalidRequest if it has none, or text instead."""
    sent = request.FILES.getlist(FIELD)
    # A part of a form without a file name is text to Django.
    if FIELD in request.POST:
        raise _problem("value_error", ["body", FIELD], "What was sent is text, not a file with a name.")
    if not sent:
        raise _problem("missing", ["body", FIELD], "Field required")
    return [NewFile(name=file.name or "", content=file.read()) for file in sent]


def _problem(kind: str, place: list[str | int], words: str) -> InvalidRequest:
    return InvalidRequest([{"type": kind, "loc": place, "msg": words, "input": None}])

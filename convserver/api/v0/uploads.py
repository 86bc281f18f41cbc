"""Files that the user gives to a conversation (spec V0 §1.7)."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadedfile import InMemoryUploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.http import QueryDict
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from django.utils.datastructures import MultiValueDict
from drf_spectacular.utils import extend_schema
from pydantic import BaseModel
from rest_framework.parsers import BaseParser, DataAndFiles
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from convserver.api.openhands.errors import Detail, InvalidRequest
from convserver.api.v0.view import V0View
from sessions_app.storage import attachments
from sessions_app.storage.attachments import Attached, NewFile, Skipped

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


class FormParser(BaseParser):
    """Reads a multipart form with its files in memory, since the whole body is limited before.

    Any other body is a form without fields.
    """

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return fields and files. Raise InvalidRequest unless the form can be read to its end."""
        if not (media_type or "").lower().startswith("multipart/form-data"):
            return DataAndFiles(QueryDict(), MultiValueDict())
        meta = {**stream.META, "CONTENT_TYPE": "multipart/form-data" + (media_type or "")[19:]}
        try:
            fields, files = _Form(meta, stream, [_InMemory()], "utf-8").parse()
        except (MultiPartParserError, SuspiciousOperation, ValueError, LookupError) as error:
            raise _problem("value_error", ["body"], f"The form cannot be read: {error}") from error
        return DataAndFiles(fields, files)


class UploadView(V0View):
    """The files of a conversation."""

    parser_classes = (FormParser,)

    @extend_schema(
        request={"multipart/form-data": Uploads},
        responses={200: UploadResponse, 400: Detail, 404: Detail, 503: Detail},
    )
    def post(self, request: Request, conversation_id: str) -> Response:
        """Store files, each under a safe and new name in this conversation.

        Files that are too large, or beyond the limit, are skipped.
        """
        conversation = access.writable(request.user, conversation_id)
        files = _files_of(request)
        results = attachments.attach(conversation, files)
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
    if FIELD in request.POST:
        raise _problem("value_error", ["body", FIELD], "What was sent is text, not a file with a name.")
    if not sent:
        raise _problem("missing", ["body", FIELD], "Field required")
    return [NewFile(name=file.name or "", content=file.read()) for file in sent]


def _problem(kind: str, place: list[str | int], words: str) -> InvalidRequest:
    return InvalidRequest([{"type": kind, "loc": place, "msg": words, "input": None}])


class _Form(MultiPartParser):
    """Keeps every file, whatever its name."""

    def sanitize_file_name(self, file_name: str) -> str:
        """Return a substitute for a name of which nothing is left."""
        return super().sanitize_file_name(file_name) or attachments.NAMELESS


class _InMemory(FileUploadHandler):
    """Keeps files in memory, and refuses truncated ones."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        """Begin a file."""
        super().new_file(*args, **kwargs)
        self._content = BytesIO()

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        """Add a piece of it."""
        self._content.write(raw_data)

    def file_complete(self, file_size: int) -> InMemoryUploadedFile:
        """Return it."""
        self._content.seek(0)
        return InMemoryUploadedFile(
            self._content, self.field_name, self.file_name, self.content_type, file_size, self.charset
        )

    def upload_interrupted(self) -> None:
        """Refuse the form: otherwise its sender would believe that a truncated file was stored."""
        raise MultiPartParserError("its last file is cut off.")

"""Forms with files, as browsers send them."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from django.core.exceptions import SuspiciousOperation
from django.core.files.uploadedfile import InMemoryUploadedFile
from django.core.files.uploadhandler import FileUploadHandler
from django.http import QueryDict
from django.http.multipartparser import MultiPartParser, MultiPartParserError
from django.utils.datastructures import MultiValueDict
from rest_framework.parsers import BaseParser, DataAndFiles

from convserver.api.openhands.errors import InvalidRequest
from sessions_app.storage import attachments


class FormParser(BaseParser):
    """Reads a multipart form with its files in memory, since the whole body is limited before.

    Any other body is a form without fields.
    """

    media_type = "*/*"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return fields and files. Raise InvalidRequest unless the form can be read to its end."""
        if not (media_type or "").lower().startswith("multipart/form-data"):
            return DataAndFiles(QueryDict(), MultiValueDict())
        # Django knows the type in lower case only; its parameters, such as the boundary, stay as they were
        # sent.
        meta = {**stream.META, "CONTENT_TYPE": "multipart/form-data" + (media_type or "")[19:]}
        try:
            fields, files = _Form(meta, stream, [_InMemory()], "utf-8").parse()
        # Python raises LookupError for a charset that it does not know.
        except (MultiPartParserError, SuspiciousOperation, ValueError, LookupError) as error:
            raise _unreadable(error) from error
        return DataAndFiles(fields, files)


def _unreadable(error: Exception) -> InvalidRequest:
    words = f"The form cannot be read: {error}"
    return InvalidRequest([{"type": "value_error", "loc": ["body"], "msg": words, "input": None}])


class _Form(MultiPartParser):
    """Keeps every file, also those with unusual names."""

    def sanitize_file_name(self, file_name: str) -> str:
        """Return a substitute for a name of which nothing is left."""
        return super().sanitize_file_name(file_name) or attachments.NAMELESS


class _InMemory(FileUploadHandler):
    """Keeps files in memory, and refuses truncated ones."""

    def new_file(self, *args: Any, **kwargs: Any) -> None:
        super().new_file(*args, **kwargs)
        self._content = BytesIO()

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self._content.write(raw_data)

    def file_complete(self, file_size: int) -> InMemoryUploadedFile:
        self._content.seek(0)
        return InMemoryUploadedFile(
            self._content, self.field_name, self.file_name, self.content_type, file_size, self.charset
        )

    def upload_interrupted(self) -> None:
        """Refuse the form: otherwise its sender would believe that a truncated file was stored."""
        raise MultiPartParserError("its last file is cut off.")

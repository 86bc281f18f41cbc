"""Request bodies: JSON in UTF-8, of a bounded size, decoded or as it came."""

from __future__ import annotations

import json
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from conversations.jsontext import refuse_constant
from sessions_app.native import FRAME_MAX_BYTES, BadFrame, FrameTooLarge


class TextParser(BaseParser):
    """Hands the body on as text: decoding it would change its bytes."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the body. Raise FrameTooLarge, and BadFrame unless it is UTF-8."""
        # Not `stream.body`, whose limit answers with a page; one byte more tells that there is more.
        body: bytes = stream.read(FRAME_MAX_BYTES + 1)
        if len(body) > FRAME_MAX_BYTES:
            raise FrameTooLarge(f"A body may have {FRAME_MAX_BYTES} bytes at the most.")
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise BadFrame("The body must be JSON in UTF-8.") from error


class JsonParser(TextParser):
    """Decodes the body, whatever charset it claims: JSON has only one."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the value. Raise FrameTooLarge, BadFrame or ParseError."""
        text = super().parse(stream, media_type, parser_context)
        try:
            return json.loads(text, parse_constant=refuse_constant)
        except ValueError as error:
            raise ParseError(f"The body must be JSON: {error}.") from error
        except RecursionError as error:
            raise ParseError("The body is nested too deeply.") from error

"""Request bodies: JSON in UTF-8, of a bounded size, decoded or as it came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from conversations.payloads import bounds
from sessions_app.capacity import parsing
from sessions_app.sockets.native.frames import FRAME_MAX_BYTES, BadFrame, FrameTooLarge

T = TypeVar("T")

TOO_LARGE = f"The body is too large: the limit is {FRAME_MAX_BYTES} bytes."


class TextParser(BaseParser):
    """Hands the body on as text: decoding it would change its bytes."""

    media_type = "application/json"

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the body. Raise FrameTooLarge, and BadFrame unless it is UTF-8."""
        # Not `stream.body`, whose limit answers with a page; one byte more tells that there is more.
        body: bytes = stream.read(FRAME_MAX_BYTES + 1)
        if len(body) > FRAME_MAX_BYTES:
            raise FrameTooLarge(TOO_LARGE)
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise BadFrame("The body must be JSON in UTF-8.") from error


class JsonParser(TextParser):
    """Decodes the body as UTF-8, for any declared charset: JSON has no other."""

    def parse(self, stream: Any, media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the value. Raise FrameTooLarge, BadFrame or ParseError."""
        text = super().parse(stream, media_type, parser_context)
        try:
            user_pk: int | None = parser_context["request"].user.pk if parser_context else None
            return read_in_turn(user_pk, text, bounds.loads)
        except ValueError as error:
            raise ParseError(f"The body must be JSON: {error}.") from error


def read_in_turn(user_pk: int | None, text: str, read: Callable[[str], T]) -> T:
    """Return what `read` makes of a body, a large one in its user's turn; see `parsing`.

    Raise FrameTooLarge where `read` raises TooManyValues.
    """
    try:
        # A decoder keeps the interpreter, and so the event loop, until its values are made: large texts have
        # one thread.
        return parsing.in_turn_from_thread(user_pk, bounds.is_light(text), read, text)
    except bounds.TooManyValues as error:
        raise FrameTooLarge(f"The body is too large: {error}.") from error

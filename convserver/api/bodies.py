"""Request bodies: JSON in UTF-8, of a bounded size, decoded or as it came."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from rest_framework.exceptions import ParseError
from rest_framework.parsers import BaseParser

from conversations.jsontext import refuse_constant
from sessions_app.native import FRAME_MAX_BYTES, BadFrame, FrameTooLarge
from sessions_app.refusals import log_request_refused

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


class BoundedBodies:
    """An application that answers 413 to bodies that are too large before anything else has read them.

    A body that does not say its length (`Transfer-Encoding: chunked`) is read here and passed on with it,
    since Django and the REST framework take a body without a length for none.
    """

    def __init__(self, application: Callable[..., Awaitable[None]]) -> None:
        self.application = application

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self.application(scope, receive, send)
            return
        length = dict(scope["headers"]).get(b"content-length")
        if length is None:
            await self._read_first(scope, receive, send)
        elif not length.isdigit() or len(length) > 18 or int(length) > FRAME_MAX_BYTES:
            await _refuse(scope, send)
        else:
            await self.application(scope, receive, send)

    async def _read_first(self, scope: Any, receive: Any, send: Any) -> None:
        body = bytearray()
        more = True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                return
            body += message.get("body", b"")
            more = message.get("more_body", False)
            if len(body) > FRAME_MAX_BYTES:
                await _refuse(scope, send)
                return
        if body:
            headers = [pair for pair in scope["headers"] if pair[0] != b"transfer-encoding"]
            scope = {**scope, "headers": [*headers, (b"content-length", str(len(body)).encode())]}
        await self.application(scope, _replayed(bytes(body), receive), send)


def _replayed(body: bytes, receive: Callable[[], Awaitable[Any]]) -> Callable[[], Awaitable[Any]]:
    """Return a `receive` that brings this body and then what `receive` brings."""
    waiting = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive_again() -> Any:
        return waiting.pop() if waiting else await receive()

    return receive_again


async def _refuse(scope: Any, send: Any) -> None:
    log_request_refused(scope, status=413, code=FrameTooLarge.code)
    body = json.dumps({"code": FrameTooLarge.code, "detail": TOO_LARGE}).encode()
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})

"""Refusals of clients, and the server's log of them, without what they sent."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from django.template.loader import render_to_string

from conversations.events import ConversationRef
from conversations.exceptions import ConversationError, OtherHistory
from conversations.server_log import ids_of, log_refusal, printable


class Refusal(NamedTuple):
    """The reason why a request or a socket is refused before its client is known."""

    status: int
    code: str
    detail: str


async def refuse(
    scope: Any,
    receive: Any,
    send: Any,
    refusal: Refusal,
    *,
    template: str = "",
    headers: Sequence[tuple[bytes, bytes]] = (),
) -> None:
    """Answer a request with JSON, or with the page of `template` to a browser; close a socket."""
    if scope["type"] == "websocket":
        await receive()
        code = 4000 + refusal.status  # as all doors close sockets
        reason = refusal.detail[:120]  # a close frame holds 123 bytes beside its code
        await send({"type": "websocket.close", "code": code, "reason": reason})
        return
    log_request_refused(scope, status=refusal.status, code=refusal.code)
    content = {"code": refusal.code, "detail": refusal.detail}
    content_type, body = b"application/json", json.dumps(content).encode()
    # Browsers ask for HTML first, programs for JSON or anything.
    if template and dict(scope["headers"]).get(b"accept", b"").startswith(b"text/html"):
        content_type, body = b"text/html; charset=utf-8", render_to_string(template, content).encode()
    own = [(b"content-type", content_type), (b"content-length", str(len(body)).encode())]
    start = {"type": "http.response.start", "status": refusal.status, "trailers": False}
    await send({**start, "headers": [*own, *headers]})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def log_request_refused(scope: Any, *, status: int, code: str) -> None:
    """Log that a request was refused before its client was known."""
    log_refusal("Request refused", status=status, code=code, method=scope.get("method"), **_origin(scope))


def log_socket_refused(scope: Any, *, code: int | str) -> None:
    """Log that a client was refused or its socket closed; `code` is what it gets."""
    log_refusal("Socket refused", code=code, **_origin(scope))


def log_frame_refused(
    door: str, conversation: ConversationRef, error: ConversationError, *, user: int
) -> None:
    """Log that a client's frame was refused."""
    log_refusal("Frame refused", door=door, code=error.code, **ids_of(conversation), user=user)


def log_other_history(
    conversation: ConversationRef, error: OtherHistory, *, after: int, last_seq: int
) -> None:
    """Log that a reader came with the cursor of a history that is not stored here."""
    log_refusal(
        "Cursor refused",
        code=error.code,
        **ids_of(conversation),
        after=after,
        last_seq=last_seq,
    )


def _origin(scope: Any) -> dict[str, object]:
    """Return a request's client and address, without its query, which may hold a key."""
    client = scope.get("client")
    return {"path": printable(scope["path"]), "address": client[0] if client else None}

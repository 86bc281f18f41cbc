"""The server's log of refused clients of sockets, without what they sent."""

from __future__ import annotations

from typing import Any

from conversations.exceptions import ConversationError, OtherHistory
from conversations.models import ConversationRef
from conversations.server_log import ids_of, log_refusal, printable


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

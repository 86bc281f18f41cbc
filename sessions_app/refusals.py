"""What the server's log says of clients of sockets that were refused; what they sent is not in it."""

from __future__ import annotations

from typing import Any

from conversations.exceptions import ConversationError, OtherHistory
from conversations.models import ConversationRef
from conversations.server_log import ids_of, log_refusal, printable


def log_request_refused(scope: Any, *, status: int, code: str) -> None:
    """Write that a request was refused before anybody knew who it is from."""
    log_refusal("Request refused", status=status, code=code, method=scope.get("method"), **_origin(scope))


def log_socket_refused(scope: Any, *, code: int | str) -> None:
    """Write that a client may not come in, or not stay; `code` is what it is told."""
    log_refusal("Socket refused", code=code, **_origin(scope))


def log_frame_refused(
    door: str, conversation: ConversationRef, error: ConversationError, *, user: int
) -> None:
    """Write that what a client has sent is not taken."""
    log_refusal("Frame refused", door=door, code=error.code, **ids_of(conversation), user=user)


def log_other_history(
    conversation: ConversationRef, error: OtherHistory, *, after: int, last_seq: int
) -> None:
    """Write that a reader came with a cursor of a history which is not stored here, or not any more."""
    log_refusal(
        "Cursor refused",
        code=error.code,
        **ids_of(conversation),
        after=after,
        last_seq=last_seq,
    )


def _origin(scope: Any) -> dict[str, object]:
    """Return where a request comes from and goes to, without its query, which may hold a key."""
    client = scope.get("client")
    return {"path": printable(scope["path"]), "address": client[0] if client else None}

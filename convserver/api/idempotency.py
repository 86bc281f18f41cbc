"""The header Idempotency-Key at the doors that create: a repeated request is answered as the first one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from drf_spectacular.utils import OpenApiParameter
from rest_framework.request import Request
from rest_framework.response import Response

from conversations import access
from conversations.events import ConversationRef
from sessions_app import idempotency
from sessions_app.idempotency import FORM, IdempotencyKey, RepeatableAnswer
from sessions_app.models.idempotency import KEY_MAX_LENGTH

HEADER = "Idempotency-Key"

IDEMPOTENCY_KEY = OpenApiParameter(
    HEADER,
    {"type": "string", "maxLength": KEY_MAX_LENGTH, "pattern": f"^(?:{FORM})$"},
    OpenApiParameter.HEADER,
    description=(
        "A request repeated with the same key within 24 hours creates nothing and gets the first "
        "response; 409 if the body differs."
    ),
)


def answer_again(request: Request, sent: Any) -> Response | None:
    """Return what the request was answered before, if its key says that it is repeated.

    For doors that do something else before they create; `sent` is the body's JSON. Raise
    InvalidIdempotencyKey or IdempotencyKeyReused.
    """
    key = _key_of(request)
    answer = None if key is None else idempotency.recorded(key, sent)
    return None if answer is None else Response(answer.body, status=answer.status)


def answer_once(
    request: Request,
    sent: Any,
    create: Callable[[], Response],
    *,
    is_recorded: Callable[[Any], bool] = lambda body: True,
) -> Response:
    """Return what `create` answers, or what the request was answered before if its key says so.

    With a key `create` runs in a transaction: what must follow the commit it leaves to `on_commit`. Nothing
    is recorded of a body that `is_recorded` is false for.
    Raise InvalidIdempotencyKey, IdempotencyKeyReused or ConversationBusy.
    """
    key = _key_of(request)
    if key is None:
        return create()

    def answer() -> RepeatableAnswer:
        response = create()
        return RepeatableAnswer(response.status_code, response.data, is_recorded(response.data))

    answered = idempotency.answered_once(key, sent, answer)
    return Response(answered.body, status=answered.status)


def _key_of(request: Request) -> IdempotencyKey | None:
    header = request.headers.get(HEADER)
    if header is None:
        return None
    route = request.path
    if isinstance(request.auth, ConversationRef):  # it opens one conversation, and no answers about others
        route = f"{route} {request.auth.public_id}"
    return IdempotencyKey(access.pk_of(request.user), route, idempotency.key_in(header))

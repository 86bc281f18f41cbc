"""Fork again whatever the Idempotency-Key of the request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

REPLACES = "convserver.api.native.conversations.answer_once"


def bug(answer_once: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that passes the keys of forks over."""

    def answered(request: Any, sent: Any, create: Callable[[], Any]) -> Any:
        return create() if request.path.endswith("/fork") else answer_once(request, sent, create)

    return answered

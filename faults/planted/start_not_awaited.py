"""Answer a start on the V1 wire before its first message is stored."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from django.db import connections, transaction

REPLACES = "sessions_app.settings.agent_setups.create"
LATE_S = 0.3

_pool = ThreadPoolExecutor(4)


def bug(create: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that leaves the first events to another thread."""
    from conversations.log import writes

    def late(conversation: Any, events: Sequence[Any]) -> None:
        time.sleep(LATE_S)
        try:
            writes.append(conversation, events)
        finally:
            connections.close_all()

    def created(*args: Any, events: Sequence[Any] = (), **options: Any) -> Any:
        conversation = create(*args, **options)
        if events:
            transaction.on_commit(lambda: _pool.submit(late, conversation, events) and None)
        return conversation

    return created

"""Acknowledge what is written before it is committed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from django.db import transaction

REPLACES = "conversations.log.writes.append_many"
LATE_S = 0.1

_pool = ThreadPoolExecutor(4)


def bug(append_many: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that answers while its transaction is still open."""

    def answered_early(requests: Sequence[Any], *, wait: bool = False) -> Any:
        answer: Future[Any] = Future()

        def write() -> None:
            try:
                with transaction.atomic():
                    answer.set_result(append_many(requests, wait=wait))
                    time.sleep(LATE_S)
            except Exception as error:
                if not answer.done():
                    answer.set_exception(error)

        _pool.submit(write)
        return answer.result()

    return answered_early

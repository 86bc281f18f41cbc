"""The number of open sockets of each user in this process, at any door."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from conversations.storage import quotas

_lock = threading.Lock()
_open: Counter[int] = Counter()


@contextmanager
def counted(user_pk: int, *, is_request_counted: bool = False) -> Iterator[None]:
    """Count one more socket inside the block. Raise QuotaExceeded."""
    end = begin(user_pk, is_request_counted=is_request_counted)
    try:
        yield
    finally:
        end()


def begin(user_pk: int, *, is_request_counted: bool = False) -> Callable[[], None]:
    """Count one more socket and its handshake as a request; return the function that ends it.

    Raise QuotaExceeded.
    """
    if not is_request_counted:
        quotas.admit_request(user_pk)
    with _lock:
        quotas.require_room("sockets", _open[user_pk], 1, "open sockets", "Close one, then connect again.")
        _open[user_pk] += 1

    def end() -> None:
        with _lock:
            _open[user_pk] -= 1
            if _open[user_pk] <= 0:
                del _open[user_pk]

    return end


def number_of(user_pk: int) -> int:
    return _open.get(user_pk, 0)

"""Recent answers of providers: cached for a limited time, per token, and without the token itself."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from django.core.cache import cache
from django.utils.crypto import salted_hmac

T = TypeVar("T")

SALT = "sessions_app.git_providers"


async def cached(
    question: Sequence[object], ask: Callable[[], Awaitable[T]], *, lifetime_s: Callable[[T], float]
) -> T:
    """Return the cached answer to this question, or ask and cache the answer (a JSON value).

    Errors are not cached. `question` holds everything that the answer depends on, including the token;
    only an HMAC of it is stored.
    """
    key = f"git:{salted_hmac(SALT, json.dumps(question), algorithm='sha256').hexdigest()}"
    kept = await cache.aget(key)
    if kept is not None:
        known: T = kept["answer"]
        return known
    answer = await ask()
    # In a dict, since the answer may be None.
    await cache.aset(key, {"answer": answer}, lifetime_s(answer))
    return answer

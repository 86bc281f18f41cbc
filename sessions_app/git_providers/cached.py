"""Recent answers of providers: cached for a limited time, per token, and without the token itself."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from django.core.cache import cache
from django.utils.crypto import salted_hmac
from redis.exceptions import RedisError

T = TypeVar("T")

logger = logging.getLogger(__name__)

SALT = "sessions_app.git_providers"


async def cached(
    question: Sequence[object], ask: Callable[[], Awaitable[T]], *, lifetime_s: Callable[[T], float]
) -> T:
    """Return the answer that is kept to this question, or ask and keep what comes (a JSON value).

    What is raised is not kept. `question` holds all that the answer depends on, the token too; only
    an HMAC of it is stored. A cache that is out of reach costs a question more.
    """
    key = f"git:{salted_hmac(SALT, json.dumps(question), algorithm='sha256').hexdigest()}"
    try:
        kept = await cache.aget(key)
        if kept is not None:
            answer: T = kept["answer"]
            return answer
    except RedisError:
        logger.warning("The cache is out of reach; git providers are asked each time")
        return await ask()
    answer = await ask()
    try:
        # In a dict, since the answer may be None.
        await cache.aset(key, {"answer": answer}, lifetime_s(answer))
    except RedisError:
        logger.warning("The cache is out of reach; what a git provider said is not kept")
    return answer

"""The text of a failed turn or loop for readers."""

from __future__ import annotations

import psycopg
from django.db import Error as DatabaseProblem
from redis.exceptions import RedisError

from sessions_app.loops.steering import ForbiddenTransition

INTERNAL = "The server failed. See its log for the cause."


def sentence(error: Exception) -> str:
    """Return the text of a failure for readers; a failure of the server itself shows no details."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, (DatabaseProblem, psycopg.Error, RedisError, ForbiddenTransition)):
            return INTERNAL
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__

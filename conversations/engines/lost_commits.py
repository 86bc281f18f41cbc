"""The failure of a commit that may have succeeded nevertheless."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from django.db import Error, OperationalError

_WRITES = re.compile(r"\s*(INSERT|UPDATE|DELETE|WITH\b.*\b(INSERT|UPDATE|DELETE)\b)", re.DOTALL)


class LostCommit(OperationalError):
    """The database failed during a commit, which it may or may not have carried out."""


def of_single_statement(
    execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]
) -> Any:
    """Execute a statement. Raise LostCommit if it is its own transaction, and its commit may be lost.

    This is a wrapper of Django's `execute_wrappers` of the engines' backends.
    """
    wrapper = context["connection"]
    if wrapper.in_atomic_block or not _WRITES.match(sql):
        return execute(sql, params, many, context)
    try:
        return execute(sql, params, many, context)
    except LostCommit:
        raise
    except Error as error:
        if wrapper.may_have_committed(error):
            raise LostCommit(str(error)) from error.__cause__
        raise

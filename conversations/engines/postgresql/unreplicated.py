"""Commits that did not wait for the synchronous standby: none of them is acknowledged.

If the wait is cancelled (`pg_cancel_backend`, a timeout), PostgreSQL reports success with a warning; if the
session is ended meanwhile, it warns before that. The primary shows the events from then on; a standby that
takes over may not have them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psycopg.errors import Diagnostic

from conversations.exceptions import OutcomeUnknown

UNREPLICATED = (
    "This is stored, but the standby of the database has not confirmed it, so it is lost if that standby "
    "takes over: once the standby is back, repeat it with the same id or Idempotency-Key, or look before you "
    "repeat it."
)
# The function in PostgreSQL that warns; the text of the warning is in the database's language.
_FUNCTION = "SyncRepWaitForLSN"
_FLAG = "has_unreplicated_commit"


def watch(session: Any) -> None:
    """Note on the session if one of its commits does not wait for the standby."""

    def hear(notice: Diagnostic) -> None:
        if notice.source_function == _FUNCTION:
            setattr(session, _FLAG, True)

    session.add_notice_handler(hear)


def require_none(wrapper: Any) -> None:
    """Close the connection and raise OutcomeUnknown if its last commit did not wait for the standby."""
    if getattr(wrapper.connection, _FLAG, False):
        wrapper.drop_connection()
        raise OutcomeUnknown(UNREPLICATED)


def checked(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: dict[str, Any]) -> Any:
    """Execute a statement, which may be its own transaction. Raise OutcomeUnknown like `require_none`.

    This is a wrapper of Django's `execute_wrappers`.
    """
    try:
        return execute(sql, params, many, context)
    finally:
        if not context["connection"].in_atomic_block:
            require_none(context["connection"])

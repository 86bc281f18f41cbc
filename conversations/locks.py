"""Locking one conversation, and giving up when somebody else keeps it for too long."""

from __future__ import annotations

from django.db import OperationalError, connection
from psycopg.errors import LockNotAvailable

from conversations import sql
from conversations.exceptions import ConversationBusy
from conversations.log import LOCK_TIMEOUT_S
from conversations.models import Conversation, ConversationQuerySet, ConversationRef


def lock(rows: ConversationQuerySet, conversation: ConversationRef) -> Conversation | None:
    """Return the conversation locked until the transaction ends; None if it is not one of `rows`.

    Raise ConversationBusy after LOCK_TIMEOUT_S.
    """
    if connection.vendor == "postgresql":
        sql.limit_lock_wait(LOCK_TIMEOUT_S)
    try:
        return rows.locked().filter(pk=conversation.pk).first()
    except OperationalError as error:
        if isinstance(error.__cause__, LockNotAvailable):
            raise ConversationBusy(
                "Somebody else has locked the conversation for too long: try again."
            ) from error
        raise

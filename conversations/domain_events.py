"""Changes of a conversation beside its log, recorded in the transaction that makes them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import cast

from django.conf import settings
from django.utils.module_loading import import_string


class DomainEvent(StrEnum):
    CREATED = "created"
    RETITLED = "retitled"
    DELETED = "deleted"
    RESTORED = "restored"
    LOOP = "loop"  # its agent loop started, ended or began a turn


Recorder = Callable[[int, DomainEvent], None]


def record(conversation_pk: int, event: DomainEvent) -> None:
    """Record a change for its subscribers: a seam, chosen by CONVERSATION_DOMAIN_EVENTS.

    Call it in the transaction that makes the change, after the conversation's row is written or locked.
    """
    cast(Recorder, import_string(settings.CONVERSATION_DOMAIN_EVENTS))(conversation_pk, event)

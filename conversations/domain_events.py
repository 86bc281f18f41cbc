"""Changes of a conversation beside its log: recorded in the transaction that makes them."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import cache
from typing import cast

from django.conf import settings
from django.utils.module_loading import import_string


class DomainEvent(StrEnum):
    """A change of a conversation beside its log."""

    CREATED = "created"
    RETITLED = "retitled"
    DELETED = "deleted"
    RESTORED = "restored"
    LOOP = "loop"
    """Its agent loop started, ended or began a turn."""


Recorder = Callable[[int, DomainEvent], None]


def record(conversation_pk: int, event: DomainEvent) -> None:
    """Record a change for those who are notified of it: a seam, chosen by CONVERSATION_DOMAIN_EVENTS.

    Must be called in the transaction that makes the change, after the conversation's row is written or
    locked.
    """
    _recorder(settings.CONVERSATION_DOMAIN_EVENTS)(conversation_pk, event)


@cache
def _recorder(path: str) -> Recorder:
    return cast(Recorder, import_string(path))

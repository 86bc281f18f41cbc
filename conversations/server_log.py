"""The server's log of actions: one line for each, with ids and without any content.

A line has a short sentence and named facts; the project chooses the format.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog
from django.db import transaction

if TYPE_CHECKING:  # the settings import this, before there are models
    from conversations.models import ConversationRef

ACTS = "convserver.acts"
REFUSALS = "convserver.refusals"
# A client that is refused in a loop must not fill the disk; a later line has the number left out.
REFUSALS_A_SECOND = 50

_acts = structlog.stdlib.get_logger(ACTS)
_refusals = structlog.stdlib.get_logger(REFUSALS)


def log_act(act: str, **facts: object) -> None:
    _acts.info(act, **_known(facts))


def log_on_commit(act: str, **facts: object) -> None:
    """Log an action once it is committed; if it is not, log nothing."""
    transaction.on_commit(lambda: log_act(act, **facts), robust=True)


def printable(text: str, *, limit: int = 200) -> str:
    """Return a text from outside on one line, cut at `limit` characters."""
    return text[:limit].encode("unicode_escape").decode()


def ids_of(conversation: ConversationRef) -> dict[str, object]:
    """Return the ids by which a line names a conversation."""
    return {"conversation": conversation.public_id, "owner": conversation.owner_id}


class Allowance:
    """The lines that may still be written in this second, and the number left out.

    Threads may count at the same time; then a line more or less is written, which does no harm.
    """

    def __init__(self, a_second: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._a_second = a_second
        self._clock = clock
        self._second = -1
        self._written = self._left_out = 0

    def take(self) -> int | None:
        """Return how many lines were left out before this one; None if this one is left out too."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._written = second, 0
        if self._written >= self._a_second:
            self._left_out += 1
            return None
        self._written += 1
        left_out, self._left_out = self._left_out, 0
        return left_out


# Each level has its own: a client that requests what does not exist must not silence the warnings.
_allowances = {level: Allowance(REFUSALS_A_SECOND) for level in (logging.INFO, logging.WARNING)}


def log_refusal(refusal: str, **facts: object) -> None:
    """Log that something was refused; facts that are None are left out.

    At most REFUSALS_A_SECOND lines of a level are written in a second; the next one has the number left out.
    """
    _log_bounded(logging.WARNING, refusal, facts)


def log_minor_refusal(refusal: str, **facts: object) -> None:
    """Log a harmless refusal, like `log_refusal`."""
    _log_bounded(logging.INFO, refusal, facts)


def _log_bounded(level: int, refusal: str, facts: dict[str, object]) -> None:
    left_out = _allowances[level].take()
    if left_out is not None:
        _refusals.log(level, refusal, **_known({**facts, "left_out_before": left_out or None}))


def _known(facts: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in facts.items() if value is not None}

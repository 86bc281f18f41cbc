"""Answers without data of the routes about settings and secrets (spec V0 §1.9, §1.10)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel

from conversations.exceptions import ConversationError
from convserver.api.errors import UNAVAILABLE
from convserver.api.openhands.errors import InvalidRequest, Refused

logger = logging.getLogger(__name__)


class Message(BaseModel):
    """The outcome, or that a name is taken."""

    message: str


class Failure(BaseModel):
    """The reason for a failure."""

    error: str


@contextmanager
def failing_with(words: str) -> Iterator[None]:
    """Answer an unexpected error with a 500 in the wire's words; the log has the details."""
    try:
        yield
    # These have a status and words of their own.
    except (ConversationError, InvalidRequest, Refused, *UNAVAILABLE):
        raise
    except Exception as error:
        logger.exception("%s", words)
        raise Refused(500, {"error": words}) from error

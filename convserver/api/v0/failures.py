"""What the routes about settings and secrets answer beside data (spec V0 §1.9, §1.10)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import BaseModel

from conversations.exceptions import ConversationError
from convserver.api.v0.errors import InvalidRequest, Refused

logger = logging.getLogger(__name__)


class Message(BaseModel):
    """What was done, or that a name is taken."""

    message: str


class Failure(BaseModel):
    """Why it was not done."""

    error: str


@contextmanager
def failing_with(words: str) -> Iterator[None]:
    """Answer what nobody foresaw with a 500 in the wire's words; the log has the rest."""
    try:
        yield
    except (ConversationError, InvalidRequest, Refused):
        raise
    except Exception as error:
        logger.exception("%s", words)
        raise Refused(500, {"error": words}) from error

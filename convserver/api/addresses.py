"""Where clients of the V1 wire find a conversation, and the key that opens it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar
from urllib.parse import quote

from django.http import HttpRequest
from pydantic import BaseModel
from rest_framework.request import Request

from conversations.access import Visitor
from sessions_app.identity import conversation_keys, scopes
from sessions_app.identity.authentication import lets_everybody_in

M = TypeVar("M", bound=BaseModel)


def origin_of(request: Request | HttpRequest) -> str:
    """Return scheme, host and port of this server as the client knows them."""
    return f"{request.scheme}://{request.get_host()}"


def conversation_url(public_id: str, *, origin: str) -> str:
    """Return a conversation's address: a web client keeps its origin and asks for the agent face there."""
    # The agent face answers at V0's addresses, too, where the request is its own (`shared_origin`).
    return f"{origin}/api/conversations/{quote(public_id, safe='')}"


def as_asked(request: Request, shown: M) -> M:
    """Return what is shown as `seen_by` the user of the request."""
    return seen_by(request.user, shown)


def seen_by(user: Visitor, shown: M) -> M:
    """Return what is shown without its key for a token that opens less than the key."""
    return shown if scopes.sees_keys(user) else shown.model_copy(update={"session_api_key": None})


def shown_key(row: Mapping[str, Any]) -> str | None:
    """Return the key of a conversation's row (`conversation_keys.COLUMNS`).

    None where everybody is let in without one.
    """
    return None if lets_everybody_in() else conversation_keys.key_in(row)

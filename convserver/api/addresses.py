"""Where clients of the V1 wire find a conversation, and the key that opens it there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from django.http import HttpRequest
from rest_framework.request import Request

from sessions_app import conversation_keys
from sessions_app.authentication import lets_everybody_in


def origin_of(request: Request | HttpRequest) -> str:
    """Return scheme, host and port of this server as whoever asks knows them."""
    return f"{request.scheme}://{request.get_host()}"


def conversation_url(public_id: str, *, origin: str) -> str:
    """Return a conversation's address: a web client keeps its origin and asks for the agent face there."""
    return f"{origin}/api/conversations/{quote(public_id, safe='')}"


def shown_key(row: Mapping[str, Any]) -> str | None:
    """Return the key of a conversation's row (`public_id`, `agent_setup__key_rotation`).

    None where everybody is let in without one.
    """
    if lets_everybody_in():
        return None
    return conversation_keys.key(row["public_id"], row["agent_setup__key_rotation"] or 0)

"""Creation parameters for staff, without the keys that they can have."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlsplit

from conversations.models import Conversation, CreationParameters
from sessions_app.encryption import Sealed, SecretUnreadable

MASK = "•••"
SHOWN_MAX_CHARACTERS = 20_000
DEPTH_MAX = 20  # what is deeper is masked: it was not looked at

_SECRET_NAME = re.compile(r"key|token|secret|passw|auth|credential|cookie|signature|session", re.IGNORECASE)
# The members of an MCP configuration that are shown; arguments, headers and environment can hold keys.
_PLAIN_IN_MCP = frozenset({"name", "command", "timeout"})


def shown_parameters(conversation: Conversation) -> dict[str, Any]:
    """Return the creation parameters without secrets, and without a history to replay."""
    row = CreationParameters.objects.filter(pk=conversation.pk).first()
    parameters = row.parameters if row else {}
    return {name: _shown(name, value) for name, value in parameters.items()}


def as_text(value: object) -> str:
    """Return a value as indented JSON, bounded."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    if len(text) <= SHOWN_MAX_CHARACTERS:
        return text
    return f"{text[:SHOWN_MAX_CHARACTERS]}\n… {len(text) - SHOWN_MAX_CHARACTERS} more characters"


def _shown(name: str, value: object) -> object:
    match name:
        case "replay" | "replay_json" if isinstance(value, list | str | dict):
            return f"({len(value)} {'characters' if isinstance(value, str) else 'entries'}, not shown here)"
        case "mcp_config":
            try:
                return _masked_mcp(json.loads(Sealed(str(value)).open()), "", 0)
            except SecretUnreadable:
                return MASK
    return _masked(value, name, 0)


def _masked(value: object, name: str, depth: int) -> object:
    """Return a value in which all that is named like a secret is masked."""
    if value is None or isinstance(value, bool):
        return value
    # By the name, since the value of a key looks like any other text. Too much masked is no harm.
    if _SECRET_NAME.search(name) or depth > DEPTH_MAX:
        return MASK
    match value:
        case dict():
            return {key: _masked(inner, str(key), depth + 1) for key, inner in value.items()}
        case list():
            return [_masked(inner, "", depth + 1) for inner in value]
    return value


def _masked_mcp(value: object, name: str, depth: int) -> object:
    """Return a value of an MCP configuration: masked unless its name is known to be harmless."""
    match value:
        case dict() if depth <= DEPTH_MAX:
            return {key: _masked_mcp(inner, str(key), depth + 1) for key, inner in value.items()}
        case list() if depth <= DEPTH_MAX:
            return [_masked_mcp(inner, "", depth + 1) for inner in value]
        case str() if name == "url":
            return _host_of(value)
        case None | bool():
            return value
    return value if name in _PLAIN_IN_MCP else MASK


def _host_of(url: str) -> str:
    """Return an address up to its host: the rest can hold a key."""
    try:
        parts = urlsplit(url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/{MASK if parts.path.strip('/') else ''}"
    except ValueError:
        return MASK

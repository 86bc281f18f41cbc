"""Changes to a JSON document as the V1 wire writes them: members that are named, null for one to remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.settings.setup_keys import MASK


def merged(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with its changes: objects are merged, null removes a member, all else replaces it.

    A masked value is no change: it is what a client was shown in the place of a key.
    """
    result = dict(stored)
    for name, value in changes.items():
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            before = result.get(name)
            result[name] = merged(before if isinstance(before, dict) else {}, value)
        elif value != MASK:
            result[name] = value
    return result


def unmasked(sent: Any, stored: Any) -> Any:
    """Return what was sent with each masked value replaced by the stored one at its place."""
    if isinstance(sent, dict):
        known = stored if isinstance(stored, dict) else {}
        return {name: unmasked(value, known.get(name)) for name, value in sent.items()}
    return (stored if isinstance(stored, str) else None) if sent == MASK else sent

"""Changes to a JSON document as the V1 wire writes them: members that are named, null for one to remove."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sessions_app.settings.setup_keys import MASK, masked, restored


def merged(stored: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return a document with its changes: objects are merged, null removes a member, all else replaces it."""
    return _merged(stored, changes, masked(stored))


def _merged(stored: Mapping[str, Any], changes: Mapping[str, Any], shown: Any) -> dict[str, Any]:
    result = dict(stored)
    seen = shown if isinstance(shown, dict) else {}
    for name, value in changes.items():
        before = result.get(name)
        if value is None:
            result.pop(name, None)
        elif isinstance(value, dict):
            result[name] = _merged(before if isinstance(before, dict) else {}, value, seen.get(name))
        # What a client was shown in the place of a key is no change.
        elif value != MASK:
            result[name] = restored(value, before, seen.get(name))
    return result

"""Words for sentences that refuse a payload: bounded, and sendable whatever the payload holds."""

from __future__ import annotations

from collections.abc import Collection

_NAMES_MAX = 12
_NAME_MAX_CHARS = 40


def quoted(name: object) -> str:
    """Return a name as it can be shown: quoted, ASCII where it must be, cut when it is long."""
    return repr(str(name)[:_NAME_MAX_CHARS])


def listed(names: Collection[object]) -> str:
    """Return the first few names, and how many more there are."""
    shown = [quoted(name) for name in list(names)[:_NAMES_MAX]]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")

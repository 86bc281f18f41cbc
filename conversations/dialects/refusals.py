"""Parts of sentences that refuse a payload: bounded, and sendable on all wires."""

from __future__ import annotations

from collections.abc import Collection


def quoted(name: object) -> str:
    """Return a name for a sentence: quoted, ASCII if necessary, cut if it is long."""
    return repr(str(name)[:40])


def listed(names: Collection[object]) -> str:
    """Return the first few names, and the number of the others."""
    shown = [quoted(name) for name in list(names)[:12]]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")

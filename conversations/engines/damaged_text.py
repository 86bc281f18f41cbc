"""Text that is not UTF-8, which SQLite keeps as it keeps any bytes: a damaged disk makes it.

The driver would raise an error that quotes the text, and nothing else of the page could be read. So the
connections of the server replace what they cannot decode, and a verification reads it exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import methodcaller
from typing import Any

from django.db import connection

REPLACED: Any = methodcaller("decode", "utf-8", "replace")
"""Decodes with U+FFFD in place of what is no UTF-8."""
EXACT: Any = methodcaller("decode", "utf-8", "surrogateescape")
"""Decodes with a lone surrogate for each byte that is no UTF-8, so that no two byte strings read the same."""


@contextmanager
def exact_text() -> Iterator[None]:
    """Read texts exactly in this block, with the connection of this thread."""
    if connection.vendor != "sqlite":
        yield
        return
    connection.ensure_connection()
    opened: Any = connection.connection
    before, opened.text_factory = opened.text_factory, EXACT
    try:
        yield
    finally:
        opened.text_factory = before

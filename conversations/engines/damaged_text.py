"""Text that is not UTF-8, which SQLite stores like any bytes: damaged disks produce it.

The driver would raise an error that quotes the text, and the rest of the page could not be read. So the
connections of the server replace undecodable bytes, and a verification reads them exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from operator import methodcaller
from typing import Any

from django.db import connection

REPLACED: Any = methodcaller("decode", "utf-8", "replace")  # decodes with U+FFFD in place of what is no UTF-8
# Decodes with a lone surrogate for each byte that is no UTF-8, so that no two byte strings read the same.
EXACT: Any = methodcaller("decode", "utf-8", "surrogateescape")


@contextmanager
def exact_text() -> Iterator[None]:
    """Read texts exactly in this block, with this thread's connection."""
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

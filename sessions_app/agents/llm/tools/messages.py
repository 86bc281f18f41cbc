"""Lines of a program as messages of the protocol, also lines that the library cannot read.

Imported late, like all that needs the library.
"""

from __future__ import annotations

import json
import re

from mcp.shared.message import SessionMessage
from mcp_types import PARSE_ERROR, ErrorData, JSONRPCError, jsonrpc_message_adapter

from conversations.payloads import halves

UNREADABLE = "The tool server sent an answer that can't be read."
_ID = re.compile(rb'"jsonrpc".*?"id"\s*:\s*(\d{1,18})\b|"id"\s*:\s*(\d{1,18})\b.*?"jsonrpc"', re.DOTALL)
_SEARCHED_BYTES = 2_000


def message_of(line: bytes) -> SessionMessage | None:
    """Return the message of a line; None for other lines, such as a greeting.

    An unreadable answer becomes an error for its request, which would otherwise wait in vain.
    """
    # The library passes over a line with half a character, or with bytes that are no UTF-8.
    text = halves.whole_json(line.decode(errors="replace"))
    try:
        return SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))
    except ValueError:
        pass
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return _unreadable(_id_in(line))
    if not isinstance(value, dict) or "jsonrpc" not in value or "method" in value:
        return None
    return _unreadable(value.get("id"))


def _id_in(line: bytes) -> int | None:
    """Return the id in the beginning of an unreadable answer; None for other lines."""
    found = _ID.search(line[:_SEARCHED_BYTES])
    if found is None or b'"method"' in line[:_SEARCHED_BYTES]:
        return None
    return int(found[1] or found[2])


def _unreadable(answered: object) -> SessionMessage | None:
    if not isinstance(answered, int | str) or isinstance(answered, bool):
        return None
    error = ErrorData(code=PARSE_ERROR, message=UNREADABLE)
    return SessionMessage(JSONRPCError(jsonrpc="2.0", id=answered, error=error))

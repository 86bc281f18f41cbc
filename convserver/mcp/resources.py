"""Conversations and events as resources of the MCP door."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote, unquote

from mcp import types

from convserver.mcp import tools
from convserver.mcp.native import NativeDoor, NativeRefused

SCHEME = "convserver"
MIME_TYPE = "application/json"
_URI = re.compile(rf"{SCHEME}://conversations/([^/?#]+)(?:/events/([0-9]{{1,18}}))?")

TEMPLATES = [
    types.ResourceTemplate(
        name="conversation",
        title="A conversation",
        uri_template=f"{SCHEME}://conversations/{{conversation_id}}",
        description="A conversation, and the first page of its events.",
        mime_type=MIME_TYPE,
    ),
    types.ResourceTemplate(
        name="event",
        title="An event",
        uri_template=f"{SCHEME}://conversations/{{conversation_id}}/events/{{seq}}",
        description="The beginning of the text of one event.",
        mime_type=MIME_TYPE,
    ),
]


async def listed(door: NativeDoor, cursor: str | None) -> types.ListResourcesResult:
    """Return a page of conversations, those with the newest events first. Raise NativeRefused."""
    found = await tools.list_conversations(door, {"cursor": cursor})
    # The id is the name, since titles repeat; it may have any character, so the address quotes it.
    resources = [
        types.Resource(
            uri=f"{SCHEME}://conversations/{quote(each['id'], safe='')}",
            name=each["id"],
            title=each["title"],
            mime_type=MIME_TYPE,
        )
        for each in found["conversations"]
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=found["next_cursor"])


async def read(door: NativeDoor, uri: str) -> types.ReadResourceResult:
    """Return what a resource holds. Raise NativeRefused."""
    match = _URI.fullmatch(uri)
    if match is None:
        raise NativeRefused(f"There is no resource {uri}. The templates say how resources are called.")
    given: dict[str, Any] = {"conversation_id": unquote(match[1])}
    if match[2] is None:
        found = await tools.read_conversation(door, given)
    else:
        found = await tools.read_event(door, {**given, "seq": int(match[2])})
    content = types.TextResourceContents(uri=uri, mime_type=MIME_TYPE, text=tools.as_text(found))
    return types.ReadResourceResult(contents=[content])

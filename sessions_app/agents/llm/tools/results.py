"""What a tool returned, as a bounded text."""

from __future__ import annotations

from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from conversations.dialects import columns
from conversations.dialects.author import to_strict_json

RESULT_MAX_CHARS = 50_000
EMPTY = "(The tool returned nothing.)"


def text_of(result: CallToolResult) -> str:
    """Return a result as text: what is no text is named, and the middle of a long one left out."""
    text = "\n".join(part for block in result.content if (part := columns.clean(_part(block))))
    if not text and result.structured_content is not None:
        text = to_strict_json(result.structured_content)
    return bounded(text) or EMPTY


def bounded(text: str) -> str:
    """Return a text of at most about RESULT_MAX_CHARS, which says how much was cut."""
    if len(text) <= RESULT_MAX_CHARS:
        return text
    half = RESULT_MAX_CHARS // 2
    cut = len(text) - 2 * half
    return f"{text[:half]}\n[… {cut:,} characters were cut here …]\n{text[-half:]}"


def _part(block: ContentBlock) -> str:
    match block:
        case TextContent(text=text):
            return text
        case ImageContent(mime_type=kind, data=data) | AudioContent(mime_type=kind, data=data):
            return f"({kind} with {len(data) * 3 // 4:,} bytes, which is left out.)"
        case ResourceLink(uri=uri, name=name):
            return f"({name}: {uri})"
        case EmbeddedResource(resource=TextResourceContents(text=text, uri=uri)):
            return f"{uri}:\n{text}"
        case EmbeddedResource(resource=BlobResourceContents(uri=uri)):
            return f"({uri}, which is no text and is left out.)"
        case _:
            return "(Something that is no text and is left out.)"

"""The images in messages to a model, and their form."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Sequence

from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
)

Part = UserContent | ThinkingPart | ToolCallPart | ToolReturnPart
"""A part of one side: a text, an image, a signed thought, a call of a tool, or its result."""

# Of a request; the newest are sent.
IMAGES_MAX = 20
IMAGES_MAX_BYTES = 16 * 1024 * 1024
# The subtypes that all providers take, by the ending of a file's name.
_IMAGES = {"png": "png", "jpg": "jpeg", "jpeg": "jpeg", "gif": "gif", "webp": "webp"}
LEFT_OUT = "(An image is left out: there are too many, or it cannot be read.)"

_DATA_URL = re.compile(r"data:(image/(?:png|jpeg|gif|webp));base64,", re.ASCII)


def media_type_of(name: str) -> str | None:
    """Return the media type of an image's file; None for others."""
    subtype = _IMAGES.get(name.rpartition(".")[2].lower())
    return subtype and f"image/{subtype}"


def parts_of(urls: Iterable[str]) -> Iterator[UserContent]:
    """Yield images: data URLs decoded, others as addresses."""
    for url in urls:
        if url.startswith(("https://", "http://")):
            yield ImageUrl(url=url)
        else:
            yield _decoded(url)


def within_limits(contents: Sequence[Sequence[Part]], *, takes_urls: bool) -> list[list[Part]]:
    """Return contents, oldest first, with a sentence for each image that cannot be sent."""
    left, room = IMAGES_MAX, IMAGES_MAX_BYTES
    shown: list[list[Part]] = []
    for content in reversed(contents):
        parts: list[Part] = []
        for part in content:
            if isinstance(part, ImageUrl) and not takes_urls:
                parts.append(f"(An image at {part.url})")
                continue
            if isinstance(part, ImageUrl | BinaryContent):
                left -= 1
                room -= len(part.data) if isinstance(part, BinaryContent) else 0
                if left < 0 or room < 0:
                    part = LEFT_OUT
            parts.append(part)
        shown.append(parts)
    return shown[::-1]


def _decoded(url: str) -> UserContent:
    found = _DATA_URL.match(url)
    if found is None:
        return LEFT_OUT
    try:
        data = base64.b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError):
        return LEFT_OUT
    return BinaryContent(data=data, media_type=found[1]) if data else LEFT_OUT

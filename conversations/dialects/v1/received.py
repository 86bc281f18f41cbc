"""Converting what a client sends over the V1 wire into an event to store (spec V1 §2.4, §3.3)."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects import columns, refusals
from conversations.dialects.v1 import payload
from conversations.dialects.v1.payload import Part, image_part, text_part
from conversations.events import Authored
from conversations.exceptions import InvalidEvent


def received(request: Mapping[str, object], *, event_id: str) -> Authored:
    """Return the user's message in a SendMessageRequest or a socket's Message, to be stored.

    Only `role`, `content` and `sender` are used, and of a part of the content only what every release knows.
    Raise InvalidEvent with a sentence that names the fault.
    """
    role = request.get("role", "user")
    if role != "user":
        raise InvalidEvent(
            f"`role` must be `user`; what is {refusals.quoted(role)} is not a client's to say."
        )
    sender = request.get("sender")
    if sender is not None and not isinstance(sender, str):
        raise InvalidEvent("`sender` must be a string.")
    event = payload.user_message(_content(request.get("content")), sender=sender)
    return payload.authored(event, event_id=event_id)


def _content(content: object) -> list[Part]:
    if content is None or content == []:
        # Otherwise any object would be an empty message, which the agent would answer.
        raise InvalidEvent("A message needs `content`: a string, or a list of at least one part.")
    if isinstance(content, str):
        return [text_part(content)]
    if not isinstance(content, list):
        raise InvalidEvent("`content` must be a string or a list of parts.")
    return [_part(part, number) for number, part in enumerate(content)]


def _part(part: object, number: int) -> Part:
    match part:
        case {"type": "text", "text": str(text)}:
            return text_part(text) | _cached(part)
        case {"type": "image", "image_urls": list(urls)} if all(isinstance(url, str) for url in urls):
            return image_part(urls) | _cached(part)
        case {"type": "image_url", "image_url": {"url": str(url)} | str(url)}:  # as the web frontend has it
            return image_part([url])
        case _:
            raise InvalidEvent(
                f"Part {number} of `content` is none of {{type: text, text}}, {{type: image, image_urls}} "
                "and {type: image_url, image_url: {url}}."
            )


def _cached(part: object) -> dict[str, object]:
    """Return the mark for a model's cache, if a part has one."""
    return {"cache_prompt": True} if columns.fields(part).get("cache_prompt") is True else {}

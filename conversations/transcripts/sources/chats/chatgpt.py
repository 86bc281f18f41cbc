"""ChatGPT's data export: conversations whose messages are a `mapping` of nodes (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import lines
from conversations.transcripts.sources.chats import chatgpt_content, exports
from conversations.transcripts.sources.chats.chatgpt_citations import Citations
from conversations.transcripts.sources.chats.chatgpt_content import Content, Image, Images
from conversations.transcripts.sources.chats.exports import Chat, ExportKind, MessageReading
from conversations.transcripts.sources.chats.tree import ChatPlace
from conversations.transcripts.sources.nodes import (
    Author,
    Kept,
    Message,
    Part,
    Record,
    ToolCall,
    ToolResult,
    rest_of,
)

NO_MESSAGE = "it has no message"
EVERYBODY = ("", "all")  # recipients of what is no call of a tool
# Types of content without words for people; they are kept nevertheless.
BOOKKEEPING = frozenset(
    {"app_pairing_content", "model_editable_context", "reasoning_recap", "user_editable_context"}
)
# Members of a conversation that its columns or its branches hold.
CARRIED = frozenset({"conversation_id", "create_time", "current_node", "id", "mapping", "title"})


def _is_chat(value: Fields) -> bool:
    return isinstance(value.get("mapping"), dict)


def _chat(value: Fields) -> Chat | None:
    mapping = value.get("mapping")
    if not isinstance(mapping, dict):
        return None
    places = [
        ChatPlace.named(*entry, number, parent="parent", children="children")
        for number, entry in enumerate(mapping.items(), 1)
    ]
    for place in places:
        # Every export has such a node above the first message, and no message belongs there.
        is_bare = "message" in columns.fields(place.value) and columns.fields(place.value)["message"] is None
        place.is_frame = is_bare and place.parent is None and not _left_of_entry(place)
    return Chat(
        chat_id=columns.event_id(columns.first_text(value.get("conversation_id"), value.get("id"))),
        title=columns.first_text(value.get("title")),
        created_at=_instant(value.get("create_time")),
        places=places,
        shown=columns.first_text(value.get("current_node")) or None,
        model=columns.first_text(value.get("default_model_slug")),
        rest=rest_of(value, CARRIED),
        is_pinned=value.get("is_starred") is True,
        is_archived=value.get("is_archived") is True,
    )


def _instant(value: object) -> datetime | None:
    """Read a time since 1970, or as text."""
    return exports.moment(value) or columns.instant(value)


class _Reader:
    """Reads the messages of one chain: the output of a tool belongs to the last call of it."""

    def __init__(self, image: Callable[[str], Image]) -> None:
        self._image = image
        self._calls: dict[str, str] = {}  # the id of the last call of each tool

    def read(self, place: ChatPlace) -> MessageReading:
        if place.value is not None and not isinstance(place.value, Mapping):
            return MessageReading(parts=(Record(name="node", value=place.value, why=Kept.DAMAGED),))
        message = columns.fields(place.value).get("message")
        if message is None:
            left = _left_of_entry(place)
            kept = (Record(name="node", value=left, why=Kept.BOOKKEEPING),) if left else ()
            return MessageReading(parts=kept, skipped="" if left else NO_MESSAGE)
        if not isinstance(message, Mapping):
            return MessageReading(parts=(Record(name="message", value=place.value, why=Kept.DAMAGED),))
        return self._message(message, place)

    def _message(self, message: Fields, place: ChatPlace) -> MessageReading:
        metadata = columns.fields(message.get("metadata"))
        role = columns.first_text(columns.fields(message.get("author")).get("role"))
        content = columns.fields(message.get("content"))
        kind = columns.first_text(content.get("content_type"))
        at = _instant(message.get("create_time"))
        model = columns.first_text(metadata.get("model_slug"))
        why = Kept.BOOKKEEPING
        is_hidden = metadata.get("is_visually_hidden_from_conversation") is True
        if not (is_hidden or role == "system" or kind in BOOKKEEPING):
            read = Content(image=self._image, shown=_shown(message, role), names=_attached(metadata))
            is_known = read.take(content) and role in ("user", "assistant", "tool")
            why = why if is_known else Kept.UNKNOWN
            for file_id, name in _attached(metadata).items() if is_known else ():
                read.name_file(file_id, name)
            drawn = columns.fields(metadata.get("aggregate_result")).get("messages")
            for pointer in (columns.first_text(each.get("image_url")) for each in columns.objects(drawn)):
                if is_known and chatgpt_content.file_id(pointer):  # an image that code has drawn
                    read.show(pointer)
            said = list(self._said(message, role, read, place.node_id)) if is_known else []
            if said or read.records:
                parts = (*said, *read.records)
                rest = _rest(place, message, read, role)
                return MessageReading(parts=parts, at=at, noted=tuple(read.noted), model=model, rest=rest)
        name = " ".join(filter(None, (role, kind))) or "message"
        return MessageReading(parts=(Record(name=name, value=place.value, why=why),), at=at)

    def _said(self, message: Fields, role: str, read: Content, node_id: str) -> Iterator[Part]:
        recipient = columns.first_text(message.get("recipient"))
        text, reasoning = read.text, "\n\n".join(filter(None, read.reasoning))
        if role == "tool":
            is_output = columns.fields(message.get("content")).get("content_type") == "execution_output"
            if text or read.images or is_output:  # a program may print nothing
                yield self._result(message, read, node_id)
        elif role == "assistant" and recipient not in EVERYBODY:
            self._calls.pop(recipient, None)  # so that the newest call is the last one
            self._calls[recipient] = node_id
            arguments = lines.arguments(text)
            yield ToolCall(call_id=node_id, tool=recipient, arguments=arguments, reasoning=reasoning)
        elif text or reasoning or read.images:
            if role == "user":
                self._calls.clear()
            author = Author.USER if role == "user" else Author.AGENT
            yield Message(author=author, text=text, reasoning=reasoning, images=tuple(read.images))

    def _result(self, message: Fields, read: Content, node_id: str) -> ToolResult:
        tool = columns.first_text(columns.fields(message.get("author")).get("name"))
        metadata = columns.fields(message.get("metadata"))
        content = columns.fields(message.get("content"))
        status = columns.first_text(columns.fields(metadata.get("aggregate_result")).get("status"))
        return ToolResult(
            call_id=self._call_of(tool) or f"{node_id}/call",
            text=read.text,
            tool=tool,
            images=tuple(read.images),
            is_error=content.get("content_type") == "system_error" or status.startswith("failed"),
        )

    def _call_of(self, tool: str) -> str:
        """Return the last call of a tool since the user spoke; of any tool, if it was not called."""
        return self._calls.get(tool) or next(reversed(self._calls.values()), "")


def _shown(message: Fields, role: str) -> Callable[[str], str]:
    """Return a function that shows the model's texts with links for marks of citations, others unchanged."""
    is_said = role in ("assistant", "tool") and columns.first_text(message.get("recipient")) in EVERYBODY
    return Citations(columns.fields(message.get("metadata"))).shown if is_said else str


def _rest(place: ChatPlace, message: Fields, read: Content, role: str) -> Fields:
    """Return the members of an entry with a message that no part carries: those not among these."""
    is_call = role == "assistant" and message.get("recipient") not in EVERYBODY
    carried = {"create_time"} if _instant(message.get("create_time")) else set()
    carried |= {name for name in ("id",) if message.get(name) == place.node_id}
    carried |= {"recipient"} if is_call or message.get("recipient") in EVERYBODY else set()
    author = columns.fields(message.get("author"))
    inner = {
        "author": rest_of(author, ("role", "name") if role == "tool" else ("role",)),
        "content": read.rest,
        "metadata": message.get("metadata"),
    }
    return _left_of_entry(place, rest_of(message, carried, inner))


def _left_of_entry(place: ChatPlace, message: Fields | None = None) -> Fields:
    """Return the members of an entry beside its links, with the rest of its message."""
    entry = columns.fields(place.value)
    same = {"id"} if entry.get("id") == place.node_id else set()
    return rest_of(entry, {"parent", "children", *same}, {"message": message})


def _attached(metadata: Fields) -> dict[str, str]:
    """Return the names of the attached files, by their ids."""
    named: dict[str, str] = {}
    for attached in columns.objects(metadata.get("attachments")):
        file_id, name = (columns.first_text(attached.get(member)) for member in ("id", "name"))
        if file_id or name:
            named[chatgpt_content.file_id(file_id) or file_id or name] = name or file_id
    return named


EXPORT = ExportKind(
    name="chatgpt",
    is_chat=_is_chat,
    chat=_chat,
    readers=lambda archive: partial(_Reader, Images(archive).url if archive else chatgpt_content.no_image),
)

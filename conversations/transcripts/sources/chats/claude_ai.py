"""Claude.ai's data export: conversations whose messages are a list, `chat_messages` (docs/formats.md)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import blocks
from conversations.transcripts.sources.chats import exports
from conversations.transcripts.sources.chats.exports import Chat, ExportKind, MessageReading
from conversations.transcripts.sources.chats.tree import ChatPlace
from conversations.transcripts.sources.nodes import Author, Kept, Record, filled_rests, rest_of

# The parent of the first message.
ROOTS = frozenset({"00000000-0000-4000-8000-000000000000", "00000000-0000-0000-0000-000000000000"})
REPEATED = "an earlier message has the same uuid"
# The text of a message in the place of a call or a result.
UNSUPPORTED = "```\nThis block is not supported on your current device yet.\n```"
CUTS = frozenset({"max_tokens", "user_canceled"})  # why an answer stops before its end
AUTHORS = {"human": Author.USER, "assistant": Author.AGENT}
# Types of blocks without content for people; they are kept nevertheless.
BOOKKEEPING = frozenset({"token_budget", "flag"})

# Members of a conversation that its columns or its branches hold.
CARRIED = frozenset({"chat_messages", "created_at", "current_leaf_message_uuid", "name", "uuid"})


def _is_chat(value: Fields) -> bool:
    return isinstance(value.get("chat_messages"), list)


def _chat(value: Fields) -> Chat | None:
    messages = value.get("chat_messages")
    if not isinstance(messages, list):
        return None
    places = _places(messages)
    in_tree = [place.node_id for place in places if not place.is_aside]
    shown = columns.first_text(value.get("current_leaf_message_uuid"), *in_tree[-1:])
    return Chat(
        chat_id=columns.event_id(value.get("uuid")),
        title=columns.first_text(value.get("name")),
        created_at=columns.instant(value.get("created_at")),
        places=places,
        shown=shown or None,
        model=columns.first_text(value.get("model")),
        rest=rest_of(value, CARRIED),
        is_pinned=value.get("is_starred") is True,
    )


def _places(messages: list[object]) -> list[ChatPlace]:
    places: list[ChatPlace] = []
    by_id: dict[str, object] = {}
    last: str | None = None
    for number, value in enumerate(messages, 1):
        message = columns.fields(value)
        uuid = columns.event_id(message.get("uuid"))
        place = ChatPlace(
            node_id=uuid or exports.digest_of(value), number=number, value=value, is_aside=uuid is None
        )
        if uuid in by_id:
            place.is_aside = True
            place.skipped = REPEATED if value == by_id[uuid] else ""
            place.noted = () if place.skipped else (REPEATED,)
        place.node_id = exports.unique(place.node_id, by_id)
        by_id[place.node_id] = value
        if not place.is_aside:
            place.parent, last = _parent(message, last), place.node_id
        places.append(place)
    return places


def _parent(message: Fields, last: str | None) -> str | None:
    """Return the parent of a message: the one above it, if the source names none."""
    said = columns.first_text(message.get("parent_message_uuid"))
    return None if said in ROOTS else said or last


class _Reader:
    """Reads the messages of one chain: a result without an id belongs to the last call that had none."""

    def __init__(self) -> None:
        self._unnamed = ""

    def read(self, place: ChatPlace) -> MessageReading:
        if not isinstance(place.value, Mapping):
            return MessageReading(parts=(Record(name="message", value=place.value, why=Kept.DAMAGED),))
        message: Fields = place.value
        at = columns.instant(message.get("created_at"))
        sender = columns.first_text(message.get("sender"))
        author = AUTHORS.get(sender)
        if author is None:
            name = f"message of {sender}" if sender else "message"
            return MessageReading(parts=(Record(name=name, value=message, why=Kept.UNKNOWN),), at=at)
        content, kept = self._content(message, place.node_id)
        files = list(_files(message))
        read = blocks.read([*content, *_texts(message), *files], author)
        is_cut = message.get("truncated") is True or message.get("stop_reason") in CUTS
        return MessageReading(
            parts=(*read.parts, *kept) or (Record(name=sender, value=message, why=Kept.BOOKKEEPING),),
            at=at,
            noted=(*((exports.CUT_OFF,) if is_cut else ()), *(exports.NAMED_ONLY,) * len(files)),
            model=columns.first_text(message.get("model")),
            rest=_rest(message, place.node_id, content, read.rest) if read.parts or kept else {},
        )

    def _content(self, message: Fields, node_id: str) -> tuple[list[object], list[Record]]:
        """Return the blocks with content, and the others unchanged."""
        said: list[object] = []
        kept: list[Record] = []
        for number, block in enumerate(_blocks(message)):
            told = columns.fields(block)
            kind = columns.first_text(told.get("type"))
            if kind in BOOKKEEPING:
                kept.append(Record(name=f"block {kind}", value=block, why=Kept.BOOKKEEPING))
            else:
                said.append(self._block(told, kind, f"{node_id}/{number}") if told else block)
        return said, kept

    def _block(self, block: Fields, kind: str, call_id: str) -> Fields:
        """Return a block in the form of Anthropic's messages: a call and its result share an id."""
        if kind == "tool_use" and not columns.first_text(block.get("id")):
            self._unnamed = call_id
            return {**block, "id": call_id}
        if kind == "tool_result" and not columns.first_text(block.get("tool_use_id")):
            return {**block, "tool_use_id": self._unnamed or call_id}
        if kind == "voice_note" and isinstance(block.get("text"), str):
            return {**block, "type": "text"}
        if kind == "thinking" and block.get("thinking") is None:
            return {**block, "thinking": ""}  # its summaries replace it, if there are any
        return block


def _blocks(message: Fields) -> list[object]:
    """Return the content; the text if no block has content, as in old exports."""
    content, text = message.get("content"), columns.first_text(message.get("text"))
    if content in (None, []) or (text and isinstance(content, list) and not any(map(_says, content))):
        return [blocks.text_block(text)]
    return list(content) if isinstance(content, list) else [content]


def _says(block: object) -> bool:
    """Return whether a block has content, that is, no empty text."""
    told = columns.fields(block)
    return block is not None and (told.get("type") != "text" or bool(columns.first_text(told.get("text"))))


def _rest(message: Fields, node_id: str, content: list[object], left: list[dict[str, object]]) -> Fields:
    """Return the members of a message that no part carries: those not among these."""
    carried = {"sender", "parent_message_uuid", "content"}
    carried |= {"uuid"} if message.get("uuid") == node_id else set()
    if columns.instant(message.get("created_at")):
        carried |= {"created_at"}
        carried |= {"updated_at"} if message.get("updated_at") == message.get("created_at") else set()
    texts = [columns.first_text(columns.fields(block).get("text")) for block in content]
    is_said = _words(columns.first_text(message.get("text"))) == _words("".join(texts))
    inner: dict[str, object] = {
        name: filled_rests([_left_of_file(each) for each in listed])
        for name in ("attachments", "files")
        if isinstance(listed := message.get(name), list)
    }
    if isinstance(message.get("text"), str) and (is_said or not message.get("text")):
        carried |= {"text"}
    return rest_of(message, carried, inner | {"content": left})


def _words(text: str) -> str:
    """Return a text without blanks and placeholders of other blocks, for comparing."""
    return "".join(text.replace(UNSUPPORTED, "").split())


def _left_of_file(file: object) -> dict[str, object]:
    """Return the members of a file beside its name and its extracted text."""
    told = columns.fields(file)
    texts = {name for name in ("extracted_content", "file_name") if isinstance(told.get(name), str)}
    if file is None or told:
        return rest_of(told, texts)
    return {"file": file}


def _texts(message: Fields) -> Iterator[Fields]:
    """Yield the attached texts: pasted ones, and texts extracted from files."""
    for attached in columns.objects(message.get("attachments")):
        text, name = (columns.first_text(attached.get(each)) for each in ("extracted_content", "file_name"))
        if text:
            yield blocks.text_block(f"[Attachment: {name}]\n{text}" if name else text)


def _files(message: Fields) -> Iterator[Fields]:
    """Yield the names of the attached files; the export does not contain the files."""
    for attached in columns.objects(message.get("attachments")):
        if not columns.first_text(attached.get("extracted_content")):
            yield blocks.text_block(
                f"[File: {columns.first_text(attached.get('file_name')) or 'without a name'}]"
            )
    for file in columns.objects(message.get("files")):
        yield blocks.text_block(f"[File: {columns.first_text(file.get('file_name')) or 'without a name'}]")


EXPORT = ExportKind(name="claude-ai", is_chat=_is_chat, chat=_chat, readers=lambda _: _Reader)

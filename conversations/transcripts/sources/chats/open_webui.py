"""Open WebUI's export of chats: messages by their ids, `history.messages` (docs/formats.md)."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import blocks
from conversations.transcripts.sources.chats import details, exports, output_items
from conversations.transcripts.sources.chats.exports import Chat, ExportKind, MessageReading
from conversations.transcripts.sources.chats.tree import ChatPlace
from conversations.transcripts.sources.nodes import Author, Failure, Kept, Part, Record, filled_rests, rest_of

AUTHORS = {"user": Author.USER, "assistant": Author.AGENT}
NO_MESSAGE = "it has no message"
REPEATED = "an earlier message has the same id"
ONLY_LISTED = "only the list of the branch that was shown has it"
DIFFERS = "its content and its output say different things: the output is shown"
# Members of a message that are read, or that repeat others; the rest of them is kept.
READ = frozenset(
    {
        *("id", "parentId", "childrenIds", "role", "content", "timestamp", "model", "files", "output"),
        *("merged", "done", "models", "modelName", "modelIdx", "lastSentence", "error"),
    }
)
# Members with little content for people; they are kept nevertheless.
DETAILS = frozenset(
    {
        *("annotation", "arena", "citations", "codeExecutions", "code_executions", "completedAt", "context"),
        *("edited", "embeds", "favorite", "feedbackId", "followUps", "info", "missingChecksums"),
        *("originalContent", "rating", "selectedModelId", "sources", "status", "statusHistory", "tags"),
        *("usage", "user", "userContext"),
    }
)
# Members of a chat that the columns of its conversation hold.
CARRIED = frozenset({"id", "title", "created_at"})
HISTORY = frozenset({"messages", "currentId"})
FILE_TYPES = frozenset({"", "doc", "file", "text"})


def _is_chat(value: Fields) -> bool:
    return _told(value) is not None


def _told(value: Fields) -> Fields | None:
    """Return the chat itself, which old exports do not wrap; None for anything else."""
    wrapped = value.get("chat")
    if isinstance(wrapped, Mapping):
        has_messages = _by_id(wrapped) is not None or isinstance(wrapped.get("messages"), list)
        return wrapped if has_messages else None
    if _by_id(value) is not None:
        return value
    is_old = isinstance(value.get("messages"), list) and isinstance(value.get("models"), list)
    return value if is_old else None


def _by_id(told: Fields) -> Fields | None:
    messages = columns.fields(told.get("history")).get("messages")
    return messages if isinstance(messages, Mapping) else None


def _chat(value: Fields) -> Chat | None:
    told = _told(value)
    if told is None:
        return None
    places = _places(told)
    in_tree = [place.node_id for place in places if not place.is_aside]
    current = columns.fields(told.get("history")).get("currentId")
    listed = (columns.fields(value.get("meta")).get("tags"), value.get("tags"), told.get("tags"))
    tags = [tag for each in listed for tag in columns.items(each)]
    labels = (columns.first_text(tag, columns.fields(tag).get("name")) for tag in tags)
    return Chat(
        chat_id=columns.event_id(columns.first_text(value.get("id"), told.get("id"))),
        title=columns.first_text(value.get("title"), told.get("title")),
        created_at=exports.moment(value.get("created_at")) or exports.moment(told.get("timestamp")),
        places=places,
        shown=columns.first_text(current, value.get("current_message_id"), *in_tree[-1:]) or None,
        model=columns.first_text(*columns.items(told.get("models"))),
        rest=_rest_of_chat(value, told, places),
        labels=tuple(dict.fromkeys(filter(None, labels))),
        is_pinned=value.get("pinned") is True,
        is_archived=value.get("archived") is True,
    )


def _rest_of_chat(value: Fields, told: Fields, places: Sequence[ChatPlace]) -> Fields:
    """Return the members of a chat beside its messages, and deviating messages of its list."""
    inner: dict[str, object] = {"history": rest_of(columns.fields(told.get("history")), HISTORY)}
    if isinstance(listed := told.get("messages"), list):
        by_id = {place.node_id: place.value for place in places}
        inner["messages"] = [each for each in listed if each is not None and not _is_placed(each, by_id)]
    if told is value:
        return rest_of(told, {*CARRIED, "timestamp"}, inner)
    same = {name for name in ("id", "title") if told.get(name) in ("", value.get(name))}
    return rest_of(value, CARRIED, {"chat": rest_of(told, same, inner)})


def _is_placed(message: object, by_id: Fields) -> bool:
    """Return whether a message of the list equals one of the conversation in every member."""
    message_id = columns.first_text(columns.fields(message).get("id"))
    return by_id.get(message_id or exports.digest_of(message)) == message


def _places(told: Fields) -> list[ChatPlace]:
    """Return the messages by their ids, and then those that only the list has."""
    by_id = _by_id(told) or {}
    places = [_place(*entry, number) for number, entry in enumerate(by_id.items(), 1)]
    return [*places, *_listed(columns.items(told.get("messages")), by_id)]


_place = partial(ChatPlace.named, parent="parentId", children="childrenIds")


def _listed(messages: Iterable[object], by_id: Fields) -> Iterator[ChatPlace]:
    """Yield the messages of the list that are missing by id.

    A message without an id repeats one of those by id, if there are any.
    """
    listed: dict[str, object] = {}
    taken = ChainMap(listed, dict(by_id))
    last: str | None = None
    for number, value in enumerate(messages, len(by_id) + 1):
        message_id = columns.event_id(columns.fields(value).get("id"))
        if by_id and (message_id is None or message_id in by_id):
            last = message_id or last
            continue
        place = _place(exports.unique(message_id or exports.digest_of(value), taken), value, number)
        place.noted = (ONLY_LISTED,) if by_id else ()
        if message_id is not None and place.node_id != message_id:
            place.is_aside = True
            place.skipped = REPEATED if value == listed[message_id] else ""
            place.noted = place.noted if place.skipped else (*place.noted, REPEATED)
        elif not place.is_aside:
            if "parentId" not in columns.fields(value):
                place.parent = last
                place.is_linked = True
            last = place.node_id
        listed[place.node_id] = value
        yield place


class _Reader:
    """Reads the messages of a chain; they do not depend on each other."""

    def read(self, place: ChatPlace) -> MessageReading:
        if place.value is None:
            return MessageReading(skipped=NO_MESSAGE)
        if not isinstance(place.value, Mapping):
            return MessageReading(parts=(Record(name="message", value=place.value, why=Kept.DAMAGED),))
        message: Fields = place.value
        role = columns.first_text(message.get("role"))
        at = exports.moment(message.get("timestamp"))
        author = AUTHORS.get(role)
        if author is None:
            why = Kept.BOOKKEEPING if role == "system" else Kept.UNKNOWN
            name = f"message of {role}" if role else "message"
            return MessageReading(parts=(Record(name=name, value=message, why=why),), at=at)
        return _read(message, author, at, place.node_id)


def _read(message: Fields, author: Author, at: datetime | None, node_id: str) -> MessageReading:
    found, kept, noted = _said(message, author, node_id)
    files = list(_files(message))
    merged = columns.first_text(columns.fields(message.get("merged")).get("content"))
    said = details.read([*found, *(file.block for file in files)], author)
    parts = (
        *said.parts,
        *details.read(list(details.of_text(merged, f"{node_id}/merged")), author).parts,
        *(Failure(text) for text in [_failure(message)] if text),
        *kept,
        *_members(message),
    )
    name = f"message of {columns.first_text(message.get('role'))}"
    return MessageReading(
        parts=parts or (Record(name=name, value=message, why=Kept.BOOKKEEPING),),
        at=at,
        noted=(*noted, *(file.noted for file in files if file.noted)),
        model=columns.first_text(message.get("model")) if author is Author.AGENT else "",
        rest=_rest(message, at, node_id, said.rest) if parts else {},
    )


def _failure(message: Fields) -> str:
    """Return why an answer failed; `true` means that its content tells."""
    error = message.get("error")
    told = columns.fields(error)
    if error is True:
        return columns.content_text(message.get("content"))
    said = columns.first_text(error, told.get("content"), told.get("message"), told.get("detail"))
    return said or (columns.as_json(error) if error else "")


def _rest(message: Fields, at: datetime | None, node_id: str, left: list[dict[str, object]]) -> Fields:
    """Return the parts of the read members that no part carries."""
    others = {name for name, value in message.items() if name not in READ and _says(value)}
    carried = {*others, "role", "content", "parentId", "childrenIds"}
    carried |= {"output"} if isinstance(message.get("output"), list) else set()
    carried |= {"timestamp"} if at else set()
    carried |= {"id"} if message.get("id") == node_id else set()
    carried |= {"error"} if isinstance(message.get("error"), str | bool) else set()
    carried |= {"done"} if isinstance(message.get("done"), bool) else set()
    inner: dict[str, object] = {"content": left}
    if isinstance(listed := message.get("files"), list):
        inner["files"] = filled_rests([_left_of_file(file) for file in listed])
    if isinstance(merged := message.get("merged"), Mapping):
        inner["merged"] = rest_of(merged, {"content"} if isinstance(merged.get("content"), str) else ())
    return rest_of(message, carried, inner)


def _left_of_file(file: object) -> dict[str, object]:
    """Return the rest of a file, without its extracted text or the image itself."""
    told = columns.fields(file)
    if not told:
        return {} if file is None or isinstance(file, str) else {"file": file}
    if columns.first_text(told.get("url")).startswith("data:"):
        return rest_of(told, {"url"})
    inner = columns.fields(told.get("file"))
    data = columns.fields(inner.get("data"))
    if columns.first_text(data.get("content")):
        left = rest_of(inner, (), {"data": rest_of(data, {"content"})})
        return rest_of(told, (), {"file": left})
    return rest_of(told, {"content"} if columns.first_text(told.get("content")) else ())


def _said(message: Fields, author: Author, node_id: str) -> tuple[list[object], list[Part], list[str]]:
    """Return the blocks of a message, the members to keep, and the notes."""
    content = message.get("content")
    if author is Author.USER:
        return details.content_blocks(content), [], []
    noted = [exports.CUT_OFF] if message.get("done") is False else []
    if message.get("error") is True:
        written: list[object] = []
    elif isinstance(content, str):
        written = list(details.of_text(content, node_id))
    else:
        written = details.content_blocks(content)
    output = message.get("output")
    if not isinstance(output, list) or not output:
        return written, [], noted
    found = list(output_items.blocks_of(output, node_id))
    if not written or details.said(written) == details.said(found):
        return found, [], noted
    record = Record(name="content", value=content, why=Kept.BOOKKEEPING)
    return found, [record], [*noted, DIFFERS]


class _File(NamedTuple):
    block: Fields
    noted: str = ""


def _files(message: Fields) -> Iterator[_File]:
    """Yield the attached texts and images, and the names of files that the export does not have."""
    for file in _named(message):
        kind, url = (columns.first_text(file.get(name)) for name in ("type", "url"))
        meta = columns.fields(columns.fields(file.get("file")).get("meta"))
        media = columns.first_text(file.get("content_type"), meta.get("content_type"))
        if text := _content(file):
            yield _File(blocks.text_block(f"[Attachment: {_name(file)}]\n{text}"))
        elif kind != "image" and not media.startswith("image/"):
            label = "File" if kind in FILE_TYPES else kind.replace("_", " ").capitalize()
            yield _File(blocks.text_block(f"[{label}: {_name(file)}]"), exports.NAMED_ONLY)
        elif url.startswith(details.SHOWN):
            yield _File(details.image(url))
        else:
            yield _File(blocks.text_block(f"[Image: {_name(file)}]"), exports.IMAGE_MISSING)


def _named(message: Fields) -> list[Fields]:
    """Return the files of a message; one with only an address as an image."""
    listed = columns.items(message.get("files"))
    return columns.objects(
        [{"type": "image", "url": each} if isinstance(each, str) else each for each in listed]
    )


def _content(file: Fields) -> str:
    data = columns.fields(columns.fields(file.get("file")).get("data"))
    return columns.first_text(data.get("content"), file.get("content"))


def _name(file: Fields) -> str:
    inner = columns.fields(file.get("file"))
    told = columns.texts(file.get("urls"))
    names = (file.get("name"), inner.get("filename"), file.get("title"), file.get("url"), file.get("id"))
    return ", ".join(filter(None, [columns.first_text(*names), *told])) or "without a name"


def _members(message: Fields) -> Iterator[Record]:
    others = {name: value for name, value in message.items() if _says(value) and name not in READ}
    known = {name: value for name, value in others.items() if name in DETAILS}
    unknown = {name: value for name, value in others.items() if name not in DETAILS}
    if known:
        yield Record(name="details", value=known, why=Kept.BOOKKEEPING)
    if unknown:
        yield Record(name="members", value=unknown, why=Kept.UNKNOWN)


def _says(value: object) -> bool:
    return value is not None and value is not False and value not in ("", [], {})


EXPORT = ExportKind(name="open-webui", is_chat=_is_chat, chat=_chat, readers=lambda _: _Reader)

"""The tools of the MCP door: all but `append_note` read, and none returns more than RESULT_MAX_BYTES."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

from django.conf import settings

from conversations.dialects import v1
from conversations.events import Kind
from convserver.mcp.native import NativeDoor, NativeRefused

RESULT_MAX_BYTES = 25_000  # a longer result is cut, and says where the next one continues
TEXT_MAX_CHARS = 2_000  # a longer text is cut in a page of events; `read_event` returns the rest
# Conversations found by their titles leave the other half to events.
TITLES_MAX_BYTES = RESULT_MAX_BYTES // 2
NOTE = "Note:"
NOTE_MAX_CHARS = 20_000
SEARCH_MAX, LIST_MAX, EVENTS_MAX = 20, 50, 50
_KINDS = ", ".join(f"`{kind}`" for kind in Kind)

Schema = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class McpTool:
    """A tool: its description for models, and its function."""

    name: str
    title: str
    description: str
    members: Mapping[str, Schema]
    required: tuple[str, ...] = ()
    run: Callable[[NativeDoor, Mapping[str, Any]], Awaitable[Any]]
    writes: bool = False

    @property
    def input_schema(self) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": dict(self.members),
            "required": list(self.required),
            "additionalProperties": False,
        }


async def search(door: NativeDoor, given: Mapping[str, Any]) -> Any:
    """Return titles and events that match, the newest first."""

    async def page(limit: int) -> Any:
        found = await door.get(
            "search",
            q=given["query"],
            conversation=given.get("conversation_id"),
            kind=given.get("kind"),
            since=given.get("since"),
            until=given.get("until"),
            page_id=given.get("cursor"),
            limit=limit,
        )
        return {
            "conversations": _fitting(map(_conversation, found["conversations"]), TITLES_MAX_BYTES),
            "events": [_hit(each) for each in found["hits"]],
            "next_cursor": found["next_page_id"],
            **({"notice": found["notice"]} if found["notice"] else {}),
        }

    return await _largest_that_fits(page, int(given.get("limit", 10)))


async def list_conversations(door: NativeDoor, given: Mapping[str, Any]) -> Any:
    """Return conversations, those with the newest events first."""

    async def page(limit: int) -> Any:
        found = await door.get(
            "conversations",
            title=given.get("title"),
            repository=given.get("repository"),
            page_id=given.get("cursor"),
            limit=limit,
        )
        shown = [_conversation(each) for each in found["conversations"]]
        return {"conversations": shown, "next_cursor": found["next_page_id"]}

    return await _largest_that_fits(page, int(given.get("limit", 20)))


async def _largest_that_fits(page: Callable[[int], Awaitable[Any]], limit: int) -> Any:
    """Return a page of at most `limit` rows within RESULT_MAX_BYTES; one row may be larger."""
    # Asked again for fewer: the cursor belongs to the end of a page, so none can be cut off.
    while size(result := await page(limit)) > RESULT_MAX_BYTES and limit > 1:
        limit //= 2
    return result


async def read_conversation(door: NativeDoor, given: Mapping[str, Any]) -> Any:
    """Return a page of events, oldest first."""
    name, limit = given["conversation_id"], int(given.get("limit", 20))
    before = given.get("before")
    after = given.get("after", None if before is not None else -1)
    head = await door.get("conversations", name)
    found = await door.get("conversations", name, "events", after=after, before=before, limit=limit)
    last_seq = found["last_seq"]
    result: dict[str, Any] = {"conversation": _conversation(head), "events": [], "last_seq": last_seq}
    shown = [_event(each) for each in found["events"]]
    if before is not None:  # the newest are those next to the place that was named
        shown.reverse()
    for each in shown:
        result["events"].append(each)
        # 100 for `next_after` and `next_before`. One event is always returned, else no reader would get on.
        if size(result) > RESULT_MAX_BYTES - 100 and len(result["events"]) > 1:
            result["events"].pop()
            break
    if before is not None:
        result["events"].reverse()
    seqs = [each["seq"] for each in result["events"]]
    result["next_after"] = seqs[-1] if seqs and seqs[-1] < last_seq else None
    result["next_before"] = seqs[0] if seqs and seqs[0] > 0 else None
    return result


async def read_event(door: NativeDoor, given: Mapping[str, Any]) -> Any:
    """Return a piece of the text of one event."""
    seq, offset = int(given["seq"]), int(given.get("offset", 0))
    path = ("conversations", given["conversation_id"], "events")
    found = await door.get(*path, before=seq + 1, limit=1)
    if not found["events"] or found["events"][0]["seq"] != seq:
        raise NativeRefused(f"There is no event {seq}. The newest is {found['last_seq']}.")
    [event] = found["events"]
    text = event["text"]
    # The characters that `read_event` returns at a time: an escaped character can take six bytes.
    piece_chars = 4_000
    end = offset + piece_chars
    return {
        **_place(event),
        "text": text[offset:end],
        "next_offset": end if end < len(text) else None,
    }


def _fitting(values: Iterable[Any], max_bytes: int) -> list[Any]:
    """Return the first of these that fit into `max_bytes`."""
    kept: list[Any] = []
    for each in values:
        if size([*kept, each]) > max_bytes:
            break
        kept.append(each)
    return kept


def size(result: Any) -> int:
    """Return how many bytes a result takes."""
    return len(as_text(result).encode(errors="surrogatepass"))


def as_text(result: Any) -> str:
    """Return a result as models read it."""
    return json.dumps(result, ensure_ascii=False, separators=(",", ":"))


def _conversation(each: Mapping[str, Any]) -> dict[str, Any]:
    names = ("id", "title", "repository", "created_at", "updated_at", "last_message", "damage")
    shown = {name: each[name] for name in names if each.get(name) is not None}
    if len(shown.get("last_message", "")) > 200:
        shown["last_message"] = f"{shown['last_message'][:200]}…"
    return shown


def _hit(each: Mapping[str, Any]) -> dict[str, Any]:
    conversation = each["conversation"]
    return {
        "conversation_id": conversation["id"],
        "title": conversation["title"],
        **_place(each),
        "snippet": "".join(piece["text"] for piece in each["snippet"]),
    }


def _event(each: Mapping[str, Any]) -> dict[str, Any]:
    text = each["text"]
    if len(text) <= TEXT_MAX_CHARS:
        return {**_place(each), "text": text}
    return {**_place(each), "text": f"{text[:TEXT_MAX_CHARS]}…", "text_length": len(text)}


def _place(each: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each[name] for name in ("seq", "kind", "source", "timestamp")}


async def append_note(door: NativeDoor, given: Mapping[str, Any]) -> Any:
    """Append a note as words of the user that ask for no answer; return its place."""
    name, note_id = given["conversation_id"], str(uuid4())
    head = await door.get("conversations", name)
    text = f"{NOTE} {given['text']}"
    event: Any
    # In the dialect of the conversation, so that clients of its wire read the note as sent.
    if head["version"] == "V0":
        event = {"action": "message", "source": "user", "message": text, "args": {"content": text}}
    else:
        said = v1.user_message([v1.text_part(text)])
        event = json.loads(v1.written(said, event_id=note_id, timestamp=v1.stamp(datetime.now(UTC))))
    frame = {"type": "event", "id": note_id, "event": event}
    done = await door.post("conversations", name, "events", body=frame)
    return {"conversation_id": name, "seq": done["seq"]}


def _integer(description: str, *, least: int, most: int | None = None, default: int | None = None) -> Schema:
    bounds = {"minimum": least, "maximum": most, "default": default}
    known = {name: value for name, value in bounds.items() if value is not None}
    return {"type": "integer", "description": description, **known}


def _string(description: str) -> Schema:
    return {"type": "string", "description": description}


_ID = _string("The id of a conversation, as `search` and `list_conversations` return it.")
_CURSOR = _string("`next_cursor` of the page before; leave it out for the first page.")

TOOLS = (
    McpTool(
        name="search",
        title="Search all conversations",
        description=(
            "Find what was said, called and returned in any of the user's conversations. Returns "
            "conversations whose title matches (first page only) and events with a snippet, newest first. "
            "Then read around an event with `read_conversation`."
        ),
        members={
            "query": _string(
                'Words that all must occur. "Phrases" in quotes, OR, -word to leave out, begin* for '
                "beginnings."
            ),
            "conversation_id": _string("Search this conversation only."),
            "kind": {
                "type": "string",
                "enum": [str(kind) for kind in Kind],
                "description": f"Only events of this kind: {_KINDS}.",
            },
            "since": _string("Only events from this time on, as ISO 8601."),
            "until": _string("Only events before this time, as ISO 8601."),
            "limit": _integer("At most this many events.", least=1, most=SEARCH_MAX, default=10),
            "cursor": _CURSOR,
        },
        required=("query",),
        run=search,
    ),
    McpTool(
        name="list_conversations",
        title="List conversations",
        description="List the user's conversations, those with the newest events first.",
        members={
            "title": _string("Only conversations whose title contains this."),
            "repository": _string("Only conversations about this repository, such as owner/name."),
            "limit": _integer("At most this many.", least=1, most=LIST_MAX, default=20),
            "cursor": _CURSOR,
        },
        run=list_conversations,
    ),
    McpTool(
        name="read_conversation",
        title="Read a conversation",
        description=(
            "Read a page of a conversation's events, oldest first. Go on with `after` set to `next_after`, "
            "or back with `before` set to `next_before`. A long text is cut: `read_event` returns all of it."
        ),
        members={
            "conversation_id": _ID,
            "after": _integer("Events after this seq; -1 begins at the beginning.", least=-1, default=-1),
            "before": _integer("Instead: the events just before this seq.", least=0),
            "limit": _integer("At most this many events.", least=1, most=EVENTS_MAX, default=20),
        },
        required=("conversation_id",),
        run=read_conversation,
    ),
    McpTool(
        name="read_event",
        title="Read one event",
        description="Read the text of one event in pieces. Go on with `offset` set to `next_offset`.",
        members={
            "conversation_id": _ID,
            "seq": _integer("The seq of the event.", least=0),
            "offset": _integer("Begin at this character.", least=0, default=0),
        },
        required=("conversation_id", "seq"),
        run=read_event,
    ),
)
# Offered only where the operator wants it.
NOTES = (
    McpTool(
        name="append_note",
        title="Append a note",
        description=(
            "Append a note to a conversation, for the people and agents that read it later. No agent "
            "answers it, and it cannot be changed afterwards."
        ),
        members={
            "conversation_id": _ID,
            "text": {**_string("The note, as Markdown."), "minLength": 1, "maxLength": NOTE_MAX_CHARS},
        },
        required=("conversation_id", "text"),
        run=append_note,
        writes=True,
    ),
)


def offered() -> tuple[McpTool, ...]:
    return (*TOOLS, *NOTES) if settings.CONFIGURATION.mcp_notes else TOOLS

"""Reading one line of a session."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.events import Metrics
from conversations.transcripts.sources import blocks
from conversations.transcripts.sources.nodes import Author, Kept, Message, Part, Record, Summary, rest_of

# Lines without content for people; they are kept nevertheless.
BOOKKEEPING = frozenset(
    {
        "agent-color",
        "agent-name",
        "agent-setting",
        "ai-title",
        "attachment",
        "attribution-snapshot",
        "content-replacement",
        "context-collapse-commit",
        "context-collapse-snapshot",
        "custom-title",
        "document",
        "file-history-snapshot",
        "last-prompt",
        "mode",
        "permission-mode",
        "pr-link",
        "progress",
        "queue-operation",
        "speculation-accept",
        "summary",
        "system",
        "tag",
        "task-summary",
        "worktree-state",
    }
)
# A copy of a tool's result for the program's own screen: it is left out, and counted.
LEFT_OUT = "toolUseResult"
# The members of `usage` that the totals of the conversation count.
COUNTED = frozenset(
    {"input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens"}
)
SYNTHETIC = "<synthetic>"  # the model of messages that no model wrote

_IDS = frozenset({"id", "type"})
# The members of a line that become an event's kind, place, time and id, or that the totals count.
_CARRIED = frozenset({"type", "uuid", "parentUuid", "logicalParentUuid", "timestamp", "requestId", "costUSD"})


class Read(NamedTuple):
    """The parts of a line, and the members that no part carries."""

    name: str
    parts: tuple[Part, ...]
    rest: Mapping[str, object]


def read(record: Fields) -> Read:
    """Return the parts of a line; the line itself, if it has none for people."""
    kind = columns.first_text(record.get("type"))
    message = columns.fields(record.get("message"))
    content = message.get("content")
    found = blocks.BlockContent((), [])
    if kind == "assistant":
        found = blocks.read(content, Author.AGENT)
    elif kind == "user" and record.get("isCompactSummary") is True:
        found = _summary(content)
    elif kind == "user" and record.get("isMeta") is not True:
        found = blocks.read(content, Author.USER)
    elif kind == "attachment":
        return _queued(record, columns.fields(record.get("attachment")))
    if not found.parts:
        return _kept(record, kind)
    inside: dict[str, object] = {"content": found.rest}
    if isinstance(used := message.get("usage"), Mapping):
        inside["usage"] = rest_of(used, COUNTED)
    inner = rest_of(message, {"role" if message.get("role") == kind else "", *_IDS}, inside)
    return Read(kind, found.parts, _around(record, "message", inner))


def _kept(record: Fields, kind: str) -> Read:
    is_known = kind in BOOKKEEPING or kind in ("user", "assistant")
    why = Kept.BOOKKEEPING if is_known else Kept.UNKNOWN
    return Read(kind, (Record(name=kind or "record", value=record, why=why),), {})


def _summary(content: object) -> blocks.BlockContent:
    """Return a summary of the conversation before, and the rest of its blocks."""
    inside = blocks.read(content, Author.USER)
    others = tuple(part for part in inside.parts if not isinstance(part, Message))
    return blocks.BlockContent((Summary(columns.content_text(content)), *others), inside.rest)


def _queued(record: Fields, attachment: Fields) -> Read:
    """Return the user's words while the agent worked; the attachment itself, if it is something else."""
    if attachment.get("type") == "queued_command":
        found = blocks.read(attachment.get("prompt"), Author.USER)
        if any(isinstance(part, Message) for part in found.parts):
            inner = rest_of(attachment, {"type"}, {"prompt": found.rest})
            return Read("attachment", found.parts, _around(record, "attachment", inner))
    return _kept(record, "attachment")


def _around(record: Fields, name: str, inner: Fields) -> Fields:
    """Return the rest of a line around this rest of its member."""
    unread = () if columns.instant(record.get("timestamp")) else ("timestamp",)
    return rest_of(record, _CARRIED.difference(unread), {name: inner})


def is_prompt(record: Fields) -> bool:
    """Return whether the line has words of the user, not of a tool or the program."""
    if record.get("type") != "user" or record.get("isMeta") is True or record.get("isCompactSummary") is True:
        return False
    content = columns.fields(record.get("message")).get("content")
    if isinstance(content, list):
        return not any(columns.fields(block).get("type") == "tool_result" for block in content)
    return bool(content)


def model(record: Fields) -> str | None:
    name = columns.first_text(columns.fields(record.get("message")).get("model"))
    return None if name in ("", SYNTHETIC) else name


def message_id(record: Fields) -> str:
    """Return the id that the lines of one answer share; empty for other lines."""
    if record.get("type") != "assistant":
        return ""
    return columns.first_text(columns.fields(record.get("message")).get("id"), record.get("requestId"))


def usage(record: Fields) -> Metrics:
    """Return the tokens and the cost of the model call that wrote the line."""
    told = columns.fields(columns.fields(record.get("message")).get("usage"))
    return Metrics(
        accumulated_cost=columns.amount(record.get("costUSD"), below=1e9),
        prompt_tokens=sum(
            columns.wire_id(told.get(name)) or 0
            for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        ),
        completion_tokens=columns.wire_id(told.get("output_tokens")) or 0,
    )

"""What one line of a session says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conversations.dialects import columns
from conversations.events import Metrics
from conversations.transcripts.sources import blocks
from conversations.transcripts.sources.nodes import Author, Kept, Message, Part, Record, Summary

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
"""Lines that say nothing to people; they are kept all the same."""
LEFT_OUT = "toolUseResult"
"""What a tool returned once more, for the program's own screen: it is left out, and counted."""
SYNTHETIC = "<synthetic>"
"""The model of messages that no model wrote."""

Fields = Mapping[str, object]


def parts(record: Fields) -> tuple[Part, ...]:
    """Return what the line says; itself, if that is nothing that people read."""
    kind = columns.first_text(record.get("type"))
    content = columns.fields(record.get("message")).get("content")
    found: list[Part] = []
    if kind == "assistant":
        found.extend(blocks.parts(content, Author.AGENT))
    elif kind == "user" and record.get("isCompactSummary") is True:
        found.append(Summary(columns.content_text(content)))
    elif kind == "user" and record.get("isMeta") is not True:
        found.extend(blocks.parts(content, Author.USER))
    elif kind == "attachment":
        found.extend(_queued(columns.fields(record.get("attachment"))))
    if found:
        return tuple(found)
    is_known = kind in BOOKKEEPING or kind in ("user", "assistant")
    why = Kept.BOOKKEEPING if is_known else Kept.UNKNOWN
    return (Record(name=kind or "record", value=record, why=why),)


def _queued(attachment: Fields) -> Iterator[Part]:
    """Yield what the user said while the agent worked."""
    if attachment.get("type") == "queued_command":
        said = list(blocks.parts(attachment.get("prompt"), Author.USER))
        yield from (part for part in said if isinstance(part, Message))


def is_prompt(record: Fields) -> bool:
    """Say whether the user said something with this line, as against a tool or the program."""
    if record.get("type") != "user" or record.get("isMeta") is True or record.get("isCompactSummary") is True:
        return False
    content = columns.fields(record.get("message")).get("content")
    if isinstance(content, list):
        return not any(columns.fields(block).get("type") == "tool_result" for block in content)
    return bool(content)


def model(record: Fields) -> str | None:
    """Return the model that wrote the line."""
    name = columns.first_text(columns.fields(record.get("message")).get("model"))
    return None if name in ("", SYNTHETIC) else name


def message_id(record: Fields) -> str:
    """Return what the lines of one answer share; empty if the line is none."""
    if record.get("type") != "assistant":
        return ""
    return columns.first_text(columns.fields(record.get("message")).get("id"), record.get("requestId"))


def usage(record: Fields) -> Metrics:
    """Return the tokens and the cost of the model call that wrote the line."""
    told = columns.fields(columns.fields(record.get("message")).get("usage"))
    cost = record.get("costUSD")
    is_cost = isinstance(cost, int | float) and not isinstance(cost, bool) and 0 <= cost < 1e9
    return Metrics(
        accumulated_cost=float(cost) if is_cost else 0.0,  # type: ignore[arg-type]
        prompt_tokens=sum(
            columns.wire_id(told.get(name)) or 0
            for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
        ),
        completion_tokens=columns.wire_id(told.get("output_tokens")) or 0,
    )

"""Reading one row of a transcript."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.transcripts.sources import blocks, lines
from conversations.transcripts.sources.nodes import (
    Author,
    Instructions,
    Kept,
    Message,
    Part,
    Record,
    Summary,
    ToolCall,
    ToolResult,
    filled_rests,
    rest_of,
)

# The beginnings of a text that replaces the rows before, in small letters.
CARDS = (
    "[context compaction",
    "[your active task list was preserved across context compression]",
    "[session arc summary",
)
CONTROL = ("[System:", "[IMPORTANT: Background process")  # the beginnings of the program's own prompts
# Marks of rows that the program hides.
INTERNAL = frozenset({"_verification_stop_synthetic", "_pre_verify_synthetic"})
ROW_IDS = ("_row_id", "_state_db_row_id", "_db_row_id", "state_db_row_id")
CUT_OFF = "it was cut off"
REBUILT = "the program rebuilt it after a crash"

_MAPPED = frozenset(
    {
        *("role", "content", "timestamp", "_ts", "id", "message_id", *ROW_IDS, "_active_turn_token"),
        *("tool_calls", "tool_call_id", "tool_use_id", "name", "tool_name", "reasoning"),
        *("is_error", "session_id", "active", "compacted"),
        *("_partial", "_recovered", "_recovered_from_run_journal"),
        *("_recovered_stream_id", "_recovered_event_id", "_anchor_activity_scene"),
    }
)
# Known members that are kept unchanged beside the row's parts.
_DETAILS = frozenset(
    {
        *("reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items"),
        *("refusal", "finish_reason", "attachments", "api_content", "_error", "type", "interruption_cause"),
        *("provider_details", "provider_details_label", "_partial_tool_calls", "_pending_journal_recovery"),
        *("_journal_retry_stream_id", "_journal_retry_attempts", "_journal_retry_first_seen_ts"),
        *("_source", "_wakeup_meta", "_fork_child_turn", "_turnDuration", "_firstTokenMs", "_turnTps"),
        *("_usedModel", "_turnUsage", "_gatewayRouting", "_statusCard", "_terminal_state"),
        *("_terminal_reason", "_compressionRecovery", "_media_snapshots", "_compressed_summary"),
        "_webui_pruned_tool_result_summary",
        *("token_count", "platform_message_id", "columns"),
    }
)
KNOWN = _MAPPED | _DETAILS
_NOTHING: tuple[object, ...] = (None, "", [], {})
_MEANWHILE = re.compile(r"\s*\[OUT-OF-BAND USER MESSAGE\]\s*(.*?)\s*\[/OUT-OF-BAND USER MESSAGE\]\s*\Z", re.S)
_THINKS = re.compile(r"\s*<think>(.*?)</think>\s*", re.S)
_SPEAKS = (Message, ToolCall)


class Facts(NamedTuple):
    """The facts of a row that are kept while all rows are compared."""

    digest: str  # of author, words and ids of calls; not of times or members that are added later
    is_user: bool = False
    is_said: bool = False  # whether it is more than bookkeeping
    is_card: bool = False
    call_ids: tuple[str, ...] = ()
    partial: str = ""  # not empty for an answer that was cut off: a digest of all its content
    item_id: str = ""  # of an item that the provider had not finished; empty without one
    token: str = ""  # of the turn: the stream and the time at which it began
    stream_id: str = ""  # the stream from whose journal the row was rebuilt


def facts(value: object) -> Facts:
    row = columns.fields(value)
    if not row:
        return Facts(digest_of(value))
    said = parts(value, "")
    return Facts(
        digest=digest_of(_identity(row)),
        is_user=row.get("role") == "user",
        is_said=any(not isinstance(part, Record | Instructions) for part in said),
        is_card=any(isinstance(part, Summary) for part in said),
        call_ids=tuple(part.call_id for part in said if isinstance(part, ToolCall | ToolResult)),
        partial=digest_of([_identity(row), row.get("reasoning"), row.get("_partial_tool_calls")])
        if row.get("_partial") is True
        else "",
        item_id=_item_id(row),
        token=columns.first_text(row.get("_active_turn_token")),
        stream_id=columns.first_text(row.get("_recovered_stream_id")),
    )


def digest_of(value: object) -> str:
    """Return a digest of a value: 32 hexadecimal digits."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:32]


def moment(seconds: object) -> datetime | None:
    """Read a time in seconds since 1970; None for anything else."""
    number = columns.number(seconds)
    if number is None or number <= 0:
        return None
    try:
        return datetime.fromtimestamp(number, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def at(value: object) -> datetime | None:
    row = columns.fields(value)
    return moment(row.get("timestamp")) or moment(row.get("_ts"))


def noted(value: object) -> tuple[str, ...]:
    """Return the notes that a reader of the row needs."""
    row = columns.fields(value)
    marks = {CUT_OFF: row.get("_partial"), REBUILT: row.get("_recovered") or row.get("_recovered_stream_id")}
    return tuple(mark for mark, is_set in marks.items() if is_set)


def parts(value: object, node_id: str) -> tuple[Part, ...]:
    """Return the parts of a row, and its other members; the row itself, if it has no parts."""
    if not isinstance(value, Mapping):
        return (Record(name="row", value=value, why=Kept.UNKNOWN),)
    row: Fields = value
    role = columns.first_text(row.get("role"))
    if any(row.get(mark) for mark in INTERNAL):
        return (Record(name="verification", value=row, why=Kept.BOOKKEEPING),)
    if row.get("_error"):
        return (Record(name="error", value=row, why=Kept.BOOKKEEPING),)
    is_control = row.get("_source") == "process_wakeup" or text_of(row).lstrip().startswith(CONTROL)
    if role == "user" and is_control:
        return (Record(name="control prompt", value=row, why=Kept.BOOKKEEPING),)
    if role not in ("user", "assistant", "tool", "system"):
        return (Record(name=f"row of {role}" if role else "row", value=row, why=Kept.UNKNOWN),)
    said = tuple(_said(role, row, node_id))
    if not said:
        return (Record(name="empty row", value=row, why=Kept.BOOKKEEPING),)
    return (*said, *_rest(row), *_left(row, role))


def text_of(row: Fields) -> str:
    return columns.content_text(row.get("content"))


def _said(role: str, row: Fields, node_id: str) -> Iterator[Part]:
    text = text_of(row)
    if role == "tool":
        yield from _result(row, node_id)
    elif text.lstrip()[:100].lower().startswith(CARDS) or (text and row.get("_compressed_summary")):
        yield Summary(text)
    elif role == "system":
        yield from [Instructions(text)] if text else []
    elif role == "user":
        content = row.get("content")
        if isinstance(content, str) and (wrapped := _MEANWHILE.match(content)):
            content = wrapped[1]
        said = list(blocks.parts(_blocks(content), Author.USER))
        yield from said or ([Message(author=Author.USER, text="")] if row.get("attachments") else [])
    else:
        yield from _answer(row, node_id)


def _result(row: Fields, node_id: str) -> Iterator[Part]:
    content, meanwhile = _blocks(row.get("content")), ""
    if isinstance(content, str) and (wrapped := _MEANWHILE.search(content)):
        content, meanwhile = content[: wrapped.start()], wrapped[1]
    told, *unknown = blocks.read([_as_result(row, content)], Author.AGENT).parts
    assert isinstance(told, ToolResult)  # noqa: S101 - it is the block's own part
    call_id = columns.first_text(row.get("tool_call_id"), row.get("tool_use_id"), node_id)
    yield replace(told, call_id=call_id, tool=columns.first_text(row.get("name"), row.get("tool_name")))
    if meanwhile:
        yield Message(author=Author.USER, text=meanwhile)
    yield from unknown


def _as_result(row: Fields, content: object) -> Fields:
    return {"type": "tool_result", "tool_use_id": "", "content": content, "is_error": row.get("is_error")}


def _answer(row: Fields, node_id: str) -> Iterator[Part]:
    content = row.get("content")
    thoughts = [columns.first_text(row.get("reasoning"), row.get("reasoning_content"))]
    if isinstance(content, str) and (thinks := _THINKS.match(content)):
        content = content[thinks.end() :]
        thoughts.append(thinks[1].strip())
    said = list(blocks.parts(_blocks(content), Author.AGENT))
    called = {part.call_id for part in said if isinstance(part, ToolCall)}
    calls = [call for call in _calls(row, node_id) if call.call_id not in called]
    last = said[-1] if said else None
    if calls and isinstance(last, Message) and not last.images:
        calls[0] = replace(calls[0], thought=last.text, reasoning=last.reasoning)
        said.pop()
    yield from _with_reasoning([*said, *calls], thoughts)


def _with_reasoning(said: Sequence[Part], thoughts: Sequence[str]) -> list[Part]:
    """Attach the agent's thought to its first words."""
    found = list(said)
    first = next((place for place, part in enumerate(found) if isinstance(part, _SPEAKS)), None)
    speaks = found[first] if first is not None else None
    own = speaks.reasoning if isinstance(speaks, Message | ToolCall) else ""
    reasoning = "\n\n".join(dict.fromkeys(filter(None, [*thoughts, own])))
    if first is not None and isinstance(speaks, Message | ToolCall):
        found[first] = replace(speaks, reasoning=reasoning)
    elif reasoning:
        found.append(Message(author=Author.AGENT, text="", reasoning=reasoning))
    return found


def _calls(row: Fields, node_id: str) -> Iterator[ToolCall]:
    for place, each in enumerate(columns.items(row.get("tool_calls"))):
        call = columns.fields(each)
        function = columns.fields(call.get("function"))
        yield ToolCall(
            call_id=columns.first_text(call.get("id"), call.get("call_id"), f"{node_id}/{place}"),
            tool=columns.first_text(function.get("name"), call.get("name")) or "unknown",
            arguments=lines.arguments(function.get("arguments", call.get("arguments"))),
        )


def _blocks(content: object) -> object:
    return [_block(part) for part in content] if isinstance(content, list) else content


def _block(part: object) -> object:
    """Return a part of a content in the form of `blocks`."""
    found = columns.fields(part)
    match found.get("type"):
        case "input_text" | "output_text":
            return {**found, "type": "text"}
        case "image_url" | "input_image" | "image" if url := _image_url(found):
            # Further members beside the address stay members of the block.
            given = columns.fields(found.get("image_url"))
            inner = {"image_url": rest_of(given, {"url"})} if given else {}
            left = rest_of(found, {name for name, value in found.items() if value == url}, inner)
            return {**left, "type": "image", "source": {**columns.fields(found.get("source")), "url": url}}
        case "reasoning" if text := columns.first_text(found.get("reasoning"), found.get("text")):
            used = "reasoning" if found.get("reasoning") == text else "text"
            return {**rest_of(found, {used}), "type": "thinking", "thinking": text}
    return part


def _image_url(part: Fields) -> str:
    given = part.get("image_url")
    return columns.first_text(
        given, columns.fields(given).get("url"), part.get("image"), blocks.image_url(part), part.get("url")
    )


def _rest(row: Fields) -> Iterator[Part]:
    """Yield the members of the row that no part carries."""
    others = {
        name: value for name, value in row.items() if name not in _mapped(row) and value not in _NOTHING
    }
    if details := {name: value for name, value in others.items() if name in _DETAILS}:
        yield Record(name="details", value=details, why=Kept.BOOKKEEPING)
    if unknown := {name: value for name, value in others.items() if name not in _DETAILS}:
        yield Record(name="row", value=unknown, why=Kept.UNKNOWN)


def _left(row: Fields, role: str) -> Iterator[Part]:
    """Yield the rests of the parts of its content, and of its calls."""
    content = _blocks(row.get("content"))
    given = [_as_result(row, content)] if role == "tool" else content
    calls = [_left_of_call(each) for each in columns.items(row.get("tool_calls"))]
    inner = {"content": blocks.read(given, Author.AGENT).rest, "tool_calls": filled_rests(calls)}
    if left := rest_of({}, (), inner):
        yield Record(name="members of row", value=left, why=Kept.BOOKKEEPING)


def _left_of_call(value: object) -> dict[str, object]:
    call = columns.fields(value)
    function = columns.fields(call.get("function"))
    carried = {"id" if columns.first_text(call.get("id")) else "call_id"}
    carried |= {"type"} if call.get("type") == "function" else set()
    carried |= set() if function else {"name", "arguments"}
    return rest_of(call, carried, {"function": rest_of(function, {"name", "arguments"})})


def _mapped(row: Fields) -> frozenset[str]:
    """Return the members that became parts, or only name the place of storage."""
    thoughts = row.get("reasoning"), row.get("reasoning_content")
    if row.get("role") != "assistant" or not all(isinstance(each, str | None) for each in thoughts):
        return _MAPPED - {"reasoning", "tool_calls"}
    is_said = thoughts[1] == columns.first_text(*thoughts)
    return (_MAPPED | {"reasoning_content"} if is_said else _MAPPED) - (
        set() if isinstance(row.get("tool_calls"), list) else {"tool_calls"}
    )


def _identity(row: Fields) -> list[object]:
    ids = [
        columns.fields(each).get("id") or columns.fields(each).get("call_id") or each
        for each in columns.items(row.get("tool_calls"))
    ]
    content = row.get("content") or ""
    answers = columns.first_text(row.get("tool_call_id"), row.get("tool_use_id"))
    return [row.get("role"), content, ids, answers, "" if content or ids else row.get("reasoning")]


def _item_id(row: Fields) -> str:
    if row.get("finish_reason") != "incomplete":
        return ""
    for name in ("codex_message_items", "codex_reasoning_items"):
        for item in columns.objects(row.get(name)):
            if item_id := columns.first_text(item.get("id")):
                return item_id
    return ""

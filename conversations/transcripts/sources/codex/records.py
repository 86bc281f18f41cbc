"""One line of a session, in the layout with `payload` and in the older one without."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from conversations.dialects import columns
from conversations.dialects.columns import Fields
from conversations.events import Metrics
from conversations.transcripts.sources import nodes
from conversations.transcripts.sources.codex import content, items
from conversations.transcripts.sources.nodes import Instructions, Kept, Part, Record, Summary, rest_of

META, ITEM, EVENT, TURN, COMPACTED, STATE = (
    "session_meta",
    "response_item",
    "event_msg",
    "turn_context",
    "compacted",
    "state",
)
# Lines without content for people.
SILENT_LINES = frozenset(
    {
        META,
        TURN,
        COMPACTED,
        STATE,
        "inter_agent_communication",
        "inter_agent_communication_metadata",
        "token_usage_record",
        "world_state",
    }
)
# Events of the program whose content is also in an item.
EVENTS = frozenset(
    {
        "agent_message",
        "agent_reasoning",
        "agent_reasoning_raw_content",
        "agent_reasoning_section_break",
        "background_event",
        "context_compacted",
        "deprecation_notice",
        "dynamic_tool_call_request",
        "dynamic_tool_call_response",
        "entered_review_mode",
        "error",
        "exec_command_begin",
        "exec_command_end",
        "exited_review_mode",
        "guardian_assessment",
        "guardian_warning",
        "hook_completed",
        "hook_started",
        "image_generation_begin",
        "image_generation_end",
        "injected_message",
        "item_completed",
        "item_started",
        "mcp_tool_call_begin",
        "mcp_tool_call_end",
        "model_reroute",
        "patch_apply_begin",
        "patch_apply_end",
        "plan_update",
        "raw_response_item",
        "session_configured",
        "shutdown_complete",
        "stream_error",
        "sub_agent_activity",
        "task_complete",
        "task_started",
        "thread_goal_updated",
        "thread_name_updated",
        "thread_rolled_back",
        "thread_settings_applied",
        "token_count",
        "turn_aborted",
        "turn_complete",
        "turn_diff",
        "turn_started",
        "undo_completed",
        "undo_started",
        "user_message",
        "view_image_tool_call",
        "warning",
        "web_search_begin",
        "web_search_end",
    }
)
COLLABORATION = "collab_"  # the prefix of further such events
# The items that a summary keeps: the file repeats them, so they are left out, and counted.
LEFT_OUT = "replacement_history"
ENCRYPTED = "a summary is encrypted"
ELSEWHERE = "its beginning is in the session that it leaves"
# The heading between an editor's context and the user's words.
REQUEST = "## My request for Codex:"
# The members of a line that become an event's time, kind and place.
_CARRIED = frozenset({"timestamp", "type", "ordinal"})
_DIRECTORY = re.compile(r"(?:<cwd>|Current working directory: )\s*([^<\n]+)")
_REPOSITORY = re.compile(r"(?:[a-z+]+://[^/\s]+/|[^/:\s]+:)([^/:\s]+/[^/:\s]+?)(?:\.git)?/?")


class Opened(NamedTuple):
    """A line without its envelope."""

    kind: str  # empty if it has none that is known
    payload: Fields


class LineParts(NamedTuple):
    """The parts of a line, and what had to be left out."""

    parts: tuple[Part, ...]
    noted: tuple[str, ...] = ()
    rest: Fields = {}  # the members that no part carries


class Origin(NamedTuple):
    """Where a session comes from, by the ids of the program."""

    parent: str  # of a sub-agent: the session that started it; empty for another
    left: str  # of a session that continues another: that one; empty for another


def opened(record: Fields) -> Opened:
    payload = record.get("payload")
    if isinstance(payload, Mapping):
        return Opened(columns.first_text(record.get("type")), payload)
    if "record_type" in record:
        return Opened(STATE, record)
    if "type" in record:
        return Opened(ITEM, record)
    is_meta = isinstance(record.get("id"), str) and "timestamp" in record
    return Opened(META if is_meta else "", record)


def read(record: Fields, *, node_id: str, is_head: bool, is_sub_agents: bool) -> LineParts:
    """Return the parts of a line; the line itself, if it has none for people.

    `is_head` tells the `session_meta` of this session from those of copied sessions.
    """
    kind, payload = opened(record)
    if kind == META and is_head:
        return _head(record, payload)
    if kind == COMPACTED:
        summary = columns.first_text(payload.get("message"))
        if not summary.strip():
            return LineParts((_kept(record),), (ENCRYPTED,) if payload.get(LEFT_OUT) else ())
        left_out = (f"{LEFT_OUT} left out",) if payload.get(LEFT_OUT) else ()
        rest = rest_of(payload, {"message", LEFT_OUT})
        return LineParts((Summary(summary),), left_out, _around(record, payload, rest))
    if kind == ITEM:
        found = items.read(payload, node_id=node_id, is_sub_agents=is_sub_agents)
        if found.parts:
            return LineParts(found.parts, rest=_around(record, payload, found.rest))
    return LineParts((_kept(record),))


def _head(record: Fields, meta: Fields) -> LineParts:
    """Return the system prompt by itself: it is long, and people read it."""
    noted = (ELSEWHERE,) if columns.fields(meta.get("history_base")) else ()
    told = meta.get("base_instructions")
    text = columns.first_text(told, columns.fields(told).get("text"))
    if not text:
        return LineParts((_kept(record),), noted)
    rest = rest_of(meta, (), {"base_instructions": rest_of(columns.fields(told), {"text"})})
    return LineParts(
        (Instructions(text), _kept({**record, "payload": rest} if meta is not record else rest)), noted
    )


def _around(record: Fields, payload: Fields, rest: Fields) -> Fields:
    """Return the rest of a line around this rest of its payload."""
    unread = () if columns.instant(record.get("timestamp")) else ("timestamp",)
    return rest if payload is record else rest_of(record, _CARRIED.difference(unread), {"payload": rest})


def _kept(record: Fields) -> Record:
    kind, payload = opened(record)
    inner = columns.first_text(payload.get("type")) if kind in (ITEM, EVENT) else ""
    is_known = (
        kind in SILENT_LINES
        or (kind == ITEM and inner in items.SILENT)
        or (kind == EVENT and (inner in EVENTS or inner.startswith(COLLABORATION)))
    )
    return Record(name=name(record), value=record, why=Kept.BOOKKEEPING if is_known else Kept.UNKNOWN)


def name(record: Fields) -> str:
    """Return the format's name of a line."""
    kind, payload = opened(record)
    inner = columns.first_text(payload.get("type")) if kind in (ITEM, EVENT) else ""
    return f"{kind} {inner}".strip() or "record"


def model(kind: str, payload: Fields) -> str:
    """Return the model that a line names for a turn; empty if it names none."""
    return columns.first_text(payload.get("model")) if kind == TURN else ""


def directory(kind: str, payload: Fields) -> str:
    """Return the agent's directory, if a line names it; in the older layout only a message does."""
    if kind in (META, TURN):
        return columns.first_text(payload.get("cwd"))
    if kind == ITEM and payload.get("role") == "user":
        for block in content.read(payload, is_users=True).injected:
            if found := _DIRECTORY.search(content.text_of(block) or ""):
                return found[1].strip()
    return ""


def name_given(kind: str, payload: Fields) -> str:
    """Return the name that a line gives the session; empty if it gives none."""
    if kind == EVENT and payload.get("type") == "thread_name_updated":
        return columns.first_text(payload.get("thread_name"))[: nodes.TITLE_MAX_CHARS]
    return ""


def request(text: str) -> str:
    """Return the first line that the user wrote below an editor's context; empty without such context."""
    _, found, below = text.partition(REQUEST)
    said = below.strip().splitlines() if found else []
    return said[0][: nodes.TITLE_MAX_CHARS] if said else ""


def usage(kind: str, payload: Fields) -> Metrics | None:
    """Return the tokens of all model calls up to a line; None if it has none. The cost is unknown."""
    if kind != EVENT or payload.get("type") != "token_count":
        return None
    told = columns.fields(columns.fields(payload.get("info")).get("total_token_usage"))
    if not told:
        return None
    return Metrics(
        accumulated_cost=0.0,
        prompt_tokens=columns.wire_id(told.get("input_tokens")) or 0,
        completion_tokens=columns.wire_id(told.get("output_tokens")) or 0,
    )


def origin(meta: Fields) -> Origin:
    spawn = columns.fields(
        columns.fields(columns.fields(meta.get("source")).get("subagent")).get("thread_spawn")
    )
    parent = columns.first_text(meta.get("parent_thread_id"), spawn.get("parent_thread_id"))
    base = columns.fields(meta.get("history_base"))
    left = columns.first_text(meta.get("forked_from_id"), base.get("thread_id"))
    return Origin(parent, "" if parent else left)


def repository(meta: Fields) -> str | None:
    """Return the repository as `owner/name`; None if its address has another form."""
    url = columns.first_text(columns.fields(meta.get("git")).get("repository_url"))
    found = _REPOSITORY.fullmatch(url)
    return found[1] if found else None

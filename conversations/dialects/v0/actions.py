"""All actions that the V0 wire stores (spec V0 §3.4)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from conversations.dialects.v0.types import (
    FLAG,
    LIST,
    NUMBER,
    NUMBERS,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXTS,
    EventType,
)

UNKNOWN_RISK = -1
RISKS = (UNKNOWN_RISK, 0, 1, 2)


_risk = NUMBER.by_default(UNKNOWN_RISK)
_text = TEXT.by_default("")
_confirmation = TEXT.by_default("confirmed")
_no = FLAG.by_default(False)


def _task_tracking_message(args: Mapping[str, Any]) -> str:
    match len(args["task_list"]):
        case 0:
            return "Clearing the task list."
        case 1:
            return "Managing 1 task item."
        case count:
            return f"Managing {count} task items."


def _forgotten(args: Mapping[str, Any]) -> str:
    if args["forgotten_event_ids"] is not None:
        return str(args["forgotten_event_ids"])
    first, last = args["forgotten_events_start_id"], args["forgotten_events_end_id"]
    if first is None or last is None:
        return "[]"
    ids = range(first, last + 1)
    # A range of more events is named by its ends, so that two numbers cannot fill a message.
    listed_ids_max = 1_000
    return str(list(ids)) if last - first < listed_ids_max else f"[{first}, …, {last}]"


ACTIONS: Mapping[str, EventType] = {
    "message": EventType(
        fields={
            "content": TEXT,
            "file_urls": TEXTS.or_null(),
            "image_urls": TEXTS.or_null(),
            "wait_for_response": _no,
            "security_risk": _risk,
        },
        message=lambda args: args["content"],
    ),
    "system": EventType(
        fields={
            "content": TEXT,
            "tools": LIST.or_null(),
            "openhands_version": TEXT.or_null(),
            "agent_class": TEXT.or_null(),
        },
        message=lambda args: args["content"],
    ),
    "run": EventType(
        fields={
            "command": TEXT,
            "is_input": _no,
            "thought": _text,
            "blocking": _no,
            "is_static": _no,
            "cwd": TEXT.or_null(),
            "hidden": _no,
            "confirmation_state": _confirmation,
            "security_risk": _risk,
        },
        message=lambda args: f"Running command: {args['command']}",
    ),
    "run_ipython": EventType(
        fields={
            "code": TEXT,
            "thought": _text,
            "include_extra": FLAG.by_default(True),
            "confirmation_state": _confirmation,
            "security_risk": _risk,
            "kernel_init_code": _text,
        },
        message=lambda args: f"Running Python code interactively: {args['code']}",
    ),
    "read": EventType(
        fields={
            "path": TEXT,
            "start": NUMBER.by_default(0),
            "end": NUMBER.by_default(-1),
            "thought": _text,
            "security_risk": _risk,
            "impl_source": TEXT.by_default("default"),
            "view_range": NUMBERS.or_null(),
        },
        message=lambda args: f"Reading file: {args['path']}",
    ),
    "write": EventType(
        fields={
            "path": TEXT,
            "content": TEXT,
            "start": NUMBER.by_default(0),
            "end": NUMBER.by_default(-1),
            "thought": _text,
            "security_risk": _risk,
        },
        message=lambda args: f"Writing file: {args['path']}",
    ),
    "edit": EventType(
        fields={
            "path": TEXT,
            "command": _text,
            "file_text": TEXT.or_null(),
            "old_str": TEXT.or_null(),
            "new_str": TEXT.or_null(),
            "insert_line": NUMBER.or_null(),
            "content": _text,
            "start": NUMBER.by_default(1),
            "end": NUMBER.by_default(-1),
            "thought": _text,
            "security_risk": _risk,
            "impl_source": TEXT.by_default("oh_aci"),
        },
        message=lambda args: "",
    ),
    "browse": EventType(
        fields={"url": TEXT, "thought": _text, "security_risk": _risk, "return_axtree": _no},
        message=lambda args: f"I am browsing the URL: {args['url']}",
    ),
    "browse_interactive": EventType(
        fields={
            "browser_actions": TEXT,
            "thought": _text,
            "browsergym_send_msg_to_user": _text,
            "security_risk": _risk,
            "return_axtree": _no,
        },
        message=lambda args: f"I am interacting with the browser:\n```\n{args['browser_actions']}\n```",
    ),
    "call_tool_mcp": EventType(
        fields={"name": TEXT, "arguments": OBJECT.by_default({}), "thought": _text, "security_risk": _risk},
        message=lambda args: (
            f"I am interacting with the MCP server with name:\n```\n{args['name']}\n```\n"
            f"and arguments:\n```\n{dict(args['arguments'])}\n```"
        ),
    ),
    "think": EventType(
        fields={"thought": _text}, message=lambda args: f"I am thinking...: {args['thought']}"
    ),
    "finish": EventType(
        fields={"final_thought": _text, "outputs": OBJECT.by_default({}), "thought": _text},
        message=lambda args: args["thought"] or "All done! What's next on the agenda?",
    ),
    "reject": EventType(
        fields={"outputs": OBJECT.by_default({}), "thought": _text},
        message=lambda args: (
            "Task is rejected by the agent."
            + (f" Reason: {reason}" if isinstance(reason := args["outputs"].get("reason"), str) else "")
        ),
    ),
    "delegate": EventType(
        fields={"agent": TEXT, "inputs": OBJECT, "thought": _text},
        message=lambda args: f"I'm asking {args['agent']} for help with this task.",
    ),
    "recall": EventType(
        fields={"recall_type": TEXT, "query": _text, "thought": _text},
        message=lambda args: f"Retrieving content for: {args['query'][:50]}",
    ),
    "change_agent_state": EventType(
        fields={"agent_state": TEXT, "thought": _text},
        message=lambda args: f"Agent state changed to {args['agent_state']}",
    ),
    "task_tracking": EventType(
        fields={"command": TEXT.by_default("view"), "task_list": OBJECTS.by_default([]), "thought": _text},
        message=_task_tracking_message,
    ),
    "condensation": EventType(
        fields={
            "forgotten_event_ids": NUMBERS.or_null(),
            "forgotten_events_start_id": NUMBER.or_null(),
            "forgotten_events_end_id": NUMBER.or_null(),
            "summary": TEXT.or_null(),
            "summary_offset": NUMBER.or_null(),
        },
        message=lambda args: (
            f"Summary: {args['summary']}"
            if args["summary"]
            else f"Condenser is dropping the events: {_forgotten(args)}."
        ),
    ),
    "condensation_request": EventType(
        fields={}, message=lambda args: "Requesting a condensation of the conversation history."
    ),
    "loop_recovery": EventType(fields={"option": NUMBER.by_default(1)}, message=lambda args: ""),
    "null": EventType(fields={}, message=lambda args: "No action"),
}

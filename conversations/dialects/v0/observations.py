"""All observations that the V0 wire stores (spec V0 §3.4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from conversations.dialects.v0.types import (
    FLAG,
    NUMBER,
    OBJECT,
    OBJECTS,
    TEXT,
    TEXTS,
    EventType,
    Fields,
    filled,
)

_text = TEXT.by_default("")
_no = FLAG.by_default(False)
_nothing = OBJECT.by_default({})

_METADATA: Fields = {
    "exit_code": NUMBER.by_default(-1),
    "pid": NUMBER.by_default(-1),
    "username": TEXT.or_null(),
    "hostname": TEXT.or_null(),
    "working_dir": TEXT.or_null(),
    "py_interpreter_path": TEXT.or_null(),
    "prefix": _text,
    "suffix": _text,
}
_metadata = replace(OBJECT, default=filled({}, _METADATA, of="a command"), members=_METADATA)


def _type(
    extras: Fields,
    message: Callable[[Mapping[str, Any]], str],
    success: Callable[[Mapping[str, Any]], bool] | None = None,
) -> EventType:
    return EventType(fields={"content": _text, **extras}, message=message, success=success)


def _content(fields: Mapping[str, Any]) -> str:
    return str(fields["content"])


def _nothing_to_say(fields: Mapping[str, Any]) -> str:
    return ""


OBSERVATIONS: Mapping[str, EventType] = {
    "run": _type(
        {"command": TEXT, "metadata": _metadata, "hidden": _no},
        lambda fields: (
            f"Command `{fields['command']}` executed with exit code {fields['metadata']['exit_code']}."
        ),
        success=lambda fields: fields["metadata"]["exit_code"] == 0,
    ),
    "run_ipython": _type(
        {"code": TEXT, "image_urls": TEXTS.or_null()},
        lambda fields: "Code executed in IPython cell.",
        success=lambda fields: True,
    ),
    "read": _type(
        {"path": TEXT, "impl_source": TEXT.by_default("default")},
        lambda fields: f"I read the file {fields['path']}.",
    ),
    "write": _type({"path": TEXT}, lambda fields: f"I wrote to the file {fields['path']}."),
    "edit": _type(
        {
            "path": _text,
            "prev_exist": _no,
            "old_content": TEXT.or_null(),
            "new_content": TEXT.or_null(),
            "impl_source": TEXT.by_default("llm_based_edit"),
            "diff": TEXT.or_null(),
            "_diff_cache": TEXT.or_null(),
        },
        lambda fields: f"I edited the file {fields['path']}.",
    ),
    "browse": _type(
        {
            "url": TEXT,
            "trigger_by_action": TEXT,
            "screenshot": _text,
            "screenshot_path": TEXT.or_null(),
            "set_of_marks": _text,
            "error": _no,
            "goal_image_urls": TEXTS.by_default([]),
            "open_pages_urls": TEXTS.by_default([]),
            "active_page_index": NUMBER.by_default(-1),
            "dom_object": _nothing,
            "axtree_object": _nothing,
            "extra_element_properties": _nothing,
            "last_browser_action": _text,
            "last_browser_action_error": _text,
            "focused_element_bid": _text,
            "filter_visible_only": _no,
        },
        lambda fields: f"Visited {fields['url']}",
    ),
    "mcp": _type({"name": _text, "arguments": _nothing}, _content),
    "delegate": _type({"outputs": OBJECT}, _nothing_to_say),
    "recall": _type(
        {
            "recall_type": TEXT,
            "repo_name": _text,
            "repo_directory": _text,
            "repo_branch": _text,
            "repo_instructions": _text,
            "runtime_hosts": _nothing,
            "additional_agent_instructions": _text,
            "date": _text,
            "custom_secrets_descriptions": _nothing,
            "conversation_instructions": _text,
            "working_dir": _text,
            "microagent_knowledge": OBJECTS.by_default([]),
        },
        lambda fields: (
            "Added workspace context"
            if fields["recall_type"] == "workspace_context"
            else "Added microagent knowledge"
        ),
    ),
    "agent_state_changed": _type({"agent_state": TEXT, "reason": _text}, _nothing_to_say),
    "task_tracking": _type({"command": _text, "task_list": OBJECTS.by_default([])}, _content),
    "error": _type({"error_id": _text}, _content),
    "think": _type({}, _content),
    "success": _type({}, _content),
    "user_rejected": _type({}, _content),
    "condense": _type({}, _content),
    "download": _type(
        {"file_path": TEXT}, lambda fields: f"Downloaded the file at location: {fields['file_path']}"
    ),
    "loop_detection": _type({}, _nothing_to_say),
    "null": _type({}, lambda fields: "No observation"),
}

"""The V0 wire as it is described: recordings, each type with its defaults, events as the log has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from conversations import dialects
from conversations.dialects import v0
from conversations.events import EventEnvelope, Reading
from conversations.payloads import jsontext

DATA = Path(__file__).parents[2] / "data"
RECORDINGS = sorted(DATA.glob("openhands-v0-*.json"))
EXAMPLES = (DATA / "openhands-v0-examples.jsonl").read_text(encoding="utf-8").splitlines()
LAID_OVER = {"id", "timestamp", "cause"}
TIME = "2025-11-20T08:49:31.898815"


def recorded() -> list[str]:
    """Return the text of every recorded event, and of every example."""
    items = [jsontext.items(path.read_text(encoding="utf-8")) for path in RECORDINGS]
    return [item.text for texts in items for item in texts] + EXAMPLES


def values_of(text: str) -> dict[str, Any]:
    return {name: member.value for name, member in jsontext.members(text).items()}


def stored(
    payload: str, *, reading: Reading | None = None, cause: int | None = None, **columns: Any
) -> EventEnvelope:
    """Return an event as the log would hand it out: the sixth, unless columns say otherwise."""
    read = reading or dialects.read(values_of(payload))
    event: EventEnvelope = {
        "seq": 5,
        "fingerprint": "0123456789abcdef",
        "id": "an-id",
        "dialect": read.dialect.value,
        "type": read.type,
        "kind": read.kind.value,
        "source": read.source,
        "timestamp": f"{TIME}Z",
        "cause": cause,
        "turn": None,
        "tool_call_id": read.tool_call_id,
        "hidden": read.hidden,
        "brings_envelope": read.brings_envelope,
        "text": read.text,
        "payload": payload,
    }
    return event | columns  # type: ignore[return-value]


def shown(payload: str, **columns: Any) -> dict[str, Any]:
    return values_of(v0.shown(stored(payload, **columns)))


TEXTS = st.text(st.characters(codec=None, categories=None), max_size=20)

RUN_METADATA = {
    "exit_code": -1,
    "pid": -1,
    **dict.fromkeys(("username", "hostname", "working_dir", "py_interpreter_path")),
    "prefix": "",
    "suffix": "",
}
FIRST_ACTIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "message": (
        {"content": "Hi"},
        {
            "content": "Hi",
            "file_urls": None,
            "image_urls": None,
            "wait_for_response": False,
            "security_risk": -1,
        },
        "Hi",
    ),
    "system": (
        {"content": "Be kind"},
        {"content": "Be kind", "tools": None, "openhands_version": None, "agent_class": None},
        "Be kind",
    ),
    "run": (
        {"command": "ls"},
        {
            "command": "ls",
            "is_input": False,
            "thought": "",
            "blocking": False,
            "is_static": False,
            "cwd": None,
            "hidden": False,
            "confirmation_state": "confirmed",
            "security_risk": -1,
        },
        "Running command: ls",
    ),
    "run_ipython": (
        {"code": "1"},
        {
            "code": "1",
            "thought": "",
            "include_extra": True,
            "confirmation_state": "confirmed",
            "security_risk": -1,
            "kernel_init_code": "",
        },
        "Running Python code interactively: 1",
    ),
    "read": (
        {"path": "a"},
        {
            "path": "a",
            "start": 0,
            "end": -1,
            "thought": "",
            "security_risk": -1,
            "impl_source": "default",
            "view_range": None,
        },
        "Reading file: a",
    ),
    "write": (
        {"path": "a", "content": "x"},
        {"path": "a", "content": "x", "start": 0, "end": -1, "thought": "", "security_risk": -1},
        "Writing file: a",
    ),
    "edit": (
        {"path": "a"},
        {
            "path": "a",
            "command": "",
            "file_text": None,
            "old_str": None,
            "new_str": None,
            "insert_line": None,
            "content": "",
            "start": 1,
            "end": -1,
            "thought": "",
            "security_risk": -1,
            "impl_source": "oh_aci",
        },
        "",
    ),
    "browse": (
        {"url": "u"},
        {"url": "u", "thought": "", "security_risk": -1, "return_axtree": False},
        "I am browsing the URL: u",
    ),
    "browse_interactive": (
        {"browser_actions": "click('1')"},
        {
            "browser_actions": "click('1')",
            "thought": "",
            "browsergym_send_msg_to_user": "",
            "security_risk": -1,
            "return_axtree": False,
        },
        "I am interacting with the browser:\n```\nclick('1')\n```",
    ),
    "call_tool_mcp": (
        {"name": "fetch"},
        {"name": "fetch", "arguments": {}, "thought": "", "security_risk": -1},
        "I am interacting with the MCP server with name:\n```\nfetch\n```\nand arguments:\n```\n{}\n```",
    ),
    "think": ({}, {"thought": ""}, "I am thinking...: "),
    "finish": (
        {},
        {"final_thought": "", "outputs": {}, "thought": ""},
        "All done! What's next on the agenda?",
    ),
    "reject": ({}, {"outputs": {}, "thought": ""}, "Task is rejected by the agent."),
    "delegate": (
        {"agent": "A", "inputs": {}},
        {"agent": "A", "inputs": {}, "thought": ""},
        "I'm asking A for help with this task.",
    ),
    "recall": (
        {"recall_type": "knowledge"},
        {"recall_type": "knowledge", "query": "", "thought": ""},
        "Retrieving content for: ",
    ),
    "change_agent_state": (
        {"agent_state": "paused"},
        {"agent_state": "paused", "thought": ""},
        "Agent state changed to paused",
    ),
    "task_tracking": ({}, {"command": "view", "task_list": [], "thought": ""}, "Clearing the task list."),
    "condensation": (
        {"forgotten_event_ids": [1, 2]},
        {
            "forgotten_event_ids": [1, 2],
            "forgotten_events_start_id": None,
            "forgotten_events_end_id": None,
            "summary": None,
            "summary_offset": None,
        },
        "Condenser is dropping the events: [1, 2].",
    ),
    "condensation_request": ({}, {}, "Requesting a condensation of the conversation history."),
    "loop_recovery": ({}, {"option": 1}, ""),
    "null": ({}, {}, "No action"),
}
FIRST_OBSERVATIONS: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "run": (
        {"command": "ls"},
        {"command": "ls", "metadata": RUN_METADATA, "hidden": False},
        "Command `ls` executed with exit code -1.",
    ),
    "run_ipython": ({"code": "1"}, {"code": "1", "image_urls": None}, "Code executed in IPython cell."),
    "read": ({"path": "a"}, {"path": "a", "impl_source": "default"}, "I read the file a."),
    "write": ({"path": "a"}, {"path": "a"}, "I wrote to the file a."),
    "edit": (
        {},
        {
            "path": "",
            "prev_exist": False,
            "old_content": None,
            "new_content": None,
            "impl_source": "llm_based_edit",
            "diff": None,
            "_diff_cache": None,
        },
        "I edited the file .",
    ),
    "browse": (
        {"url": "u", "trigger_by_action": "browse"},
        {
            "url": "u",
            "trigger_by_action": "browse",
            "screenshot": "",
            "screenshot_path": None,
            "set_of_marks": "",
            "error": False,
            "goal_image_urls": [],
            "open_pages_urls": [],
            "active_page_index": -1,
            "dom_object": {},
            "axtree_object": {},
            "extra_element_properties": {},
            "last_browser_action": "",
            "last_browser_action_error": "",
            "focused_element_bid": "",
            "filter_visible_only": False,
        },
        "Visited u",
    ),
    "mcp": ({}, {"name": "", "arguments": {}}, "It is."),
    "delegate": ({"outputs": {}}, {"outputs": {}}, ""),
    "recall": (
        {"recall_type": "workspace_context"},
        {
            "recall_type": "workspace_context",
            **dict.fromkeys(("repo_name", "repo_directory", "repo_branch", "repo_instructions"), ""),
            "runtime_hosts": {},
            "additional_agent_instructions": "",
            "date": "",
            "custom_secrets_descriptions": {},
            "conversation_instructions": "",
            "working_dir": "",
            "microagent_knowledge": [],
        },
        "Added workspace context",
    ),
    "agent_state_changed": ({"agent_state": "error"}, {"agent_state": "error", "reason": ""}, ""),
    "task_tracking": ({}, {"command": "", "task_list": []}, "It is."),
    "error": ({}, {"error_id": ""}, "It is."),
    "think": ({}, {}, "It is."),
    "success": ({}, {}, "It is."),
    "user_rejected": ({}, {}, "It is."),
    "condense": ({}, {}, "It is."),
    "download": ({"file_path": "/a"}, {"file_path": "/a"}, "Downloaded the file at location: /a"),
    "loop_detection": ({}, {}, ""),
    "null": ({}, {}, "No observation"),
}
SUCCESSES = {"run": False, "run_ipython": True}

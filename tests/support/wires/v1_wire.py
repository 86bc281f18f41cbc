"""The V1 wire as its first release has it: which events a strict client of it takes (spec V1 §4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data"
EXAMPLES = (DATA / "openhands-v1-examples.jsonl").read_text(encoding="utf-8").splitlines()
RECORDINGS = [
    path.read_text(encoding="utf-8")
    for path in sorted(DATA.glob("openhands-v1/conversation/*/events/*.json"))
]

Check = Callable[[Any], bool]

_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}")
_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_SURROGATE = re.compile(r"[\ud800-\udfff]")
_STATUSES = ("idle", "running", "paused", "waiting_for_confirmation", "finished", "error", "stuck")


@dataclass(frozen=True)
class Fields:
    """What an object has to have, and what else it may have."""

    required: dict[str, Check]
    optional: dict[str, Check]

    def require(self, value: Any, *, where: str) -> None:
        """Fail unless the value is such an object."""
        assert isinstance(value, dict), where
        known = self.required | self.optional
        assert self.required.keys() <= value.keys() <= known.keys(), (where, sorted(value))
        for name, inner in value.items():
            assert known[name](inner), (where, name, inner)

    def __call__(self, value: Any) -> bool:
        """Say whether the value is such an object."""
        try:
            self.require(value, where="")
        except AssertionError:
            return False
        return True


def is_text(value: Any) -> bool:
    return isinstance(value, str) and not _SURROGATE.search(value)


def is_flag(value: Any) -> bool:
    return isinstance(value, bool)


def is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def is_object(value: Any) -> bool:
    return isinstance(value, dict)


def is_anything(value: Any) -> bool:
    return True


def one_of(*values: object) -> Check:
    return lambda value: value in values


def list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def or_null(check: Check) -> Check:
    return lambda value: value is None or check(value)


text_content = Fields({"type": one_of("text"), "text": is_text}, {"cache_prompt": is_flag})
image_content = Fields({"type": one_of("image"), "image_urls": list_of(is_text)}, {"cache_prompt": is_flag})


def is_part(value: Any) -> bool:
    return text_content(value) or image_content(value)


message = Fields(
    {"role": one_of("user", "system", "assistant", "tool")},
    {"content": list_of(is_part), "reasoning_content": is_text},
)
tool_call = Fields(
    {
        "id": is_text,
        "name": is_text,
        "arguments": is_text,
        "origin": one_of("completion", "responses"),
    },
    {},
)
metadata = Fields(
    {},
    {
        "exit_code": is_whole,
        "pid": is_whole,
        **dict.fromkeys(("username", "hostname", "working_dir", "py_interpreter_path"), or_null(is_text)),
        "prefix": is_text,
        "suffix": is_text,
    },
)

_file_command = one_of("view", "create", "str_replace", "insert", "undo_edit")
ACTIONS = {
    "FinishAction": Fields({"message": is_text}, {}),
    "ThinkAction": Fields({"thought": is_text}, {}),
    "TerminalAction": Fields({"command": is_text}, {"is_input": is_flag, "reset": is_flag}),
    "MCPToolAction": Fields({}, {"data": is_object}),
    "FileEditorAction": Fields(
        {"command": _file_command, "path": is_text},
        {
            **dict.fromkeys(("file_text", "old_str", "new_str"), is_text),
            "insert_line": lambda value: is_whole(value) and value >= 0,
            "view_range": list_of(is_whole),
        },
    ),
}
_seen = {"content": list_of(is_part), "is_error": is_flag}
OBSERVATIONS = {
    "FinishObservation": Fields({}, _seen),
    "ThinkObservation": Fields({}, _seen),
    "TerminalObservation": Fields(
        {"command": or_null(is_text)},
        {**_seen, "exit_code": is_whole, "timeout": is_flag, "metadata": metadata},
    ),
    "MCPToolObservation": Fields({"tool_name": is_text}, _seen),
    "FileEditorObservation": Fields(
        {"command": _file_command},
        {**_seen, **dict.fromkeys(("path", "old_content", "new_content"), is_text), "prev_exist": is_flag},
    ),
}


def kind_among(kinds: dict[str, Fields]) -> Check:
    def check(value: Any) -> bool:
        if not isinstance(value, dict) or value.get("kind") not in kinds:
            return False
        return kinds[value["kind"]]({name: inner for name, inner in value.items() if name != "kind"})

    return check


_call = {"tool_name": is_text, "tool_call_id": is_text}
EVENTS = {
    "SystemPromptEvent": Fields({"system_prompt": text_content, "tools": lambda value: value == []}, {}),
    "MessageEvent": Fields(
        {"llm_message": message},
        {
            "llm_response_id": is_text,
            "activated_skills": list_of(is_text),
            "extended_content": list_of(text_content),
            "sender": is_text,
        },
    ),
    "ActionEvent": Fields(
        {**_call, "thought": list_of(text_content), "tool_call": tool_call, "llm_response_id": is_text},
        {
            "action": kind_among(ACTIONS),
            "security_risk": one_of("UNKNOWN", "LOW", "MEDIUM", "HIGH"),
        },
    ),
    "ObservationEvent": Fields({**_call, "observation": kind_among(OBSERVATIONS), "action_id": is_text}, {}),
    "UserRejectObservation": Fields({**_call, "action_id": is_text}, {"rejection_reason": is_text}),
    "AgentErrorEvent": Fields({**_call, "error": is_text}, {}),
    "PauseEvent": Fields({}, {}),
    "ConversationStateUpdateEvent": Fields({"key": is_text, "value": is_anything}, {}),
    "ConversationErrorEvent": Fields({"code": is_text, "detail": is_text}, {}),
    "Condensation": Fields(
        {"llm_response_id": is_text},
        {"forgotten_event_ids": list_of(is_text), "summary": is_text, "summary_offset": is_whole},
    ),
    "CondensationRequest": Fields({}, {}),
}
"""What a server may write, by kind; the fields beside those of all events."""

_SOURCES = {
    "SystemPromptEvent": ("agent",),
    "MessageEvent": ("agent", "user"),
    "ActionEvent": ("agent",),
    "AgentErrorEvent": ("agent",),
    "PauseEvent": ("user",),
}
"""The web frontend knows a kind by its source, too."""


def require_strict(event: dict[str, Any]) -> None:
    """Fail unless every client takes the event: that of the first release, and the web frontend."""
    kind = event["kind"]
    own = {name: value for name, value in event.items() if name not in ("kind", "id", "timestamp", "source")}
    assert kind in EVENTS
    EVENTS[kind].require(own, where=kind)
    assert _UUID.fullmatch(event["id"])
    assert _STAMP.fullmatch(event["timestamp"])
    assert event["source"] in _SOURCES.get(kind, ("environment",))
    if event.get("key") == "execution_status":
        assert event["value"] in _STATUSES
    for text in texts_in(event):
        assert is_text(text)


def texts_in(value: Any) -> Iterator[str]:
    """Return every string of a JSON value, members' names too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield name
            yield from texts_in(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts_in(inner)

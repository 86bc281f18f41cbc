"""Writing V0 payloads: the wire's keys in the wire's order, with the message of their type.

`id`, `timestamp` and `cause` are left out: `conversations.dialects.shown.v0` adds them for each reader.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from conversations.dialects import columns
from conversations.dialects.author import to_json
from conversations.dialects.v0.actions import ACTIONS
from conversations.dialects.v0.observations import OBSERVATIONS
from conversations.dialects.v0.older import todays_args, todays_extras
from conversations.dialects.v0.types import EventType, filled
from conversations.events import Metrics
from conversations.exceptions import InvalidEvent

FILES = "image_urls"  # the key of a result for images and other files that a tool returned, as data URLs
# The key of a tool's result that tells whether the call failed: this wire has one only for commands.
FAILED = "is_error"
_NOTHING: Mapping[str, object] = {}


def action(
    name: str, args: Mapping[str, object], *, source: str, beside: Mapping[str, object] = _NOTHING
) -> str:
    """Return an action of ACTIONS as JSON text; missing args get their defaults.

    `beside` is written between the action's name and its args. Raise InvalidEvent if a required one of the
    args is missing, or one is JSON of another type.
    """
    written = ACTIONS[name]
    whole = filled(args, written.fields, of=f"the action `{name}`")
    return to_json(
        {"source": source, "message": written.message(whole), "action": name, **beside, "args": whole}
    )


def observation(
    name: str,
    content: object = "",
    *,
    extras: Mapping[str, object] = _NOTHING,
    source: str,
    beside: Mapping[str, object] = _NOTHING,
) -> str:
    """Return an observation of OBSERVATIONS as JSON text; see `action`."""
    written = OBSERVATIONS[name]
    whole = filled({**extras, "content": content}, written.fields, of=f"the observation `{name}`")
    event = {
        "source": source,
        "message": written.message(whole),
        "observation": name,
        **beside,
        "content": content,
        "extras": {key: value for key, value in whole.items() if key != "content"},
    }
    return to_json(event if written.success is None else {**event, "success": written.success(whole)})


def call_metadata(name: str, tool_call_id: str) -> dict[str, object]:
    """Return the members that tie an event to its tool call."""
    call = {
        "function_name": name,
        "tool_call_id": tool_call_id,
        "model_response": {},
        "total_calls_in_response": 1,
    }
    return {"tool_call_metadata": call}


def with_metrics(payload: str, totals: Metrics, *, model: str, newest_tokens: int) -> str:
    """Return an action with the totals of its conversation, written before its args."""
    usage = {
        "model": model,
        "prompt_tokens": totals.prompt_tokens,
        "completion_tokens": totals.completion_tokens,
        **dict.fromkeys(("cache_read_tokens", "cache_write_tokens", "context_window"), 0),
        "per_turn_token": newest_tokens,
        "response_id": "",
    }
    lists: dict[str, object] = {"costs": [], "response_latencies": [], "token_usages": []}
    metrics = {
        "accumulated_cost": totals.accumulated_cost,
        "max_budget_per_task": None,
        "accumulated_token_usage": usage,
        **lists,
    }
    event: dict[str, object] = json.loads(payload)
    args = event.pop("args")
    return to_json({**event, "llm_metrics": metrics, "args": args})


def plain(text: str, *, source: str) -> str:
    """Return an event that only shows a text, for an event without a counterpart on this wire."""
    return observation("success", text, source=source)


def notice(text: str) -> str:
    """Return a notice of the server; readers of this wire ignore the key that marks it."""
    return observation("success", text, source="environment", beside={"notice": True})


def message_of(event: Mapping[str, object]) -> str:
    """Return the message that an event's type makes of its fields; empty if the fields do not fit."""
    try:
        if name := columns.first_text(event.get("action")):
            return _message(ACTIONS, name, todays_args(columns.fields(event.get("args"))))
        name = columns.first_text(event.get("observation"))
        extras = todays_extras(columns.fields(event.get("extras")))
        return _message(OBSERVATIONS, name, {**extras, "content": event.get("content", "")})
    except (InvalidEvent, RecursionError):
        return ""


def _message(types: Mapping[str, EventType], name: str, given: Mapping[str, object]) -> str:
    if name not in types:
        return ""
    return types[name].message(filled(given, types[name].fields, of=name))

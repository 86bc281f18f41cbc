"""Writing V1 events: each kind with the fields of the first release, and no null that may be left out.

Clients of that release refuse a whole history for one key that they do not know (spec V1 §4.6).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from conversations.dialects.author import to_json, to_strict_json
from conversations.dialects.v1.reading import DEFAULT_REJECTION, NOTICE_NOTE, read
from conversations.events import Authored

STAMP_PLACEHOLDER = "2000-01-01T00:00:00.000000"  # the timestamp of an authored payload until its append

Part = Mapping[str, object]


class V1Event(NamedTuple):
    """An event without its id and time, which its append adds."""

    kind: str
    source: str
    fields: Mapping[str, object]


class Call(NamedTuple):
    tool_name: str
    tool_call_id: str


def written(event: V1Event, *, event_id: str, timestamp: str) -> str:
    """Return the event as JSON text; `timestamp` as `stamp` writes it."""
    envelope = {"kind": event.kind, "id": event_id, "timestamp": timestamp, "source": event.source}
    return to_strict_json(envelope | dict(event.fields))


def authored(event: V1Event, *, event_id: str) -> Authored:
    """Return the event for an append, which sets its time."""
    payload = written(event, event_id=event_id, timestamp=STAMP_PLACEHOLDER)
    # Quotes inside strings are escaped, so the first such key is the envelope's own.
    before = f'"timestamp":"{STAMP_PLACEHOLDER}"'
    stamp_offset = payload.index(before) + len('"timestamp":"')
    return Authored(payload=payload, reading=read(json.loads(payload)), stamp_offset=stamp_offset)


def stamp(moment: datetime) -> str:
    """Return an aware time as this wire writes it: UTC without a zone, always six fraction digits."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds")


def text_part(text: str) -> dict[str, object]:
    """Return a text as a part of some content."""
    return {"type": "text", "text": text}


def image_part(urls: Sequence[str]) -> dict[str, object]:
    """Return images, by URL or data URL, as a part of some content."""
    return {"type": "image", "image_urls": list(urls)}


def user_message(
    content: Sequence[Part], *, sender: str | None = None, beside: Sequence[Part] = ()
) -> V1Event:
    """Write a message of the user; `sender` is the author, where there are several.

    `beside` is for models only.
    """
    message = {"role": "user", "content": list(content)}
    fields: dict[str, object] = {
        "llm_message": message,
        "activated_skills": [],
        "extended_content": list(beside),
    }
    return V1Event("MessageEvent", "user", fields if sender is None else fields | {"sender": sender})


def agent_message(content: Sequence[Part], *, note: str = "", reasoning: str = "") -> V1Event:
    """Write a message of the agent; `note` is for models that read it later, not for people."""
    message: dict[str, object] = {"role": "assistant", "content": list(content)}
    if reasoning:
        message["reasoning_content"] = reasoning
    fields: dict[str, object] = {"llm_message": message}
    return V1Event(
        "MessageEvent", "agent", fields | {"extended_content": [text_part(note)]} if note else fields
    )


def notice(text: str) -> V1Event:
    """Write a notice of the server: a message of neither side, which this wire knows."""
    message = {"role": "user", "content": [text_part(text)]}
    fields: dict[str, object] = {"llm_message": message, "extended_content": [text_part(NOTICE_NOTE)]}
    return V1Event("MessageEvent", "environment", fields)


def system_prompt(text: str) -> V1Event:
    """Write the system prompt, without tools: no release's form of them is readable to all others."""
    return V1Event("SystemPromptEvent", "agent", {"system_prompt": text_part(text), "tools": []})


def action(
    call: Call,
    *,
    arguments: Mapping[str, object] | str,
    action: Part | None,
    response_id: str,
    thought: str = "",
    reasoning: str = "",
    thinking_blocks: Sequence[Mapping[str, object]] = (),
    security_risk: str = "UNKNOWN",
    summary: str = "",
) -> V1Event:
    """Write a tool call.

    `arguments` are the model's, as text if they are no JSON object. `action` is an object with a `kind`; None
    for a call that cannot be run: then the key is left out, since the web frontend breaks on a null there.
    The calls of one answer of the model share `response_id`. Older clients know no `summary`.
    """
    given = arguments if isinstance(arguments, str) else to_json(arguments)
    tool_call = {
        "id": call.tool_call_id,
        "name": call.tool_name,
        "arguments": given,
        "origin": "completion",
    }
    return V1Event(
        "ActionEvent",
        "agent",
        {
            "thought": [text_part(thought)] if thought else [],
            **({"reasoning_content": reasoning} if reasoning else {}),
            **({"thinking_blocks": list(thinking_blocks)} if thinking_blocks else {}),
            **({} if action is None else {"action": action}),
            **call._asdict(),
            "tool_call": tool_call,
            "llm_response_id": response_id,
            "security_risk": security_risk,
            **({"summary": summary} if summary else {}),
        },
    )


def finish(call: Call, *, message: str, response_id: str, thought: str = "") -> V1Event:
    return action(
        call,
        arguments={"message": message},
        action={"kind": "FinishAction", "message": message},
        response_id=response_id,
        thought=thought,
    )


def observation(call: Call, *, observation: Part, action_id: str) -> V1Event:
    """Write the result of a call: an object with a `kind`, `content` and `is_error`."""
    fields = {**call._asdict(), "observation": observation, "action_id": action_id}
    return V1Event("ObservationEvent", "environment", fields)


def finished(call: Call, *, message: str, action_id: str) -> V1Event:
    seen = {"kind": "FinishObservation", "content": [text_part(message)], "is_error": False}
    return observation(call, observation=seen, action_id=action_id)


def rejection(call: Call, *, reason: str, action_id: str) -> V1Event:
    answer = {"rejection_reason": reason or DEFAULT_REJECTION, "action_id": action_id}
    return V1Event("UserRejectObservation", "environment", call._asdict() | answer)


def agent_error(call: Call, *, error: str) -> V1Event:
    """Write that a call failed; this kind names its call only by `tool_call_id`."""
    return V1Event("AgentErrorEvent", "agent", call._asdict() | {"error": error})


def conversation_error(*, code: str, detail: str) -> V1Event:
    return V1Event("ConversationErrorEvent", "environment", {"code": code, "detail": detail})


def server_error(*, code: str, detail: str) -> V1Event:
    """Write a socket's answer to a wrong frame; never stored, and unknown before 1.16."""
    return V1Event("ServerErrorEvent", "environment", {"code": code, "detail": detail})


def answer_piece(text: str, *, reasoning: str = "") -> V1Event:
    """Write the next piece of an answer in progress; never stored, and unknown before 1.18.1."""
    fields: dict[str, object] = {"content": text} if text or not reasoning else {}
    return V1Event(
        "StreamingDeltaEvent", "agent", {**fields, "reasoning_content": reasoning} if reasoning else fields
    )


def pause() -> V1Event:
    return V1Event("PauseEvent", "user", {})


def interrupt() -> V1Event:
    """Write that the user interrupted the agent; unknown before 1.23."""
    return V1Event("InterruptEvent", "user", {})


def condensation_request() -> V1Event:
    return V1Event("CondensationRequest", "environment", {})


def condensation(
    *,
    forgotten_event_ids: Sequence[str],
    response_id: str,
    summary: str | None = None,
    summary_offset: int | None = None,
) -> V1Event:
    """Write which events the model no longer gets, and the summary in their place."""
    fields: dict[str, object] = {"forgotten_event_ids": list(forgotten_event_ids)}
    if summary is not None:
        fields["summary"] = summary
    if summary_offset is not None:
        fields["summary_offset"] = summary_offset
    return V1Event("Condensation", "environment", fields | {"llm_response_id": response_id})


def state_update(key: str, value: object) -> V1Event:
    return V1Event("ConversationStateUpdateEvent", "environment", {"key": key, "value": value})

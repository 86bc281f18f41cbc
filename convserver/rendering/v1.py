"""Events of the V1 wire as cards."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from conversations.dialects import columns
from conversations.dialects.v1 import reading
from conversations.dialects.v1.kinds import kind_of
from conversations.events import EventEnvelope, Kind
from conversations.transcripts.sources.as_v1 import RECORD_KEY
from conversations.transcripts.sources.nodes import Kept
from convserver.rendering import diffs, words
from convserver.rendering.arguments import code_of, is_edit, plan, tasks_of, written
from convserver.rendering.cards import (
    CallCard,
    CallOutcome,
    Card,
    ErrorCard,
    Folded,
    MessageCard,
    QuietLine,
    ResultCard,
    noticed,
    unanswered,
)
from convserver.rendering.diffs import Diff
from convserver.rendering.tools import ShownTool, first_line, summary, tool

Payload = Mapping[str, object]

_BOOKKEEPING = frozenset({"LLMCompletionLogEvent", "TokenEvent", "StreamingDeltaEvent"})
_BOOKKEEPING_STATES = frozenset({"stats", "full_state", "last_user_message_id"})
_BESIDE_ARGUMENTS = frozenset({"summary", "security_risk"})
"""Arguments that models add to those of the tool."""
_DEFAULTS = (("is_input", False), ("reset", False))
"""Values that the wire adds to calls."""
_NO_NEWS = frozenset({"FinishObservation"})
"""Results that repeat their call."""
_THOUGHT_LOGGED = "Your thought has been logged."
_POLICIES = {
    "NeverConfirm": "The agent no longer asks for approval",
    "AlwaysConfirm": "The agent asks for approval before every call",
    "ConfirmRisky": "The agent asks for approval before risky calls",
}
_ACTIONS = {
    "TerminalAction": "run",
    "ExecuteBashAction": "run",
    "FileEditorAction": "edit",
    "PlanningFileEditorAction": "edit",
    "StrReplaceEditorAction": "edit",
    "ThinkAction": "think",
    "TaskTrackerAction": "task_tracking",
    "MCPToolAction": "mcp",
    "DelegateAction": "delegate",
    "GlobAction": "read",
    "GrepAction": "read",
    "ReadFileAction": "read",
    "WriteFileAction": "write",
    "EditAction": "edit",
    "ListDirectoryAction": "read",
}


def card(event: EventEnvelope, payload: Payload) -> Card | None:
    """Return the card of an event; None for bookkeeping."""
    kind = kind_of(payload)
    if kind in _BOOKKEEPING:
        return None
    if event["kind"] == Kind.MESSAGE:
        return _message(event, payload)
    if reading.is_notice(payload):
        return noticed(whole_text(payload) or event["text"])
    reader = _READERS.get(kind)
    return _unknown(event, payload) if reader is None else reader(event, payload)


def whole_text(payload: Payload) -> str:
    """Return the complete text of an event."""
    if kind_of(payload) == "ACPToolCallEvent":
        return written(payload.get("raw_output")) or columns.content_text(payload.get("content"))
    return reading.whole_text(payload)


def _message(event: EventEnvelope, payload: Payload) -> MessageCard:
    said = columns.fields(payload.get("llm_message"))
    is_users = event["source"] == "user"
    return MessageCard(
        author=columns.first_text(payload.get("sender")) or ("You" if is_users else "Agent"),
        text=whole_text(payload) or event["text"],
        is_users=is_users,
        images=tuple(columns.image_urls(said.get("content"))),
        reasoning=_reasoning(payload) or _reasoning(said),
        interrupted=reading.is_interrupted(payload),
    )


def _action(event: EventEnvelope, payload: Payload) -> CallCard:
    action = columns.fields(payload.get("action"))
    name, given = reading.called_tool(payload)
    arguments = columns.fields(action.get("data")) or {key: action[key] for key in action if key != "kind"}
    arguments = arguments or {key: given[key] for key in given if key not in _BESIDE_ARGUMENTS}
    views = arguments.get("command") == "view" and "path" in arguments
    called = tool(name, action="read" if views else _ACTIONS.get(kind_of(action), ""))
    text, language = code_of(called, arguments)
    if not arguments:
        text = columns.first_text(columns.fields(payload.get("tool_call")).get("arguments"))
    tasks = tasks_of(arguments, called)
    thought = columns.content_text(payload.get("thought"))
    return CallCard(
        tool=called,
        summary=plan(tasks) or summary(arguments, otherwise=payload.get("summary")) or first_line(text),
        thought=thought,
        reasoning=_reasoning(payload),
        arguments=text,
        language=language,
        diff=_edit(arguments) if is_edit(called) else None,
        tasks=tasks,
        risk=columns.first_text(payload.get("security_risk")).lower(),
        given=_given(payload, action) if payload else None,
    )


def _given(payload: Payload, action: Payload) -> Payload:
    """Return all that determines a call: the action, and the model's own text where it has more."""
    data = columns.fields(action.get("data"))
    beside = {
        name: value
        for name, value in action.items()
        if name != "kind"
        and value is not None
        and (name, value) not in _DEFAULTS
        and not (name == "data" and value == data)
    }
    given = {**beside, **data} if not beside.keys() & data.keys() else {**beside, "data": data}
    text = columns.first_text(columns.fields(payload.get("tool_call")).get("arguments"))
    _, called = reading.called_tool(payload)
    says_more = any(
        given.get(name) != value
        for name, value in called.items()
        if name not in _BESIDE_ARGUMENTS and (name, value) not in _DEFAULTS
    )
    is_unread = not called and text.strip() not in ("", "{}")
    return {**given, "tool_call.arguments": text} if says_more or is_unread else given


def _edit(arguments: Payload) -> Diff | None:
    old, new = (columns.first_text(arguments.get(name)) for name in ("old_str", "new_str"))
    if old or new:
        return diffs.of_replacement(old, new)
    text = columns.first_text(arguments.get("file_text"), arguments.get("content"))
    return diffs.of_contents("", text)


def _observation(event: EventEnvelope, payload: Payload) -> ResultCard | None:
    seen = columns.fields(payload.get("observation"))
    kind, output = kind_of(seen), whole_text(payload)
    if kind in _NO_NEWS or (kind == "ThinkObservation" and output == _THOUGHT_LOGGED):
        return None
    exit_code = _exit_code(seen)
    failed = seen.get("is_error") is True or exit_code not in (None, 0)
    screenshot = columns.first_text(seen.get("screenshot_data"))
    if screenshot and not screenshot.startswith("data:"):
        screenshot = f"data:image/png;base64,{screenshot}"
    tasks = tasks_of(seen)
    return ResultCard(
        tool=_tool(payload),
        output="" if tasks and not failed else output,
        outcome=CallOutcome.FAILED if failed else CallOutcome.DONE,
        exit_code=exit_code,
        timed_out=seen.get("timeout") is True,
        diff=_change(seen),
        images=(*columns.image_urls(seen.get("content")), *([screenshot] if screenshot else ())),
        tasks=tasks,
    )


def _change(seen: Payload) -> Diff | None:
    old, new = seen.get("old_content"), seen.get("new_content")
    if not isinstance(new, str):
        return None
    return diffs.of_contents(old if isinstance(old, str) else "", new)


def _exit_code(seen: Payload) -> int | None:
    metadata = columns.fields(seen.get("metadata"))
    found = (value for value in (seen.get("exit_code"), metadata.get("exit_code")) if value is not None)
    code = next(found, None)
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _rejection(event: EventEnvelope, payload: Payload) -> ResultCard:
    return ResultCard(tool=_tool(payload), output=whole_text(payload), outcome=CallOutcome.REJECTED)


def _agent_error(event: EventEnvelope, payload: Payload) -> ResultCard:
    return unanswered(_tool(payload), whole_text(payload))


def _error(event: EventEnvelope, payload: Payload) -> ErrorCard:
    code = columns.first_text(payload.get("code"))
    return words.error_card(code, columns.first_text(payload.get("detail")))


def _acp_call(event: EventEnvelope, payload: Payload) -> CallCard:
    status = columns.first_text(payload.get("status"))
    title = columns.first_text(payload.get("title"))
    ends = {"completed": CallOutcome.DONE, "failed": CallOutcome.FAILED}
    outcome = CallOutcome.FAILED if payload.get("is_error") is True else ends.get(status, CallOutcome.RUNNING)
    parts = [written(payload.get("raw_input")), whole_text(payload)]
    return CallCard(
        tool=tool(columns.first_text(payload.get("tool_kind"))),
        summary=first_line(title),
        arguments="\n\n".join(filter(None, parts)),
        given={name: payload[name] for name in ("title", "raw_input", "content") if payload.get(name)},
        outcome=outcome,
    )


def _hook(event: EventEnvelope, payload: Payload) -> QuietLine:
    what = columns.first_text(payload.get("hook_command"))
    verb = "blocked the agent" if payload.get("blocked") is True else "ran"
    fields = ("reason", "error", "stdout", "stderr", "additional_context")
    texts = [columns.first_text(payload.get(name)) for name in fields]
    said = "\n".join(filter(None, texts))
    return QuietLine(
        words=f"A hook {verb}: {first_line(what)}",
        folded=(Folded(label="Output", text=said),) if said else (),
    )


def _state(event: EventEnvelope, payload: Payload) -> Card | None:
    key, value = columns.first_text(payload.get("key")), payload.get("value")
    if key in _BOOKKEEPING_STATES:
        return None
    if key == RECORD_KEY:
        return _record(columns.fields(value))
    if key == "execution_status" and isinstance(value, str):
        return None if value in words.ROUTINE_STATES else QuietLine(words=words.state(value))
    if key == "confirmation_policy" and (said := _POLICIES.get(kind_of(value))):
        return QuietLine(words=said)
    named = columns.fields(columns.fields(value).get("llm")) or columns.fields(value)
    if key in ("agent", "llm") and (model := columns.first_text(named.get("model"))):
        return QuietLine(words=f"Model set to {model}")
    return _noted(key, value)


def _record(kept: Payload) -> QuietLine | None:
    """Return the line of a record that an import could not read; None for bookkeeping."""
    if kept.get("why") == Kept.BOOKKEEPING:
        return None
    name, record = columns.first_text(kept.get("name")), kept.get("record")
    words = "A damaged record" if kept.get("why") == Kept.DAMAGED else f"A record of an unknown kind, {name}"
    text = record if isinstance(record, str) else columns.as_json(record)
    return QuietLine(words=f"{words}, kept as it was", folded=(Folded(label="Show", text=text),))


def _noted(key: str, value: object) -> QuietLine:
    shown = value if isinstance(value, str) else columns.as_json(value)
    label = f"Set: {key.replace('_', ' ')}"
    if len(shown) <= 80 and "\n" not in shown:
        return QuietLine(words=f"{label} = {shown}")
    return QuietLine(words=label, folded=(Folded(label="Show", text=shown),))


def _pause(event: EventEnvelope, payload: Payload) -> QuietLine:
    return QuietLine(words="Paused")


def _interrupt(event: EventEnvelope, payload: Payload) -> QuietLine:
    return QuietLine(words=words.state("stopped"))


def _system(event: EventEnvelope, payload: Payload) -> QuietLine:
    return QuietLine(words="System prompt", folded=(Folded(label="Show", text=whole_text(payload)),))


def _condensation(event: EventEnvelope, payload: Payload) -> QuietLine:
    text = columns.first_text(payload.get("summary"))
    folded = (Folded(label="Summary", text=text),) if text else ()
    return QuietLine(words="Earlier events were summarised for the model", folded=folded)


def _condensation_request(event: EventEnvelope, payload: Payload) -> QuietLine:
    return QuietLine(words="A summary of earlier events was requested")


def _unknown(event: EventEnvelope, payload: Payload) -> QuietLine:
    text = whole_text(payload) or event["text"]
    line = first_line(text)
    folded = (Folded(label="Show", text=text),) if text.strip() != line else ()
    return QuietLine(words=f"{event['type']}: {line}" if line else event["type"], folded=folded)


def _tool(payload: Payload) -> ShownTool:
    name = columns.first_text(payload.get("tool_name"))
    observed = kind_of(payload.get("observation")).removesuffix("Observation")
    return tool(name, action=_ACTIONS.get(f"{observed}Action", ""))


def _reasoning(fields: Payload) -> str:
    blocks = fields.get("thinking_blocks")
    thoughts = [
        columns.first_text(columns.fields(block).get("thinking"))
        for block in (blocks if isinstance(blocks, list) else [])
    ]
    return "\n\n".join(filter(None, thoughts)) or columns.first_text(fields.get("reasoning_content"))


_READERS: Mapping[str, Callable[[EventEnvelope, Payload], Card | None]] = {
    "ActionEvent": _action,
    "ACPToolCallEvent": _acp_call,
    "ObservationEvent": _observation,
    "UserRejectObservation": _rejection,
    "AgentErrorEvent": _agent_error,
    "ConversationErrorEvent": _error,
    "ServerErrorEvent": _error,
    "PauseEvent": _pause,
    "InterruptEvent": _interrupt,
    "ConversationStateUpdateEvent": _state,
    "SystemPromptEvent": _system,
    "Condensation": _condensation,
    "CondensationSummaryEvent": _condensation,
    "CondensationRequest": _condensation_request,
    "HookExecutionEvent": _hook,
}

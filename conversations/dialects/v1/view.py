"""What a V1 event says."""

from __future__ import annotations

from conversations.dialects import attached, columns
from conversations.dialects.columns import Fields
from conversations.dialects.v1 import reading
from conversations.dialects.v1.kinds import kind_of
from conversations.dialects.views import (
    THOUGHT_LOGGED,
    AcpCallView,
    BookkeepingView,
    CallView,
    ErrorView,
    EventView,
    HookView,
    MessageView,
    NoticeView,
    OtherView,
    ResultView,
    StateView,
    SummaryRequestView,
    SummaryView,
    SystemView,
)
from conversations.events import Kind

_NOT_ARGUMENTS = frozenset({"summary", "security_risk"})  # models give these beside the tool's own
_DEFAULTS = (("is_input", False), ("reset", False))  # values that the wire adds to calls
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
_HOOK_OUTPUT = ("reason", "error", "stdout", "stderr", "additional_context")


def view(payload: Fields, *, kind: str, type_: str, text: str, is_answer: bool = False) -> EventView:
    """Return what an event with these columns says; `text` if the payload cannot be read."""
    text = reading.whole_text(payload) or text
    if kind == Kind.MESSAGE:
        return _message(payload, text)
    if reading.is_notice(payload):
        return NoticeView(text=text)
    match type_:
        case "ActionEvent":
            return _call(payload, text)
        case "ACPToolCallEvent":
            return _acp_call(payload, text)
        case "ObservationEvent":
            return _result(payload, text)
        case "UserRejectObservation":
            name, action = _tool(payload)
            return ResultView(text=text, name=name, action=action, content=text, is_rejection=True)
        case "AgentErrorEvent":
            name, action = _tool(payload)
            return ErrorView(text=text, detail=text, name=name, action=action, is_of_call=True)
        case "ConversationErrorEvent" | "ServerErrorEvent":
            code, detail = (columns.first_text(payload.get(key)) for key in ("code", "detail"))
            return ErrorView(text=text, code=code, detail=detail)
        case "PauseEvent" | "InterruptEvent":
            return StateView(text=text, word="paused" if type_ == "PauseEvent" else "stopped")
        case "ConversationStateUpdateEvent":
            return _state(payload, text)
        case "SystemPromptEvent":
            return SystemView(text=text)
        case "Condensation" | "CondensationSummaryEvent":
            return _summary(payload, text)
        case "CondensationRequest":
            return SummaryRequestView(text=text)
        case "HookExecutionEvent":
            return _hook(payload, text)
        case "LLMCompletionLogEvent" | "TokenEvent" | "StreamingDeltaEvent":
            return BookkeepingView(text=text)
        case _:
            return OtherView(text=text)


def _message(payload: Fields, text: str) -> MessageView:
    said = columns.fields(payload.get("llm_message"))
    return MessageView(
        text=text,
        author=columns.first_text(payload.get("sender")),
        images=tuple(columns.image_urls(said.get("content"))),
        reasoning=_reasoning(payload) or _reasoning(said),
        thought=columns.content_text(payload.get("thought")),
        files=attached.files_in(payload.get("extended_content")),
        note=columns.content_text(payload.get("extended_content")),
        is_interrupted=reading.is_interrupted(payload),
    )


def _call(payload: Fields, text: str) -> CallView:
    action = columns.fields(payload.get("action"))
    name, given = reading.called_tool(payload)
    arguments = columns.fields(action.get("data")) or {key: action[key] for key in action if key != "kind"}
    arguments = arguments or {key: given[key] for key in given if key not in _NOT_ARGUMENTS}
    is_reading = arguments.get("command") == "view" and "path" in arguments
    unread = columns.first_text(columns.fields(payload.get("tool_call")).get("arguments"))
    return CallView(
        text=text,
        name=name,
        shown_name=name,
        action="read" if is_reading else _ACTIONS.get(kind_of(action), ""),
        given=given,
        arguments=arguments,
        subject=_subject(action, given, unread) if payload else None,
        unread=unread,
        summary=columns.first_text(payload.get("summary")),
        thought=columns.content_text(payload.get("thought")),
        reasoning=_reasoning(payload),
        signed=columns.items(payload.get("thinking_blocks")),
        risk=columns.first_text(payload.get("security_risk")).lower(),
    )


def _subject(action: Fields, given: Fields, text: str) -> Fields:
    """Return the action, and the model's own text where it has more."""
    data = columns.fields(action.get("data"))
    beside = {
        name: value
        for name, value in action.items()
        if name != "kind"
        and value is not None
        and (name, value) not in _DEFAULTS
        and not (name == "data" and value == data)
    }
    subject = {**beside, **data} if not beside.keys() & data.keys() else {**beside, "data": data}
    says_more = any(
        subject.get(name) != value
        for name, value in given.items()
        if name not in _NOT_ARGUMENTS and (name, value) not in _DEFAULTS
    )
    is_unread = not given and text.strip() not in ("", "{}")
    return {**subject, "tool_call.arguments": text} if says_more or is_unread else subject


def _acp_call(payload: Fields, text: str) -> AcpCallView:
    subject = {name: payload[name] for name in ("title", "raw_input", "content") if payload.get(name)}
    title, status = columns.first_text(payload.get("title")), columns.first_text(payload.get("status"))
    return AcpCallView(
        text=text,
        shown_name=columns.first_text(payload.get("tool_kind")),
        subject=subject,
        title=title,
        status=status,
        is_error=payload.get("is_error") is True,
        raw_input=payload.get("raw_input"),
        raw_output=payload.get("raw_output"),
        content=columns.content_text(payload.get("content")),
    )


def _result(payload: Fields, text: str) -> ResultView:
    seen = columns.fields(payload.get("observation"))
    screenshot = columns.first_text(seen.get("screenshot_data"))
    if screenshot and not screenshot.startswith("data:"):
        screenshot = f"data:image/png;base64,{screenshot}"
    after = seen.get("new_content")
    name, action = _tool(payload)
    return ResultView(
        text=text,
        name=name,
        action=action,
        content=text,
        files=tuple(columns.image_urls(seen.get("content"))),
        images=(screenshot,) if screenshot else (),
        fields=seen,
        exit_code=columns.whole_number(reading.exit_code(seen)),
        is_error=seen.get("is_error") is True,
        is_timeout=seen.get("timeout") is True,
        before=columns.first_text(seen.get("old_content")),
        after=after if isinstance(after, str) else None,
        is_repetition=kind_of(seen) == "FinishObservation"
        or (kind_of(seen) == "ThinkObservation" and text == THOUGHT_LOGGED),
    )


def _summary(payload: Fields, text: str) -> SummaryView:
    return SummaryView(
        text=text,
        summary=columns.first_text(payload.get("summary")),
        forgotten=columns.texts(payload.get("forgotten_event_ids")),
    )


def _hook(payload: Fields, text: str) -> HookView:
    said = filter(None, (columns.first_text(payload.get(name)) for name in _HOOK_OUTPUT))
    return HookView(
        text=text,
        command=columns.first_text(payload.get("hook_command")),
        is_blocking=payload.get("blocked") is True,
        output="\n".join(said),
    )


def _state(payload: Fields, text: str) -> StateView:
    key, value = columns.first_text(payload.get("key")), payload.get("value")
    if key == "execution_status" and isinstance(value, str):
        return StateView(text=text, word=value)
    return StateView(text=text, key=key, value=value)


def _tool(payload: Fields) -> tuple[str, str]:
    """Return the name and the kind of the tool that a result is of."""
    seen = columns.fields(payload.get("observation"))
    observed = kind_of(seen).removesuffix("Observation")
    is_reading = seen.get("command") == "view" and "path" in seen
    name = columns.first_text(payload.get("tool_name"))
    return name, "read" if is_reading else _ACTIONS.get(f"{observed}Action", "")


def _reasoning(fields: Fields) -> str:
    blocks = map(columns.fields, columns.items(fields.get("thinking_blocks")))
    thoughts = [columns.first_text(block.get("thinking")) for block in blocks]
    return "\n\n".join(filter(None, thoughts)) or columns.first_text(fields.get("reasoning_content"))

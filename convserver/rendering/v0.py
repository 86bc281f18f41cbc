"""Events of the V0 wire as cards."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from conversations.dialects import columns
from conversations.dialects.v0 import reading
from conversations.dialects.v0.older import todays_args, todays_extras
from conversations.events import EventEnvelope, Kind
from convserver.rendering import diffs, words
from convserver.rendering.arguments import code_of, is_edit, plan, tasks_of
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

_NOTHING_SAID = frozenset({"null"})
_THOUGHT_LOGGED = "Your thought has been logged."
_NOT_ARGUMENTS = frozenset(
    {"thought", "security_risk", "confirmation_state", "hidden", "impl_source", "blocking", "is_static"}
)
_BESIDE_ARGUMENTS = frozenset({"thought", "security_risk", "confirmation_state", "is_confirmed"})
_DEFAULTS = (
    *(("is_input", False), ("is_static", False), ("blocking", False), ("hidden", False)),
    *(
        ("include_extra", True),
        ("kernel_init_code", ""),
        ("impl_source", "default"),
        ("impl_source", "oh_aci"),
    ),
    *(("browsergym_send_msg_to_user", ""), ("return_axtree", False)),
)
"""Values that the wire adds to calls."""
_WHOLE_FILE = (("start", 0), ("start", 1), ("end", -1))
_RISKS = {0: "low", 1: "medium", 2: "high"}
_FAILED_EDIT = "ERROR:"


def card(event: EventEnvelope, payload: Payload) -> Card | None:
    """Return the card of an event; None for bookkeeping."""
    args = todays_args(columns.fields(payload.get("args")))
    extras = todays_extras(columns.fields(payload.get("extras")))
    if event["type"] in _NOTHING_SAID:
        return None
    match event["kind"]:
        case Kind.MESSAGE:
            return _message(event, payload, args, extras)
        case Kind.TOOL_CALL:
            return _call(event, payload, args)
        case Kind.TOOL_RESULT:
            return _result(event, payload, extras)
        case Kind.ERROR if event["cause"] is not None:
            return _failure(event, payload)
        case Kind.ERROR:
            return _error(payload, extras)
        case Kind.STATE:
            return _state(event, payload, args, extras)
        case Kind.SYSTEM:
            return _line("System prompt", "Show", whole_text(payload))
        case Kind.SUMMARY:
            return _line("Earlier events were summarised for the model", "Summary", whole_text(payload))
        case _:
            return _other(event, payload)


def whole_text(payload: Payload) -> str:
    """Return the complete text of an event."""
    return reading.whole_text(payload)


def _message(event: EventEnvelope, payload: Payload, args: Payload, extras: Payload) -> MessageCard:
    is_users = event["source"] == "user"
    is_finish = event["type"] == "finish"
    thought = _thought(args) if is_finish else columns.first_text(payload.get("reasoning_content"))
    text = whole_text(payload) or event["text"]
    return MessageCard(
        author="You" if is_users else "Agent",
        text=text,
        is_users=is_users,
        images=(*_images(args), *_images(extras)),
        reasoning=thought if thought != text else "",
        interrupted=reading.is_interrupted(payload),
    )


def _call(event: EventEnvelope, payload: Payload, args: Payload) -> CallCard:
    called = _tool(event, payload, args)
    arguments = columns.fields(args.get("arguments")) if event["type"] == "call_tool_mcp" else args
    arguments = {
        key: value
        for key, value in arguments.items()
        if key not in _NOT_ARGUMENTS and (key, value) not in _WHOLE_FILE
    }
    tasks = tasks_of(arguments, called)
    thought = _thought(args)
    if event["type"] == "think":
        text, language = thought, "text"
    else:
        text, language = code_of(called, arguments)
    risk = args.get("security_risk")
    waits = args.get("confirmation_state") == "awaiting_confirmation"
    return CallCard(
        tool=called,
        summary=plan(tasks) or _summary(event, args, arguments, text),
        thought="" if event["type"] == "think" else thought,
        reasoning=columns.first_text(payload.get("reasoning_content")),
        arguments=text,
        language=language,
        diff=_edit(args) if is_edit(called) else None,
        tasks=tasks,
        risk=_RISKS.get(risk, "") if isinstance(risk, int) else "",
        outcome=CallOutcome.WAITING if waits else CallOutcome.RUNNING,
        given=_given(event, columns.fields(payload.get("args"))) if payload else None,
    )


def _given(event: EventEnvelope, args: Payload) -> Payload:
    """Return all that determines a call."""
    given = {
        name: value
        for name, value in args.items()
        if name not in _BESIDE_ARGUMENTS
        and value is not None
        and (name, value) not in (*_DEFAULTS, *_WHOLE_FILE)
        and not (name == "content" and value == "" and event["type"] == "edit")
    }
    inner = given.get("arguments")
    if event["type"] != "call_tool_mcp" or not isinstance(inner, Mapping):
        return given
    beside = {name: value for name, value in given.items() if name != "arguments"}
    return given if beside.keys() & inner.keys() else {**beside, **inner}


def _summary(event: EventEnvelope, args: Payload, arguments: Payload, text: str) -> str:
    if event["type"] in ("edit", "read", "write"):
        return first_line(columns.first_text(args.get("path")))
    return summary(arguments) or first_line(text or event["text"])


def _edit(args: Payload) -> Diff | None:
    old, new = (columns.first_text(args.get(name)) for name in ("old_str", "new_str"))
    if old or new:
        return diffs.of_replacement(old, new)
    return diffs.of_contents("", columns.first_text(args.get("file_text"), args.get("content")))


def _result(event: EventEnvelope, payload: Payload, extras: Payload) -> ResultCard | None:
    output = whole_text(payload)
    if event["type"] == "think" and output == _THOUGHT_LOGGED:
        return None
    exit_code = _exit_code(extras)
    screenshot = columns.first_text(extras.get("screenshot"))
    tasks = tasks_of(extras)
    return ResultCard(
        tool=_tool(event, payload, extras),
        output="" if tasks else output,
        outcome=_outcome(event, payload, extras, exit_code, output),
        exit_code=exit_code,
        diff=_change(extras),
        images=(*_images(payload), *_images(extras), *([screenshot] if screenshot else ())),
        tasks=tasks,
    )


def _outcome(
    event: EventEnvelope, payload: Payload, extras: Payload, exit_code: int | None, output: str
) -> CallOutcome:
    if event["type"] == "user_rejected":
        return CallOutcome.REJECTED
    failed_edit = event["type"] in ("edit", "read", "write") and output.startswith(_FAILED_EDIT)
    is_told = extras.get("error") is True or payload.get("is_error") is True
    return CallOutcome.FAILED if exit_code not in (None, 0) or is_told or failed_edit else CallOutcome.DONE


def _exit_code(extras: Payload) -> int | None:
    code = columns.fields(extras.get("metadata")).get("exit_code")
    return code if isinstance(code, int) and not isinstance(code, bool) else None


def _change(extras: Payload) -> Diff | None:
    if given := diffs.of_unified(columns.first_text(extras.get("diff"))):
        return given
    old, new = extras.get("old_content"), extras.get("new_content")
    if not isinstance(new, str):
        return None
    return diffs.of_contents(old if isinstance(old, str) else "", new)


def _failure(event: EventEnvelope, payload: Payload) -> ResultCard:
    return unanswered(_tool(event, payload, {}), whole_text(payload))


def _error(payload: Payload, extras: Payload) -> ErrorCard:
    return words.error_card(columns.first_text(extras.get("error_id")), whole_text(payload))


def _state(event: EventEnvelope, payload: Payload, args: Payload, extras: Payload) -> Card | None:
    name = columns.first_text(args.get("agent_state"), extras.get("agent_state"), event["type"])
    if name in words.ROUTINE_STATES:
        return None
    reason = columns.first_text(extras.get("reason"))
    return _line(words.state(name), "Why", words.reason(reason))


def _other(event: EventEnvelope, payload: Payload) -> QuietLine:
    if event["type"] == "condensation_request":
        return QuietLine(words="A summary of earlier events was requested")
    text = whole_text(payload) or event["text"]
    if reading.is_notice(payload):
        return noticed(text)
    line = first_line(text)
    named = f"{event['type']}: {line}" if line else event["type"]
    return _line(named, "Show", text if text.strip() != line else "")


def _line(said: str, label: str, text: str) -> QuietLine:
    return QuietLine(words=said, folded=(Folded(label=label, text=text),) if text else ())


def _tool(event: EventEnvelope, payload: Payload, fields: Payload) -> ShownTool:
    name = columns.first_text(columns.fields(payload.get("tool_call_metadata")).get("function_name"))
    if event["type"] in ("call_tool_mcp", "mcp"):
        return tool(columns.first_text(fields.get("name"), name), action="mcp")
    return tool(name or event["type"], action=event["type"])


def _thought(args: Payload) -> str:
    thought = args.get("thought")
    parts = columns.fields(thought)
    return columns.first_text(thought, parts.get("text"), parts.get("reasoning_content"))


def _images(fields: Payload) -> Iterator[str]:
    urls = fields.get("image_urls")
    yield from (url for url in (urls if isinstance(urls, list) else []) if isinstance(url, str))

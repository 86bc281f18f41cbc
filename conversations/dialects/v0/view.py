"""What a V0 event says."""

from __future__ import annotations

from collections.abc import Mapping

from conversations.dialects import attached, columns
from conversations.dialects.columns import Fields
from conversations.dialects.v0 import reading
from conversations.dialects.v0.older import todays_args, todays_extras
from conversations.dialects.views import (
    THOUGHT_LOGGED,
    BookkeepingView,
    CallView,
    ErrorView,
    EventView,
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

_NOT_ARGUMENTS = frozenset(
    {"thought", "security_risk", "confirmation_state", "hidden", "impl_source", "blocking", "is_static"}
)
_NOT_SUBJECT = frozenset({"thought", "security_risk", "confirmation_state", "is_confirmed"})
_WHOLE_FILE = (("start", 0), ("start", 1), ("end", -1))
# Values that the wire adds to calls.
_DEFAULTS = (
    *(("is_input", False), ("is_static", False), ("blocking", False), ("hidden", False)),
    *(("include_extra", True), ("kernel_init_code", ""), ("impl_source", "default")),
    *(("impl_source", "oh_aci"), ("browsergym_send_msg_to_user", ""), ("return_axtree", False)),
    *_WHOLE_FILE,
)
_RISKS = {0: "low", 1: "medium", 2: "high"}
_FILE_TYPES = ("edit", "read", "write")
_FAILED_EDIT = "ERROR:"  # the beginning of a file tool's answer


def view(payload: Fields, *, kind: str, type_: str, text: str, is_answer: bool = False) -> EventView:
    """Return what an event with these columns says; `text` if the payload cannot be read."""
    text = reading.whole_text(payload) or text
    args = todays_args(columns.fields(payload.get("args")))
    extras = todays_extras(columns.fields(payload.get("extras")))
    if type_ == "null":
        return BookkeepingView(text=text)
    match kind:
        case Kind.MESSAGE:
            return MessageView(
                text=text,
                images=tuple(columns.image_urls([args, extras])),
                reasoning=columns.first_text(payload.get("reasoning_content")),
                thought=_thought(args) if type_ == "finish" else "",
                files=attached.files_in(payload.get("extended_content")),
                note=columns.content_text(payload.get("extended_content")),
                is_interrupted=reading.is_interrupted(payload),
            )
        case Kind.TOOL_CALL:
            return _call(payload, args, type_, text)
        case Kind.TOOL_RESULT:
            return _result(payload, extras, type_, text)
        case Kind.ERROR:
            name, code = _shown_name(payload, {}, type_), columns.first_text(extras.get("error_id"))
            return ErrorView(text=text, code=code, detail=text, name=name, action=type_, is_of_call=is_answer)
        case Kind.STATE | Kind.TURN:
            word = columns.first_text(args.get("agent_state"), extras.get("agent_state"), type_)
            return StateView(text=text, word=word, reason=columns.first_text(extras.get("reason")))
        case Kind.SYSTEM:
            return SystemView(text=text)
        case Kind.SUMMARY:
            return SummaryView(
                text=text, summary=columns.first_text(args.get("summary")), forgotten=_forgotten(args)
            )
        case _ if type_ == "condensation_request":
            return SummaryRequestView(text=text)
        case _:
            return NoticeView(text=text) if reading.is_notice(payload) else OtherView(text=text)


def _call(payload: Fields, args: Fields, type_: str, text: str) -> CallView:
    name, given = reading.called_tool(payload)
    is_mcp, is_thought = type_ == "call_tool_mcp", type_ == "think"
    thought, risk = _thought(args), args.get("security_risk")
    return CallView(
        text=text,
        name=name,
        shown_name=_shown_name(payload, args, type_),
        action="mcp" if is_mcp else type_,
        given=given,
        arguments={} if is_thought else _arguments(columns.fields(args.get("arguments")) if is_mcp else args),
        subject=_subject(columns.fields(payload.get("args")), type_) if payload else None,
        unread=thought if is_thought else "",
        message=text,
        thought=thought,
        reasoning=columns.first_text(payload.get("reasoning_content")),
        signed=columns.items(payload.get("thinking_blocks")),
        risk=_RISKS.get(risk, "") if isinstance(risk, int) else "",
        is_waiting=args.get("confirmation_state") == "awaiting_confirmation",
    )


def _arguments(args: Fields) -> Fields:
    return {
        key: value
        for key, value in args.items()
        if key not in _NOT_ARGUMENTS and (key, value) not in _WHOLE_FILE
    }


def _subject(args: Fields, type_: str) -> Fields:
    subject = {
        name: value
        for name, value in args.items()
        if name not in _NOT_SUBJECT
        and value is not None
        and (name, value) not in _DEFAULTS
        and not (name == "content" and value == "" and type_ == "edit")
    }
    inner = subject.get("arguments")
    if type_ != "call_tool_mcp" or not isinstance(inner, Mapping):
        return subject
    # The tool's own name is that of the call.
    beside = {name: value for name, value in subject.items() if name not in ("arguments", "name")}
    return subject if {"name", *beside} & inner.keys() else {**beside, **inner}


def _result(payload: Fields, extras: Fields, type_: str, text: str) -> ResultView:
    screenshot = columns.first_text(extras.get("screenshot"))
    after = extras.get("new_content")
    is_error = extras.get("error") is True or payload.get("is_error") is True
    return ResultView(
        text=text,
        name=_shown_name(payload, extras, type_),
        action=type_,
        content=columns.content_text(payload.get("content")),
        files=tuple(columns.image_urls([payload])),
        images=(*columns.image_urls([extras]), *([screenshot] if screenshot else ())),
        fields=extras,
        exit_code=columns.whole_number(columns.fields(extras.get("metadata")).get("exit_code")),
        is_error=is_error or (type_ in _FILE_TYPES and text.startswith(_FAILED_EDIT)),
        is_rejection=type_ == "user_rejected",
        diff=columns.first_text(extras.get("diff")),
        before=columns.first_text(extras.get("old_content")),
        after=after if isinstance(after, str) else None,
        is_repetition=type_ == "think" and text == THOUGHT_LOGGED,
    )


def _shown_name(payload: Fields, fields: Fields, type_: str) -> str:
    name = columns.first_text(columns.fields(payload.get("tool_call_metadata")).get("function_name"))
    if type_ in ("call_tool_mcp", "mcp"):
        return columns.first_text(fields.get("name"), name)
    return name or type_


def _thought(args: Fields) -> str:
    thought = args.get("thought")
    return columns.content_text(thought) or columns.first_text(
        columns.fields(thought).get("reasoning_content")
    )


def _forgotten(args: Fields) -> list[int | str]:
    named = [each for each in columns.items(args.get("forgotten_event_ids")) if isinstance(each, int | str)]
    first, last = args.get("forgotten_events_start_id"), args.get("forgotten_events_end_id")
    if (
        isinstance(first, int) and isinstance(last, int) and last - first < 100_000
    ):  # else it would fill the memory
        named += range(first, last + 1)
    return named

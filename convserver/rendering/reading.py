"""Events of both wires as cards."""

from __future__ import annotations

from collections.abc import Mapping

from conversations import dialects
from conversations.dialects import columns
from conversations.dialects.v1.kinds import kind_of
from conversations.dialects.views import (
    AcpCallView,
    BookkeepingView,
    CallView,
    ErrorView,
    EventView,
    HookView,
    MessageView,
    NoticeView,
    ResultView,
    StateView,
    SummaryRequestView,
    SummaryView,
    SystemView,
)
from conversations.events import EventEnvelope, Kind
from conversations.transcripts.sources.as_v1 import RECORD_KEY
from conversations.transcripts.sources.nodes import Kept
from convserver.rendering import diffs, words
from convserver.rendering.arguments import code_of, is_edit, plan, tasks_of, written
from convserver.rendering.cards import (
    CallCard,
    CallOutcome,
    Card,
    Folded,
    MessageCard,
    QuietLine,
    ResultCard,
    noticed,
    unanswered,
)
from convserver.rendering.diffs import Diff
from convserver.rendering.tools import first_line, summary, tool

_BOOKKEEPING_STATES = frozenset({"stats", "full_state", "last_user_message_id"})
_POLICIES = {
    "NeverConfirm": "The agent no longer asks for approval",
    "AlwaysConfirm": "The agent asks for approval before every call",
    "ConfirmRisky": "The agent asks for approval before risky calls",
}
_ACP_OUTCOMES = {"completed": CallOutcome.DONE, "failed": CallOutcome.FAILED}


def read(event: EventEnvelope) -> Card | None:
    """Return the card of one event; None for hidden events and bookkeeping."""
    if event["hidden"] or event["kind"] == Kind.TURN:
        return None
    return _card(event, dialects.view_of(event))


def whole_text(event: EventEnvelope) -> str:
    """Return the complete text of an event, which the column `text` has only up to a limit."""
    view = dialects.view_of(event)
    return (_acp_output(view) if isinstance(view, AcpCallView) else view.text) or event["text"]


def _card(event: EventEnvelope, view: EventView) -> Card | None:
    match view:
        case MessageView():
            return _message(view, is_users=event["source"] == "user")
        case AcpCallView():
            return _acp_call(view)
        case CallView():
            return _call(view)
        case ResultView():
            return _result(view)
        case ErrorView() if view.is_of_call:
            return unanswered(tool(view.name, action=view.action), view.text)
        case ErrorView():
            return words.error_card(view.code, view.detail)
        case StateView():
            return _state(view)
        case SystemView():
            return _line("System prompt", "Show", view.text)
        case SummaryView():
            return _line("Earlier events were summarised for the model", "Summary", view.text)
        case SummaryRequestView():
            return QuietLine(words="A summary of earlier events was requested")
        case NoticeView():
            return noticed(view.text)
        case HookView():
            verb = "blocked the agent" if view.is_blocking else "ran"
            return _line(f"A hook {verb}: {first_line(view.command)}", "Output", view.output)
        case BookkeepingView():
            return None
        case _:
            line = first_line(view.text)
            named = f"{event['type']}: {line}" if line else event["type"]
            return _line(named, "Show", view.text if view.text.strip() != line else "")


def _line(said: str, label: str, text: str) -> QuietLine:
    return QuietLine(words=said, folded=(Folded(label=label, text=text),) if text else ())


def _message(view: MessageView, *, is_users: bool) -> MessageCard:
    reasoning = "\n\n".join(filter(None, [view.reasoning, view.thought]))
    return MessageCard(
        author=view.author or ("You" if is_users else "Agent"),
        text=view.text,
        is_users=is_users,
        images=tuple(view.images),
        files=tuple(view.files),
        reasoning=reasoning if reasoning != view.text else "",
        interrupted=view.is_interrupted,
    )


def _call(view: CallView) -> CallCard:
    called = tool(view.shown_name, action=view.action)
    text, language = code_of(called, view.arguments)
    text = text if view.arguments else view.unread  # such as arguments that are no JSON
    tasks = tasks_of(view.arguments, called)
    told = summary(called, view.arguments, otherwise=view.summary)
    return CallCard(
        tool=called,
        summary=plan(tasks) or told or first_line(text or view.message),
        # The tool `think` has its thought as an argument as well.
        thought="" if view.thought == text else view.thought,
        reasoning=view.reasoning,
        arguments=text,
        language=language,
        diff=_edit(view.arguments) if is_edit(called) else None,
        tasks=tasks,
        risk=view.risk,
        outcome=CallOutcome.WAITING if view.is_waiting else CallOutcome.RUNNING,
        given=view.subject,
    )


def _edit(arguments: Mapping[str, object]) -> Diff | None:
    old, new = (columns.first_text(arguments.get(name)) for name in ("old_str", "new_str"))
    if old or new:
        return diffs.of_replacement(old, new)
    text = columns.first_text(arguments.get("file_text"), arguments.get("content"))
    return diffs.of_contents("", text)


def _acp_call(view: AcpCallView) -> CallCard:
    outcome = _ACP_OUTCOMES.get(view.status, CallOutcome.RUNNING)
    return CallCard(
        tool=tool(view.shown_name),
        summary=first_line(view.title),
        # One event has the call and its result, so the output is shown below the input.
        arguments="\n\n".join(filter(None, [written(view.raw_input), _acp_output(view)])),
        given=view.subject,
        outcome=CallOutcome.FAILED if view.is_error else outcome,
    )


def _acp_output(view: AcpCallView) -> str:
    return written(view.raw_output) or view.content


def _result(view: ResultView) -> ResultCard | None:
    if view.is_repetition:
        return None
    failed = view.is_error or view.exit_code not in (None, 0)
    outcome = CallOutcome.FAILED if failed else CallOutcome.DONE
    tasks = tasks_of(view.fields)
    changed = None if view.after is None else diffs.of_contents(view.before, view.after)
    return ResultCard(
        tool=tool(view.name, action=view.action),
        output="" if tasks and not failed else view.text,  # a list of tasks says the same
        outcome=CallOutcome.REJECTED if view.is_rejection else outcome,
        exit_code=view.exit_code,
        timed_out=view.is_timeout,
        diff=diffs.of_unified(view.diff) or changed,
        images=(*view.files, *view.images),
        tasks=tasks,
    )


def _state(view: StateView) -> QuietLine | None:
    key, value = view.key, view.value
    if key is None:
        if view.word in words.ROUTINE_STATES:
            return None
        return _line(words.state(view.word), "Why", words.reason(view.reason))
    if key in _BOOKKEEPING_STATES:
        return None
    if key == RECORD_KEY:
        return _record(columns.fields(value))
    if key == "confirmation_policy" and (said := _POLICIES.get(kind_of(value))):
        return QuietLine(words=said)
    named = columns.fields(columns.fields(value).get("llm")) or columns.fields(value)
    if key in ("agent", "llm") and (model := columns.first_text(named.get("model"))):
        return QuietLine(words=f"Model set to {model}")
    shown, label = columns.as_text(value), f"Set: {key.replace('_', ' ')}"
    is_short = len(shown) <= 80 and "\n" not in shown
    return QuietLine(words=f"{label} = {shown}") if is_short else _line(label, "Show", shown)


def _record(kept: Mapping[str, object]) -> QuietLine | None:
    """Return the line of a record that an import could not read; None for bookkeeping."""
    if kept.get("why") == Kept.BOOKKEEPING:
        return None
    name, is_damaged = columns.first_text(kept.get("name")), kept.get("why") == Kept.DAMAGED
    what = "A damaged record" if is_damaged else f"A record of an unknown kind, {name}"
    return _line(f"{what}, kept as it was", "Show", columns.as_text(kept.get("record")))

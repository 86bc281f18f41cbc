"""A conversation as Markdown for people: messages are quoted, tool calls and results are in fenced blocks.

No text can end the quote or the fence around it, so the page keeps its structure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from conversations import dialects
from conversations.dialects import columns
from conversations.dialects.views import CallView, EventView, MessageView, NoticeView
from conversations.events import EventEnvelope, Kind

_GRAVES = re.compile("`+")
_UNSAFE = re.compile(r"([\\`*_\[\]<>#|~&])")
_LANGUAGES = {"run": "bash", "terminal": "bash", "execute_bash": "bash"}
_TITLES = {
    Kind.TOOL_CALL: "Call",
    Kind.TOOL_RESULT: "Result",
    Kind.STATE: "State",
    Kind.ERROR: "Error",
    Kind.SYSTEM: "System prompt",
    Kind.SUMMARY: "Summary of earlier events",
    Kind.TURN: "End of a turn",
    Kind.OTHER: "Event",
}


def head(*, title: str, facts: Mapping[str, object]) -> str:
    """Return the beginning of the file: the title and the metadata of the conversation."""
    known = [f"- {name}: {inline(str(value))}" for name, value in facts.items() if value not in (None, "")]
    return "\n".join([f"# {inline(title)}", "", *known, ""])


def section(event: EventEnvelope) -> str:
    if event["hidden"]:
        return ""
    view = dialects.view_of(event)
    return f"\n## {_heading(event, view)}\n\n{_body(view)}\n"


def inline(text: str) -> str:
    """Return text on one line, with every sign of Markdown escaped."""
    return _UNSAFE.sub(r"\\\1", " ".join(columns.clean(text).split()))


def quoted(text: str) -> str:
    """Return text as a quote; everything that the text opens ends with the quote."""
    return "\n".join(f"> {line}".rstrip() for line in _lines(text))


def fenced(text: str, language: str = "") -> str:
    """Return text in a fence longer than any inside."""
    text = "\n".join(_lines(text))
    longest = max((len(found) for found in _GRAVES.findall(text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text}\n{fence}"


def _lines(text: str) -> list[str]:
    return columns.clean(text).replace("\r\n", "\n").replace("\r", "\n").rstrip("\n").split("\n")


def _heading(event: EventEnvelope, view: EventView) -> str:
    kind = Kind(event["kind"])
    title = inline(event["source"]) if kind is Kind.MESSAGE else _TITLES[kind]
    match kind:
        case Kind.TOOL_CALL if isinstance(view, CallView):
            title = f"{title}: {inline(view.name or event['type'])}"
        case Kind.TOOL_RESULT | Kind.ERROR if event["cause"] is not None:
            title = f"{title} of {event['cause']}"
        case Kind.OTHER if isinstance(view, NoticeView):
            title = "Notice"
        case Kind.OTHER | Kind.STATE:
            title = f"{title}: {inline(event['type'])}"
        case _:
            pass
    return f"{event['seq']} · {title} · {event['timestamp'][:19].replace('T', ' ')} UTC"


def _body(view: EventView) -> str:
    match view:
        case MessageView():
            return quoted(view.text)
        case CallView():
            return _call(view)
        case _:
            return fenced(view.text) if view.text else "(no text)"


def _call(view: CallView) -> str:
    said = [quoted(view.thought)] if view.thought else []
    command = columns.first_text(view.given.get("command")) if view.name in _LANGUAGES else ""
    if command:
        return "\n\n".join([*said, fenced(command, _LANGUAGES[view.name])])
    shown = {key: value for key, value in view.given.items() if key != "thought"}
    called = fenced(columns.as_json(shown, indent=2), "json") if shown else fenced(view.text)
    return "\n\n".join([*said, called])

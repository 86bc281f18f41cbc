"""A conversation as Markdown for people: messages are quoted, tool calls and results are in fenced blocks.

No text can end the quote or the fence around it, so the page keeps its structure.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from conversations import dialects
from conversations.dialects import columns
from conversations.dialects.v0 import reading
from conversations.dialects.v1 import reading as v1_reading
from conversations.events import Dialect, EventEnvelope, Kind

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
    """Return one event; an empty text for a hidden one."""
    if event["hidden"]:
        return ""
    members = _members(event)
    return f"\n## {_heading(event, members)}\n\n{_body(event, members)}\n"


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


def _heading(event: EventEnvelope, members: Mapping[str, object]) -> str:
    kind = Kind(event["kind"])
    title = inline(event["source"]) if kind is Kind.MESSAGE else _TITLES[kind]
    match kind:
        case Kind.TOOL_CALL:
            name, _ = dialects.called_tool(members, Dialect(event["dialect"]))
            title = f"{title}: {inline(event['type'] if name == 'tool' else name)}"
        case Kind.TOOL_RESULT | Kind.ERROR if event["cause"] is not None:
            title = f"{title} of {event['cause']}"
        case Kind.OTHER if dialects.is_notice(members, Dialect(event["dialect"])):
            title = "Notice"
        case Kind.OTHER | Kind.STATE:
            title = f"{title}: {inline(event['type'])}"
        case _:
            pass
    return f"{event['seq']} · {title} · {event['timestamp'][:19].replace('T', ' ')} UTC"


def _body(event: EventEnvelope, members: Mapping[str, object]) -> str:
    # The whole text: the column is cut if it is long.
    wire = reading if event["dialect"] == Dialect.V0 else v1_reading
    text = wire.whole_text(members) or event["text"]
    match event["kind"]:
        case Kind.MESSAGE:
            return quoted(text)
        case Kind.TOOL_CALL:
            return _call(event, members, text)
        case _:
            return fenced(text) if text else "(no text)"


def _call(event: EventEnvelope, members: Mapping[str, object], text: str) -> str:
    name, arguments = dialects.called_tool(members, Dialect(event["dialect"]))
    args = columns.fields(members.get("args"))  # V0
    thought = columns.first_text(columns.content_text(members.get("thought")), args.get("thought"))
    command = columns.first_text(arguments.get("command")) if name in _LANGUAGES else ""
    said = [quoted(thought)] if thought else []
    if command:
        return "\n\n".join([*said, fenced(command, _LANGUAGES[name])])
    shown = {key: value for key, value in arguments.items() if key != "thought"}
    return "\n\n".join([*said, fenced(_indented(shown), "json") if shown else fenced(text)])


def _members(event: EventEnvelope) -> Mapping[str, object]:
    try:
        return columns.fields(json.loads(event["payload"]))
    except (ValueError, RecursionError):
        return {}


def _indented(value: object) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, indent=2, default=str)
    except (ValueError, RecursionError, TypeError):
        return columns.as_json(value)

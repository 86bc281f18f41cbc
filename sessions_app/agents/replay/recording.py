"""A recording of either wire, read as the steps of its agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from conversations import dialects
from conversations.dialects import columns
from conversations.dialects.author import COMMAND_TOOL
from conversations.dialects.v0 import reading as v0
from conversations.dialects.v1 import reading as v1
from conversations.events import Dialect, Kind, Reading

Payload = Mapping[str, Any]

_NO_STEPS = frozenset({"recall", "null"})
"""Types of V0 events that a server wrote for itself."""
_BESIDE_ARGUMENTS = ("thought", "security_risk", "confirmation_state", "is_confirmed", "hidden", "blocking")
_NAMELESS = "tool"


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedMessage:
    """A message; an agent can only quote the user's."""

    text: str
    reasoning: str = ""
    is_users: bool = False
    after_s: float = 0.0
    """Seconds since the step before."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedResult:
    """The result of a call."""

    text: str
    exit_code: int = 0
    is_rejection: bool = False
    after_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedCall:
    """A call of a tool, with its result if there was one."""

    name: str
    arguments: Mapping[str, Any]
    thought: str = ""
    reasoning: str = ""
    result: RecordedResult | None = None
    after_s: float = 0.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedEnd:
    """The end of the task."""

    text: str
    thought: str = ""
    after_s: float = 0.0


Step = RecordedMessage | RecordedCall | RecordedEnd


def steps_of(payloads: Iterable[Payload]) -> Sequence[Step]:
    """Return the steps of an agent and the messages of its user, in their order. Raise InvalidEvent."""
    reader = _Reader()
    for payload in payloads:
        reader.read(payload)
    return reader.steps


class _Reader:
    """Reads events in their order."""

    def __init__(self) -> None:
        self.steps: list[Step] = []
        self._open: list[tuple[int, RecordedCall, str | None]] = []
        """Calls without a result: their places among the steps, and their ids."""
        self._thought = ""
        """The thoughts since the last step."""
        self._at: datetime | None = None

    def read(self, payload: Payload) -> None:
        reading = dialects.read(payload)
        if reading.hidden or reading.type in _NO_STEPS:
            return
        match reading.kind:
            case Kind.MESSAGE:
                self._message(payload, reading)
            case Kind.TOOL_CALL if reading.source == "agent":
                self._call(payload, reading)
            case Kind.TOOL_RESULT | Kind.ERROR:
                self._result(payload, reading)

    def _message(self, payload: Payload, reading: Reading) -> None:
        text = _whole_text(payload, reading)
        if reading.source == "user":
            self._at = reading.timestamp or self._at  # the user's time for writing is no pause of the agent
            if text:
                self.steps.append(RecordedMessage(text=text, is_users=True))
        elif reading.type in ("finish", "ActionEvent"):
            thought = "\n\n".join(filter(None, [self._reasoning(payload), _thought(payload, reading)]))
            self.steps.append(RecordedEnd(text=text, thought=thought, after_s=self._after_s(reading)))
        elif reading.source == "agent" and text.strip():
            reasoning = self._reasoning(payload)
            self.steps.append(RecordedMessage(text=text, reasoning=reasoning, after_s=self._after_s(reading)))

    def _call(self, payload: Payload, reading: Reading) -> None:
        name, arguments = _called(payload, reading)
        thought = _thought(payload, reading)
        if "think" in (name, reading.type):
            thought = columns.first_text(arguments.get("thought"), thought)
            self._thought = "\n\n".join(filter(None, [self._thought, thought]))
            return
        call = RecordedCall(
            name=name,
            arguments=arguments,
            thought=thought,
            reasoning=self._reasoning(payload),
            after_s=self._after_s(reading),
        )
        self._open.append((len(self.steps), call, reading.tool_call_id))
        self.steps.append(call)

    def _result(self, payload: Payload, reading: Reading) -> None:
        """Give a result to the call with its id, or to the oldest without one."""
        found = next((each for each in self._open if reading.tool_call_id in (each[2], None)), None)
        if reading.type == "think" or found is None:
            return
        self._open.remove(found)
        place, call, _ = found
        result = RecordedResult(
            text=_whole_text(payload, reading),
            exit_code=_exit_code(payload, reading),
            is_rejection=reading.type in ("user_rejected", "UserRejectObservation"),
            after_s=self._after_s(reading),
        )
        self.steps[place] = replace(call, result=result)

    def _reasoning(self, payload: Payload) -> str:
        thought, self._thought = self._thought, ""
        return "\n\n".join(filter(None, [thought, columns.first_text(payload.get("reasoning_content"))]))

    def _after_s(self, reading: Reading) -> float:
        before, self._at = self._at, reading.timestamp or self._at
        if before is None or reading.timestamp is None:
            return 0.0
        return max((reading.timestamp - before).total_seconds(), 0.0)


def _whole_text(payload: Payload, reading: Reading) -> str:
    read = v0.whole_text if reading.dialect is Dialect.V0 else v1.whole_text
    if reading.dialect is Dialect.V0 and reading.kind in (Kind.TOOL_RESULT, Kind.ERROR):
        return columns.content_text(payload.get("content"))  # also an empty one
    return columns.clean(read(payload))


def _called(payload: Payload, reading: Reading) -> tuple[str, Mapping[str, Any]]:
    name, arguments = dialects.called_tool(payload, reading.dialect)
    if reading.dialect is Dialect.V0 and reading.type == "run":
        return COMMAND_TOOL, arguments
    if reading.dialect is Dialect.V0 and reading.type != "call_tool_mcp":
        arguments = {key: value for key, value in arguments.items() if key not in _BESIDE_ARGUMENTS}
        return (reading.type if name == _NAMELESS else name), arguments
    return name, arguments


def _thought(payload: Payload, reading: Reading) -> str:
    if reading.dialect is Dialect.V1:
        return columns.content_text(payload.get("thought"))
    thought = columns.fields(payload.get("args")).get("thought")
    return columns.first_text(thought, columns.fields(thought).get("text"))


def _exit_code(payload: Payload, reading: Reading) -> int:
    if reading.kind is Kind.ERROR:
        return 1
    seen = columns.fields(payload.get("observation"))
    metadata = columns.fields(columns.fields(payload.get("extras")).get("metadata"))
    code = seen.get("exit_code", metadata.get("exit_code"))
    if isinstance(code, int) and not isinstance(code, bool):
        return code
    return int(seen.get("is_error") is True)

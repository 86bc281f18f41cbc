"""A recording of either wire, read as the steps of its agent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from conversations import dialects
from conversations.dialects import columns
from conversations.dialects.author import COMMAND_TOOL
from conversations.dialects.views import CallView, ErrorView, MessageView, ResultView
from conversations.events import Dialect, Reading

Payload = Mapping[str, Any]

# V0 servers wrote events of these types for themselves.
_NO_STEPS = frozenset({"recall", "null"})
_BESIDE_ARGUMENTS = ("thought", "security_risk", "confirmation_state", "is_confirmed", "hidden", "blocking")


@dataclass(frozen=True, kw_only=True, slots=True)
class RecordedMessage:
    """A message of the agent or the user."""

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
        match dialects.view(payload, reading):
            case MessageView() as said:
                self._message(said, reading)
            case CallView() as called if reading.source == "agent":
                self._call(called, reading)
            case (ResultView() | ErrorView()) as brought:
                self._result(brought, reading)

    def _message(self, said: MessageView, reading: Reading) -> None:
        text = columns.clean(said.text)
        if reading.source == "user":
            self._at = reading.timestamp or self._at  # the user's time for writing is no pause of the agent
            if text:
                self.steps.append(RecordedMessage(text=text, is_users=True))
        elif reading.type in ("finish", "ActionEvent"):
            thought = "\n\n".join(filter(None, [self._reasoning(said), said.thought]))
            self.steps.append(RecordedEnd(text=text, thought=thought, after_s=self._after_s(reading)))
        elif reading.source == "agent" and text.strip():
            reasoning = self._reasoning(said)
            self.steps.append(RecordedMessage(text=text, reasoning=reasoning, after_s=self._after_s(reading)))

    def _call(self, called: CallView, reading: Reading) -> None:
        name, arguments = called.tool, called.given
        if reading.dialect is Dialect.V0 and reading.type != "call_tool_mcp":
            arguments = {key: value for key, value in arguments.items() if key not in _BESIDE_ARGUMENTS}
            name = COMMAND_TOOL if reading.type == "run" else called.shown_name
        # A thought runs nothing: it is the reasoning of the next step.
        if "think" in (name, reading.type):
            thought = columns.first_text(arguments.get("thought"), called.thought)
            self._thought = "\n\n".join(filter(None, [self._thought, thought]))
            return
        call = RecordedCall(
            name=name,
            arguments=arguments,
            thought=called.thought,
            reasoning=self._reasoning(called),
            after_s=self._after_s(reading),
        )
        self._open.append((len(self.steps), call, reading.tool_call_id))
        self.steps.append(call)

    def _result(self, brought: ResultView | ErrorView, reading: Reading) -> None:
        """Give a result to the call with its id, or to the oldest without one."""
        found = next((each for each in self._open if reading.tool_call_id in (each[2], None)), None)
        if reading.type == "think" or found is None:
            return
        self._open.remove(found)
        place, call, _ = found
        result = RecordedResult(text=columns.clean(brought.text), exit_code=1, after_s=self._after_s(reading))
        if isinstance(brought, ResultView):
            code = int(brought.is_error) if brought.exit_code is None else brought.exit_code
            is_rejection = brought.is_rejection
            result = replace(result, text=brought.content, exit_code=code, is_rejection=is_rejection)
        self.steps[place] = replace(call, result=result)

    def _reasoning(self, view: MessageView | CallView) -> str:
        thought, self._thought = self._thought, ""
        return "\n\n".join(filter(None, [thought, view.reasoning]))

    def _after_s(self, reading: Reading) -> float:
        before, self._at = self._at, reading.timestamp or self._at
        if before is None or reading.timestamp is None:
            return 0.0
        return max((reading.timestamp - before).total_seconds(), 0.0)

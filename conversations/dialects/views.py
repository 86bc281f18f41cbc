"""What one event says, in words of neither wire: read once from its payload, for all that show or use it.

Members of a wrong type count as missing, so that no payload fails. An event of an unknown kind is an
OtherView.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conversations.dialects.attached import AttachedFile

THOUGHT_LOGGED = "Your thought has been logged."  # the whole result of a thought, on both wires


@dataclass(frozen=True, kw_only=True, slots=True)
class EventView:
    text: str  # all that a person would read, however long


@dataclass(frozen=True, kw_only=True, slots=True)
class MessageView(EventView):
    """Words of the user or the agent; an agent's last ones can end its task."""

    author: str = ""  # a name, where there are several users
    images: Sequence[str] = ()  # URLs
    files: Sequence[AttachedFile] = ()
    reasoning: str = ""  # the model's own, before its words
    thought: str = ""  # beside the words that end a task
    note: str = ""  # for models only; with the texts of the files
    is_interrupted: bool = False  # stopped before its end


@dataclass(frozen=True, kw_only=True, slots=True)
class CallView(EventView):
    name: str = ""  # as the model called it; empty if unknown
    shown_name: str = ""  # for people
    action: str = ""  # what kind of tool this is, by V0's names of actions; empty if unknown
    given: Mapping[str, object] = field(default_factory=dict)  # the arguments as the model gave them
    arguments: Mapping[str, object] = field(default_factory=dict)  # without what the wire adds to them
    subject: Mapping[str, object] | None = None  # all that determines the call; None if it cannot be read
    unread: str = ""  # text in the place of arguments
    summary: str = ""  # the model's own
    message: str = ""  # the wire's own
    thought: str = ""
    reasoning: str = ""
    signed: Sequence[object] = ()  # thoughts that only the model's server reads
    risk: str = ""  # `low`, `medium`, `high` or the sender's own word
    is_waiting: bool = False  # marked as waiting for the user

    @property
    def tool(self) -> str:
        return self.name or "tool"


@dataclass(frozen=True, kw_only=True, slots=True)
class AcpCallView(CallView):
    """A call of an agent behind the Agent Client Protocol, with its progress and result."""

    title: str
    status: str
    is_error: bool
    raw_input: object
    raw_output: object
    content: str


@dataclass(frozen=True, kw_only=True, slots=True)
class ResultView(EventView):
    """The result of a call, or the user's refusal."""

    name: str = ""  # of the tool, for people
    action: str = ""  # as in CallView
    content: str = ""  # without the wire's own sentence in its place
    files: Sequence[str] = ()  # images and others that the tool returned, as URLs
    images: Sequence[str] = ()  # beside these
    fields: Mapping[str, object] = field(default_factory=dict)  # what the wire has beside the content
    exit_code: int | None = None
    is_error: bool = False
    is_rejection: bool = False
    is_timeout: bool = False
    diff: str = ""  # a unified one
    before: str = ""  # a file's content before and after the call
    after: str | None = None
    is_repetition: bool = False  # of what its call has said


@dataclass(frozen=True, kw_only=True, slots=True)
class ErrorView(EventView):
    code: str = ""
    detail: str = ""
    name: str = ""  # of the tool, for people
    action: str = ""  # as in CallView
    is_of_call: bool = False


@dataclass(frozen=True, kw_only=True, slots=True)
class StateView(EventView):
    """A state of the agent in a word of either wire, or another field of the conversation's state."""

    word: str = ""
    reason: str = ""
    key: str | None = None  # None for the agent's state
    value: object = None


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryView(EventView):
    """A summary, in a model's input, in the place of other events."""

    summary: str = ""
    forgotten: Sequence[int | str] = ()  # V0: numbers; V1: ids


@dataclass(frozen=True, kw_only=True, slots=True)
class SystemView(EventView):
    """A system prompt."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NoticeView(EventView):
    """A notice of the server to the user."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HookView(EventView):
    command: str
    is_blocking: bool
    output: str


@dataclass(frozen=True, kw_only=True, slots=True)
class SummaryRequestView(EventView):
    """A request to shorten the model's input."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BookkeepingView(EventView):
    """A note of a program to itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class OtherView(EventView):
    """An event of a kind that no release has; its payload stays in the log."""

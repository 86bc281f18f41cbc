"""The agent protocol: given the history and ways to speak and to act, play one turn."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol, Self

from conversations import dialects
from conversations.dialects.command_tool import CommandEnd
from conversations.dialects.file_tool import FileEdit
from conversations.events import ConversationRef, EventEnvelope

LOOK_S = 0.2
"""A pause takes effect within this time."""


class AgentFailure(Exception):
    """The turn cannot be played to its end; the user reads the text as an error."""

    def __init__(self, text: str, *, code: str = "AgentError") -> None:
        """`code` is what V1 clients get beside the text."""
        super().__init__(text)
        self.code = code


class TurnSuspended(Exception):
    """The turn stops here and continues later: it waits for the user."""


class AgentStuck(AgentFailure):
    """The agent repeats itself."""

    def __init__(self, text: str) -> None:
        # V1 clients know a state for this, but show no text.
        super().__init__(text, code="AgentStuck")


@dataclass(frozen=True, kw_only=True, slots=True)
class CallUsage:
    """What one call of a model used; a `cost` of None is an unknown one."""

    model: str = ""
    """The model's name, as in the settings."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost: float | None = None
    """US dollars."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall:
    """A tool call that is stored in the log."""

    name: str
    arguments: Mapping[str, Any]
    tool_call_id: str
    event_id: str
    seq: int

    @classmethod
    def of(cls, event: EventEnvelope) -> Self:
        """Return the call of a stored event."""
        name, arguments = dialects.called_tool(event)
        return cls(
            name=name,
            arguments=arguments,
            tool_call_id=event["tool_call_id"] or "",
            event_id=event["id"],
            seq=event["seq"],
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposedCall:
    """A tool call to store for approval."""

    name: str
    arguments: Mapping[str, Any]
    signed: Sequence[Mapping[str, Any]] = ()
    source: str | None = None
    """What offers the tool, which the user may allow until that is withdrawn; None if each call asks."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The decision about a tool call: the user's, or the server's after a crash."""

    call: ToolCall
    accepted: bool
    reason: str


class ProgressReport(Protocol):
    """The callback by which a running tool call reports its progress."""

    async def __call__(self, text: str, *, done: float | None, total: float | None) -> None: ...


class Answer(Protocol):
    """An unfinished answer: readers see it grow; it is stored once it is complete."""

    async def write(self, text: str) -> None:
        """Add a piece."""

    def think(self, text: str) -> None:
        """Add a piece of the reasoning, which the next `write` shows, also one of an empty text.

        It is stored with the answer or, without one, with the call that follows.
        """

    def replace(self, text: str) -> None:
        """Store this text instead of what was written."""


class Turn(Protocol):
    """What an agent can see and do while it plays a turn.

    Everything that it does is stored before the method returns. Any method may raise: the turn is then over
    for this agent (paused, stopped, taken over), and it must let the exception pass.
    """

    @property
    def conversation(self) -> ConversationRef: ...

    @property
    def turn_id(self) -> str:
        """The id; it stays the same when the turn continues after an approval or a pause."""

    @property
    def agent(self) -> str:
        """The name of the agent at the turn's start; empty for the server's default."""

    @property
    def model(self) -> Mapping[str, Any] | None:
        """The model that the user chose for this turn alone; None for that of the conversation."""

    @property
    def epoch(self) -> int:
        """The number of the loop's lease; a later loop of the conversation has a higher one."""

    @property
    def inputs(self) -> Sequence[EventEnvelope]:
        """The user's messages since the last answer, oldest first; none if a client only requested a run."""

    @property
    def done(self) -> Sequence[EventEnvelope]:
        """The events that this turn stored before it was continued, oldest first."""

    @property
    def decision(self) -> Decision | None:
        """The decision about the call that the turn waited for; the last one of several."""

    @property
    def decisions(self) -> Sequence[Decision]:
        """The decisions about all calls to run or reject now, oldest first.

        These are the calls that waited for approval and, after a crash, also those that were not started
        and those to run again.
        """

    @property
    def is_pausing(self) -> bool:
        """Whether the user wants to pause, or the turn's time is over: an agent may end its step early.

        It says the rest when the turn continues: `done` has what was stored.
        """

    @property
    def seconds_left(self) -> float | None:
        """The remaining time of the agent; None without a limit."""

    async def pausing(self) -> None:
        """Wait until the user wants the turn to pause."""

    async def checkpoint(self) -> None:
        """Suspend the turn if the user wants to pause; methods that store do so themselves."""

    def identify(self, event_id: str) -> None:
        """Set the id of the next message, notice, call or result, so that a repetition stores nothing."""

    @property
    def stored_through(self) -> int:
        """The seq of the newest event stored by this play; -1 before the first."""

    def confirms(self, risk: str = "UNKNOWN", *, name: str = "", source: str | None = None) -> bool:
        """Return whether a call of this risk (LOW, MEDIUM, HIGH or UNKNOWN) needs an approval.

        None does of a tool that the user has allowed, which `name` and `source` tell.
        """

    async def new_inputs(self) -> Sequence[EventEnvelope]:
        """Return the user's messages since `inputs`, and add them there, if messages steer the agent.

        This turn answers what is returned, the next turn all later messages. Call it before each request to
        a model and before the turn ends.
        """

    async def history(self, limit: int = 200) -> Sequence[EventEnvelope]:
        """Return the newest events of the conversation, oldest first."""

    def answer(self) -> AbstractAsyncContextManager[Answer]:
        """Begin an answer; leaving the block stores it as one message."""

    async def reserve(self, expected: CallUsage) -> None:
        """Reserve the least that a call of a model will use, right before the call.

        If a limit is reached, the turn ends or waits, and this never returns. A `cost` of None is an
        unknown price.
        """

    def count(self, usage: CallUsage) -> None:
        """Count the usage of a call with the turn's next event, or at the end of the turn."""

    async def say(self, text: str) -> None:
        """Store a message."""

    async def notify(self, notice: str) -> None:
        """Store a notice for the user; models do not see it."""

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        thought: str = "",
        signed: Sequence[Mapping[str, Any]] = (),
    ) -> ToolCall:
        """Store a tool call; `signed` are blocks to return to the model's server with it."""

    async def ask_approval(self, name: str, arguments: Mapping[str, Any], *, thought: str = "") -> None:
        """Store a call that needs an approval, and suspend the turn: this never returns.

        After the user's decision the turn is played from its start, with `decision` set.
        """

    async def ask_approvals(self, calls: Sequence[ProposedCall], *, thought: str = "") -> None:
        """Store several calls that need one approval: see `ask_approval` and `decisions`."""

    async def start_tool(self, call: ToolCall) -> str:
        """Store that a call is about to run, and return its idempotency key, the same after a crash.

        Raise CallRefused (`sessions_app.loops.calls.start`) if the call must not run: its approval was used
        or is missing, or its arguments are not those that were approved.
        """

    async def show_progress(
        self, call: ToolCall, text: str, *, done: float | None = None, total: float | None = None
    ) -> None:
        """Show the progress of a running call to present readers, up to `total`; nothing is stored.

        Of reports in quick succession only some are shown.
        """

    async def tool_result(
        self,
        call: ToolCall,
        content: str,
        *,
        exit_code: int = 0,
        end: CommandEnd | None = None,
        files: Sequence[str] = (),
        edit: FileEdit | None = None,
    ) -> None:
        """Store a tool's result; `exit_code` and `end` are a command's, otherwise 0, or 1 for a failure.

        `files` are data URLs; `edit` is what a FILE_TOOL did to a file. The conversation takes over a
        branch that a git command has checked out, and a pull request that a tool has opened.
        """

    async def pause(self, notice: str) -> None:
        """Store a notice, and suspend the turn until the user resumes it: this never returns."""

    async def finish(self, message: str, *, thought: str = "") -> None:
        """Store that the task is done, with the last words; the turn should end then."""

    async def tool_rejected(self, call: ToolCall, reason: str) -> None:
        """Store that the user rejected the call."""

    async def condense(self, forgotten: Sequence[EventEnvelope], summary: str) -> None:
        """Store a summary that replaces these events for the model."""


class Agent(Protocol):
    """One kind of agent; an instance plays the turns of one loop, one after the other.

    A class may set:

    - `needs_model = True`: its user needs settings with a model's key before a conversation starts;
    - `takes_conversation = True`: it is called with the ConversationRef of its loop, not without arguments;
    - `turn_ended()`, called once the end of a turn is stored, and not while the turn waits for the user;
    - `async loop_ended()`, called at the end of its loop;
    - `continues = True`, or `continues_in(conversation)`: it can continue a turn after a crash. It then calls
      `start_tool` before it runs a tool, carries out `turn.decisions` first, and reads what it has done in
      `turn.done` or the history.
    """

    async def play(self, turn: Turn) -> None: ...

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Answer a question beside the conversation; messages are {role, content}, oldest first."""


async def wait_unless_pausing(turn: Turn, wait_s: float) -> None:
    """Wait this long, or until the turn is to pause."""
    while wait_s > 0 and not turn.is_pausing:
        await asyncio.sleep(min(wait_s, LOOK_S))
        wait_s -= LOOK_S

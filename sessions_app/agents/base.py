"""The agent protocol: given the history and ways to speak and to act, play one turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from conversations.events import EventEnvelope
from conversations.models import ConversationRef


class AgentFailure(Exception):
    """The turn cannot be played to its end, and the text says why: the user reads it as an error."""

    def __init__(self, text: str, *, code: str = "AgentError") -> None:
        """`code` is what V1 clients get beside the text."""
        super().__init__(text)
        self.code = code


class TurnSuspended(Exception):
    """The turn stops here and continues later: it waits for the user."""


class AgentStuck(AgentFailure):
    """The agent repeats itself: V1 clients know a state for it, without a text, so it says why before."""

    def __init__(self, text: str) -> None:
        super().__init__(text, code="AgentStuck")


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
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


@dataclass(frozen=True, kw_only=True, slots=True)
class ProposedCall:
    """A tool call that is to wait for approval."""

    name: str
    arguments: Mapping[str, Any]
    signed: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Decision:
    """The decision about a tool call: the user's, or that of the server about a call that a crash cut off."""

    call: ToolCall
    accepted: bool
    """Whether to run it."""
    reason: str


class ProgressReport(Protocol):
    """What a running tool call says of how far it is."""

    async def __call__(self, text: str, *, done: float | None, total: float | None) -> None:
        """Show it to readers."""


class Answer(Protocol):
    """An unfinished answer: readers see it grow, and the log has it once it is complete."""

    async def write(self, text: str) -> None:
        """Add a piece."""

    def think(self, text: str) -> None:
        """Add a piece of the reasoning behind the answer, before a `write`, which may be of nothing.

        It is stored beside the answer or, if there is none, beside the call that follows.
        """

    def replace(self, text: str) -> None:
        """Let the whole answer be this text, which the log then has in place of what was written."""


class Turn(Protocol):
    """What an agent can see and do while it plays a turn.

    Everything that it does is stored before the method returns. Any method may raise: the turn is then over
    for this agent (paused, stopped, taken over), and it must let the exception pass.
    """

    @property
    def conversation(self) -> ConversationRef:
        """The conversation of the turn."""

    @property
    def turn_id(self) -> str:
        """The turn's id: the same if it continues after an approval or a pause."""

    @property
    def agent(self) -> str:
        """The name of the agent that the turn began with; empty for the server's default."""

    @property
    def epoch(self) -> int:
        """The fence of the loop that plays the turn: a later loop of the conversation has a higher one."""

    @property
    def inputs(self) -> Sequence[EventEnvelope]:
        """The user's messages since the last answer, oldest first; empty if a client only requested a run."""

    @property
    def done(self) -> Sequence[EventEnvelope]:
        """The events that this turn has already stored if it continues; empty if it is new.

        Oldest first.
        """

    @property
    def decision(self) -> Decision | None:
        """The user's decision about the call that the turn waited for, if it did; of several the last one."""

    @property
    def decisions(self) -> Sequence[Decision]:
        """The decisions about all calls that are to be run or rejected now, oldest first.

        These are the calls that waited for approval and, in a turn that goes on after a crash, those that
        had not been started and those that are to be run again.
        """

    @property
    def is_pausing(self) -> bool:
        """Whether the next step pauses or ends the turn; an agent may end this step early.

        The user wants to pause, or the time of the turn is over. The agent says the rest when the turn
        continues: `done` has what was stored.
        """

    @property
    def seconds_left(self) -> float | None:
        """For how long the agent may still work; None if its time has no limit."""

    async def pausing(self) -> None:
        """Return once the user wants the turn to pause."""

    async def checkpoint(self) -> None:
        """Suspend the turn if the user wants it to pause, as the other methods do before they store."""

    def identify(self, event_id: str) -> None:
        """Give the next message, notice, call or result this id: repeated, it is stored once."""

    @property
    def stored_through(self) -> int:
        """The seq of the newest event that was stored while the turn is played; -1 before the first."""

    def confirms(self, risk: str = "UNKNOWN") -> bool:
        """Say whether the user wants to approve a call of this risk: LOW, MEDIUM, HIGH or UNKNOWN."""

    async def new_inputs(self) -> Sequence[EventEnvelope]:
        """Return what the user has said since `inputs`, if messages steer the agent; `inputs` has it, too.

        What is returned is answered by this turn; what is said later, or not taken, by the next one. Ask
        between two steps, before each request to a model, and once more before the turn ends.
        """

    async def history(self, limit: int = 200) -> Sequence[EventEnvelope]:
        """Return the newest events of the conversation, oldest first."""

    def answer(self) -> AbstractAsyncContextManager[Answer]:
        """Begin an answer; leaving the block stores it as one message."""

    async def reserve(self, expected: Usage) -> None:
        """Reserve a call of a model, right before it is made, with what it will use at least.

        If a limit of the turn or the conversation is reached, the turn ends or waits: this never returns. A
        `cost` of None says that the model's price is unknown.
        """

    def count(self, usage: Usage) -> None:
        """Count what a call of a model used, in the commit of the turn's next event or when the turn ends."""

    async def say(self, text: str) -> None:
        """Store a message of the agent."""

    async def notify(self, notice: str) -> None:
        """Store what the user should know and no model takes for its own words."""

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        thought: str = "",
        signed: Sequence[Mapping[str, Any]] = (),
    ) -> ToolCall:
        """Store a tool call; `signed` are blocks that the model's server wants back with it."""

    async def ask_approval(self, name: str, arguments: Mapping[str, Any], *, thought: str = "") -> None:
        """Store a call that waits for the user, and suspend the turn: this never returns.

        Once the user has decided, the turn is played again from the start, with `decision` set.
        """

    async def ask_approvals(self, calls: Sequence[ProposedCall], *, thought: str = "") -> None:
        """Store several calls that wait for one decision of the user: see `ask_approval` and `decisions`."""

    async def start_tool(self, call: ToolCall) -> str:
        """Store that a call is about to run, and return its idempotency key.

        The key is the same if the call is run again after a crash. Raise CallRefused
        (`sessions_app.loops.calls.start`) if the call must not be run: its approval was used or is missing,
        or its arguments are not those that were approved.
        """

    async def show_progress(
        self, call: ToolCall, text: str, *, done: float | None = None, total: float | None = None
    ) -> None:
        """Show readers how far a running call is, without storing it; `done` counts up to `total`.

        A reader who joins later does not see it, and of reports in quick succession only some are shown.
        """

    async def tool_result(
        self, call: ToolCall, content: str, *, exit_code: int = 0, files: Sequence[str] = ()
    ) -> None:
        """Store a tool's result; `exit_code` is that of a command, and otherwise 0, or 1 for a failure.

        `files` are images and other files that it brings, as data URLs.

        The conversation takes over a branch that a git command has checked out, and a pull request that a
        tool has opened.
        """

    async def pause(self, notice: str) -> None:
        """Say why the turn goes on only if the user resumes it, and suspend it: this never returns.

        It is then played again from the start, as after any pause.
        """

    async def finish(self, message: str, *, thought: str = "") -> None:
        """Store that the task is done, with the agent's last words; the turn should end with it."""

    async def tool_rejected(self, call: ToolCall, reason: str) -> None:
        """Store that the user rejected the call."""

    async def condense(self, forgotten: Sequence[EventEnvelope], summary: str) -> None:
        """Store that the model no longer gets these events, and what stands in their place."""


class Agent(Protocol):
    """One kind of agent; an instance plays the turns of one loop, one after the other.

    An agent that calls a model sets `needs_model = True` on its class: its user then needs settings with a
    model's key before a conversation starts. A class with `takes_conversation = True` is called with the
    ConversationRef of its loop, any other without arguments.

    A class may have two more functions: `turn_ended()` is called once the end of its turn is stored, and not
    while the turn waits for the user; `async loop_ended()` when its loop is over.

    A class with `continues = True` can play a turn on that a crash has cut off: it calls `start_tool` before
    it runs a tool, carries out `turn.decisions` first, and reads in `turn.done` or the history what it has
    done. Where that depends on the conversation, the class has a function `continues_in(conversation)`.
    """

    async def play(self, turn: Turn) -> None:
        """Play the turn to its end."""

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Answer a question beside the conversation; messages are {role, content}, oldest first."""

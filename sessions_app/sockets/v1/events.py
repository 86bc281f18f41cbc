"""The events socket of the V1 wire: the state, a replay on request, then live events (spec V1 §3.2)."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from math import inf
from typing import Any, NamedTuple, Self
from uuid import uuid4

from django.utils import timezone

from conversations import dialects
from conversations.dialects import AgentState, v1
from conversations.dialects.columns import instant
from conversations.events import ConversationRef, EventEnvelope, Kind
from conversations.log import reads
from sessions_app import astore
from sessions_app.identity.principals import BAD_REQUEST, NOT_FOUND, Principal, Refused
from sessions_app.live.hub import hub
from sessions_app.live.status import ConversationState, iso
from sessions_app.live.text_frames import in_chunks
from sessions_app.models import ExecutionStatus
from sessions_app.openhands_v1.states import FullState, full_states, is_fresh
from sessions_app.settings import client_tools
from sessions_app.sockets.socket import Socket
from sessions_app.sockets.v1.handshake import GONE
from sessions_app.sockets.v1.socket import V1Consumer, V1Socket

# Clients listen for the end only after their request for the run has returned.
RUN_SETTLES_S = 0.1
"""The least time between a run and the report of its end."""

_TRUE = frozenset({"true", "1", "yes", "on", "y", "t"})
_FALSE = frozenset({"false", "0", "no", "off", "n", "f"})
_ENDS = frozenset(
    {
        AgentState.PAUSED,
        AgentState.WAITING_FOR_CONFIRMATION,
        AgentState.FINISHED,
        AgentState.STOPPED,
        AgentState.STUCK,
        AgentState.ERROR,
    }
)
"""The states that end a run."""


class Resend(StrEnum):
    """The stored events that a client asks for."""

    NONE = "none"
    ALL = "all"
    SINCE = "since"


@dataclass(frozen=True, kw_only=True, slots=True)
class Replay:
    resend: Resend
    since: datetime | None = None
    is_by_mode: bool = False
    """Whether `resend_mode` was given, which older clients do not know."""

    @classmethod
    def read(cls, query: Mapping[str, str]) -> Self:
        resend_all, mode = query.get("resend_all", "false").lower(), query.get("resend_mode")
        after = query.get("after_timestamp")
        # An unescaped `+` of a time zone arrives as a space.
        since = after and (instant(after) or instant("+".join(after.rsplit(" ", 1))))
        if resend_all not in _TRUE | _FALSE or mode not in (None, Resend.ALL, Resend.SINCE):
            raise Refused(BAD_REQUEST, "`resend_all` is true or false, `resend_mode` is all or since.")
        if after and not since:
            raise Refused(BAD_REQUEST, "`after_timestamp` is an ISO 8601 time.")
        if mode is None:
            return cls(resend=Resend.ALL if resend_all in _TRUE else Resend.NONE)
        return cls(resend=Resend(mode), since=since or None, is_by_mode=True)

    async def after(self, conversation: ConversationRef) -> int:
        """Return the seq after which events are to be sent."""
        if self.resend is Resend.ALL:
            return -1
        return await astore.call(_before, conversation, self.since if self.resend is Resend.SINCE else None)


def _before(conversation: ConversationRef, since: datetime | None) -> int:
    """Return the seq before the first event of this time or later; the last seq if there is none."""
    last_seq = reads.last_seq(conversation)
    if since is None:
        return last_seq
    first = reads.first_since(conversation, since)
    return last_seq if first is None else min(first - 1, last_seq)


class _SentAnswer(NamedTuple):
    """How many characters of an unfinished answer a client has."""

    answer: str = ""
    text: int = 0
    reasoning: int = 0


class EventsSocket(V1Socket):
    def __init__(
        self,
        socket: Socket,
        principal: Principal,
        conversation: ConversationRef,
        replay: Replay,
        *,
        after: int,
        is_modern: bool,
    ) -> None:
        super().__init__(socket, principal, conversation, is_modern=is_modern)
        self._shown_through = after
        self._replayed_through = after
        self._left_out_before = iso(replay.since) if replay.resend is Resend.SINCE and replay.since else ""
        self._is_running = False
        # When a run was first seen, or the end of one that was not seen.
        self._run_at = -inf
        self._end_is_due = asyncio.Event()
        self._end_wants_seq = inf
        # The last status that was sent, and the log's length then, so that it is sent once.
        self._told = ("", -1)
        self._answer = _SentAnswer()

    @classmethod
    def asked(cls, query: Mapping[str, str]) -> Replay:
        return Replay.read(query)

    @classmethod
    async def made(
        cls,
        socket: Socket,
        principal: Principal,
        conversation: ConversationRef,
        asked: Any,
        *,
        by_frame: bool,
    ) -> Self:
        """Return the socket; events that are stored from here on are live."""
        after = await asked.after(conversation)
        is_modern = by_frame or asked.is_by_mode
        if not is_modern and asked.resend is Resend.NONE:  # web frontends request a replay, and may be older
            is_modern = await astore.call(client_tools.may_have_any, conversation)
        return cls(socket, principal, conversation, asked, after=after, is_modern=is_modern)

    @property
    def _after(self) -> int:
        # The seq when the client joined.
        return self._shown_through

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        return [*super()._works(), self._tell_ends()]

    # Out

    async def show_hello(self, state: ConversationState) -> None:
        """Send the full state."""
        self._replayed_through = state["last_seq"]
        # It is shared with other sockets, and may be older than the events that this one has subscribed to.
        while not is_fresh(self._conversation, full_state := await self._full_state()):
            pass
        await self._send_full_state(full_state)
        self._note_status(full_state.execution_status)
        self._greeted.set()

    async def _full_state(self) -> FullState:
        full_state = await full_states().read(self._conversation)
        if full_state is None:
            raise Refused(NOT_FOUND, GONE)
        return full_state

    async def _send_full_state(self, full_state: FullState) -> None:
        self._told = (full_state.execution_status, full_state.last_seq)
        await self._socket.send_text(full_state.frame)

    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        """Send each event, of a replay only the requested ones; note events that end a run."""
        for chunk in in_chunks([event for event in events if self._is_wanted(event)]):
            await self._socket.send_frames([self._framed(event) for event in chunk])
        self._note_shown(events)

    def show_at_once(self, events: Sequence[EventEnvelope]) -> bool:
        if events[0]["seq"] <= self._replayed_through:
            return False
        frames = hub().recent.framed_together("v1", self._conversation, events, self._shown)
        if not self._socket.send_at_once(frames):
            return False
        self._note_shown(events)
        return True

    def _note_shown(self, events: Sequence[EventEnvelope]) -> None:
        self._shown_through = events[-1]["seq"]
        for event in events:
            if event["seq"] > self._replayed_through:
                self._note_run(event)
        if self._shown_through >= self._end_wants_seq:
            self._end_wants_seq = inf
            self._end_is_due.set()

    def _framed(self, event: EventEnvelope) -> bytes:
        return hub().recent.framed("v1", self._conversation, event, self._shown)

    def _is_wanted(self, event: EventEnvelope) -> bool:
        # An imported history need not be in the order of its times.
        return event["seq"] > self._replayed_through or event["timestamp"] >= self._left_out_before

    async def show_delta(self, *, turn: str, answer: str, index: int, text: str, reasoning: str) -> None:
        """Send a piece of an answer to a client that supports pieces."""
        if self._is_modern:
            sent = self._answer if answer == self._answer.answer else _SentAnswer(answer)
            self._answer = _SentAnswer(answer, sent.text + len(text), sent.reasoning + len(reasoning))
            await self._send_piece(text, reasoning)

    async def show_answer(self, *, turn: str, answer: str, through: int, text: str, reasoning: str) -> None:
        """Send the missing part of the unfinished answer to a client that supports pieces."""
        if self._is_modern:
            sent = self._answer if answer == self._answer.answer else _SentAnswer(answer)
            self._answer = _SentAnswer(answer, len(text), len(reasoning))
            await self._send_piece(text[sent.text :], reasoning[sent.reasoning :])

    async def _send_piece(self, text: str, reasoning: str) -> None:
        piece = v1.answer_piece(text, reasoning=reasoning)
        await self._socket.send_text(
            v1.written(piece, event_id=str(uuid4()), timestamp=v1.stamp(timezone.now()))
        )

    async def show_run(self) -> None:
        # A run without work may be over already: report its end soon.
        self._note_status(ExecutionStatus.RUNNING)
        self._told = ("", -1)  # also if nothing has changed: its client waits for an end
        self._end_is_due.set()

    async def show_state(self, state: ConversationState) -> None:
        """Note that a run begins or ends; close after the conversation's deletion."""
        await super().show_state(state)
        self._note_status(state["loop"]["execution_status"])

    # The ends of runs

    def _note_run(self, event: EventEnvelope) -> None:
        if event["kind"] == Kind.TURN:
            self._note_end()
        elif event["kind"] == Kind.STATE:
            state = dialects.state_of(event)
            if state is AgentState.RUNNING:
                self._note_status(ExecutionStatus.RUNNING)
            elif state in _ENDS:
                self._note_end()

    def _note_status(self, status: str) -> None:
        if status == ExecutionStatus.RUNNING:
            if not self._is_running:
                self._is_running, self._run_at = True, asyncio.get_running_loop().time()
        elif self._is_running:
            self._note_end()

    def _note_end(self) -> None:
        if not self._is_running:
            self._run_at = asyncio.get_running_loop().time()
        self._is_running = False
        self._end_is_due.set()

    async def _tell_ends(self) -> None:
        """Send the full state after each run, after the run's events, and never during a run."""
        await self._greeted.wait()
        while True:
            await self._end_is_due.wait()
            await self._until_runs_settle()
            self._end_is_due.clear()
            full_state = await self._full_state()
            if full_state.execution_status == ExecutionStatus.RUNNING:
                self._note_status(full_state.execution_status)
            elif full_state.last_seq > self._shown_through:  # the run's events come first
                self._end_wants_seq = full_state.last_seq
            elif not is_fresh(self._conversation, full_state):
                self._end_is_due.set()
            elif self._told != (full_state.execution_status, full_state.last_seq):
                self._is_running = False
                await self._send_full_state(full_state)

    async def _until_runs_settle(self) -> None:
        """Wait until the newest run was accepted RUN_SETTLES_S ago; a newer one may be accepted meanwhile."""
        settled_at = -inf
        while settled_at < self._run_at + RUN_SETTLES_S:
            settled_at = self._run_at + RUN_SETTLES_S
            await asyncio.sleep(max(settled_at - asyncio.get_running_loop().time(), 0.0))


class EventsConsumer(V1Consumer):
    socket_class = EventsSocket

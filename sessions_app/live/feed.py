"""Replay and live events for one reader, used by every socket door.

Subscribe first, then read from the cursor, then follow. An event arrives by hint or by reading, whichever
is first, and is sent once, in order.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from traceback import clear_frames
from typing import Any, Protocol

from conversations import counts, histories, live
from conversations.counts import Counted
from conversations.cursors import EventCursor
from conversations.events import ConversationRef, EventEnvelope
from conversations.exceptions import OtherHistory
from conversations.hints import Hint
from sessions_app import astore
from sessions_app.live.hub import hub
from sessions_app.live.status import ConversationState, state_of
from sessions_app.live.text_frames import CHUNK_BYTES
from sessions_app.models import ExecutionStatus, UnfinishedAnswer
from sessions_app.refusals import log_other_history

STEP_EVENTS = 100
"""At most this many events of a replay are sent before other readers continue."""


class Reader(Protocol):
    """How a door sends a conversation; each method returns when the client has taken the frame."""

    door: str
    """The door's name, by which sent events are counted."""

    async def show_hello(self, state: ConversationState) -> None:
        """Send the state of the conversation, before its events."""

    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        """Send events, in order."""

    def show_at_once(self, events: Sequence[EventEnvelope]) -> bool:
        """Send about CHUNK_BYTES of live events if the client has room; return whether they were sent."""

    async def show_replay_complete(self, through: int) -> None:
        """Send that all following events are live."""

    async def show_delta(self, *, turn: str, answer: str, index: int, text: str, reasoning: str) -> None:
        """Send one more piece of an unfinished answer; `answer` is the id that its event will have."""

    async def show_answer(self, *, turn: str, answer: str, through: int, text: str, reasoning: str) -> None:
        """Send an unfinished answer, with its reasoning, up to and including the piece `through`."""

    async def show_progress(
        self, *, turn: str, call: str, text: str, done: float | None, total: float | None
    ) -> None:
        """Send the progress of the call with this event id; `total` is None if unknown."""

    async def show_receipt(self, *, seqs: Sequence[int], seen_seq: int, turn: str) -> None:
        """Send that a turn has shown these messages to the agent when `seen_seq` was the newest event."""

    async def show_state(self, state: ConversationState) -> None:
        """Send the present state of the conversation, as far as it differs from before."""

    async def show_run(self) -> None:
        """Send that a run was accepted, even if there was nothing to do."""

    async def show_other_history(self, error: OtherHistory) -> None:
        """Send that the reader has another history; later frames begin at the end of the log."""


class Unshown:
    """The parts of a feed for which a wire may have no frame: a reader shows none, unless it defines one."""

    async def show_replay_complete(self, through: int) -> None: ...

    async def show_delta(self, *, turn: str, answer: str, index: int, text: str, reasoning: str) -> None: ...

    async def show_answer(
        self, *, turn: str, answer: str, through: int, text: str, reasoning: str
    ) -> None: ...

    async def show_progress(
        self, *, turn: str, call: str, text: str, done: float | None, total: float | None
    ) -> None: ...

    async def show_receipt(self, *, seqs: Sequence[int], seen_seq: int, turn: str) -> None: ...

    async def show_run(self) -> None: ...

    async def show_other_history(self, error: OtherHistory) -> None: ...


class Feed:
    """One reader of one conversation."""

    def __init__(self, conversation: ConversationRef, reader: Reader, *, after: EventCursor) -> None:
        self.conversation = conversation
        self.sent_through = after.seq
        self._after = after
        self._reader = reader
        self._answer = _AnswerCursor()

    async def run(self, *, follow: bool = True) -> None:
        """Send everything after the cursor, and then, if it is to `follow`, live events until cancelled."""
        try:
            await self._show_all(follow=follow)
        except BaseException as error:
            _let_go(error)
            raise

    async def _show_all(self, *, follow: bool) -> None:
        async with hub().subscribe(live.conversation_group(self.conversation.pk)) as hints:
            # Subscribed before: an event that is committed from here on is in a hint, if not in the state.
            state = await astore.call(state_of, self.conversation)
            await self._reader.show_hello(state)
            try:
                histories.require_within(self._after, last_seq=state["last_seq"])
                if self._after.fingerprint is not None:
                    await astore.call(histories.require_same, self.conversation, self._after)
            except OtherHistory as error:
                log_other_history(
                    self.conversation, error, after=self.sent_through, last_seq=state["last_seq"]
                )
                await self._reader.show_other_history(error)
                self.sent_through = state["last_seq"]
            # Hints tell of what is stored later than the state, and of each later piece of an answer.
            await self._replay(state["last_seq"])
            await self._reader.show_replay_complete(self.sent_through)
            if state["loop"]["execution_status"] == ExecutionStatus.RUNNING:
                await self._show_unfinished_answer()
            hints.take_at_once = self._take_at_once
            while follow:
                await self._follow(await hints.next())

    def _take_at_once(self, hint: Hint, characters: int) -> bool:
        """Show the next events if the client takes them now; return whether they were shown."""
        if hint["kind"] != "appended" or characters > CHUNK_BYTES:
            return False
        events: list[EventEnvelope] = hint["events"]
        if not events or events[0]["seq"] != self.sent_through + 1:
            return False
        try:
            if not self._reader.show_at_once(events):
                return False
        except Exception:  # the reader's own task will raise it, too
            return False
        self._note_shown(events)
        return True

    async def _follow(self, hint: Hint) -> None:
        match hint["kind"]:
            case "appended":
                await self._show_appended(hint["events"], hint["last_seq"])
            case "delta":
                await self._show_delta(hint)
            case "answer":
                if self._answer.is_behind or self._answer.lacks(hint["answer"], hint["through"]):
                    await self._show_unfinished_answer()
            case "progress":
                shown = {name: hint[name] for name in ("turn", "call", "text", "done", "total")}
                await self._reader.show_progress(**shown)
            case "receipt":
                # A reader gets the events that a receipt or a state is about before it.
                await self._catch_up_to(hint["seen_seq"])
                await self._reader.show_receipt(
                    seqs=hint["seqs"], seen_seq=hint["seen_seq"], turn=hint["turn"]
                )
            case "state":
                await self._catch_up_to(hint["state"]["last_seq"])
                await self._reader.show_state(hint["state"])
            case "run":
                await self._reader.show_run()

    async def _show_appended(self, events: list[EventEnvelope], last_seq: int) -> None:
        if last_seq <= self.sent_through:
            return
        if events and events[0]["seq"] <= self.sent_through + 1:
            await self._show([event for event in events if event["seq"] > self.sent_through])
        else:  # a hint was lost, or was too large to contain its events
            await self._catch_up_to(last_seq)

    async def _replay(self, last_seq: int) -> None:
        while self.sent_through < last_seq:
            page = await hub().pages.read_after(self.conversation, self.sent_through)
            if not page:
                return
            for start in range(0, len(page), STEP_EVENTS):
                # One step of all replays in each round of the event loop, so that requests pass between them.
                async with hub().replaying:
                    await asyncio.sleep(0)
                await self._show(page[start : start + STEP_EVENTS])

    async def _catch_up_to(self, last_seq: int) -> None:
        """Send announced events that are missing here; many readers may miss the same ones."""
        while self.sent_through < last_seq:
            events = await hub().recent.read_after(self.conversation, self.sent_through)
            if not events:
                return
            for start in range(0, len(events), STEP_EVENTS):
                await self._show(events[start : start + STEP_EVENTS])

    async def _show(self, events: Sequence[EventEnvelope]) -> None:
        await self._reader.show_events(events)
        self._note_shown(events)

    def _note_shown(self, events: Sequence[EventEnvelope]) -> None:
        counts.add(Counted.SENT, self._reader.door, number=len(events))
        self.sent_through = events[-1]["seq"]
        for event in events:
            if event["kind"] == "message":  # it may be the answer of which the reader has pieces
                self._answer.stored(event["id"])

    async def _show_delta(self, hint: Hint) -> None:
        if self._answer.takes(hint["answer"], hint["index"]):
            await self._reader.show_delta(
                turn=hint["turn"],
                answer=hint["answer"],
                index=hint["index"],
                text=hint["text"],
                reasoning=hint["reasoning"],
            )
        elif self._answer.fell_behind(hint["answer"], hint["index"]):
            await self._show_unfinished_answer()

    async def _show_unfinished_answer(self) -> None:
        row = await astore.call(unfinished_answer, self.conversation)
        if row is not None and self._answer.takes_all(row["answer"], row["through"]):
            await self._reader.show_answer(**row)


def _let_go(error: BaseException) -> None:
    """Clear the local variables of the frames that an error has ended."""
    # A timeout refers to its task, the task to its error, and the error to these frames. Otherwise the events
    # in them stay until the next full garbage collection, which text alone rarely causes.
    ended: BaseException | None = error
    while ended is not None:
        clear_frames(ended.__traceback__)
        ended = ended.__cause__ or ended.__context__


class _AnswerCursor:
    """How much of an unfinished answer a reader has: pieces are sent once and in order."""

    def __init__(self) -> None:
        self.is_behind = False
        self._answer = ""
        self._next = 0
        # Late pieces of the last few answers may still come.
        self._stored: deque[str] = deque(maxlen=8)

    def takes(self, answer: str, index: int) -> bool:
        """Return whether this piece is the next one, and count it."""
        if answer in self._stored:
            return False
        if answer != self._answer:
            self._answer, self._next, self.is_behind = answer, 0, False
        if index != self._next:
            return False
        self._next += 1
        return True

    def fell_behind(self, answer: str, index: int) -> bool:
        """Return whether a piece before this one was just missed; True once until caught up."""
        if self.is_behind or answer != self._answer or index < self._next:
            return False
        self.is_behind = True
        return True

    def lacks(self, answer: str, through: int) -> bool:
        """Return whether a snapshot up to this piece has something new."""
        return answer not in self._stored and (answer != self._answer or through >= self._next)

    def takes_all(self, answer: str, through: int) -> bool:
        """Return whether this snapshot has something new, and count its pieces."""
        if not self.lacks(answer, through):
            return False
        self._answer, self._next, self.is_behind = answer, through + 1, False
        return True

    def stored(self, event_id: str) -> None:
        """Record that an answer is in the log, so that its late pieces are ignored."""
        self._stored.append(event_id)


def unfinished_through(conversation: ConversationRef) -> tuple[str, int] | None:
    """Return the id of the unfinished answer, and the index of the last piece in its snapshot."""
    rows = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk)
    return rows.values_list("event_id", "through").first()


def unfinished_answer(conversation: ConversationRef) -> dict[str, Any] | None:
    """Return the snapshot of the unfinished answer, if there is one."""
    row = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk).first()
    if row is None:
        return None
    return {
        "turn": row.turn_id,
        "answer": row.event_id,
        "through": row.through,
        "text": row.text,
        "reasoning": row.reasoning,
    }

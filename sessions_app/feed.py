"""Replay and follow for one reader: every socket door uses it.

Subscribe first, then read from the cursor, then follow. An event arrives by hint or by reading,
whichever is first, and goes out once, in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Protocol

from conversations import live
from conversations.events import EventEnvelope
from conversations.hints import Hint
from conversations.models import ConversationRef
from sessions_app import astore
from sessions_app.courtesy import courtesy
from sessions_app.hub import hub
from sessions_app.models import UnfinishedAnswer
from sessions_app.status import ConversationState, states_of

STORED_ANSWERS_REMEMBERED = 8
STEP_EVENTS = 100
"""So many of a history are shown at once before others have their turn."""


class Reader(Protocol):
    """One door's way to show a conversation; each method returns when the client has taken it."""

    async def show_hello(self, state: ConversationState) -> None:
        """Show what the conversation is like before its events."""

    async def show_events(self, events: Sequence[EventEnvelope]) -> None:
        """Show events, in order."""

    async def show_replay_complete(self, through: int) -> None:
        """Show that what follows is live."""

    async def show_delta(self, *, turn: str, answer: str, index: int, text: str) -> None:
        """Show one more piece of an unfinished answer; `answer` is the id of the event to be."""

    async def show_answer(self, *, turn: str, answer: str, through: int, text: str) -> None:
        """Show all of an unfinished answer up to and with the piece `through`."""

    async def show_state(self, state: ConversationState) -> None:
        """Show what the conversation is like now, where it differs from before."""

    async def show_run(self) -> None:
        """Show that a run was accepted, be there anything to do or not."""

    async def show_ahead(self, *, after: int, last_seq: int) -> None:
        """Show that the reader's cursor lies beyond the end of the log."""


class Feed:
    """One reader's way through one conversation."""

    def __init__(self, conversation: ConversationRef, reader: Reader, *, after: int) -> None:
        self.conversation = conversation
        self.sent_through = after
        self._reader = reader
        self._answer = _AnswerCursor()

    async def run(self) -> None:
        """Show everything after the cursor, then what comes, until cancelled."""
        async with hub().subscribe(live.conversation_group(self.conversation.pk)) as hints:
            state = (await astore.call(states_of, [self.conversation.pk]))[self.conversation.pk]
            await self._reader.show_hello(state)
            if self.sent_through > state["last_seq"]:
                await self._reader.show_ahead(after=self.sent_through, last_seq=state["last_seq"])
                self.sent_through = state["last_seq"]
            await self._catch_up()
            await self._reader.show_replay_complete(self.sent_through)
            await self._show_unfinished_answer()
            while True:
                await self._follow(await hints.next())

    async def _follow(self, hint: Hint) -> None:
        match hint["kind"]:
            case "appended":
                await self._show_appended(hint["events"], hint["last_seq"])
            case "delta":
                await self._show_delta(hint)
            case "answer":
                if self._answer.is_behind:
                    await self._show_unfinished_answer()
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
        else:  # a hint was lost, or it was too large to bring its events; the log was not
            await self._catch_up_to(last_seq)

    async def _catch_up(self) -> None:
        is_first_step = True
        while page := await astore.read_after(self.conversation, self.sent_through):
            for start in range(0, len(page), STEP_EVENTS):
                if not is_first_step:
                    await courtesy().give_way()
                await self._show(page[start : start + STEP_EVENTS])
                is_first_step = False

    async def _catch_up_to(self, last_seq: int) -> None:
        """Show what was announced and is missing here, where many may miss the same."""
        while self.sent_through < last_seq:
            events = await hub().recent.read_after(self.conversation, self.sent_through)
            if not events:
                return
            for start in range(0, len(events), STEP_EVENTS):
                await self._show(events[start : start + STEP_EVENTS])

    async def _show(self, events: Sequence[EventEnvelope]) -> None:
        await self._reader.show_events(events)
        self.sent_through = events[-1]["seq"]
        for event in events:
            if event["kind"] == "message":
                self._answer.stored(event["id"])

    async def _show_delta(self, hint: Hint) -> None:
        if self._answer.takes(hint["answer"], hint["index"]):
            await self._reader.show_delta(
                turn=hint["turn"], answer=hint["answer"], index=hint["index"], text=hint["text"]
            )
        elif self._answer.fell_behind(hint["answer"], hint["index"]):
            await self._show_unfinished_answer()

    async def _show_unfinished_answer(self) -> None:
        row = await astore.call(unfinished_answer, self.conversation)
        if row is not None and self._answer.takes_all(row["answer"], row["through"]):
            await self._reader.show_answer(**row)


class _AnswerCursor:
    """How much of the answer that is being given a reader has: pieces go out once and in order."""

    def __init__(self) -> None:
        self.is_behind = False
        self._answer = ""
        self._next = 0
        self._stored: deque[str] = deque(maxlen=STORED_ANSWERS_REMEMBERED)

    def takes(self, answer: str, index: int) -> bool:
        """Say whether this piece is the next one, and count it."""
        if answer in self._stored:
            return False
        if answer != self._answer:
            self._answer, self._next, self.is_behind = answer, 0, False
        if index != self._next:
            return False
        self._next += 1
        return True

    def fell_behind(self, answer: str, index: int) -> bool:
        """Say whether a piece before this one was missed just now; said once until caught up."""
        if self.is_behind or answer != self._answer or index < self._next:
            return False
        self.is_behind = True
        return True

    def takes_all(self, answer: str, through: int) -> bool:
        """Say whether this snapshot is news, and count what it holds."""
        if answer in self._stored or (answer == self._answer and through < self._next):
            return False
        self._answer, self._next, self.is_behind = answer, through + 1, False
        return True

    def stored(self, event_id: str) -> None:
        """Note that an answer is in the log, so that a late piece of it is passed over."""
        self._stored.append(event_id)


def unfinished_through(conversation: ConversationRef) -> tuple[str, int] | None:
    """Return which answer is being given, and the index of the last piece in its snapshot."""
    rows = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk)
    return rows.values_list("event_id", "through").first()


def unfinished_answer(conversation: ConversationRef) -> dict[str, Any] | None:
    """Return the snapshot of the answer that is being given, if there is one."""
    row = UnfinishedAnswer.objects.filter(conversation_id=conversation.pk).first()
    if row is None:
        return None
    return {"turn": row.turn_id, "answer": row.event_id, "through": row.through, "text": row.text}

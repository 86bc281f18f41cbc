"""One turn being played: what the agent says and does becomes events of the conversation's wire."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any
from uuid import uuid4

import structlog
from django.db import Error as DatabaseProblem

from conversations import dialects
from conversations.dialects import AgentState
from conversations.dialects.command_tool import CommandEnd
from conversations.dialects.file_tool import FileEdit
from conversations.events import SEQ_MAX, Appended, Authored, Dialect, EventEnvelope, Kind, NewEvent
from conversations.exceptions import ConversationError, EventConflict
from conversations.log import reads
from conversations.models import ConversationRef
from conversations.server_log import ids_of
from sessions_app import astore
from sessions_app.agents import limit_notices, metering, model_use
from sessions_app.agents.base import AgentFailure, CallUsage, Decision, ProposedCall, ToolCall, TurnSuspended
from sessions_app.agents.metering import Reached
from sessions_app.agents.turn_meter import TurnMeter
from sessions_app.agents.turn_usage import AppendHook
from sessions_app.loops import decisions, turn_events, turns
from sessions_app.loops.calls import facts, start
from sessions_app.loops.calls.progress import ToolProgress
from sessions_app.loops.inputs import while_working
from sessions_app.loops.playing.confirmation import Confirmation, confirmation_of
from sessions_app.loops.playing.retries import retry
from sessions_app.loops.playing.streamed_answer import StreamedAnswer, masks_of
from sessions_app.loops.playing.turn_log import TurnLog
from sessions_app.loops.turns import TurnStart
from sessions_app.models import ExecutionStatus, RunState, ToolRun
from sessions_app.settings.client_tools import Known, known_to
from sessions_app.settings.run_limits import Unit

logger = structlog.stdlib.get_logger(__name__)

DONE_PAGE_EVENTS = 200


class PlayedTurn:
    """The Turn that agents get (`agents.base`)."""

    def __init__(self, conversation: ConversationRef, epoch: int, start: TurnStart) -> None:
        self.conversation = conversation
        self.turn_id = start.turn_id
        self.agent, self.model = start.agent, start.model
        self.inputs: Sequence[EventEnvelope] = ()
        self.done: Sequence[EventEnvelope] = ()
        self.decision: Decision | None = None
        self.decisions: Sequence[Decision] = ()
        self._pausing = asyncio.Event()
        self._next_id: str | None = None
        self._confirmation = Confirmation({})
        self._known = Known()
        self._epoch = epoch
        # Its `through` moves with what the agent takes up.
        self.start = start
        self._author = dialects.author(conversation.dialect)
        self._log = TurnLog(conversation, start.turn_id, epoch, author=self._author, counted=start.counted)
        self._meter = TurnMeter(conversation, start.turn_id, epoch)
        # Reasoning without an answer yet: the next call or the next answer takes it.
        self._unsaid: StreamedAnswer | None = None
        self._progress = ToolProgress(conversation, start.turn_id)
        # The ids of the decided calls that have no result yet.
        self._undone: set[str] = set()

    async def prepare(self) -> None:
        """Read the inputs of the turn, and store that the agent works."""
        self.inputs, self.decisions = await retry(lambda: astore.call(self._read))
        self.done = await self._read_done()
        self._confirmation = await retry(lambda: astore.call(confirmation_of, self.conversation))
        if self.conversation.dialect is Dialect.V1:
            self._known = await retry(lambda: astore.call(known_to, self.conversation))
        await self._ask_about_next_unknown()
        self._undone = {each.call.event_id for each in self.decisions}
        if self.start.decision is not None and self.decisions:
            self.decision = self.decisions[-1]
        event_id = str(uuid4())  # fixed before the attempts, so that a repeated one stores it once
        authored = self._author.state(state=AgentState.RUNNING, event_id=event_id)
        await retry(lambda: self._append(authored, event_id))
        await retry(lambda: astore.call(self._meter.read))

    async def _ask_about_next_unknown(self) -> None:
        """Suspend a turn that has another call whose outcome is unknown."""
        if not self.start.is_continued:
            return
        call = await retry(lambda: astore.call(start.next_unknown, self.conversation))
        if call is not None:
            events = turn_events.asked_outcome(self.conversation, call)
            suspend = turns.suspend_turn(self.conversation, ExecutionStatus.WAITING_FOR_CONFIRMATION)
            await retry(lambda: self._log.store(events, also=suspend))
            raise TurnSuspended(AgentState.WAITING_FOR_CONFIRMATION)

    def _read(self) -> tuple[list[EventEnvelope], list[Decision]]:
        after, through = self.start.answered_through, self.start.through
        return (
            reads.read_inputs(self.conversation, after=after, through=through),
            decisions.made(self.conversation, self.turn_id) if self.start.is_continued else [],
        )

    async def _read_done(self) -> list[EventEnvelope]:
        """Return what the turn has stored."""
        done: list[EventEnvelope] = []

        def next_page() -> list[EventEnvelope]:
            after = done[-1]["seq"] if done else -1
            return reads.read_turn(self.conversation, self.turn_id, after=after, limit=DONE_PAGE_EVENTS)

        while page := await retry(lambda: astore.call(next_page)):  # a long turn must not hold a thread
            done += page
        return done

    async def new_inputs(self) -> Sequence[EventEnvelope]:
        """Take up what the user has said since, if it is to steer the agent, and return it."""
        if self.pause_wanted:
            return ()
        # Without a lock: most steps find nothing new, and must not wait for appends.
        has_later = partial(while_working.has_later_input, self.conversation, self.start.through)
        if not await retry(lambda: astore.call(has_later)):
            return ()
        through = await retry(
            lambda: astore.change(turns.take_up, self.conversation, self._epoch, self.turn_id)
        )
        known = self.start.through
        if through <= known:
            return ()
        new = await retry(
            lambda: astore.call(reads.read_inputs, self.conversation, after=known, through=through)
        )
        self.start = replace(self.start, through=through)
        self.inputs = [*self.inputs, *new]
        return new

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def stored_through(self) -> int:
        return self._log.stored_through

    @property
    def pause_wanted(self) -> bool:
        """Whether the user wants the turn to pause; the loop sets it."""
        return self._pausing.is_set()

    @pause_wanted.setter
    def pause_wanted(self, wanted: bool) -> None:
        (self._pausing.set if wanted else self._pausing.clear)()

    @property
    def is_pausing(self) -> bool:
        # At its next step the turn pauses, or ends because its time is over.
        return self.pause_wanted or self._meter.is_out_of_time

    @property
    def seconds_left(self) -> float | None:
        return self._meter.seconds_left

    async def pausing(self) -> None:
        await self._pausing.wait()

    def identify(self, event_id: str) -> None:
        self._next_id = event_id

    def _new_id(self) -> str:
        event_id, self._next_id = self._next_id, None
        return event_id or str(uuid4())

    def confirms(self, risk: str = "UNKNOWN", *, name: str = "", source: str | None = None) -> bool:
        return self._confirmation.is_wanted(risk, facts.shown_name(name, self._known), source)

    async def history(self, limit: int = 200) -> Sequence[EventEnvelope]:
        return await astore.call(reads.read_before, self.conversation, SEQ_MAX, limit=limit)

    @asynccontextmanager
    async def answer(self) -> AsyncIterator[StreamedAnswer]:
        """Stream an answer; store it as one message at the end, and its beginning on an error."""
        await self.checkpoint()
        answer = await self._begun_answer()
        try:
            yield answer
        except (asyncio.CancelledError, Exception):
            with suppress(ConversationError):  # the end of the turn stores what was said so far
                await asyncio.shield(answer.break_off())
            raise
        answer.end()
        # Reasoning alone goes with the call that follows, unless the turn pauses before it.
        if answer.text or (answer.reasoning and self.is_pausing):
            self._unsaid = None
            await self._say(answer.text, answer.event_id, reasoning=answer.reasoning)
        elif answer.reasoning:
            self._unsaid = answer

    async def _begun_answer(self) -> StreamedAnswer:
        """Return a new answer, or the unsaid one, whose reasoning it continues."""
        answer, is_identified = self._unsaid, self._next_id is not None
        if answer is None or is_identified:
            masks = await retry(lambda: astore.call(lambda: masks_of(self.conversation)))
            answer = StreamedAnswer(
                self.conversation, self.turn_id, self._epoch, masks, event_id=self._new_id()
            )
            if self._unsaid is not None:
                answer.think(self._unsaid.reasoning)
        if answer.reasoning:
            answer.think("\n\n")
        return answer

    def count(self, usage: CallUsage) -> None:
        self._log.count(usage)
        self._meter.count(usage)

    async def reserve(self, expected: CallUsage) -> None:
        """Reserve the expected use of a model's call in the limits; at a limit, end or pause the turn."""
        await self.checkpoint()
        share, family = self._meter.share(reserves=True), self._meter.family
        amounts = metering.amounts_of(expected)
        unpriced = expected.model if expected.cost is None else ""
        reached, is_untold = await retry(
            lambda: astore.change(
                metering.reserve, self.conversation, family, share, amounts, unpriced=unpriced
            )
        )
        self._meter.has_counted(share)
        if is_untold:
            await self._notify(limit_notices.unpriced(expected.model))
        if reached is not None:
            await self._end_at(reached)

    def out_of_time(self) -> AgentFailure:
        """Return the failure of a turn whose agent has exceeded its time."""
        reached = self._meter.spend_time()
        told = limit_notices.notice(reached, asks=False) if reached else ""
        return AgentFailure(told, code=limit_notices.CODES[Unit.SECONDS])

    async def _end_at(self, reached: Reached) -> None:
        """End the turn at a limit, or suspend it until its user resumes it."""
        is_v1 = self.conversation.dialect is Dialect.V1
        told = limit_notices.notice(reached, asks=not is_v1)
        if is_v1:
            raise AgentFailure(told, code=limit_notices.CODES[reached.limit.unit])
        await self._notify(told)
        await self._suspend(AgentState.PAUSED)

    async def settle(self) -> None:
        """Count what no event of the turn has counted: it is over, or waits."""
        await model_use.record_beside(self.conversation, self._log.take_uncounted())
        if not self._meter.has_to_settle:
            return
        share = self._meter.share(reserves=False)
        try:
            await astore.change(
                metering.settle, self.conversation, self._meter.family, share, is_spent=self._meter.is_spent
            )
        except (DatabaseProblem, ConversationError) as error:
            logger.warning("The end of a turn was not counted", **ids_of(self.conversation), error=str(error))

    async def say(self, text: str) -> None:
        await self.checkpoint()
        await self._say(text, self._new_id())

    async def notify(self, notice: str) -> None:
        await self.checkpoint()
        await self._notify(notice, self._new_id())

    async def _notify(self, notice: str, event_id: str = "") -> None:
        event_id = event_id or str(uuid4())
        await self._append(self._author.notice(text=notice, event_id=event_id), event_id)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any],
        *,
        thought: str = "",
        signed: Sequence[Mapping[str, Any]] = (),
    ) -> ToolCall:
        await self.checkpoint()
        name = facts.shown_name(name, self._known)
        call = ProposedCall(name=name, arguments=arguments, signed=signed)
        event, tool_call_id = self._new_call(call, thought, awaiting_confirmation=False)
        (appended,) = await self._log.store([event])
        return ToolCall(
            name=name,
            arguments=arguments,
            tool_call_id=tool_call_id,
            event_id=event.event_id,
            seq=appended.seq,
        )

    async def ask_approval(self, name: str, arguments: Mapping[str, Any], *, thought: str = "") -> None:
        await self.ask_approvals([ProposedCall(name=name, arguments=arguments)], thought=thought)

    async def ask_approvals(self, calls: Sequence[ProposedCall], *, thought: str = "") -> None:
        await self.checkpoint()
        asked = []
        for call in calls:
            shown = replace(call, name=facts.shown_name(call.name, self._known))
            asked.append((self._new_call(shown, thought, awaiting_confirmation=True)[0], call.source))
            thought = ""  # it belongs to the first call
        await self._suspend(AgentState.WAITING_FOR_CONFIRMATION, asked)

    async def start_tool(self, call: ToolCall) -> str:
        if call.event_id in self._undone:  # a pause takes effect before a call that was decided about
            await self.checkpoint()
        attempt = str(uuid4())  # distinguishes a repeated commit from a second start
        return await retry(
            lambda: astore.change(
                start.start, self.conversation, self._epoch, self.turn_id, call, attempt=attempt
            )
        )

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
        def author(event_id: str) -> Authored:
            return self._author.tool_result(
                name=call.name,
                arguments=call.arguments,
                content=content,
                exit_code=exit_code,
                end=end,
                files=files,
                edit=edit,
                tool_call_id=call.tool_call_id,
                event_id=event_id,
                call_event_id=call.event_id,
                client_schema=self._known.schemas.get(call.name),
            )

        # A failed command has changed no branch, and opened no pull request.
        also = None if exit_code else facts.learning(self.conversation, call, content)
        await self._store_answer(call, author, part="result", also=also)

    async def condense(self, forgotten: Sequence[EventEnvelope], summary: str) -> None:
        # Counted from the first event: the summary comes after the system prompt.
        first = await astore.call(reads.read_after, self.conversation, -1, limit=1)
        offset = 1 if first and first[0]["kind"] == Kind.SYSTEM else 0
        event_id = str(uuid4())
        authored = self._author.condensation(
            forgotten=forgotten, summary=summary, offset=offset, event_id=event_id
        )
        await self._append(authored, event_id)

    async def show_progress(
        self, call: ToolCall, text: str, *, done: float | None = None, total: float | None = None
    ) -> None:
        await self._progress.show(call, text, done=done, total=total)

    async def tool_rejected(self, call: ToolCall, reason: str) -> None:
        def author(event_id: str) -> Authored:
            ids = {"tool_call_id": call.tool_call_id, "event_id": event_id, "call_event_id": call.event_id}
            return self._author.tool_rejected(name=call.name, reason=reason, **ids)

        await self._store_answer(call, author, part="refused")

    async def _store_answer(
        self,
        call: ToolCall,
        author: Callable[[str], Authored],
        *,
        part: str,
        also: AppendHook | None = None,
    ) -> None:
        """Store the event that answers a call, once: its id is derived from the turn and the call."""
        event_id = turn_events.turn_event_id(self.turn_id, f"{part} {call.seq}")
        try:
            await self._append(author(event_id), event_id, answered=call, also=also)
        except EventConflict:
            calls = await astore.call(lambda: reads.open_calls(self.conversation, self.turn_id))
            if all(each["id"] != call.event_id for each in calls):  # an earlier attempt has stored it
                return
            event_id = turn_events.fresh_id(event_id)  # a client has used it
            await self._append(author(event_id), event_id, answered=call, also=also)

    async def pause(self, notice: str) -> None:
        await self.notify(notice)
        await self._suspend(AgentState.PAUSED)

    async def finish(self, message: str, *, thought: str = "") -> None:
        """Store the call that ends the task, and its answer if the wire has one."""
        await self.checkpoint()
        call_id, answer_id, tool_call_id = self._new_id(), str(uuid4()), _new_tool_call_id()
        call = self._author.finish(
            message=message, thought=thought, tool_call_id=tool_call_id, event_id=call_id
        )
        answer = self._author.finished(
            message=message, tool_call_id=tool_call_id, event_id=answer_id, call_event_id=call_id
        )
        events = [self._log.shown(call, call_id)]
        if answer is not None:
            events.append(answer.event(answer_id, turn_id=self.turn_id))
        await self._log.store(events)

    def _new_call(
        self, call: ProposedCall, thought: str, *, awaiting_confirmation: bool
    ) -> tuple[NewEvent, str]:
        event_id, tool_call_id = self._new_id(), _new_tool_call_id()
        authored = self._author.tool_call(
            name=call.name,
            arguments=call.arguments,
            thought=thought,
            reasoning=self._take_unsaid(),
            signed=call.signed,
            tool_call_id=tool_call_id,
            event_id=event_id,
            awaiting_confirmation=awaiting_confirmation,
            client_schema=self._known.schemas.get(call.name),
        )
        return self._log.shown(authored, event_id), tool_call_id

    def _take_unsaid(self) -> str:
        unsaid, self._unsaid = self._unsaid, None
        if unsaid is not None:
            self._log.forget_snapshot()
        return unsaid.reasoning if unsaid else ""

    async def _say(self, text: str, event_id: str, *, reasoning: str = "") -> None:
        try:
            await self._store_message(text, event_id, reasoning)
        except EventConflict:  # readers know the id from the first piece, and one has used it
            await self._store_message(text, turn_events.fresh_id(event_id), reasoning)

    async def _store_message(self, text: str, event_id: str, reasoning: str) -> None:
        self._log.forget_snapshot()
        authored = self._author.agent_message(text=text, event_id=event_id, reasoning=reasoning)
        await self._log.store([self._log.shown(authored, event_id)])

    async def _append(
        self,
        authored: Authored,
        event_id: str,
        *,
        answered: ToolCall | None = None,
        also: AppendHook | None = None,
    ) -> list[Appended]:
        cause_seq = answered.seq if answered else None
        event = authored.event(event_id, turn_id=self.turn_id, cause_seq=cause_seq)
        hooks = [*self._answering(answered), *([also] if also is not None else [])]

        def run_all(appended: Sequence[Appended]) -> None:
            for hook in hooks:
                hook(appended)

        stored = await self._log.store([event], also=run_all if hooks else None)
        if answered is not None:
            self._undone.discard(answered.event_id)
        return stored

    def _answering(self, call: ToolCall | None) -> Iterator[AppendHook]:
        """Yield the hooks of an append that answers this call."""
        if call is None:
            return
        run = ToolRun.objects.of_call(self.conversation, call.event_id)
        yield lambda appended: run.enter(RunState.ANSWERED)
        if self.decision is not None and self._undone == {call.event_id}:
            yield decisions.carry_out(self.conversation)

    async def checkpoint(self) -> None:
        """Apply a pause or the end of the time between two steps; a call and its result are one step."""
        if self.pause_wanted:
            await self._suspend(AgentState.PAUSED)
        if (reached := self._meter.spend_time()) is not None:
            await self._end_at(reached)

    async def _suspend(self, state: AgentState, asked: Sequence[tuple[NewEvent, str | None]] = ()) -> None:
        """Store the state and, in the same append, the calls that wait: no decision may come too early."""
        calls, sources = [call for call, _ in asked], {call.event_id: source for call, source in asked}
        states = turn_events.steered(self.conversation, state, turn_id=self.turn_id)
        # The V0 web client offers a decision only for a call that follows the state.
        events = [*states, *calls] if self.conversation.dialect is Dialect.V0 else [*calls, *states]
        suspend = turns.suspend_turn(self.conversation, ExecutionStatus(state))

        def wait(appended: Sequence[Appended]) -> None:
            suspend(appended)
            if any(each.is_new for each in appended):
                start.wait_for_approval(self.conversation, sources)

        await self._log.store(events, also=wait if calls else suspend)
        raise TurnSuspended(state)


def _new_tool_call_id() -> str:
    return f"call_{uuid4().hex[:12]}"

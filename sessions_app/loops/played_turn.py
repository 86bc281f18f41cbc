"""One turn being played: what the agent says and does becomes events of the conversation's wire."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from math import inf
from typing import Any, TypeVar
from uuid import uuid4

import structlog
from django.db import Error as DatabaseProblem
from django.db import InterfaceError, OperationalError, transaction

from conversations import dialects, live
from conversations.dialects import AgentState
from conversations.dialects.author import COMMAND_TOOL, command_of
from conversations.engines import failures
from conversations.events import Appended, Authored, Dialect, EventEnvelope, Kind, NewEvent
from conversations.exceptions import ConversationBusy, ConversationError, EventConflict, OutcomeUnknown
from conversations.log import reads
from conversations.models import ConversationRef
from conversations.outages import Outage
from conversations.payloads.halves import WholeText, whole
from conversations.redaction import secrets
from conversations.redaction.masking import Masks
from conversations.redaction.streams import MaskedStream
from conversations.server_log import ids_of
from conversations.store import changes
from conversations.tool_facts import PULL_REQUEST_TOOLS, branch_after, pull_request_in
from sessions_app import astore
from sessions_app.agents import limit_notices, metering, model_use
from sessions_app.agents.base import (
    AgentFailure,
    Decision,
    ProposedCall,
    ToolCall,
    TurnSuspended,
    Usage,
)
from sessions_app.agents.metering import Reached
from sessions_app.agents.turn_meter import TurnMeter
from sessions_app.agents.turn_usage import AppendHook, TurnUsage
from sessions_app.loops import decisions, leases, turn_events, turns
from sessions_app.loops.calls import start
from sessions_app.loops.confirmation import policy_of, wants_approval
from sessions_app.loops.inputs import while_working
from sessions_app.loops.turns import TurnStart
from sessions_app.models import AgentLoop, ExecutionStatus, RunState, ToolRun, UnfinishedAnswer
from sessions_app.settings.client_tools import Known, known_to
from sessions_app.settings.run_limits import Unit

logger = structlog.stdlib.get_logger(__name__)

_trying = Outage(
    __name__, "An agent's turn could not be stored and is tried again", "Agents' turns are stored again"
)

T = TypeVar("T")
PLAIN_COMMAND_TOOL = "bash"
"""The name of a COMMAND_TOOL that is shown as an ordinary tool."""
_COMMAND_TOOLS = (COMMAND_TOOL, PLAIN_COMMAND_TOOL)

DONE_PAGE_EVENTS = 200
"""A continued turn reads what it has stored by pages of at most this many events."""

SNAPSHOT_S = 0.25
"""A late reader misses at most this much of an unfinished answer until the next snapshot."""
PROGRESS_S = 0.5
"""Of reports of a tool's progress, readers see at most one in this time."""
AGAIN_S = 0.2


async def retry(attempt: Callable[[], Awaitable[T]]) -> T:
    """Await something repeatable: again while the conversation is locked, and after connections broke."""
    left = max(astore.READERS, astore.CHANGERS)  # each thread's connection may be broken
    while True:
        try:
            done = await attempt()
        except ConversationBusy as error:
            _trying.failed(error)
        except (OperationalError, InterfaceError) as error:
            if not left:
                raise
            # Another transaction writes for long, or no connection is free: nothing broke.
            left -= not (failures.is_locked(error) or failures.is_unconnected(error))
            _trying.failed(error)
        else:
            _trying.worked()
            return done
        await asyncio.sleep(AGAIN_S)


class PlayedTurn:
    """The Turn that agents get (`agents.base`)."""

    def __init__(self, conversation: ConversationRef, epoch: int, start: TurnStart) -> None:
        self.conversation = conversation
        self.turn_id = start.turn_id
        self.agent = start.agent
        self.inputs: Sequence[EventEnvelope] = ()
        self.done: Sequence[EventEnvelope] = ()
        self.decision: Decision | None = None
        self.decisions: Sequence[Decision] = ()
        self.stored_through = -1
        self._pausing = asyncio.Event()
        self._next_id: str | None = None
        self._policy: Mapping[str, Any] = {}
        self._known = Known()
        self._epoch = epoch
        self.start = start
        """Its `through` moves with what the agent takes up."""
        self._author = dialects.author(conversation.dialect)
        self._usage = TurnUsage(conversation, self._author, start.counted)
        self._meter = TurnMeter(conversation, start.turn_id, epoch)
        self._unsaid: StreamedAnswer | None = None
        """Reasoning without an answer: the next call has it, or the next answer goes on with it."""
        self._has_old_snapshot = False
        self._progress_at = -inf
        self._undone: set[str] = set()
        """The ids of the decided calls that have no result yet."""

    async def prepare(self) -> None:
        """Read the inputs of the turn, and store that the agent works."""
        self.inputs, self.decisions = await retry(lambda: astore.call(self._read))
        self.done = await self._read_done()
        self._policy = await retry(lambda: astore.call(policy_of, self.conversation))
        if self.conversation.dialect is Dialect.V1:
            self._known = await retry(lambda: astore.call(known_to, self.conversation))
        await self._ask_about_next_unknown()
        self._undone = {each.call.event_id for each in self.decisions}
        if self.start.decision is not None and self.decisions:
            self.decision = self.decisions[-1]
        event_id = str(uuid4())
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
            await retry(lambda: self._store(events, also=suspend))
            raise TurnSuspended(AgentState.WAITING_FOR_CONFIRMATION)

    def _read(self) -> tuple[list[EventEnvelope], list[Decision]]:
        after, through = self.start.answered_through, self.start.through
        return (
            reads.read_inputs(self.conversation, after=after, through=through),
            self._read_decisions() if self.start.is_continued else [],
        )

    async def _read_done(self) -> list[EventEnvelope]:
        """Return what the turn has stored, read by pages: a long one keeps no thread from others."""
        done: list[EventEnvelope] = []
        while page := await retry(partial(astore.call, self._read_page, done[-1]["seq"] if done else -1)):
            done += page
        return done

    def _read_page(self, after: int) -> list[EventEnvelope]:
        return reads.read_turn(self.conversation, self.turn_id, after=after, limit=DONE_PAGE_EVENTS)

    def _read_decisions(self) -> list[Decision]:
        """Return what was decided about the open calls of a turn that continues."""
        runs = {run.call_id: run for run in ToolRun.objects.of(self.conversation)}
        found = []
        for call in reads.open_calls(self.conversation, self.turn_id):
            run = runs.get(call["id"])
            if run is not None and run.state in (RunState.APPROVED, RunState.REJECTED):
                accepted = run.state == RunState.APPROVED
                found.append(Decision(call=_tool_call(call), accepted=accepted, reason=run.reason))
        return found

    async def new_inputs(self) -> Sequence[EventEnvelope]:
        """Take up what the user has said since, if that is to steer the agent, and return it."""
        if self.pause_wanted or not await retry(lambda: astore.call(self._is_asked_for_more)):
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

    def _is_asked_for_more(self) -> bool:
        return while_working.has_later_input(self.conversation, self.start.through)

    @property
    def epoch(self) -> int:
        """Return the epoch of the loop."""
        return self._epoch

    @property
    def pause_wanted(self) -> bool:
        """Whether the user wants the turn to pause, which the loop sets."""
        return self._pausing.is_set()

    @pause_wanted.setter
    def pause_wanted(self, wanted: bool) -> None:
        if wanted:
            self._pausing.set()
        else:
            self._pausing.clear()

    @property
    def is_pausing(self) -> bool:
        """Say whether the next step pauses the turn, or ends it because its time is over."""
        return self.pause_wanted or self._meter.is_out_of_time

    @property
    def seconds_left(self) -> float | None:
        """Say for how long the agent may still work."""
        return self._meter.seconds_left

    async def pausing(self) -> None:
        """Wait until a pause is wanted."""
        await self._pausing.wait()

    def identify(self, event_id: str) -> None:
        """Keep the id for the next event."""
        self._next_id = event_id

    def _new_id(self) -> str:
        event_id, self._next_id = self._next_id, None
        return event_id or str(uuid4())

    def confirms(self, risk: str = "UNKNOWN") -> bool:
        """Ask the conversation's policy."""
        return wants_approval(self._policy, risk)

    async def history(self, limit: int = 200) -> Sequence[EventEnvelope]:
        """Return the newest events, oldest first."""
        return await astore.call(reads.read_before, self.conversation, 2**63 - 1, limit=limit)

    @asynccontextmanager
    async def answer(self) -> AsyncIterator[StreamedAnswer]:
        """Stream an answer; store it as one message at the end, and its beginning on an error."""
        await self.checkpoint()
        owner, conversation = self.conversation.owner_id, self.conversation.pk
        masks = await retry(lambda: astore.call(secrets.masks_of, owner, conversation))
        answer = self._begun_answer(masks)
        try:
            yield answer
        except (asyncio.CancelledError, Exception):
            with suppress(ConversationError):  # whoever ends the turn stores what was said so far
                await asyncio.shield(answer.break_off())
            raise
        answer.end()
        if answer.text or (answer.reasoning and self.is_pausing):
            self._unsaid = None
            await self._say(answer.text, answer.event_id, reasoning=answer.reasoning)
        elif answer.reasoning:
            self._unsaid = answer

    def _begun_answer(self, masks: Masks) -> StreamedAnswer:
        """Return a new answer, or one that goes on with reasoning that has none yet."""
        answer, is_identified = self._unsaid, self._next_id is not None
        if answer is None or is_identified:
            answer = StreamedAnswer(
                self.conversation, self.turn_id, self._epoch, masks, event_id=self._new_id()
            )
            if self._unsaid is not None:
                answer.think(self._unsaid.reasoning)
        if answer.reasoning:
            answer.think("\n\n")
        return answer

    def count(self, usage: Usage) -> None:
        """Count it in the commit of the next event, or when the turn ends."""
        self._usage.add(usage)
        self._meter.count(usage)

    async def reserve(self, expected: Usage) -> None:
        """Take what a call of a model is expected to use from the limits; at one, the turn ends or pauses."""
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
        """Return the failure of a turn whose agent has worked on after its time."""
        reached = self._meter.spend_time()
        told = limit_notices.notice(reached, asks=False) if reached else ""
        return AgentFailure(told, code=limit_notices.CODES[Unit.SECONDS])

    async def _end_at(self, reached: Reached) -> None:
        """End the turn at a limit, or let it wait until its user resumes it."""
        is_v1 = self.conversation.dialect is Dialect.V1
        told = limit_notices.notice(reached, asks=not is_v1)
        if is_v1:
            raise AgentFailure(told, code=limit_notices.CODES[reached.limit.unit])
        await self._notify(told)
        await self._suspend(AgentState.PAUSED, ExecutionStatus.PAUSED)

    async def settle(self) -> None:
        """Count what none of its events has counted: the turn is over, or waits."""
        await model_use.record_beside(self.conversation, self._usage.take())
        if not self._meter.has_to_settle:
            return
        share = self._meter.share(reserves=False)
        try:
            await astore.change(
                metering.settle,
                self.conversation,
                self._meter.family,
                share,
                is_spent=self._meter.is_spent,
            )
        except (DatabaseProblem, ConversationError) as error:
            logger.warning("The end of a turn was not counted", **ids_of(self.conversation), error=str(error))

    async def _store(self, events: Sequence[NewEvent], *, also: AppendHook | None = None) -> list[Appended]:
        """Append events of the turn, and count what its calls of models have used since the last ones."""
        usages = self._usage.take()
        also = self._usage.counting(usages, self._forgetting_snapshot(also))
        try:
            stored = await astore.append(self.conversation, events, epoch=self._epoch, also=also)
        except OutcomeUnknown:
            raise  # it may be counted
        except Exception:
            self._usage.give_back(usages)
            raise
        self.stored_through = stored[-1].seq
        return stored

    def _forgetting_snapshot(self, also: AppendHook | None) -> AppendHook | None:
        """Return what an append does besides, with the removal of what late readers were shown before it."""
        if not self._has_old_snapshot:
            return also
        self._has_old_snapshot = False

        def forget(appended: Sequence[Appended]) -> None:
            UnfinishedAnswer.objects.filter(conversation_id=self.conversation.pk).delete()
            if also is not None:
                also(appended)

        return forget

    async def say(self, text: str) -> None:
        """Store a message."""
        await self.checkpoint()
        await self._say(text, self._new_id())

    async def notify(self, notice: str) -> None:
        """Store a notice."""
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
        """Store a tool call."""
        await self.checkpoint()
        name = self._shown_name(name)
        call = ProposedCall(name=name, arguments=arguments, signed=signed)
        event, tool_call_id = self._new_call(call, thought, awaiting_confirmation=False)
        (appended,) = await self._store([event])
        return ToolCall(
            name=name,
            arguments=arguments,
            tool_call_id=tool_call_id,
            event_id=event.event_id,
            seq=appended.seq,
        )

    async def ask_approval(self, name: str, arguments: Mapping[str, Any], *, thought: str = "") -> None:
        """Store a call that waits; the turn is suspended."""
        await self.ask_approvals([ProposedCall(name=name, arguments=arguments)], thought=thought)

    async def ask_approvals(self, calls: Sequence[ProposedCall], *, thought: str = "") -> None:
        """Store calls that wait for one decision; the turn is suspended."""
        await self.checkpoint()
        events = []
        for call in calls:
            shown = replace(call, name=self._shown_name(call.name))
            event, _ = self._new_call(shown, thought, awaiting_confirmation=True)
            events.append(event)
            thought = ""
        state, status = AgentState.WAITING_FOR_CONFIRMATION, ExecutionStatus.WAITING_FOR_CONFIRMATION
        await self._suspend(state, status, calls=events)

    async def start_tool(self, call: ToolCall) -> str:
        """Store that a call starts; a pause takes effect before one that was decided about."""
        if call.event_id in self._undone:
            await self.checkpoint()
        attempt = str(uuid4())
        return await retry(
            lambda: astore.change(
                start.start, self.conversation, self._epoch, self.turn_id, call, attempt=attempt
            )
        )

    async def tool_result(
        self, call: ToolCall, content: str, *, exit_code: int = 0, files: Sequence[str] = ()
    ) -> None:
        """Store a tool's result, and the facts in it about the conversation's repository."""

        def author(event_id: str) -> Authored:
            return self._author.tool_result(
                name=call.name,
                arguments=call.arguments,
                content=content,
                exit_code=exit_code,
                files=files,
                tool_call_id=call.tool_call_id,
                event_id=event_id,
                call_event_id=call.event_id,
                client_schema=self._known.schemas.get(call.name),
            )

        await self._store_answer(call, author, part="result", also=self._learning(call, content, exit_code))

    def _learning(self, call: ToolCall, content: str, exit_code: int) -> AppendHook | None:
        if exit_code:
            return None
        branch = branch_after(command_of(call.arguments), content) if call.name in _COMMAND_TOOLS else None
        number = pull_request_in(content) if call.name in PULL_REQUEST_TOOLS else None

        def learn(appended: Sequence[Appended]) -> None:
            if branch is not None and not self._hides(branch):
                changes.note_branch(self.conversation, branch)
            if number is not None:
                changes.note_pull_request(self.conversation, number)

        return None if branch is None and number is None else learn

    def _hides(self, text: str) -> bool:
        return secrets.masks_of(self.conversation.owner_id, self.conversation.pk).hide(text) != text

    async def condense(self, forgotten: Sequence[EventEnvelope], summary: str) -> None:
        """Store a condensation; the log keeps the events."""
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
        """Show readers how far a call is, at most every PROGRESS_S, without the secrets of its owner."""
        now = time.monotonic()
        if now - self._progress_at < PROGRESS_S:
            return
        self._progress_at = now
        try:
            masks = await astore.call(secrets.masks_of, self.conversation.owner_id, self.conversation.pk)
        except (ConversationBusy, OperationalError, InterfaceError):
            return  # the next report has more
        progress = {"call": call.event_id, "text": masks.hide(whole(text)), "done": done, "total": total}
        group = live.conversation_group(self.conversation.pk)
        live.announce(group, {"kind": "progress", "turn": self.turn_id, **progress})

    async def tool_rejected(self, call: ToolCall, reason: str) -> None:
        """Store a rejection."""

        def author(event_id: str) -> Authored:
            return self._author.tool_rejected(
                name=call.name,
                reason=reason,
                tool_call_id=call.tool_call_id,
                event_id=event_id,
                call_event_id=call.event_id,
            )

        await self._store_answer(call, author, part="refused")

    async def _store_answer(
        self,
        call: ToolCall,
        author: Callable[[str], Authored],
        *,
        part: str,
        also: AppendHook | None = None,
    ) -> None:
        """Store what answers a call, once: its id is derived from the turn and the call."""
        event_id = turn_events.turn_event_id(self.turn_id, f"{part} {call.seq}")
        try:
            await self._append(author(event_id), event_id, answered=call, also=also)
        except EventConflict:
            if await astore.call(self._is_answered, call):
                return
            event_id = turn_events.fresh_id(event_id)  # a client has used it
            await self._append(author(event_id), event_id, answered=call, also=also)

    def _is_answered(self, call: ToolCall) -> bool:
        calls = reads.open_calls(self.conversation, self.turn_id)
        return all(each["id"] != call.event_id for each in calls)

    async def pause(self, notice: str) -> None:
        """Say why, and suspend the turn until the user resumes it."""
        await self.notify(notice)
        await self._suspend(AgentState.PAUSED, ExecutionStatus.PAUSED)

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
        events = [self._usage.shown_in(turn_events.new_event(call, call_id, turn_id=self.turn_id))]
        if answer is not None:
            events.append(turn_events.new_event(answer, answer_id, turn_id=self.turn_id))
        await self._store(events)

    def _shown_name(self, name: str) -> str:
        """Return the log's name of a tool: a plain one, if the client cannot read calls of a terminal."""
        return PLAIN_COMMAND_TOOL if name == COMMAND_TOOL and not self._known.has_terminal else name

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
        return self._usage.shown_in(
            turn_events.new_event(authored, event_id, turn_id=self.turn_id)
        ), tool_call_id

    def _take_unsaid(self) -> str:
        unsaid, self._unsaid = self._unsaid, None
        self._has_old_snapshot = unsaid is not None
        return unsaid.reasoning if unsaid else ""

    async def _say(self, text: str, event_id: str, *, reasoning: str = "") -> None:
        try:
            await self._store_message(text, event_id, reasoning)
        except EventConflict:  # readers have seen the id with the first piece, and one of them used it
            await self._store_message(text, turn_events.fresh_id(event_id), reasoning)

    async def _store_message(self, text: str, event_id: str, reasoning: str) -> None:
        self._has_old_snapshot = True
        authored = self._author.agent_message(text=text, event_id=event_id, reasoning=reasoning)
        event = self._usage.shown_in(turn_events.new_event(authored, event_id, turn_id=self.turn_id))
        await self._store([event])

    async def _append(
        self,
        authored: Authored,
        event_id: str,
        *,
        answered: ToolCall | None = None,
        also: AppendHook | None = None,
    ) -> list[Appended]:
        cause_seq = answered.seq if answered else None
        event = turn_events.new_event(authored, event_id, turn_id=self.turn_id, cause_seq=cause_seq)
        hooks = [*self._answering(answered), *([also] if also is not None else [])]

        def run_all(appended: Sequence[Appended]) -> None:
            for hook in hooks:
                hook(appended)

        stored = await self._store([event], also=run_all if hooks else None)
        if answered is not None:
            self._undone.discard(answered.event_id)
        return stored

    def _answering(self, call: ToolCall | None) -> Iterator[AppendHook]:
        """Yield what the append does besides that answers this call."""
        if call is None:
            return
        run = ToolRun.objects.of_call(self.conversation, call.event_id)
        yield lambda appended: run.enter(RunState.ANSWERED)
        if self.decision is not None and self._undone == {call.event_id}:
            yield decisions.carry_out(self.conversation)

    async def checkpoint(self) -> None:
        """Apply a pause or the end of the time between two steps; a call and its result are one step."""
        if self.pause_wanted:
            await self._suspend(AgentState.PAUSED, ExecutionStatus.PAUSED)
        if (reached := self._meter.spend_time()) is not None:
            await self._end_at(reached)

    async def _suspend(
        self, state: AgentState, status: ExecutionStatus, *, calls: Sequence[NewEvent] = ()
    ) -> None:
        """Store the state, and in the same append the calls that wait, so no decision comes too early."""
        states = turn_events.steered(self.conversation, state, turn_id=self.turn_id)
        # The V0 web client offers a decision only for a call that follows the state.
        events = [*states, *calls] if self.conversation.dialect is Dialect.V0 else [*calls, *states]
        suspend = turns.suspend_turn(self.conversation, status)

        def wait(appended: Sequence[Appended]) -> None:
            suspend(appended)
            if any(each.is_new for each in appended):
                start.wait_for_approval(self.conversation, [each.event_id for each in calls])

        await self._store(events, also=wait if calls else suspend)
        raise TurnSuspended(state)


def _new_tool_call_id() -> str:
    return f"call_{uuid4().hex[:12]}"


def _tool_call(event: EventEnvelope) -> ToolCall:
    name, arguments = start.called(event)
    return ToolCall(
        name=name,
        arguments=arguments,
        tool_call_id=event["tool_call_id"] or "",
        event_id=event["id"],
        seq=event["seq"],
    )


class StreamedAnswer:
    """An unfinished answer: readers get each piece without its secrets, and late readers a snapshot."""

    def __init__(
        self, conversation: ConversationRef, turn_id: str, epoch: int, masks: Masks, *, event_id: str
    ) -> None:
        self.event_id = event_id
        self.text = ""
        self.reasoning = ""
        self._conversation = conversation
        self._turn_id = turn_id
        self._epoch = epoch
        self._masks = masks
        self._text, self._reasoning = MaskedStream(), MaskedStream()
        self._whole_text, self._whole_reasoning = WholeText(), WholeText()
        self._index = 0
        self._snapshot_at = -inf  # the first piece makes one, also where the clock has just begun
        self._snapshot_through = -1

    async def write(self, text: str) -> None:
        """Add a piece."""
        text = self._whole_text.add(text)
        self.text += text
        self._text.add(text)
        self._announce(text=self._text.take(self._masks))
        if self._index and time.monotonic() - self._snapshot_at >= SNAPSHOT_S:
            await self.snapshot()

    def think(self, text: str) -> None:
        """Add a piece of the reasoning; the next `write` keeps it for late readers."""
        text = self._whole_reasoning.add(text)
        self.reasoning += text
        self._reasoning.add(text)
        self._announce(reasoning=self._reasoning.take(self._masks))

    def replace(self, text: str) -> None:
        """Say this in place of what was written."""
        self.text = whole(text)
        self._whole_text = WholeText()

    def end(self) -> None:
        """Take the half of a character that still waits: no piece follows."""
        text, reasoning = self._whole_text.rest(), self._whole_reasoning.rest()
        self.text += text
        self.reasoning += reasoning
        self._text.add(text)
        self._reasoning.add(reasoning)

    async def break_off(self) -> None:
        """Show and store everything: nothing follows. Raise Fenced if another loop has taken over."""
        self.end()
        reasoning = self._reasoning.take_rest(self._masks)
        self._announce(text=self._text.take_rest(self._masks), reasoning=reasoning)
        await self.snapshot()

    def _announce(self, *, text: str = "", reasoning: str = "") -> None:
        if not (text or reasoning):
            return
        index, self._index = self._index, self._index + 1
        live.announce(
            live.conversation_group(self._conversation.pk),
            {
                "kind": "delta",
                "turn": self._turn_id,
                "answer": self.event_id,
                "index": index,
                "text": text,
                "reasoning": reasoning,
            },
        )

    async def snapshot(self) -> None:
        """Store what was shown so far, unless the database fails just now: the next one has it all.

        Raise Fenced if another loop has taken over.
        """
        if self._snapshot_through == self._index - 1:
            return
        self._snapshot_at = time.monotonic()
        through = self._index - 1
        shown = {
            "turn_id": self._turn_id,
            "event_id": self.event_id,
            "through": through,
            "text": self._text.shown,
            "reasoning": self._reasoning.shown,
        }
        try:
            self._masks = await astore.change(_store_snapshot, self._conversation, self._epoch, shown)
        except (ConversationBusy, OperationalError, InterfaceError) as error:
            logger.warning(
                "A snapshot of an answer is left out", **ids_of(self._conversation), error=str(error)
            )
            return
        self._snapshot_through = through
        hint = {"kind": "answer", "answer": self.event_id, "through": through}
        live.announce(live.conversation_group(self._conversation.pk), hint)


def _store_snapshot(conversation: ConversationRef, epoch: int, shown: dict[str, Any]) -> Masks:
    """Store what was shown without what is secret by now, and return what that is."""
    with transaction.atomic():
        leases.locked_by(conversation, epoch)
        masks = secrets.masks_of(conversation.owner_id, conversation.pk)
        hidden = {name: masks.hide(shown[name]) for name in ("text", "reasoning")}
        # Otherwise the turn was ended meanwhile, and the answer is in the log as far as it got.
        if AgentLoop.objects.of(conversation).filter(turn_id=shown["turn_id"]).exists():
            UnfinishedAnswer.objects.update_or_create(
                conversation_id=conversation.pk, defaults={**shown, **hidden}
            )
    return masks

"""The agent that answers with a language model."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import structlog

from conversations.dialects.file_tool import FILE_TOOL
from conversations.events import ConversationRef, Kind
from conversations.server_log import ids_of
from sessions_app import astore
from sessions_app.agents import model_use
from sessions_app.agents.base import (
    LOOK_S,
    AgentFailure,
    Answer,
    CallUsage,
    Turn,
    TurnSuspended,
    wait_unless_pausing,
)
from sessions_app.agents.llm import choice, library, models, prompts, record, refusals
from sessions_app.agents.llm.choice import ModelChoice
from sessions_app.agents.llm.condensing import Condenser
from sessions_app.agents.llm.endings import Endings
from sessions_app.agents.llm.faults import BAD_REQUEST, RATE_LIMIT, ModelFault, ToolsRefused
from sessions_app.agents.llm.guidance import setup
from sessions_app.agents.llm.guidance.repository import AgentRepository
from sessions_app.agents.llm.guidance.skills import Guidance, guidance
from sessions_app.agents.llm.models import Target
from sessions_app.agents.llm.record import Record
from sessions_app.agents.llm.tools.keeping import TurnTools
from sessions_app.agents.llm.tools.offers import Tool
from sessions_app.agents.llm.tools.opening import OpenTools
from sessions_app.agents.llm.tools.use import ToolUse
from sessions_app.settings import agent_setups

if TYPE_CHECKING:
    from sessions_app.agents.llm.requests import AnswerPiece, ModelClient, Reply, Request

logger = structlog.stdlib.get_logger(__name__)

# About 100,000 tokens. Where the model's window is unknown and smaller, its refusal shortens the request.
HISTORY_MAX_CHARS = 400_000
HISTORY_LEAST_CHARS = 6_000
SHORTENED_BY = 4
WAITS_S = (1.0, 2.0, 4.0, 8.0)
"""The pauses between the attempts of a turn."""
WAIT_MAX_S = 60.0
"""A server that wants a longer pause is not asked again."""
COMPLETE_S = 60.0
NO_MODEL = "No model is set. Enter one in Settings."
TIMED_OUT = "The model didn't answer in time."


class LlmAgent:
    """Answers with the model of the conversation's start, of its owner's settings or of the server."""

    title = "Model"
    description = "Answers with a language model, and uses the tools of your tool servers."
    takes_conversation = True
    uses_model = True
    task = ""
    """The instruction of a model that does something else than answer."""
    only_reads = False
    """Whether it gets only tools that change nothing."""
    continues = True

    def __init__(self, conversation: ConversationRef) -> None:
        self._conversation = conversation
        self._tools = TurnTools(conversation, only_reading=self.only_reads)
        self._repository = AgentRepository(only_reads=self.only_reads)
        self._told: set[str] = set()
        """The notices that this loop has stored."""
        self._blind: set[str] = set()
        """The models that have refused a request because of its images."""

    async def play(self, turn: Turn) -> None:
        """Play one turn. Raise AgentFailure with a sentence for the user."""
        target, client = await self._model(turn.model)
        recorded = await astore.call(choice.untold_record, self._conversation, target.full_name)
        if recorded:
            shown = {"recorded": f"`{recorded}`", "model": f"`{target.full_name}`"}
            await turn.notify(prompts.RECORDED_NOTICE.format(**shown))
            await astore.change(choice.note_told, self._conversation)
        detects_repetition = await astore.call(agent_setups.detects_repetition, self._conversation)
        place = await self._repository.ready(turn)
        tools = await self._tools.of(turn.turn_id)
        try:
            found = await self._heed(turn, tools, target.full_name)
            use = ToolUse(turn, tools, detects_repetition=detects_repetition)
            playing = _Playing(
                turn,
                target,
                client,
                tools,
                use,
                found,
                task=self.task,
                place=place,
                blind=self._blind,
                told=self._told,
            )
            await playing.play()
        except TurnSuspended:
            self._tools.wait()  # the calls after the user's decision go to the same processes
            raise

    async def _heed(self, turn: Turn, tools: OpenTools, model: str) -> Guidance:
        """Return what the workspace says to the model, and ask about the setup of its repository first."""
        reads_files = FILE_TOOL in tools.tools
        found: Guidance = await astore.call(guidance, self._conversation, model, reads_files=reads_files)
        for notice in [*tools.notices, *filter(None, [found.notice])]:
            if notice not in self._told:
                self._told.add(notice)
                await turn.notify(notice)
        await setup.ask(turn, tools.tools if found.has_files else {})
        return found

    def turn_ended(self) -> None:
        """Close the tool servers, without waiting: readers see the answer before they have ended."""
        self._tools.let_go()

    async def loop_ended(self) -> None:
        """Close the tool servers that a waiting turn has kept."""
        await self._tools.close()

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        target, client = await self._model()
        expected = client.expected_of(target, messages)
        async with model_use.reserved_beside(self._conversation, expected) as usages:
            try:
                async with asyncio.timeout(COMPLETE_S):
                    return (await client.complete(target, messages, usages.append)).strip()
            except TimeoutError:
                raise AgentFailure(TIMED_OUT, code="LLMTimeoutError") from None

    async def _model(self, of_turn: Mapping[str, Any] | None = None) -> tuple[Target, ModelClient]:
        chosen: ModelChoice | None = await astore.call(choice.model_of, self._conversation, of_turn)
        if chosen is None:
            raise AgentFailure(NO_MODEL, code="LLMAuthenticationError")
        target = models.target_of(chosen)
        return target, await library.client_of(target.wire)


class _Playing:
    """One turn: asks the model until its answer is complete and calls no tool."""

    def __init__(
        self,
        turn: Turn,
        target: Target,
        client: ModelClient,
        tools: OpenTools,
        use: ToolUse,
        found: Guidance,
        *,
        task: str,
        place: str,
        blind: set[str],
        told: set[str],
    ) -> None:
        """`blind` are the models that get no images of tools, `told` the notices of earlier turns.

        `place` says where the repository is.
        """
        self._turn = turn
        self._task, self._place = task, place
        self._blind = blind
        self._target = target
        self._client = client
        self._tools = tools
        self._use = use
        self._guidance = found
        self._max_chars = min(HISTORY_MAX_CHARS, client.window_chars(target) or HISTORY_MAX_CHARS)
        self._condenser = Condenser(turn, target, client, self._count)
        self._waits_s = list(WAITS_S)
        self._endings = Endings()
        self._told = {event["text"] for event in turn.done if event["kind"] == Kind.OTHER}
        self._told_for_good = told

    async def play(self) -> None:
        """Ask until the answer is complete; the log has its parts from before a pause or a fault."""
        for decision in self._turn.decisions:
            await self._use.carry_out(decision)
        while True:
            await self._turn.new_inputs()
            request = await self._request()
            if await self._condenser.shortens(is_cut=request.is_cut, max_chars=self._max_chars):
                continue
            if self._tools.tools and not request.tools and prompts.NO_TOOLS_NOTICE not in self._told_for_good:
                self._told_for_good.add(prompts.NO_TOOLS_NOTICE)
                await self._tell(prompts.NO_TOOLS_NOTICE)
            if request.is_cut and not self._turn.is_pausing:
                await self._tell(prompts.CUT_NOTICE)
            await self._turn.reserve(self._client.expected(self._target, request))
            wait_s, reply, is_busy = 0.0, None, False
            async with self._turn.answer() as answer:  # a pause takes effect here
                try:
                    reply = await self._write(answer, request)
                except ToolsRefused:
                    continue
                except ModelFault as fault:
                    if not self._leaves_out_images(fault, request):
                        wait_s, is_busy = self._wait_after(fault), fault.code == RATE_LIMIT
            if is_busy:
                await self._tell(prompts.BUSY_NOTICE.format(seconds=max(1, round(wait_s))))
            if reply is None:
                await wait_unless_pausing(self._turn, wait_s)
            elif not await self._goes_on(reply):
                return

    async def _goes_on(self, reply: Reply) -> bool:
        """Run the calls of an answer, and return whether to ask the model again."""
        runs = any(call.tool is not None for call in reply.calls)
        following = self._endings.after(
            reply.end, has_calls=bool(reply.calls), is_cut=reply.is_cut, runs=runs
        )
        if reply.calls and await self._use.run(reply.calls):
            return bool(await self._turn.new_inputs())
        if following.notice:
            await self._tell(following.notice)
        return following.goes_on or bool(await self._turn.new_inputs())

    async def _request(self) -> Request:
        turn = self._turn
        inputs = [event["seq"] for event in turn.inputs]
        found: Record = await astore.call(
            lambda: record.read(
                turn.conversation,
                turn_id=turn.turn_id,
                inputs=inputs,
                max_chars=self._max_chars,
                task=self._task,
                guidance=self._guidance,
            )
        )
        # Thousands of events take the library longer than the event loop may be held up.
        return await asyncio.to_thread(
            self._client.request_of,
            replace(found, repository_place=self._place),
            max_chars=self._max_chars,
            tools=self._offered(),
            model=self._target.full_name,
            shows_images=self._target.full_name not in self._blind,
        )

    def _offered(self) -> Mapping[str, Tool]:
        """Return the tools, unless the model has refused tools."""
        return self._tools.tools if refusals.takes_tools(self._target) else {}

    async def _tell(self, notice: str) -> None:
        """Store a notice, unless this turn has."""
        if notice not in self._told:
            self._told.add(notice)
            await self._turn.notify(notice)

    async def _write(self, answer: Answer, request: Request) -> Reply | None:
        """Write the answer as it comes, and return its end; None at a pause. Raise ModelFault."""
        pieces: asyncio.Queue[AnswerPiece | None] = asyncio.Queue()
        streaming = self._client.stream(
            self._target, request, pieces.put_nowait, self._count, tools=self._offered()
        )
        asking = asyncio.ensure_future(streaming)
        asking.add_done_callback(lambda _: pieces.put_nowait(None))  # also a failure ends the wait below
        try:
            while not self._turn.is_pausing:
                try:
                    # Only the wait can time out: a read of the stream that is cut off would lose its piece.
                    piece = await asyncio.wait_for(pieces.get(), LOOK_S)
                except TimeoutError:
                    await answer.write("")  # for new readers: the next piece may take long
                    continue
                if piece is None:
                    return await asking
                answer.think(piece.reasoning)
                await answer.write(piece.text)
        finally:
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)  # a pause makes its error useless
        return None

    def _count(self, usage: CallUsage) -> None:
        self._turn.count(usage)
        logger.info(
            "A model has answered",
            **ids_of(self._turn.conversation),
            model=self._target.name,
            prompt_tokens=usage.prompt_tokens,
            completion_tokens=usage.completion_tokens,
            cost="unknown" if usage.cost is None else f"{usage.cost:.6f}",
        )

    def _leaves_out_images(self, fault: ModelFault, request: Request) -> bool:
        """Return whether to repeat the request without the images of tools."""
        # Some models see no images and refuse the whole request for one, in words of any kind.
        name = self._target.full_name
        if fault.code != BAD_REQUEST or fault.is_passing or name in self._blind or not request.has_images:
            return False
        self._blind.add(name)
        return True

    def _wait_after(self, fault: ModelFault) -> float:
        """Return the seconds to wait before the next attempt. Raise the fault if there is none."""
        if fault.is_too_long and self._max_chars > HISTORY_LEAST_CHARS:
            self._max_chars = max(self._max_chars // SHORTENED_BY, HISTORY_LEAST_CHARS)
            return 0.0
        if not fault.is_passing or not self._waits_s or (fault.wait_s or 0.0) > WAIT_MAX_S:
            raise fault
        if fault.tries_max is not None and len(WAITS_S) - len(self._waits_s) >= fault.tries_max:
            raise fault
        wait_s = max(self._waits_s.pop(0), fault.wait_s or 0.0)
        logger.info(
            "A model is asked again", **ids_of(self._turn.conversation), error=str(fault), wait_s=wait_s
        )
        return wait_s

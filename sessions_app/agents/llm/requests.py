"""Requests to a model through the library: streamed answers, and their usage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import ModuleType
from typing import NamedTuple, cast

import genai_prices
import httpx2
import structlog
from genai_prices.data_snapshot import get_snapshot
from pydantic_ai.direct import model_request_stream
from pydantic_ai.exceptions import AgentRunError, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from conversations.payloads import halves
from sessions_app.agents.base import AgentFailure, CallUsage
from sessions_app.agents.llm import history, refusals, transport
from sessions_app.agents.llm.failures import fault_of
from sessions_app.agents.llm.faults import ModelFault, ToolsRefused
from sessions_app.agents.llm.models import Target
from sessions_app.agents.llm.record import Record
from sessions_app.agents.llm.streams import signatures
from sessions_app.agents.llm.streams.answer import (
    ANSWER_MAX_CHARS,
    AnswerStream,
    End,
    ReadCall,
    TooManyCalls,
)
from sessions_app.agents.llm.streams.signatures import Signer
from sessions_app.agents.llm.tools import calls as calls_of
from sessions_app.agents.llm.tools.calls import WantedCall
from sessions_app.agents.llm.tools.offers import Tool
from sessions_app.outbound.hosts import HostRefused
from sessions_app.outbound.proxies import UnusableProxy

logger = structlog.stdlib.get_logger(__name__)

# A cautious guess: a request that a provider refuses as too long is shortened.
CHARS_PER_TOKEN = 3
NO_ROOM = (
    "The model reached its limit of length before it said anything. Ask for less, or use a model with a "
    "higher limit."
)
MALFORMED = "The model could not write the call of a tool. Try again, or say it in other words."
# Further ones for an answer that stays empty or has no end, which costs money, too.
FRUITLESS_TRIES = 2
EMPTY = "The model gave an empty answer. Try again, or say it in other words."
REFUSED = "The model's provider refused to answer this (content filter)."
CUT = "The connection to the model broke before its answer was complete. Try again."
TOO_LONG = "The model's answer is too long and was ended."
_INCOMPLETE = {End.LENGTH: calls_of.CUT_SHORT, End.FILTERED: calls_of.FILTERED}
_OUTSIDE = (
    *(AgentRunError, UserError, HostRefused, httpx2.HTTPError, httpx2.StreamError),
    *(OSError, ValueError, TypeError, LookupError),
)
"""What the library and the answers of servers raise."""

get_snapshot()  # prices are read once, in the thread that imports this


class AnswerPiece(NamedTuple):
    """A piece of an answer or of its reasoning."""

    text: str = ""
    reasoning: str = ""


class Reply(NamedTuple):
    """The calls and the end of a complete answer."""

    calls: Sequence[WantedCall]
    end: End
    is_cut: bool = False
    """Whether some calls are incomplete."""


class Request(NamedTuple):
    """A request to a model."""

    messages: list[ModelMessage]
    is_cut: bool
    """Whether older messages are left out."""
    tools: Sequence[ToolDefinition] = ()

    @property
    def has_images(self) -> bool:
        return history.has_images(self.messages)


class ModelClient:
    """Asks models over one wire."""

    def __init__(self, wire: ModuleType) -> None:
        """`wire` is a module of `wires`."""
        self._wire = wire

    def request_of(
        self,
        record: Record,
        *,
        max_chars: int,
        tools: Mapping[str, Tool] | None = None,
        model: str = "",
        shows_images: bool = True,
    ) -> Request:
        """Return a conversation as a request, its messages with at most this many characters.

        `model` is its full name: it gets its signatures back. `shows_images`: include the images of tools.
        """
        tools = tools or {}
        shown = history.messages_of(
            record,
            max_chars=max_chars,
            takes_urls=bool(self._wire.TAKES_URLS),
            tools=tools,
            signer=Signer(model, self._wire.SYSTEM),
            shows_images=shows_images,
        )
        definitions = [
            ToolDefinition(
                name=tool.name, description=tool.description, parameters_json_schema=dict(tool.schema)
            )
            for tool in tools.values()
        ]
        return Request(*shown, definitions)

    def window_chars(self, target: Target) -> int | None:
        """Return the approximate size of a model's context, in characters; None if it is unknown."""
        with suppress(LookupError, ValueError):
            _, model = get_snapshot().find_provider_model(target.name, None, None, target.base_url)
            if model.context_window:
                return int(model.context_window) * CHARS_PER_TOKEN
        return None

    def expected(self, target: Target, request: Request) -> CallUsage:
        """Return the least usage of a request: about the tokens of its messages, and their price."""
        tokens = history.chars_of(request.messages) // CHARS_PER_TOKEN
        return _priced(RequestUsage(input_tokens=tokens), target, target.name)

    def expected_of(self, target: Target, messages: Sequence[Mapping[str, str]]) -> CallUsage:
        """Return the least usage of `complete`."""
        return self.expected(target, Request(_plain(messages), is_cut=False))

    async def stream(
        self,
        target: Target,
        request: Request,
        on_piece: Callable[[AnswerPiece], None],
        on_usage: Callable[[CallUsage], None],
        *,
        tools: Mapping[str, Tool] | None = None,
    ) -> Reply:
        """Send a request, call `on_piece` with each piece, and return the calls of `tools` and the end.

        `on_usage` is called once if the model began to answer, also if the answer is cut off or cancelled.
        Raise AgentFailure.
        """
        while True:
            try:
                answer, has_text = await self._streamed(target, request, on_piece, on_usage)
                return _reply(answer, target, tools or {}, has_text=has_text)
            except TooManyCalls:
                raise ModelFault(TOO_LONG) from None
            except UnusableProxy as error:
                raise AgentFailure(str(error)) from None
            except _OUTSIDE as error:
                refused = refusals.learn(target, error, offers_tools=bool(request.tools))
                fault = fault_of(error, target)
                logger.info(
                    "A request to a model failed",
                    model=target.name,
                    kind=type(error).__name__,
                    refused=refused or None,
                )
                if not refused:
                    # Without the cause, whose text may repeat the request.
                    raise fault from None
                if refused == refusals.TOOLS:  # without tools, earlier calls become text
                    raise ToolsRefused(str(fault), code=fault.code) from None

    async def complete(
        self, target: Target, messages: Sequence[Mapping[str, str]], on_usage: Callable[[CallUsage], None]
    ) -> str:
        """Answer messages of a role and a content, oldest first; see `stream`. Raise AgentFailure."""
        pieces: list[str] = []
        request = Request(_plain(messages), is_cut=False)
        await self.stream(target, request, lambda piece: pieces.append(piece.text), on_usage)
        return halves.whole("".join(pieces))

    async def _streamed(
        self,
        target: Target,
        request: Request,
        on_piece: Callable[[AnswerPiece], None],
        on_usage: Callable[[CallUsage], None],
    ) -> tuple[AnswerStream, bool]:
        """Return the answer, and whether it has text."""
        chars, has_text = 0, False
        answer: AnswerStream = self._wire.ANSWER()
        async with transport.client_of(target, answer) as client:
            # The library may read files for a new model.
            model = await asyncio.to_thread(self._wire.model_at, target, client)
            # The agent itself tries again, visibly for readers.
            settings = {"max_retries": 0, **self._wire.settings_of(target)}
            offer = ModelRequestParameters(function_tools=list(request.tools))
            async with model_request_stream(
                model,
                request.messages,
                model_settings=cast("ModelSettings", settings),
                model_request_parameters=offer,
            ) as stream:
                has_ended = False
                try:
                    async for event in stream:
                        if (piece := _piece(event)) is None:
                            continue
                        chars += len(piece.text) + len(piece.reasoning)
                        if chars > ANSWER_MAX_CHARS:
                            raise ModelFault(TOO_LONG)
                        has_text = has_text or bool(piece.text.strip())
                        on_piece(piece)
                    has_ended = True
                finally:
                    # Also what a cut answer has cost by then is counted.
                    response = stream.get()
                    if response.parts or answer.calls or response.usage.has_values():
                        on_usage(_usage(response, target, has_ended=has_ended))
        return answer, has_text


def _piece(event: object) -> AnswerPiece | None:
    match event:
        case PartStartEvent(part=TextPart(content=text)) if text:
            return AnswerPiece(text=text)
        case PartDeltaEvent(delta=TextPartDelta(content_delta=text)) if text:
            return AnswerPiece(text=text)
        case PartStartEvent(part=ThinkingPart(content=text)) if text:
            return AnswerPiece(reasoning=text)
        case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=text)) if text:
            return AnswerPiece(reasoning=text)
        case _:
            return None


def _reply(answer: AnswerStream, target: Target, tools: Mapping[str, Tool], *, has_text: bool) -> Reply:
    """Return the calls and the end of an answer. Raise ModelFault if it has no end, or is empty."""
    read = answer.calls
    signed = signatures.kept(read, answer.opaque, target.full_name)
    calls = [
        replace(_wanted(call, answer.end, tools), signed=blocks)
        for call, blocks in zip(read, signed, strict=True)
    ]
    is_there = bool(calls) or has_text or answer.end is End.PAUSED
    if answer.end in (End.NONE, End.FAILED) or not is_there:
        raise _nothing(answer.end)
    return Reply(calls, answer.end, is_cut=not all(call.is_complete for call in read))


def _wanted(call: ReadCall, end: End, tools: Mapping[str, Tool]) -> WantedCall:
    if call.is_complete:
        return calls_of.wanted(call.name, call.arguments, tools)
    return calls_of.incomplete(call.name, call.arguments, _INCOMPLETE.get(end, calls_of.UNCLEAR))


def _nothing(end: End) -> ModelFault:
    """Return the fault of an answer that has no end, or is empty."""
    match end:
        case End.NONE | End.FAILED:
            # Some servers end no answer properly: what they have said is stored with each try.
            tries_max = FRUITLESS_TRIES if end is End.NONE else None
            return ModelFault(CUT, code="LLMServiceUnavailableError", is_passing=True, tries_max=tries_max)
        case End.FILTERED:
            return ModelFault(REFUSED, code="LLMNoResponseError")
        case End.LENGTH:
            return ModelFault(NO_ROOM, code="LLMNoResponseError")
        case _:
            text = MALFORMED if end is End.MALFORMED else EMPTY
            return ModelFault(text, code="LLMNoResponseError", is_passing=True, tries_max=FRUITLESS_TRIES)


def _usage(response: ModelResponse, target: Target, *, has_ended: bool) -> CallUsage:
    """Return the usage of an answer, as the server reports it."""
    used = response.usage
    # Servers report the whole usage at the end only: before it, a price would be too low.
    if has_ended and used.output_tokens:
        return _priced(used, target, response.model_name or target.name)
    return _used(used, target, cost=None)


def _priced(used: RequestUsage, target: Target, name: str) -> CallUsage:
    """Return the usage with its price, if that is known."""
    cost: float | None = None
    with suppress(LookupError, ValueError, ArithmeticError):  # the price is unknown
        # By the address: a free model of a local server may have the same name.
        cost = float(genai_prices.calc_price(used, name, provider_api_url=target.base_url).total_price)
    if cost is None and target.price is not None:
        cost = (used.input_tokens * target.price.read + used.output_tokens * target.price.written) / 1e6
    return _used(used, target, cost=cost)


def _used(used: RequestUsage, target: Target, *, cost: float | None) -> CallUsage:
    return CallUsage(
        model=target.full_name,
        prompt_tokens=used.input_tokens,
        completion_tokens=used.output_tokens,
        cost=cost,
    )


def _plain(messages: Sequence[Mapping[str, str]]) -> list[ModelMessage]:
    """Return plain messages as the library's: the first system messages become the instructions."""
    texts = [(each["role"], halves.whole(each["content"])) for each in messages]
    system = "\n\n".join(text for role, text in texts if role == "system")
    shown: list[ModelMessage] = []
    for role, text in texts:
        if role == "user":
            part = UserPromptPart(content=text)
            shown.append(ModelRequest(parts=[part], instructions=system or None))
        elif role != "system":
            shown.append(ModelResponse(parts=[TextPart(content=text)]))
    if not shown or isinstance(shown[0], ModelResponse) or isinstance(shown[-1], ModelResponse):
        shown.append(ModelRequest(parts=[UserPromptPart(content=system or "Go on.")]))
    return shown

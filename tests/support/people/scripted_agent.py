"""An agent that tests direct: it does what a message says, and holds its turn until it is let go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeVar

import pytest

from conversations.events import EventEnvelope, NewEvent
from conversations.log import reads
from conversations.models import Conversation, ConversationRef
from sessions_app import astore, background
from sessions_app.agents.base import Turn
from sessions_app.loops.manager import ConversationManager, close_manager, get_manager
from sessions_app.models import AgentLoop
from tests.support.data.events import event
from tests.support.people.clients import WAIT_S

T = TypeVar("T")


class Stage:
    """What the agents of one test were asked, and when they may go on."""

    current: Stage

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        """The texts of the inputs of each play, in order."""
        self.turn_ids: list[str] = []
        """The turn of each play."""
        self.go = asyncio.Event()
        self._playing: asyncio.Queue[Turn] = asyncio.Queue()

    def enter(self, turn: Turn) -> None:
        self.asked.append([each["text"] for each in turn.inputs])
        self.turn_ids.append(turn.turn_id)

    async def hold(self, turn: Turn) -> None:
        """Tell the test that the agent has come this far, and wait."""
        self._playing.put_nowait(turn)
        await self.go.wait()

    async def holding(self) -> Turn:
        """Return the turn of the next agent that holds."""
        async with asyncio.timeout(WAIT_S):
            return await self._playing.get()


class ScriptedAgent:
    """Echoes; by the first word of what it is asked it also holds, speaks slowly or asks for approval."""

    async def play(self, turn: Turn) -> None:
        stage = Stage.current
        stage.enter(turn)
        asked = [each["text"] for each in turn.inputs] or ["nothing"]
        match asked[0].split()[0]:
            case "hold":
                if not turn.done:
                    await turn.say("step 1")
                await stage.hold(turn)
                await turn.say("step 2")
            case "use":
                if not turn.done:
                    call = await turn.call_tool("paint", {"colour": "red"})
                    await stage.hold(turn)
                    await turn.tool_result(call, "painted")
                await turn.say("It is red.")
            case "deaf":
                with suppress(asyncio.CancelledError):
                    await stage.hold(turn)
                await turn.say("What?")
            case "stubborn":
                with suppress(asyncio.CancelledError):
                    await stage.hold(turn)
                await stage.go.wait()
            case "tidy":
                try:
                    await stage.hold(turn)
                except asyncio.CancelledError:
                    await stage.go.wait()
                    raise
            case "deaf-approve":
                with suppress(asyncio.CancelledError):
                    await stage.hold(turn)
                await turn.ask_approval("paint", {"colour": "green"})
            case "speak":
                async with turn.answer() as answer:
                    await answer.write("half of ")
                    await stage.hold(turn)
                    await answer.write("an answer")
            case "approve":
                if turn.decision is None:
                    await turn.ask_approval("paint", {"colour": "green"})
                    return
                await stage.hold(turn)
                await turn.tool_result(turn.decision.call, f"{turn.decision.call.arguments} done")
            case "approve-both":
                await turn.call_tool("paint", {"colour": "red"})
                await turn.ask_approval("paint", {"colour": "green"})
            case "finish":
                await turn.finish("All done.")
            case "fail":
                raise ValueError("No luck.")
            case _:
                await turn.say(f"answer to {asked[-1]}")

    async def complete(self, messages: Sequence[Mapping[str, str]]) -> str:
        return f"  {messages[-1]['content'].upper()}\n"


@pytest.fixture
async def stage() -> Stage:
    Stage.current = Stage()
    return Stage.current


@pytest.fixture
async def manager(
    stage: Stage, database: None, configured: Callable[..., None]
) -> AsyncIterator[ConversationManager]:
    """The manager of this test's event loop, whose agents are staged; it has not started anything yet."""
    configured(agent="tests.support.people.scripted_agent.ScriptedAgent")
    yield get_manager()
    stage.go.set()
    await background.close()
    await close_manager()


def asking(text: str, **values: Any) -> NewEvent:
    """Return a message that asks for an answer."""
    return event(text, is_input=True, **values)


async def ask(conversation: ConversationRef, *texts: str) -> None:
    """Store messages and wake the agent after each."""
    for text in texts:
        await astore.append(conversation, [asking(text)])
        get_manager().wake(conversation)


async def until(condition: Callable[[], T]) -> T:
    """Return what `condition`, which may ask the database, returns once that is true."""
    return await until_true(lambda: astore.call(condition))


async def until_here(condition: Callable[[], T]) -> T:
    """Return what `condition`, about this process, returns once that is true."""

    async def ask() -> T:
        return condition()

    return await until_true(ask)


async def until_true(ask: Callable[[], Awaitable[T]]) -> T:
    async with asyncio.timeout(WAIT_S):
        while True:
            if found := await ask():
                return found
            await asyncio.sleep(0.02)


async def log(conversation: ConversationRef) -> list[EventEnvelope]:
    return await astore.call(reads.read_after, conversation, -1)


async def said(conversation: ConversationRef) -> list[str]:
    return [
        each["text"]
        for each in await log(conversation)
        if each["kind"] == "message" and each["source"] == "agent"
    ]


async def ends(conversation: ConversationRef) -> list[EventEnvelope]:
    return [each for each in await log(conversation) if each["kind"] == "turn"]


async def until_said(conversation: ConversationRef, *texts: str) -> None:
    """Wait until the agent has said exactly this, and owes no more."""

    async def is_said() -> bool:
        return await said(conversation) == list(texts) and await astore.call(_is_answered, conversation)

    try:
        await until_true(is_said)
    except TimeoutError as error:
        shown = await log(conversation)
        raise AssertionError(f"The agent was to say {list(texts)}; the log is {shown}.") from error


def _is_answered(conversation: ConversationRef) -> bool:
    row = Conversation.objects.select_related("loop").get(pk=conversation.pk)
    return not row.is_unanswered and row.loop.turn_id is None


async def row_of(conversation: ConversationRef) -> Conversation:
    return await astore.call(lambda: Conversation.objects.get(pk=conversation.pk))


async def loop_of(conversation: ConversationRef) -> AgentLoop:
    return await astore.call(lambda: AgentLoop.objects.of(conversation).get())


async def until_status(conversation: ConversationRef, execution_status: str) -> None:
    """Wait until the loop's row says so."""
    await until(lambda: AgentLoop.objects.of(conversation).filter(execution_status=execution_status).exists())


async def until_no_loop(conversation: ConversationRef) -> None:
    """Wait until this process runs no loop of the conversation."""
    await until_here(lambda: get_manager().get_agent_session(conversation.public_id) is None)


class Hook:
    """A function of ours, and what happens just before or after its next call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, module: Any, name: str) -> None:
        self.calls = 0
        self._before: list[Callable[[], object]] = []
        self._after: list[Callable[[], object]] = []
        original = getattr(module, name)

        def hooked(*args: Any, **kwargs: Any) -> Any:
            _do_next(self._before)
            result = original(*args, **kwargs)
            self.calls += 1
            _do_next(self._after)
            return result

        monkeypatch.setattr(module, name, hooked)

    def before(self, happens: Callable[[], object]) -> None:
        self._before.append(happens)

    def after(self, happens: Callable[[], object]) -> None:
        """Let this happen after the next call, before it returns."""
        self._after.append(happens)

    def hold(self) -> Held:
        """Hold the next call, in its thread."""
        held = Held(threading.Event(), threading.Event())
        self._before.append(held.wait)
        return held

    async def called(self, times: int) -> None:
        """Wait until it was called so many times more."""
        wanted = self.calls + times
        await until_here(lambda: self.calls >= wanted)


class Held(NamedTuple):
    """A call that is held: `reached` once it begins, and goes on after `let_go`."""

    begun: threading.Event
    let_go: threading.Event

    async def reached(self) -> None:
        """Wait until the call has begun."""
        assert await asyncio.to_thread(self.begun.wait, WAIT_S)

    def wait(self) -> None:
        self.begun.set()
        self.let_go.wait(WAIT_S)


def _do_next(happenings: list[Callable[[], object]]) -> None:
    if happenings:
        happenings.pop(0)()


Hooked = Callable[[Any, str], Hook]


@pytest.fixture
def hooked(monkeypatch: pytest.MonkeyPatch) -> Hooked:
    """Let something happen around a function: the way to hold a race open, and to see a task come round."""
    return lambda module, name: Hook(monkeypatch, module, name)


def in_loop(action: Callable[[], object]) -> Callable[[], object]:
    """Return `action` as something that another thread makes happen in the running event loop."""
    loop = asyncio.get_running_loop()
    return lambda: loop.call_soon_threadsafe(action)

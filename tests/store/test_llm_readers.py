"""What readers of every door see of a turn that a model plays, whichever wire the conversation is of."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from django.contrib.auth.models import User

from conversations.log import reads
from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.llm import agent as llm_agent
from sessions_app.agents.llm.models import Wire
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.settings import agent_setups, run_options, user_settings
from sessions_app.settings.agent_setups import NewSetup
from tests.conftest import Connect, Dial, Join
from tests.pure.test_llm_models import WIRES
from tests.store.test_llm_tools import give, program
from tests.support.people.clients import Client
from tests.support.people.model_talks import Answers, Frame, model, until_shown
from tests.support.people.scripted_agent import manager, until_status
from tests.support.people.web_browser import Browser, words
from tests.support.servers.model_server import Answer, calling, completion, cut_completion
from tests.support.wires.event_views import called_tool
from tests.support.wires.v1_socket import ID, events_path, is_full_state

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

Story = Sequence[tuple[str, str]]
"""What happens in a turn: who or what, and its words."""
WORDS = [f"word{number} " for number in range(200)]
NEVER = threading.Event()
WRONG_KEY = "The model's server rejected the key (401). It is wrong, expired or missing."
FAILED = "The model's server failed (500). Try again later."
BROKEN = "The connection to the model broke before its answer was complete. Try again."
STEPS = "The agent has taken 1 steps for this message, which is the limit."
TOKENS = "The models have used 10 tokens for this message; the limit is 5."
ASKS = "Resume it to let it go on for as much again, or stop it."
ENDS = "Send a message to go on."
WHERE = "The limit is in the conversation's menu, under Limits."
CALL = calling(("add", {"a": 1, "b": 2}))
CALLED: Story = [("call", "add"), ("result", "3")]


class Case(NamedTuple):
    """A turn, its story, and the status of its end."""

    answers: Sequence[Answer | Answers]
    story: Story
    status: str = "finished"
    approves: bool | None = None
    """The user's decision about the first call, where the user wants to decide."""
    stops_after: str = ""
    """The piece of an answer after which the user stops the agent."""
    options: Mapping[str, int] = {}
    """The conversation's limits: at one, a V1 conversation has an error, and any other asks."""
    model: str = "openai/gpt-x"


def of_v1(case: Case) -> Case:
    """Return what is another end on the V1 wire."""
    if not case.options:
        return case
    error = ("error", case.story[-1][1].replace(ASKS, ENDS))
    return case._replace(story=[*case.story[:-1], error], status="error")


CASES = {
    "many chunks": Case([completion(WORDS)], [("agent", "".join(WORDS))]),
    "a tool": Case([CALL, completion(["It is 3."])], [*CALLED, ("agent", "It is 3.")]),
    "two calls": Case(
        [calling(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4})), completion(["3 and 7."])],
        [*CALLED, ("call", "add"), ("result", "7"), ("agent", "3 and 7.")],
    ),
    "approved": Case([CALL, completion(["It is 3."])], [*CALLED, ("agent", "It is 3.")], approves=True),
    "rejected": Case(
        [CALL, completion(["OK."])],
        [("call", "add"), ("result", "Too easy."), ("agent", "OK.")],
        approves=False,
    ),
    "a limit of steps": Case(
        [CALL],
        [
            *CALLED,
            ("notice", f"The agent has taken 1 steps for this message, which is the limit. {ASKS} {WHERE}"),
        ],
        status="paused",
        options={"max_turn_iterations": 1},
    ),
    "a limit of tokens": Case(
        [CALL],
        [
            *CALLED,
            ("notice", f"The models have used 10 tokens for this message; the limit is 5. {ASKS} {WHERE}"),
        ],
        status="paused",
        options={"max_turn_tokens": 5},
    ),
    "a hang": Case([completion(["Once ", NEVER])], [("agent", "Once ")], status="idle", stops_after="Once "),
    "401": Case([Answer(401, {})], [("error", WRONG_KEY)], status="error"),
    "429": Case(
        [Answer(429, {}), completion(["Hello."])],
        [("notice", "Rate limit reached. Trying again in 1 s."), ("agent", "Hello.")],
    ),
    "500": Case([Answer(500, {})], [("error", FAILED)], status="error"),
    "a cut stream": Case(
        [cut_completion(["Once ", "upon "]), completion(["a time."])],
        [("agent", "Once upon "), ("agent", "a time.")],
    ),
    "a cut stream each time": Case([cut_completion([])], [("error", BROKEN)], status="error"),
    **{
        f"the wire of {wire.value}": Case([WIRES[wire][1]], [("agent", "Paris.")], model=WIRES[wire][0])
        for wire in (Wire.ANTHROPIC, Wire.GOOGLE)
    },
}


@pytest.fixture(params=[Version.V0, Version.V1])
def version(request: pytest.FixtureRequest, configured: Callable[..., None]) -> Version:
    """The wire of the conversation, on a server where a model answers."""
    configured(agent=BUILT_IN_AGENTS["auto"])
    found: Version = request.param
    return found


@pytest.mark.parametrize("name", CASES)
@pytest.mark.sampled(4)
async def test_every_reader_is_told_the_same_of_a_turn_and_its_end(
    version: Version,
    name: str,
    alice: User,
    join: Join,
    connect: Connect,
    dial: Dial,
    visitor: Browser,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(llm_agent, "WAITS_S", (0.0, 0.0))
    case = of_v1(CASES[name]) if version == Version.V1 else CASES[name]
    talk = await astore.call(begun, alice, version, case)
    await give(alice, program("counting", tmp_path / "runs"))
    async with model(alice, *case.answers, name=case.model):
        native, v0 = await join(talk), await connect(ID)
        v1 = await dial(events_path(), query={"resend_all": "true"})
        await played(talk, native, case)
        last = await astore.call(reads.last_seq, talk)
        await until_caught_up(last, native, v1)
        story = [("user", "Go."), *case.story]
        while len(v0_story(v0.frames)) < len(story):  # it is not shown the states of before it came
            await v0.receive()
    assert native_story(native.frames) == story
    assert v0_story(v0.frames) == story
    assert v1_story(v1.frames) == story
    page = words(await visitor.get(f"/c/{talk.public_id}"))
    for _, text in story:
        assert " ".join(text.replace("*", "").replace("`", "").split()) in page


def begun(user: User, version: Version, case: Case) -> ConversationRef:
    """Create the conversation, whose user decides about calls and has set a limit, if the case says so."""
    asks = case.approves is not None
    user_settings.change_settings(user.pk, {"confirmation_mode": asks}, secrets={})
    if version == Version.V0:
        talk = creation.create(user, conversation_id=ID, version=version, title="A talk")
    else:
        setup = NewSetup(confirmation_policy={"kind": "AlwaysConfirm" if asks else "NeverConfirm"})
        talk = agent_setups.create(user, setup, conversation_id=ID, title="A talk")
    if case.options:
        run_options.change(talk, case.options)
    return talk


async def played(talk: ConversationRef, client: Client, case: Case) -> None:
    """Send the message, do what the user does, and return once the turn has its end."""
    await client.send({"type": "message", "text": "Go."})
    if case.approves is not None:
        await until_status(talk, "waiting_for_confirmation")
        await client.send({"type": "confirm", "accept": case.approves, "reason": "Too easy."})
    if case.stops_after:
        await until_shown(client, case.stops_after)
        await client.send({"type": "stop"})
        await client.until("event", kind="turn")
    await until_status(talk, case.status)


async def until_caught_up(last: int, native: Client, v1: Client) -> None:
    """Return once the readers have come to the end of the log."""
    while max((frame["seq"] for frame in native.frames if frame["type"] == "event"), default=-1) < last:
        await native.receive()
    while sum(not is_unstored(frame) for frame in v1.frames) <= last:
        await v1.receive()


def is_unstored(frame: Frame) -> bool:
    return is_full_state(frame) or frame["kind"] == "StreamingDeltaEvent"


def native_story(frames: Sequence[Frame]) -> Story:
    told = []
    for frame in frames:
        match frame:
            case {"type": "event", "kind": "message", "source": source, "text": text}:
                told.append((source, text))
            case {"type": "event", "kind": "other", "text": text}:
                told.append(("notice", text))
            case {"type": "event", "kind": "tool_call", "event": event}:
                told.append(("call", called_tool(event)[0]))
            case {"type": "event", "kind": "tool_result", "text": text}:
                told.append(("result", text))
            case {"type": "event", "kind": "error", "text": text}:
                told.append(("error", text))
    return told


def v0_story(frames: Sequence[Frame]) -> Story:
    told = []
    for frame in frames:
        match frame:
            case {"action": "message", "source": source, "args": {"content": text}}:
                told.append((source, text))
            case {"observation": "success", "notice": True, "content": text}:
                told.append(("notice", text))
            case {"action": "call_tool_mcp", "args": {"name": name}}:
                told.append(("call", name))
            case {"observation": "mcp" | "user_rejected", "content": text}:
                told.append(("result", text))
            case {"observation": "error", "content": text}:
                told.append(("error", text))
    return told


def v1_story(frames: Sequence[Frame]) -> Story:
    told = []
    for frame in frames:
        match frame:
            case {"kind": "MessageEvent", "source": source, "llm_message": {"content": [{"text": text}]}}:
                told.append(("notice" if source == "environment" else source, text))
            case {"kind": "ActionEvent", "tool_name": name}:
                told.append(("call", name))
            case {"kind": "ObservationEvent", "observation": {"content": [{"text": text}]}}:
                told.append(("result", text))
            case {"kind": "UserRejectObservation", "rejection_reason": text}:
                told.append(("result", text))
            case {"kind": "ConversationErrorEvent", "detail": text}:
                told.append(("error", text))
    return told

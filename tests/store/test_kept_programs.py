"""The programs of a turn: one start serves all calls of it, and they end after the answer is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from django.contrib.auth.models import User

from conversations.log import reads
from conversations.models import ConversationRef, Version
from sessions_app import astore
from sessions_app.agents.llm.tools import keeping, toolbox, use
from sessions_app.loops.manager import get_manager
from tests.conftest import Join
from tests.store.test_llm_tools import (
    both,
    careful,
    give,
    left,
    program,
    ran,
    results_of,
    runs,
    until_asked,
    until_gone,
)
from tests.support.people.clients import Client
from tests.support.people.model_talks import answers_of, model, said
from tests.support.people.scripted_agent import manager, until_here
from tests.support.servers.model_server import calling, completion

pytestmark = pytest.mark.one_engine

__all__ = ["careful", "manager", "runs"]

in_v0 = pytest.mark.parametrize("careful", [Version.V0], indirect=True)


def starts(runs: Path) -> int:
    """Return how often the program has counted a start of itself."""
    return sum(line.endswith(" started") for line in runs.read_text().splitlines())


async def until_waiting(client: Client) -> None:
    """Return once the agent asks for an approval."""
    while True:
        changes = (await client.until("conversation"))["changes"]
        if changes.get("loop", {}).get("execution_status") == "waiting_for_confirmation":
            return


@both
async def test_one_start_serves_a_turn_with_three_approvals(
    careful: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    calls = [calling(("add", {"a": number, "b": 1})) for number in range(3)]
    async with model(alice, *calls, completion(["Done."])):
        client = await join(careful)
        await until_asked(client)
        for number in range(3):
            await client.send({"type": "confirm", "id": number, "accept": True})
            if number < 2:
                await until_waiting(client)
        await client.until("event", kind="turn")
    assert results_of(client.frames) == ["1", "2", "3"]
    assert (starts(runs), ran(runs)) == (1, ["add 0 1", "add 1 1", "add 2 1"])
    await until_gone(runs)


async def test_the_end_of_a_turn_is_stored_before_its_programs_are_closed(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored: list[list[str]] = []
    close: Callable[[toolbox.Toolbox], Awaitable[None]] = toolbox.Toolbox.close

    async def closing(self: toolbox.Toolbox) -> None:
        events = await astore.call(reads.read_after, v0_talk, -1)
        stored.append([event["kind"] for event in events])
        await close(self)

    monkeypatch.setattr(toolbox.Toolbox, "close", closing)
    await give(alice, program("counting", runs))
    async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["3."])):
        frames = await said(await join(v0_talk), "Add.")
        await until_gone(runs)
    assert answers_of(frames) == ["3."]
    [kinds] = stored
    assert kinds[-2:] == ["message", "turn"]


@in_v0
async def test_a_turn_that_waits_keeps_its_programs_for_a_bounded_time_and_number(
    careful: ConversationRef,
    alice: User,
    join: Join,
    runs: Path,
    monkeypatch: pytest.MonkeyPatch,
    subtests: pytest.Subtests,
) -> None:
    await give(alice, program("counting", runs))
    client = await join(careful)
    for number, (name, bound) in enumerate({"KEPT_S": 0.0, "KEPT_MAX": 0}.items(), 1):
        with subtests.test(name), monkeypatch.context() as patch:
            patch.setattr(keeping, name, bound)
            async with model(alice, calling(("add", {"a": 1, "b": number})), completion(["Done."])):
                await until_asked(client)
                await until_gone(runs)
                await client.send({"type": "confirm", "id": number, "accept": True})
                await client.until("event", kind="turn")
            assert (starts(runs), ran(runs)[-1]) == (2 * number, f"add 1 {number}")


@in_v0
async def test_what_ends_a_turn_that_waits_ends_its_programs(
    careful: ConversationRef, alice: User, join: Join, runs: Path, subtests: pytest.Subtests
) -> None:
    await give(alice, program("counting", runs))
    client = await join(careful)

    async def interrupted() -> None:
        loop = get_manager().get_agent_session(careful.public_id)
        assert loop is not None
        await loop.interrupt()

    async def stopped() -> None:
        await client.send({"type": "stop"})

    async def closed() -> None:
        await get_manager().close_session(careful.public_id)

    for act in (interrupted, stopped, closed):
        with subtests.test(act.__name__):
            async with model(alice, calling(("add", {"a": 1, "b": 2}))):
                await until_asked(client)
                assert left(runs)
                await act()
                await until_gone(runs)
    assert ran(runs) == []


@in_v0
async def test_a_program_that_is_taken_away_while_a_turn_waits_runs_nothing_more(
    careful: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["Hm."])):
        client = await join(careful)
        await until_asked(client)
        await give(alice)
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    assert results_of(client.frames) == [use.NOT_ANY_MORE]
    assert (starts(runs), ran(runs)) == (1, [])
    await until_gone(runs)


async def test_the_next_message_is_answered_while_programs_of_the_last_turn_end(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = asyncio.Event()
    close: Callable[[toolbox.Toolbox], Awaitable[None]] = toolbox.Toolbox.close

    async def closing(self: toolbox.Toolbox) -> None:
        await let_go.wait()
        await close(self)

    monkeypatch.setattr(toolbox.Toolbox, "close", closing)
    await give(alice, program("counting", runs))
    async with model(alice, completion(["Hello."])):
        client = await join(v0_talk)
        await said(client, "Hello.")
        second = asyncio.ensure_future(said(client, "Hello again."))
        await until_here(lambda: starts(runs) == 2)
        assert answers_of(await second) == ["Hello."]
        let_go.set()
    await until_gone(runs)

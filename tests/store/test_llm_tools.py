"""Models that call tools: the tools are those of real programs and servers, started by the tests."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from django.contrib.auth.models import Permission, User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from sessions_app import astore
from sessions_app.agents.llm.tools import calls, connections, repetition, results, servers
from sessions_app.agents.llm.tools.hands import Hands
from sessions_app.agents.llm.tools.opening import needed, open_tools
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.loops.manager import get_manager
from sessions_app.settings import agent_setups, user_settings
from sessions_app.settings.agent_setups import NewSetup
from sessions_app.settings.user_settings import SettingSecret
from tests.conftest import Join
from tests.support.people.clients import Client
from tests.support.people.model_talks import (
    KEY,
    Frame,
    answers_of,
    error_of,
    events,
    model,
    notices_of,
    said,
    told,
    until_paused,
)
from tests.support.people.scripted_agent import manager, until_here
from tests.support.servers.model_server import Asked, calling, completion
from tests.support.servers.tool_server import tool_server
from tests.support.wires.event_views import called_tool

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]

ROOT = Path(__file__).parents[2]
GONE_WITHIN_S = 5.0
Program = dict[str, Any]


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The file in which the counting program leaves a line for each run."""
    return tmp_path / "runs"


def program(*arguments: object, name: str = "tools") -> Program:
    """Return a tool server of tests/support/servers/tool_program.py, as the V0 wire has it."""
    return {
        "name": name,
        "command": sys.executable,
        "args": ["-m", "tests.support.servers.tool_program", *map(str, arguments)],
        "env": {"PYTHONPATH": str(ROOT)},
    }


async def give(user: User, *programs: Program, **others: Any) -> None:
    """Let the user's settings name these tool servers."""
    config = json.dumps({"stdio_servers": list(programs), **others})
    await astore.call(user_settings.set_secret, user.pk, SettingSecret.MCP_CONFIG, config)


def ran(runs: Path) -> list[str]:
    lines = runs.read_text().splitlines() if runs.exists() else []
    return [line.partition(" ")[2] for line in lines if not line.endswith(" started")]


def has_run(runs: Path, times: int) -> bool:
    return len(ran(runs)) == times


def left(runs: Path) -> list[int]:
    """Return those of the programs that are still there, and their children."""
    pids = {int(line.split()[0]) for line in runs.read_text().splitlines()}
    return [pid for pid in pids if not is_gone(pid)]


async def until_gone(runs: Path) -> None:
    """Return once the programs are gone: they end after the end of the turn was stored."""
    async with asyncio.timeout(GONE_WITHIN_S):
        await until_here(lambda: not left(runs))


def is_gone(pid: int) -> bool:
    try:  # not every init process collects those whose parent has ended
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def results_of(frames: list[Frame]) -> list[str]:
    return [str(event["text"]) for event in events(frames, "tool_result")]


def called(frames: list[Frame]) -> list[tuple[str, dict[str, Any]]]:
    """Return the stored calls, each with its name and arguments."""
    found = []
    for event in events(frames, "tool_call"):
        name, arguments = called_tool(event["event"])
        found.append((name, dict(arguments)))
    return found


async def test_a_model_calls_a_tool_and_answers_with_its_result(
    talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("library", runs))
    async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["It is 3."])) as asked:
        frames = await said(await join(talk), "What is 1 + 2?")
    assert called(frames) == [("add", {"a": 1, "b": 2})]
    assert results_of(frames) == ["3"]
    assert answers_of(frames) == ["It is 3."]
    assert ran(runs) == ["add 1 2"]
    assert [each["function"]["name"] for each in asked[0].body["tools"]] == ["add"]
    assert told(asked[1])[-1] == ("tool", "3")
    await until_gone(runs)


async def test_readers_of_either_wire_get_a_call_and_its_result_as_events_of_theirs(
    talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["It is 3."])):
        frames = await said(await join(talk), "What is 1 + 2?")
    [call], [result] = events(frames, "tool_call"), events(frames, "tool_result")
    assert result["cause"] == call["seq"]
    action, observation = call["event"], result["event"]
    if talk.version == Version.V1:
        assert (action["kind"], action["tool_name"]) == ("ActionEvent", "add")
        assert action["action"] == {"kind": "MCPToolAction", "data": {"a": 1, "b": 2}}
        assert (observation["kind"], observation["action_id"]) == ("ObservationEvent", action["id"])
        assert observation["tool_call_id"] == action["tool_call_id"]
        assert observation["observation"]["content"] == [{"type": "text", "text": "3"}]
    else:
        assert action["action"] == "call_tool_mcp"
        assert (action["args"]["name"], action["args"]["arguments"]) == ("add", {"a": 1, "b": 2})
        assert (observation["observation"], observation["content"]) == ("mcp", "3")


async def test_two_calls_in_one_answer_are_run_one_after_the_other(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    both = calling(("add", {"a": 1, "b": 2}), ("add", {"a": 3, "b": 4}), text="I add.")
    async with model(alice, both, completion(["3 and 7."])) as asked:
        frames = await said(await join(v0_talk), "Add.")
    kinds = [frame["kind"] for frame in frames if frame["type"] == "event"]
    steps = [kind for kind in kinds if kind in ("tool_call", "tool_result")]
    assert steps == ["tool_call", "tool_result"] * 2
    assert (results_of(frames), answers_of(frames)) == (["3", "7"], ["I add.", "3 and 7."])
    assert [text for role, text in told(asked[1]) if role == "tool"] == ["3", "7"]


async def test_what_cannot_be_run_is_told_to_the_model_and_the_turn_goes_on(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    bad = calling(("sing", {}), ("add", "{no json"), ("add", "[1]"), ("fail", {}))
    huge = calling(("add", json.dumps({"a": "x" * calls.ARGUMENTS_MAX_CHARS})))
    async with model(alice, bad, huge, completion(["Sorry."])):
        frames = await said(await join(v0_talk), "Do something.")
    texts = results_of(frames)
    assert "There is no tool `sing`, so nothing was run. There are `add`" in texts[0]
    assert texts[1] == texts[2] == calls.NOT_AN_OBJECT
    assert texts[3] == "It is broken."
    assert "The arguments have 100,009 characters" in texts[4]
    assert answers_of(frames) == ["Sorry."]
    assert ran(runs) == ["fail"]


async def test_a_megabyte_of_arguments_ends_the_turn_with_a_sentence(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    async with model(alice, calling(("add", json.dumps({"a": "x" * 1_100_000})))):
        client = await join(v0_talk)
        await said(client, "Do something.")
        assert "too long" in await error_of(client)
    assert ran(runs) == []


async def test_a_long_result_is_cut_and_says_so(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    long = calling(("repeat", {"text": "x", "times": 200_000}))
    async with model(alice, long, completion(["Long."])):
        frames = await said(await join(v0_talk), "Repeat.")
    [result] = events(frames, "tool_result")
    assert "150,000 characters were cut here" in json.dumps(result["event"], ensure_ascii=False)
    assert len(json.dumps(result["event"])) < results.RESULT_MAX_CHARS * 3


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("garbage", "is no message of the protocol"),
        ("flood", "writes without end"),
        ("long", "a message of more than 4 MB"),
        ("gone", "has ended"),
        ("silent", "didn't answer in time"),
        ("loud", "didn't answer in time"),
    ],
)
@pytest.mark.sampled(2)
async def test_a_program_that_misbehaves_gets_a_sentence_and_the_turn_goes_on(
    v0_talk: ConversationRef,
    alice: User,
    join: Join,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    words: str,
) -> None:
    if kind in ("silent", "loud"):
        monkeypatch.setattr(connections, "CONNECT_S", 0.2)
    await give(alice, program(kind, name="bad"))
    async with model(alice, completion(["Hello."])) as asked:
        client = await join(v0_talk)
        first, again = await said(client, "hello"), await said(client, "hello")
    [notice] = notices_of(first)
    assert notice.startswith("The tool server `bad` can't be used: ")
    assert words in notice
    assert (answers_of(first), answers_of(again), notices_of(again)) == (["Hello."], ["Hello."], [])
    assert "tools" not in asked[0].body


@pytest.mark.parametrize("kind", ["garbage", "flood", "long", "silent", "loud"])
@pytest.mark.sampled(2)
async def test_another_conversation_is_answered_as_before_beside_a_program_that_misbehaves(
    v0_talk: ConversationRef, alice: User, join: Join, kind: str
) -> None:
    config = {"mcpServers": {"bad": {**program(kind), "name": None}}}
    setup = NewSetup(agent={"kind": "Agent", "mcp_config": config})
    bad = await astore.call(agent_setups.create, alice, setup, conversation_id="bad", title="A talk")
    async with model(alice, completion(["Hello."])):
        client = await join(v0_talk)
        alone = await said(client, "hello")
        disturbing = await join(bad)
        await disturbing.send({"type": "message", "text": "hello"})
        await disturbing.until("event", kind="message")
        beside = [await said(client, "hello") for _ in range(3)]
        if kind == "silent":  # it is waited for all the while
            assert not events(disturbing.frames, "turn")
        else:
            await disturbing.until("event", kind="turn")
    for frames in beside:
        assert [shape(each) for each in frames if each["type"] == "event"] == [
            shape(each) for each in alone if each["type"] == "event"
        ]


def shape(event: Frame) -> tuple[str, str, str]:
    """Return what is the same in two turns about the same."""
    return event["kind"], event["source"], event["text"]


async def test_a_call_that_is_never_answered_ends_in_time_and_the_next_one_works(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(servers, "CALL_S", 2.0)
    await give(alice, program("counting", runs))
    hanging = calling(("hang", {}), ("add", {"a": 1, "b": 1}))
    async with model(alice, hanging, completion(["Hm."])):
        frames = await said(await join(v0_talk), "Go.")
    hung, added = results_of(frames)
    assert "has no result" in hung
    assert "didn't answer in time (2 seconds)" in hung
    assert added == "2"
    await until_gone(runs)


async def test_readers_see_the_progress_of_a_call_which_has_more_time_as_long_as_it_reports(
    v0_talk: ConversationRef,
    alice: User,
    join: Join,
    runs: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(servers, "CALL_S", 2.0)
    await give(alice, program("counting", runs))
    end = tmp_path / "end"
    async with model(alice, calling(("tick", {"path": str(end)})), completion(["There."])):
        client = await join(v0_talk)
        await client.send({"type": "message", "text": "Go."})
        call = (await client.until("event", kind="tool_call"))["id"]
        began = asyncio.get_running_loop().time()
        while asyncio.get_running_loop().time() < began + 2.5:
            frame = await client.until("progress")
        end.touch()
        await client.until("event", kind="turn")
    assert {name: frame[name] for name in ("call", "text", "total")} == {
        "call": call,
        "text": "Tile <b>1</b> of the map",
        "total": 9,
    }
    assert frame["done"] > 1
    assert results_of(client.frames) == ["The map is there."]


@pytest.mark.parametrize("way", ["stop", "interrupt"])
async def test_no_program_is_left_when_a_turn_is_ended_in_a_call(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, way: str
) -> None:
    await give(alice, program("counting", runs))
    async with model(alice, calling(("hang", {}))):
        client = await join(v0_talk)
        await client.send({"type": "message", "text": "Go."})
        await client.until("event", kind="tool_call")
        await until_here(lambda: ran(runs) == ["hang"])
        if way == "stop":
            await client.send({"type": "stop"})
        else:
            loop = get_manager().get_agent_session(v0_talk.public_id)
            assert loop is not None
            await loop.interrupt()
        await client.until("event", kind="turn")
    await until_gone(runs)


async def test_a_pause_during_a_call_takes_effect_after_it(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, tmp_path: Path
) -> None:
    await give(alice, program("counting", runs))
    sign = tmp_path / "sign"
    os.mkfifo(sign)
    async with model(alice, calling(("wait", {"path": str(sign)})), completion(["It came."])):
        client = await join(v0_talk)
        await client.send({"type": "message", "text": "Go."})
        await until_here(partial(has_run, runs, 1))
        await client.send({"type": "pause", "id": 1})
        await client.until("ack", id=1)
        await asyncio.to_thread(sign.write_text, "seen")
        await until_paused(client)
        await client.send({"type": "run"})
        await client.until("event", kind="turn")
    assert results_of(client.frames) == ["seen"]
    assert answers_of(client.frames) == ["It came."]
    assert ran(runs) == ["wait"]


async def test_the_same_call_with_the_same_result_ends_a_turn_or_pauses_it(
    talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    async with model(alice, calling(("add", {"a": 1, "b": 1}))):
        client = await join(talk)
        await client.send({"type": "message", "text": "Go."})
        if talk.version == Version.V1:
            end = await client.until("event", kind="turn")
            assert end["text"].startswith("stuck")
        else:
            await until_paused(client)
    assert len(ran(runs)) == repetition.REPEATED_MAX
    assert "it has called `add` 4 times with the same result" in notices_of(client.frames)[-1]


async def test_a_limit_of_steps_ends_a_turn_or_pauses_it_until_it_is_resumed(
    talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    await astore.call(user_settings.change_settings, alice.pk, {"max_iterations": 2}, secrets={})
    numbers = iter(range(100))

    def count(asked: Asked) -> Any:
        return calling(("add", {"a": next(numbers), "b": 1}))

    async with model(alice, count):
        client = await join(talk)
        await client.send({"type": "message", "text": "Go."})
        if talk.version == Version.V1:
            error = await client.until("event", kind="error")
            assert error["event"]["code"] == "MaxIterationsReached"
            assert len(ran(runs)) == 2
            return
        await until_paused(client)
        assert ran(runs) == ["add 0 1", "add 1 1"]
        assert "has taken 2 steps" in notices_of(client.frames)[-1]
        await client.send({"type": "run"})
        await until_paused(client)
    assert len(ran(runs)) == 4


async def test_tools_of_a_v1_start_are_its_conversations(
    alice: User, join: Join, runs: Path, configured: Callable[..., None]
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"])
    config = {"mcpServers": {"mine": {**program("counting", runs), "name": None}}}
    setup = NewSetup(agent={"kind": "Agent", "mcp_config": config})
    talk = await astore.call(agent_setups.create, alice, setup, conversation_id="talk", title="A talk")
    async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["3."])):
        frames = await said(await join(talk), "Add.")
    assert results_of(frames) == ["3"]


async def test_with_accounts_a_program_needs_a_permission(bob: User, accounts: None, runs: Path) -> None:
    talk = await astore.call(lambda: creation.create(bob, conversation_id="talk", version=Version.V0))
    await give(bob, program("counting", runs))
    found = await astore.call(servers.servers_of, talk)
    assert found.servers == ()
    assert "isn't allowed to run programs on this server" in found.notices[0]

    def allow() -> None:
        bob.user_permissions.add(Permission.objects.get(codename="run_tool_programs"))

    await astore.call(allow)
    assert len((await astore.call(servers.servers_of, talk)).servers) == 1


async def test_a_program_gets_none_of_the_servers_keys(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "of-the-server")
    await give(alice, program("counting", runs))
    async with model(alice, calling(("variables", {})), completion(["OK."])):
        frames = await said(await join(v0_talk), "Go.")
    [names] = results_of(frames)
    assert "PYTHONPATH" in names
    assert "SECRET_KEY" not in names
    assert "SECRET_KEY" in os.environ


@pytest.mark.parametrize("kind", ["shttp", "sse"])
async def test_tools_of_a_server_at_an_address_are_called_with_its_key(
    v0_talk: ConversationRef, alice: User, join: Join, kind: str
) -> None:
    async with tool_server(kind, key="sk-of-the-tools") as (url, ran):
        await give(alice, **{f"{kind}_servers": [{"url": url, "api_key": "sk-of-the-tools"}]})
        async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["3."])):
            frames = await said(await join(v0_talk), "Add.")
    assert (results_of(frames), ran) == (["3"], ["add 1 2"])


async def test_a_server_that_rejects_its_key_gets_a_sentence_without_it(
    v0_talk: ConversationRef, alice: User, join: Join
) -> None:
    async with tool_server("shttp", key="sk-of-the-tools") as (url, _):
        await give(alice, shttp_servers=[{"url": f"{url}?token=sk-mine-1234", "api_key": "sk-mine-1234"}])
        async with model(alice, completion(["Hello."])):
            frames = await said(await join(v0_talk), "Add.")
    assert "it rejected the key (401)" in notices_of(frames)[0]
    assert "sk-mine" not in json.dumps(frames)


async def test_with_accounts_an_address_inside_is_not_asked(bob: User, accounts: None) -> None:
    talk = await astore.call(lambda: creation.create(bob, conversation_id="talk", version=Version.V0))
    async with tool_server("shttp") as (url, ran):
        await give(bob, shttp_servers=[{"url": url}])
        tools = await open_tools(await needed(talk), Hands(talk))
        assert tools.tools == {}
        assert "no public address was found for its host" in tools.notices[0]
        await tools.close()
    assert ran == []


@pytest.mark.timeout(600)  # with `--full`
async def test_no_program_and_no_child_of_one_is_left_after_many_interruptions(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path, is_full: bool
) -> None:
    times = 100 if is_full else 2
    await give(alice, program("parent", runs))
    async with model(alice, calling(("hang", {}))):
        client = await join(v0_talk)
        for number in range(times):
            await client.send({"type": "message", "text": "Go."})
            await until_here(partial(has_run, runs, number + 1))
            loop = get_manager().get_agent_session(v0_talk.public_id)
            assert loop is not None
            await loop.interrupt()
            await client.until("event", kind="turn")
    await until_gone(runs)


@pytest.fixture
def careful(request: pytest.FixtureRequest, alice: User, configured: Callable[..., None]) -> ConversationRef:
    """An empty conversation of either wire, whose user wants to approve every call."""
    configured(agent=BUILT_IN_AGENTS["auto"])
    if request.param == Version.V0:
        user_settings.change_settings(alice.pk, {"confirmation_mode": True}, secrets={})
        return creation.create(alice, conversation_id="talk", version=Version.V0, title="A talk")
    setup = NewSetup(confirmation_policy={"kind": "AlwaysConfirm"})
    return agent_setups.create(alice, setup, conversation_id="talk", title="A talk")


async def until_asked(client: Client) -> None:
    """Send a message, and return once the agent asks for an approval."""
    await client.send({"type": "message", "text": "Go."})
    while True:
        changes = (await client.until("conversation"))["changes"]
        if changes.get("loop", {}).get("execution_status") == "waiting_for_confirmation":
            return


both = pytest.mark.parametrize("careful", [Version.V0, Version.V1], indirect=True)


@pytest.mark.no_second_try
@both
async def test_an_approved_call_runs_once_with_the_arguments_that_were_approved(
    careful: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["3."])):
        client = await join(careful)
        await until_asked(client)
        assert ran(runs) == []
        for number in range(3):
            await client.send({"type": "confirm", "id": number, "accept": True})
        await client.until("event", kind="turn")
    assert ran(runs) == ["add 1 2"]
    assert (results_of(client.frames), answers_of(client.frames)) == (["3"], ["3."])


@both
async def test_a_rejected_call_does_not_run_and_the_model_is_told_why(
    careful: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    async with model(alice, calling(("add", {"a": 1, "b": 2})), completion(["OK."])) as asked:
        client = await join(careful)
        await until_asked(client)
        await client.send({"type": "confirm", "accept": False, "reason": "Too easy."})
        await client.until("event", kind="turn")
    assert ran(runs) == []
    assert ("tool", "Too easy.") in told(asked[-1])


async def test_an_approved_call_whose_arguments_held_a_secret_is_not_run_with_its_mask(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    await astore.call(user_settings.change_settings, alice.pk, {"confirmation_mode": True}, secrets={})
    async with model(alice, calling(("delete", {"path": f"/{KEY}"})), completion(["Hm."])):
        client = await join(v0_talk)
        await until_asked(client)
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    assert ran(runs) == []
    assert "held a secret" in results_of(client.frames)[0]
    assert KEY not in json.dumps(client.frames)


async def test_only_risky_calls_wait_where_the_policy_says_so(
    alice: User, join: Join, runs: Path, configured: Callable[..., None]
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"])
    setup = NewSetup(confirmation_policy={"kind": "ConfirmRisky", "confirm_unknown": False})
    talk = await astore.call(agent_setups.create, alice, setup, conversation_id="talk", title="A talk")
    await give(alice, program("counting", runs))
    two = calling(("add", {"a": 1, "b": 2}), ("delete", {"path": "x"}))
    async with model(alice, two, completion(["Done."])):
        client = await join(talk)
        await until_asked(client)
        assert ran(runs) == ["add 1 2"]
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    assert ran(runs) == ["add 1 2", "delete x"]


@both
async def test_calls_that_need_approval_together_wait_for_one_and_run_by_one(
    careful: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    wanted = calling(("add", {"a": 1, "b": 2}), ("sing", {}), ("add", {"a": 3, "b": 4}))
    async with model(alice, wanted, completion(["3 and 7."])) as asked:
        client = await join(careful)
        await until_asked(client)
        assert ran(runs) == []
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    assert ran(runs) == ["add 1 2", "add 3 4"]
    assert [text for role, text in told(asked[1]) if role == "tool"][-2:] == ["3", "7"]
    assert answers_of(client.frames) == ["3 and 7."]


async def test_a_tool_server_gets_the_key_of_each_call(
    v0_talk: ConversationRef, alice: User, join: Join, runs: Path
) -> None:
    await give(alice, program("counting", runs))
    twice = calling(("count", {"number": 0}), ("count", {"number": 1}))
    async with model(alice, twice, completion(["Counted."])):
        await said(await join(v0_talk), "Count.")
    first, second = [uuid.UUID(line.split()[1]) for line in ran(runs)]
    assert first != second

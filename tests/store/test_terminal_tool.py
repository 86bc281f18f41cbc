"""The tool `terminal` of the model agent: real commands, stored as both wires have them."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User

from conversations.models import ConversationRef, Version
from conversations.store import creation
from convserver import configuration
from convserver.variables import ConfigurationError
from sessions_app import astore
from sessions_app.agents.llm.tools import terminal_tool
from sessions_app.agents.sources import BUILT_IN_AGENTS
from sessions_app.loops.manager import close_manager
from sessions_app.sandbox.base import SandboxName
from sessions_app.settings import user_settings
from sessions_app.terminals.kept import LoopTerminal
from sessions_app.workspaces import paths
from tests.conftest import Join
from tests.store.test_llm_tools import results_of, until_asked
from tests.support.people.model_talks import answers_of, events, model, said, told
from tests.support.people.scripted_agent import manager, until_here
from tests.support.servers import sandboxes
from tests.support.servers.model_server import Asked, calling, completion
from tests.support.wires.event_views import called_tool

pytestmark = pytest.mark.one_engine

__all__ = ["manager"]


@pytest.fixture
def sandboxed(configured: Callable[..., None], tmp_path: Path) -> None:
    sandboxes.use(SandboxName.BUBBLEWRAP, configured, tmp_path / "workspaces")


@pytest.fixture
def unconfined(configured: Callable[..., None], tmp_path: Path) -> None:
    sandboxes.use(SandboxName.NONE, configured, tmp_path / "workspaces")


def terminal(command: str, **options: object) -> tuple[str, dict[str, object]]:
    return "terminal", {"command": command, **options}


def payloads(frames: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event["event"] for event in events(frames, kind)]


def called_by_model(asked: Asked) -> list[tuple[str, dict[str, Any]]]:
    """Return the calls that a model is told it has made."""
    return [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for message in asked.body["messages"]
        for call in message.get("tool_calls") or ()
    ]


def marked() -> tuple[str, str]:
    """Return a command that sleeps for very long, and a word that only its processes have."""
    seconds = f"1000.{secrets.randbelow(10**9):09d}"
    return f"sleep {seconds}", seconds


async def test_a_model_runs_a_command_and_reads_its_output_and_how_it_ended(
    talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    command = "mkdir src && cd src && echo made; exec 2>&1; (exit 3)"
    place = f"{await astore.call(paths.home_of, talk)}/src"
    async with model(alice, calling(terminal(command)), completion(["Made."])) as asked:
        frames = await said(await join(talk), "Make it.")
    assert answers_of(frames) == ["Made."]
    assert [each["function"]["name"] for each in asked[0].body["tools"]].count("terminal") == 1
    assert called_by_model(asked[1]) == [terminal(command)]
    role, text = told(asked[1])[-1]
    assert (role, text) == ("tool", f"made\n[exit code 3, working directory {place}]")
    [call], [result] = payloads(frames, "tool_call"), payloads(frames, "tool_result")
    assert called_tool(call) == ("run", {"command": command})
    if talk.version == Version.V0:
        metadata = result["extras"]["metadata"]
        assert (result["observation"], result["content"]) == ("run", "made\n")
    else:
        seen = result["observation"]
        metadata = seen["metadata"]
        assert (call["tool_name"], call["action"]["kind"]) == ("terminal", "TerminalAction")
        assert (seen["kind"], seen["command"], seen["exit_code"]) == ("TerminalObservation", command, 3)
        assert seen["content"] == [{"type": "text", "text": "made\n"}]
    assert (metadata["exit_code"], metadata["working_dir"]) == (3, place)


async def test_the_terminal_lives_from_turn_to_turn_and_ends_with_the_loop(
    v0_talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    command, word = marked()
    client = await join(v0_talk)
    first = calling(terminal(f"cd /tmp; x=1; {command} &"))
    async with model(alice, first, completion(["One."])):
        await said(client, "Begin.")
    assert sandboxes.running(word)
    async with model(alice, calling(terminal("pwd; echo $x; jobs")), completion(["Two."])):
        frames = await said(client, "Go on.")
    assert results_of(frames)[0].startswith("/tmp\n1\n[1]+  Running")
    await close_manager()
    assert sandboxes.running(word) == []


async def test_a_command_that_takes_long_is_read_typed_into_and_interrupted(
    talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    calls = [
        terminal("read x; echo got $x; read y", timeout=0.2),
        terminal("yes", is_input=True),
        terminal("C-c", is_input=True, timeout=20),
    ]
    async with model(alice, *map(calling, calls), completion(["Done."])) as asked:
        frames = await said(await join(talk), "Ask.")
    late, typed, ended = payloads(frames, "tool_result")
    assert called_by_model(asked[-1]) == calls
    assert results_of(frames)[1].startswith("got yes\n")
    if talk.version == Version.V0:
        codes = [each["extras"]["metadata"]["exit_code"] for each in (late, typed, ended)]
        assert payloads(frames, "tool_call")[1]["args"]["is_input"] is True
    else:
        codes = [each["observation"]["exit_code"] for each in (late, typed, ended)]
        assert [each["observation"]["timeout"] for each in (late, typed, ended)] == [True, True, False]
        actions = [each["action"] for each in payloads(frames, "tool_call")]
        assert [each["is_input"] for each in actions] == [False, True, True]
        assert actions[0]["timeout"] == 0.2
    assert codes == [-1, -1, 130]


async def test_output_is_shown_while_a_command_runs_and_a_stop_interrupts_it(
    v0_talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    command, word = marked()
    client = await join(v0_talk)
    async with model(alice, calling(terminal(f"echo begun; {command}")), completion(["Done."])):
        await client.send({"type": "message", "text": "Go."})
        progress = await client.until("progress")
        assert progress["text"] == "begun\n"
        await client.send({"type": "stop"})
        await client.until("event", kind="turn")
    await until_here(lambda: not sandboxes.running(word))


async def test_a_command_ends_with_the_time_of_its_turn(
    v0_talk: ConversationRef, alice: User, join: Join, sandboxed: None
) -> None:
    command, word = marked()
    reports: list[str] = []

    async def report(text: str, *, done: float | None, total: float | None) -> None:
        reports.append(text)

    kept = LoopTerminal(v0_talk)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(1):
            await terminal_tool.run(kept.opened, {"command": f"echo begun; {command}"}, report)
    assert reports[0] == "begun\n"
    assert sandboxes.running(word) == []
    outcome = await terminal_tool.run(kept.opened, {"command": "", "reset": True}, report)
    assert (outcome.text, outcome.exit_code) == (terminal_tool.RESET, 0)
    await kept.close()


async def test_without_a_sandbox_every_command_asks_first(
    v0_talk: ConversationRef, alice: User, join: Join, unconfined: None
) -> None:
    async with model(alice, calling(terminal("echo hi")), completion(["Done."])):
        client = await join(v0_talk)
        await until_asked(client)
        assert results_of(client.frames) == []
        await client.send({"type": "confirm", "accept": True})
        await client.until("event", kind="turn")
    assert results_of(client.frames) == ["hi\n"]


async def test_trusted_commands_run_without_approval_and_others_wait(
    configured: Callable[..., None], alice: User, join: Join, sandboxed: None
) -> None:
    configured(agent=BUILT_IN_AGENTS["auto"], commands_never_asked=(("echo",), ("git", "status")))
    await astore.call(user_settings.change_settings, alice.pk, {"confirmation_mode": True}, secrets={})
    talk = await astore.call(creation.create, alice, conversation_id="talk", version=Version.V0, title="A")
    answers = [calling(terminal("echo hi")), calling(terminal("echo hi; touch bad")), completion(["Done."])]
    async with model(alice, *answers):
        client = await join(talk)
        await until_asked(client)
        assert results_of(client.frames) == ["hi\n"]
        await client.send({"type": "confirm", "accept": False})
        await client.until("event", kind="turn")


@pytest.mark.parametrize(
    ("command", "is_trusted"),
    [
        ("git status", True),
        ("git  'status' --short", True),
        ("git stash", False),
        ("git", False),
        ("gitx status", False),
        ("echo 'a b' \"c\"", True),
        ("A=1 echo a", False),
        ("echo a; rm b", False),
        ("echo a | sh", False),
        ("echo a & rm b", False),
        ("echo a && rm b", False),
        ("echo $(rm b)", False),
        ("echo `rm b`", False),
        ("echo a > b", False),
        ("echo < b", False),
        ("echo <(rm b)", False),
        ("echo a\nrm b", False),
        ("echo 'a", False),
        ("", True),
        ("  ", True),
    ],
)
def test_only_plain_commands_can_be_trusted(
    configured: Callable[..., None], command: str, is_trusted: bool
) -> None:
    configured(commands_never_asked=(("git", "status"), ("echo",)))
    assert terminal_tool.never_asks({"command": command}) is is_trusted


def test_what_is_typed_asks_but_an_interrupt_does_not(configured: Callable[..., None]) -> None:
    configured(commands_never_asked=(("echo",),))
    assert not terminal_tool.never_asks({"command": "echo a", "is_input": True})
    assert not terminal_tool.never_asks({"command": "echo a", "reset": True})
    assert not terminal_tool.never_asks({"command": "", "reset": True})
    assert terminal_tool.never_asks({"command": "C-c", "is_input": True})
    assert not terminal_tool.never_asks({"command": "C-c"})


def test_trusted_commands_are_read_as_words() -> None:
    read = configuration.read({"CONVSERVER_COMMANDS_NEVER_ASKED": "git status, ls,,'my tool' --dry"})
    assert read.commands_never_asked == (("git", "status"), ("ls",), ("my tool", "--dry"))
    with pytest.raises(ConfigurationError, match="CONVSERVER_COMMANDS_NEVER_ASKED"):
        configuration.read({"CONVSERVER_COMMANDS_NEVER_ASKED": "echo 'a"})

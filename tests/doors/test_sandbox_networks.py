"""Who gives a conversation a network: the operator by a setting, and the owner by a switch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
from django.contrib.auth.models import User

from conversations.events import ConversationRef
from convserver.configuration import read
from convserver.variables import ConfigurationError
from convserver.variables.sandboxes import SandboxSettings
from sessions_app import astore
from sessions_app.sandbox.base import SandboxName
from sessions_app.sandbox_network.allowed import has_network
from sessions_app.sandbox_network.policy import NetworkPolicy
from sessions_app.settings import agent_setups, run_options
from sessions_app.shell_commands.kept import CommandBounds, HistoryKey, KeptCommands, NewCommand
from sessions_app.terminals.terminal import Terminal
from tests.conftest import once
from tests.support.people.commands import require_bubblewrap
from tests.support.people.web_browser import Browser, words

OPTIONS = "/api/native/conversations/talk/options"
PAGE = "/c/talk/network"
PROXY = "http://127.0.0.1:3128"


@once
async def test_the_operator_and_the_owner_decide(
    conversation: ConversationRef,
    rest: httpx.AsyncClient,
    configured: Callable[..., None],
    subtests: pytest.Subtests,
) -> None:
    for policy, chosen, given in (
        ("off", None, False),
        ("off", True, False),
        ("off", False, False),
        ("ask", None, False),
        ("ask", True, True),
        ("ask", False, False),
        ("allowed", None, True),
        ("allowed", True, True),
        ("allowed", False, False),
    ):
        with subtests.test(policy=policy, chosen=chosen):
            configured(sandbox_settings=SandboxSettings(network=NetworkPolicy.ALLOWED))
            answer = await rest.patch(OPTIONS, json={"network": chosen})
            assert (answer.status_code, answer.json()["network"]) == (200, chosen)
            configured(sandbox_settings=SandboxSettings(network=NetworkPolicy(policy)))
            assert await astore.call(has_network, conversation) is given


@once
async def test_where_the_operator_allows_none_the_switch_is_refused_with_a_sentence(
    conversation: ConversationRef, rest: httpx.AsyncClient, visitor: Browser
) -> None:
    answer = await rest.patch(OPTIONS, json={"network": True})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid")
    assert "This server gives sandboxes no network." in answer.text
    assert "CONVSERVER_SANDBOX_NETWORK" in words(await visitor.get(PAGE))
    answer = await visitor.send(PAGE, {"network": "True"}, page=PAGE)
    assert (answer.status_code, "gives sandboxes no network" in words(answer)) == (400, True)
    for no_choice in ("yes", 1, "True"):
        assert (await rest.patch(OPTIONS, json={"network": no_choice})).status_code == 400
    assert (await rest.get(OPTIONS)).json()["network"] is None


@once
async def test_the_owner_switches_the_network_on_its_page(
    conversation: ConversationRef, visitor: Browser, configured: Callable[..., None]
) -> None:
    configured(sandbox_settings=SandboxSettings(network=NetworkPolicy.ASK))
    for given, stored in (("True", True), ("False", False), ("", None)):
        answer = await visitor.send(PAGE, {"network": given}, page=PAGE)
        assert answer.status_code == 302
        assert (await astore.call(run_options.options_of, conversation)).network is stored
    assert "The server's default: off" in words(await visitor.get(PAGE))


@once
async def test_a_fork_has_no_network_of_its_origin(
    conversation: ConversationRef, alice: User, rest: httpx.AsyncClient, configured: Callable[..., None]
) -> None:
    configured(sandbox_settings=SandboxSettings(network=NetworkPolicy.ASK))
    await rest.patch(OPTIONS, json={"network": True, "max_cost": 1})
    copy = await astore.call(lambda: agent_setups.fork(alice, conversation))
    options = await astore.call(run_options.options_of, copy)
    assert (options.network, options.max_cost) == (None, 1)


def test_docker_and_a_network_are_no_configuration() -> None:
    assert read({}).sandbox_settings.network == NetworkPolicy.OFF
    assert read({"CONVSERVER_SANDBOX_NETWORK": "ask"}).sandbox_settings.network == NetworkPolicy.ASK
    with pytest.raises(ConfigurationError, match="it must be one of: off, ask, allowed"):
        read({"CONVSERVER_SANDBOX_NETWORK": "on"})
    with pytest.raises(ConfigurationError, match="containers of Docker get no network"):
        read({"CONVSERVER_SANDBOX": "docker", "CONVSERVER_SANDBOX_NETWORK": "ask"})


@once
async def test_a_switch_counts_for_the_next_terminal_and_the_running_one_says_so(
    conversation: ConversationRef, configured: Callable[..., None], tmp_path: Path
) -> None:
    require_bubblewrap()
    configured(
        sandbox=SandboxName.BUBBLEWRAP,
        workspaces=tmp_path / "all",
        sandbox_settings=SandboxSettings(network=NetworkPolicy.ASK),
    )
    terminal = await Terminal.opened(conversation)
    try:

        async def said() -> str:
            result = await terminal.run("echo proxy=$https_proxy", timeout_s=60, on_output=lambda _: None)
            return result.output

        assert await said() == "proxy=\n"
        await astore.call(run_options.change, conversation, {"network": True})
        noticed = await said()
        assert noticed.startswith("[The network of this conversation was switched on. This shell")
        assert noticed.endswith("proxy=\n")
        assert await said() == "proxy=\n"
        await terminal.reset()
        assert (await said()).endswith(f"proxy={PROXY}\n")
        await astore.call(run_options.change, conversation, {"network": False})
        assert "was switched off" in await said()
        await terminal.reset()
        assert (await said()).endswith("proxy=\n")
    finally:
        await terminal.close()


async def _never() -> str:
    """Return why a client may run no more commands, which does not happen."""
    await asyncio.Event().wait()
    return ""


@once
async def test_commands_of_clients_have_the_network_of_their_conversation(
    conversation: ConversationRef, alice: User, configured: Callable[..., None], tmp_path: Path
) -> None:
    require_bubblewrap()
    configured(sandbox=SandboxName.BUBBLEWRAP, workspaces=tmp_path / "all")
    commands = KeptCommands(CommandBounds())
    for policy, proxy in ((NetworkPolicy.OFF, ""), (NetworkPolicy.ALLOWED, PROXY)):
        configured(sandbox_settings=SandboxSettings(network=policy))
        new = NewCommand("echo proxy=$https_proxy", None, 60)
        command = await commands.start(HistoryKey(alice.pk, conversation.pk), conversation, _never, new)
        assert (await command.end()).stdout == f"proxy={proxy}\n"

"""The test of a tool server's connection: its tools, or what is wrong, on the page of settings."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Permission, User

from convserver.api.v1.agent.settings import tool_servers as v1_servers
from convserver.web.settings_pages import stored_servers, tool_servers
from sessions_app import astore
from sessions_app.agents.llm.tools import connections, trial
from sessions_app.agents.llm.tools.servers import ToolServer, ToolTransport
from sessions_app.outbound.model_trial import TRIALS_MAX, TrialUnderWay
from tests.store.test_llm_tools import give, is_gone, program
from tests.store.test_tool_servers import scripted, tool
from tests.support.people.scripted_agent import until_here
from tests.support.people.web_browser import Browser, words
from tests.support.servers.tool_server import tool_server

pytestmark = pytest.mark.one_engine

ADDRESS = "/settings/tools/test"


async def tried(visitor: Browser, user: User, number: int = 0) -> Any:
    """Test one of the user's tool servers; return the page."""
    listed = await astore.call(stored_servers.servers_of, user.pk)
    assert listed is not None
    return await visitor.send(ADDRESS, {"server": listed[number].reference}, page="/settings")


async def test_a_program_that_works_lists_its_tools_with_their_descriptions_and_ends(
    visitor: Browser, alice: User, tmp_path: Path
) -> None:
    odd = tool("fly", inputSchema=[])
    await give(alice, scripted(tmp_path, tool(description="Looks at <b>a map</b>."), odd))
    answer = await tried(visitor, alice)
    assert answer.status_code == 200
    shown = words(answer)
    assert "The connection works. Models are offered 1 tool: look Looks at <b>a map</b>." in shown
    assert "can't be offered to a model: `fly` (its schema is no JSON object)" in shown
    assert "<b>a map" not in answer.text
    assert "of-the-maps-1234" not in answer.text


async def test_a_server_at_an_address_lists_its_tools(
    visitor: Browser, alice: User, subtests: pytest.Subtests
) -> None:
    for kind in ("shttp", "sse"):
        with subtests.test(kind):
            async with tool_server(kind, key="sk-of-the-tools") as (url, ran):
                await give(alice, **{f"{kind}_servers": [{"url": url, "api_key": "sk-of-the-tools"}]})
                assert "2 tools: add Add two numbers. halve" in words(await tried(visitor, alice))
                await give(alice, **{f"{kind}_servers": [{"url": url, "api_key": "sk-wrong-1234"}]})
                refused = await tried(visitor, alice)
            assert "it rejected the key (401)" in words(refused)
            assert ("sk-wrong-1234" in refused.text, ran) == (False, [])


async def test_a_server_of_a_v1_client_is_tested_with_all_that_opens_it(alice: User) -> None:
    headers = {"X-Key": "sk-of-the-tools", "X-Team": "maps"}
    entry = {"url": "https://maps.example.org/mcp", "headers": headers, "enabled": False}
    await astore.call(v1_servers.change, alice.pk, {"maps": entry})
    await astore.call(v1_servers.change, alice.pk, {"files": {"command": "npx", "cwd": "/srv/files"}})
    listed = await astore.call(stored_servers.servers_of, alice.pk)
    assert listed is not None
    found = [await astore.call(stored_servers.tool_server, alice.pk, each.reference) for each in listed]
    assert [(each.name, dict(each.headers), each.folder) for each in found if each is not None] == [
        ("maps", headers, ""),
        ("files", {}, "/srv/files"),
    ]


async def test_a_program_that_ends_shows_its_last_lines_escaped_and_without_its_keys(
    visitor: Browser, alice: User, tmp_path: Path
) -> None:
    trace = "Traceback (most recent call last):\n  <script>KeyError: 'of-the-maps-1234'\n"
    await give(alice, scripted(tmp_path, stderr=trace, exit=1))
    answer = await tried(visitor, alice)
    shown = words(answer)
    assert "The tool server `maps` can't be used: it has ended." in shown
    assert "Traceback (most recent call last): <script>KeyError: '***'" in shown
    assert "<script>KeyError" not in answer.text
    assert "of-the-maps-1234" not in answer.text


async def test_a_server_that_is_gone_or_not_there_is_told(visitor: Browser, alice: User) -> None:
    await give(alice, {**program("gone"), "command": "/nowhere/at/all"})
    assert "there is no such program" in words(await tried(visitor, alice))
    answer = await visitor.send(ADDRESS, {"server": "gone"}, page="/settings")
    assert answer.status_code == 302
    assert tool_servers.GONE in words(await visitor.get("/settings"))


async def test_a_program_that_never_answers_is_ended_in_time(
    visitor: Browser, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECT_S", 0.2)
    await give(alice, program("silent"))
    assert "it didn't answer in time" in words(await tried(visitor, alice))


async def test_few_tests_are_under_way_at_a_time_and_one_of_each_user(
    alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go = asyncio.Event()

    async def held(server: ToolServer, seconds: float) -> trial.ToolTrial:
        await let_go.wait()
        return trial.ToolTrial()

    monkeypatch.setattr(trial, "_tried", held)
    server = ToolServer(name="maps", way=ToolTransport.STREAMABLE, url="https://maps.example.org/mcp")
    first = asyncio.create_task(trial.try_server(1, server))
    await until_here(lambda: len(trial._under_way) == 1)
    with pytest.raises(TrialUnderWay):
        await trial.try_server(1, server)
    others = [asyncio.create_task(trial.try_server(2 + each, server)) for each in range(TRIALS_MAX - 1)]
    await until_here(lambda: len(trial._under_way) == TRIALS_MAX)
    with pytest.raises(TrialUnderWay):
        await trial.try_server(9, server)
    let_go.set()
    await asyncio.gather(first, *others)
    await trial.try_server(1, server)


async def test_with_accounts_a_program_is_tested_for_those_alone_who_may_run_programs(
    accounts: None, visitor: Browser, bob: User, alice: User, tmp_path: Path
) -> None:
    runs = tmp_path / "runs"
    await give(bob, program("counting", runs))
    await visitor.log_in(bob)
    assert "isn't allowed to run programs" in words(await tried(visitor, bob))
    assert not runs.exists()
    permission = await astore.call(Permission.objects.get, codename="run_tool_programs")
    await astore.call(bob.user_permissions.add, permission)
    assert "Models are offered" in words(await tried(visitor, bob))
    await until_here(lambda: all(is_gone(int(line.split()[0])) for line in runs.read_text().splitlines()))
    listed = await astore.call(stored_servers.servers_of, bob.pk)
    assert listed is not None
    await visitor.log_in(alice)
    answer = await visitor.send(ADDRESS, {"server": listed[0].reference}, page="/settings")
    assert answer.status_code == 302
    assert tool_servers.GONE in words(await visitor.get("/settings"))

"""The tools that a model is offered, and the configurations that name their servers."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from sessions_app.agents.llm.tools import calls, offers, repetition, servers
from sessions_app.agents.llm.tools.offers import Listed, offered
from sessions_app.agents.llm.tools.repetition import Repetition
from sessions_app.agents.llm.tools.servers import ToolTransport


def listed(name: str, schema: dict[str, Any] | None = None, description: str = "") -> Listed:
    return Listed(name=name, description=description, schema=schema or {"type": "object"})


def test_names_are_those_that_every_provider_takes_and_no_two_are_the_same() -> None:
    tools, notices = offered([("a b", [listed("read.file"), listed("run")]), ("b", [listed("read file")])])
    assert {name: (tool.server, tool.own_name) for name, tool in tools.items()} == {
        "read_file": (0, "read.file"),
        "a_b_run": (0, "run"),
        "b_read_file": (1, "read file"),
    }
    assert notices == []


def test_equal_tools_of_equal_servers_are_numbered() -> None:
    tools, _ = offered([("a", [listed("x")]), ("a", [listed("x")]), ("a", [listed("x")])])
    assert list(tools) == ["x", "a_x", "2_a_x"]


def test_arguments_have_names_that_every_provider_takes_and_reach_the_server_under_its_own() -> None:
    long = "a" * 70
    odd = {"$filter": {"type": "string"}, "_filter": {}, "größe": {}, long: {}, "": {}, "a.b-c": {}}
    schema = {"type": "object", "properties": odd, "required": ["$filter", "_filter"]}
    tools, _ = offered([("a", [listed("x", schema)])])
    names = list(tools["x"].schema["properties"])
    assert names == ["_filter_2", "_filter", "gr__e", long[:64], "_", "a.b-c"]
    assert tools["x"].schema["required"] == ["_filter_2", "_filter"]
    called = calls.wanted("x", json.dumps({"_filter_2": "a eq 1", "_filter": 2, "_": 3}), tools)
    assert called.arguments == {"$filter": "a eq 1", "_filter": 2, "": 3}
    assert called.tool is tools["x"]


@pytest.mark.parametrize("name", ["{:x}", "{:x}é"])
def test_the_names_of_thousands_of_arguments_take_no_time_of_the_server(name: str) -> None:
    schema = {"type": "object", "properties": {name.format(number): {} for number in range(900)}}
    many = [{"name": f"x{number}", "inputSchema": schema} for number in range(40)]
    began = time.process_time()
    tools, _ = offered([("a", offers.listed(many)[0])])
    assert time.process_time() - began < 0.5
    assert len(tools["x0"].schema["properties"]) == 900


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "description": "x" * offers.SCHEMA_MAX_CHARS},
        eval("{'a': " * 50 + "1" + "}" * 50),
    ],
    ids=["long", "deep"],
)
def test_a_schema_that_is_too_long_or_too_deep_is_left_out(schema: dict[str, Any]) -> None:
    tools, left_out = offers.listed([{"name": "x", "inputSchema": schema}, {"name": "y"}])
    assert [each.name for each in tools] == ["y"]
    assert left_out == ["`x` (its schema is too long or too deep)"]


def test_no_more_tools_are_offered_than_a_model_takes() -> None:
    tools, notices = offered([("a", [listed(f"t{number}") for number in range(200)])])
    assert (len(tools), len(notices)) == (offers.TOOLS_MAX, 1)


def test_servers_are_read_in_the_form_of_either_wire() -> None:
    stdio = {"name": "files", "command": "npx", "args": ["-y", "files"], "env": {"A": "b"}}
    v0 = {"shttp_servers": ["https://a.example/mcp"], "sse_servers": [], "stdio_servers": [stdio]}
    page, files = servers.of_settings(v0)
    assert (page.name, page.way, page.headers) == ("a.example", ToolTransport.STREAMABLE, ())
    assert (files.command, files.environment) == (("npx", "-y", "files"), (("A", "b"),))
    v1 = {"mcpServers": {"s": {"url": "https://a.example/sse", "headers": {"x-key": "k"}, "timeout": 5}}}
    [server] = servers.of_agent(v1)
    assert (server.name, server.way, server.headers, server.call_s) == (
        "s",
        ToolTransport.SSE,
        (("x-key", "k"),),
        5.0,
    )


@pytest.mark.parametrize("config", [None, [], {"mcpServers": 3}, {"stdio_servers": [1, {}]}, {"x": {"y": 1}}])
def test_what_is_no_configuration_names_no_usable_server(config: object) -> None:
    found = [*servers.of_settings(config), *servers.of_agent(config)]
    assert all(server.command in (("",), ()) for server in found)


def test_what_is_shown_of_a_server_holds_no_key() -> None:
    [server] = servers.of_settings({"shttp_servers": [{"url": "https://a/?k=sk-1", "api_key": "sk-2"}]})
    assert "sk-" not in repr(server)


def test_calls_that_take_turns_are_noticed_too() -> None:
    calls = Repetition(now=lambda: 0.0)
    names = ("look", "wait") * repetition.REPEATED_MAX
    assert [calls.is_endless(name, {}, "nothing") for name in names] == [*[False] * 6, True, True]


def test_the_same_call_with_the_same_result_is_noticed_unless_it_waits_between() -> None:
    now = [0.0]
    calls = Repetition(now=lambda: now[0])
    quick = [calls.is_endless("look", {"at": 1}, "nothing") for _ in range(repetition.REPEATED_MAX)]
    assert quick == [False, False, False, True]
    calls = Repetition(now=lambda: now[0])
    for _ in range(10):
        now[0] += repetition.POLLED_S
        assert not calls.is_endless("look", {"at": 1}, "nothing")
